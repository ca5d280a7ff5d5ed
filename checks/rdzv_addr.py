"""The rendezvous address."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import is_loopback, owners, parse
from netdoctor.checks._hosts_file import rewrite
from netdoctor.checks._majority import majority
from netdoctor.checks._words import is_host_name, listing, quoted
from netdoctor.facts.net import Lookup, NetFacts, ResolveFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    unknown,
)


@check(
    explains=["rdzv.reach"],
    source="https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",
)
def rdzv_addr(
    job: Job, resolves: Mapping[str, ResolveFacts], nets: Mapping[str, NetFacts]
) -> Iterator[Finding]:
    """MASTER_ADDR means rank 0's node, on every node.

    Looks at:
        What MASTER_ADDR resolves to on each node, and which listed node has that address. Without a
        MASTER_ADDR: which address the first node would be given.

    Matters because:
        Only rank 0 opens the store; it listens on all addresses and never notices a wrong MASTER_ADDR. Every
        other rank then waits for "The client socket has timed out". With a loopback address each node waits
        for itself.

    Fix:
        Set MASTER_ADDR to the first node's address on the job's network, the same for all ranks.
    """
    master = job.master_node
    given = job.master_addr
    if not given:
        address = job.data_addresses.get(master or "")
        if master and address:
            yield ok(CLUSTER, f"MASTER_ADDR is not set; the first node is {master} at {address}")
        return
    if len(nets) < 2:
        return
    literal = parse(given)
    if literal is not None:
        yield from _literal(given, literal.is_loopback, nets, job)
        return
    yield from _name(given, resolves, nets, job)


def _literal(given: str, loopback: bool, nets: Mapping[str, NetFacts], job: Job) -> Iterator[Finding]:
    if loopback:
        yield _wrong(
            "master-loopback",
            "MASTER_ADDR is a loopback address: each node would wait for itself ({nodes})",
            f"MASTER_ADDR={given} means another machine on every node",
            nets,
            job,
        )
        return
    having = owners(nets, given)
    if not having:
        yield _wrong(
            "master-foreign",
            "MASTER_ADDR belongs to none of the listed nodes ({nodes})",
            f"no listed node has the address {given}",
            nets,
            job,
        )
    elif len(having) > 1:
        yield _wrong(
            "master-duplicate",
            "MASTER_ADDR is an address of several nodes ({nodes})",
            f"{listing(having)} all have the address {given}",
            having,
            job,
        )
    elif job.master_node and having[0] != job.master_node:
        yield _elsewhere(given, having[0], job)


def _name(
    given: str, resolves: Mapping[str, ResolveFacts], nets: Mapping[str, NetFacts], job: Job
) -> Iterator[Finding]:
    leads: dict[str, str] = {}
    first: dict[str, str] = {}
    for node, facts in resolves.items():
        found = _lookup(given, facts)
        if found is None:
            yield unknown(node, f"MASTER_ADDR={given} was not looked up here")
        elif found.error or not found.addresses:
            yield _unresolved(node, given, found, job)
        elif all(map(is_loopback, found.addresses)):
            # On its own node the name may be loopback: rank 0's client reaches its own server all the same.
            if node != job.master_node:
                yield _loops(node, given, found, job)
        else:
            address = next(one for one in found.addresses if not is_loopback(one))
            having = owners(nets, address)
            first[node] = address
            # Two addresses of one node are the same answer.
            leads[node] = having[0] if len(having) == 1 else address
    agreed = majority(leads)
    if agreed.tie or not leads:
        for node in leads:
            yield _differs(node, given, first[node], None, job)
        return
    for node in agreed.minority:
        yield _differs(node, given, first[node], agreed.value, job)
    target = str(agreed.value)
    if target in nets:
        if job.master_node and target != job.master_node:
            yield _elsewhere(given, target, job)
    else:
        address = next(first[node] for node, one in leads.items() if one == target)
        having = owners(nets, address)
        yield _wrong(
            "master-duplicate" if having else "master-foreign",
            "MASTER_ADDR is an address of several nodes ({nodes})"
            if having
            else "MASTER_ADDR belongs to none of the listed nodes ({nodes})",
            f"{given} resolves to {address}, which "
            + (f"{listing(having)} all have" if having else "no listed node has"),
            having or nets,
            job,
        )


def _lookup(name: str, facts: ResolveFacts) -> Lookup | None:
    return next((one for one in (*facts.peers, facts.own) if one.name == name), None)


def _set(job: Job) -> tuple[Fix, ...]:
    address = job.data_addresses.get(job.master_node or "")
    if not address or is_loopback(address):
        return ()
    return (
        Fix(
            text=f"use the address of {job.master_node}, for all ranks",
            commands=(Command(run_on="job", shell=f"export MASTER_ADDR={quoted(address)}"),),
            effect="next launch",
            persistent=False,
        ),
    )


def _evidence(job: Job, output: str) -> tuple[Evidence, ...]:
    where = job.env_from.get("MASTER_ADDR", "the job's environment")
    seen = Evidence(kind="file", where="control", what=where, output=f"MASTER_ADDR={job.master_addr}")
    return (seen, Evidence(kind="probe", where="control", what="addresses of the nodes", output=output))


def _expected(job: Job) -> str:
    address = job.data_addresses.get(job.master_node or "")
    return f"{job.master_node} ({address})" if address else str(job.master_node)


def _wrong(
    key: str, title: str, summary: str, nodes: Mapping[str, NetFacts] | tuple[str, ...], job: Job
) -> Finding:
    return fail(
        CLUSTER,
        summary,
        observed=str(job.master_addr),
        expected=_expected(job),
        expected_from=ExpectedFrom.CONFIG,
        evidence=_evidence(job, summary),
        cause=CauseHint(key=key, title=title, culprits=tuple(nodes), fixes=_set(job)),
    )


def _elsewhere(given: str, node: str, job: Job) -> Finding:
    return fail(
        node,
        f"MASTER_ADDR={given} is this node, but rank 0 runs on {job.master_node}",
        observed=node,
        expected=_expected(job),
        expected_from=ExpectedFrom.CONFIG,
        evidence=_evidence(job, f"{given} is {node}"),
        cause=CauseHint(
            key="master-not-first",
            title="MASTER_ADDR names {nodes}, which is not the first node of the list",
            culprits=(node,),
            fixes=(
                *_set(job),
                Fix(text=f"or put {node} first in the hosts file", effect="next launch"),
            ),
        ),
    )


def _unresolved(node: str, given: str, found: Lookup, job: Job) -> Finding:
    return fail(
        node,
        f"cannot resolve MASTER_ADDR={given}: {found.error or 'no address'}",
        observed=found.error or "no address",
        expected=_expected(job),
        expected_from=ExpectedFrom.CONFIG,
        evidence=_evidence(job, f"{node}: {found.error or 'no address'}"),
        cause=CauseHint(
            key="master-unresolved",
            title="{nodes} cannot resolve MASTER_ADDR",
            culprits=(node,),
            fixes=(*_set(job), *_entry(node, given, job)),
        ),
    )


def _loops(node: str, given: str, found: Lookup, job: Job) -> Finding:
    said = listing(found.addresses)
    return fail(
        node,
        f"resolves MASTER_ADDR={given} to {said}, which is itself",
        observed=said,
        expected=_expected(job),
        expected_from=ExpectedFrom.CONFIG,
        evidence=_evidence(job, f"{node}: {said}"),
        cause=CauseHint(
            key="master-loopback",
            title="MASTER_ADDR is a loopback address on {nodes}: it would wait for itself",
            culprits=(node,),
            fixes=(*_set(job), *_entry(node, given, job)),
        ),
    )


def _differs(node: str, given: str, address: str, usual: str | None, job: Job) -> Finding:
    than = f"; most nodes mean {usual}" if usual else "; the nodes do not agree"
    return fail(
        node,
        f"resolves MASTER_ADDR={given} to {address}{than}",
        observed=address,
        expected=usual or "the same on all nodes",
        expected_from=ExpectedFrom.PEERS,
        evidence=_evidence(job, f"{node}: {address}"),
        cause=CauseHint(
            key="master-differs",
            title="{nodes} take{s} MASTER_ADDR for another machine than the others do",
            culprits=(node,),
            fixes=(*_set(job), *_entry(node, given, job)),
        ),
    )


def _entry(node: str, given: str, job: Job) -> tuple[Fix, ...]:
    address = job.data_addresses.get(job.master_node or "", "")
    shell = rewrite({given: address}) if is_host_name(given) and address else None
    if shell is None:
        return ()
    return (
        Fix(
            text="or give the name its address in /etc/hosts there",
            commands=(Command(run_on=node, shell=shell),),
            root=True,
            effect="next launch",
        ),
    )
