"""The rendezvous address."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.addresses import holders, is_loopback, owners, parse
from netdoctor.checks._shared.hosts_file import entries
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.text import listing, quoted
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CONFIG,
    CONTROL,
    LIKELY,
    PEERS,
    Cause,
    Expected,
    Finding,
    Fix,
    Status,
    in_job,
    ok,
    seen,
    skip,
    unknown,
)

LOOPBACK = Cause(
    "master-loopback", "MASTER_ADDR is a loopback address: each node would wait for itself ({nodes})"
)
LOOPBACK_THERE = Cause(
    "master-loopback", "MASTER_ADDR is a loopback address on {nodes}: it would wait for itself"
)
FOREIGN = Cause("master-foreign", "MASTER_ADDR is not an address of any listed node ({nodes})")
SHARED = Cause("master-duplicate", "MASTER_ADDR is an address of several nodes ({nodes})")
NOT_FIRST = Cause("master-not-first", "MASTER_ADDR names {nodes}, which is not the first node of the list")
UNRESOLVED = Cause("master-unresolved", "{nodes} cannot resolve MASTER_ADDR")
BACKEND = "PET_RDZV_BACKEND"  # what torchrun reads for --rdzv-backend
DIFFERS = Cause("master-differs", "MASTER_ADDR is another machine on {nodes} than on the others")


@check(
    explains=["rdzv.reach"],
    source="https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",
)
def rdzv_addr(
    job: Job, resolves: Mapping[str, ResolveFacts], nets: Mapping[str, NetFacts]
) -> Iterator[Finding]:
    """MASTER_ADDR is rank 0's node, on every node.

    Looks at:
        What MASTER_ADDR resolves to on each node, and which listed node has that address. Without
        MASTER_ADDR: the address that the first node would be given.

    Matters because:
        Only rank 0 opens the store. It listens on all addresses and never notices a wrong MASTER_ADDR.
        Every other rank then waits until "The client socket has timed out". With a loopback address each
        node waits for itself.

    Fix:
        Set MASTER_ADDR to the first node's address on the job's network, the same for all ranks.
    """
    master, given = job.master_node, job.master_addr
    address = job.data_addresses.get(master or "")
    if given:
        if len(nets) > 1:
            literal = parse(given) is not None
            yield from _belongs(given, nets, job) if literal else _name(given, resolves, nets, job)
    elif master and address:
        yield ok(CLUSTER, f"MASTER_ADDR is not set; the first node is {master} at {address}")
    elif master in nets:
        yield unknown(CLUSTER, f"MASTER_ADDR is not set, and the address of {master} is not known")
    else:
        yield skip(f"MASTER_ADDR is not set, and {master or 'the first node'} gave no answer")


def _belongs(address: str, nets: Mapping[str, NetFacts], job: Job) -> Iterator[Finding]:
    """Whether the address that MASTER_ADDR is, or that its name leads to, is the first node's."""
    given = str(job.master_addr)
    having = owners(nets, address)
    if len(having) == 1:
        (node,) = having
        if job.master_node and node != job.master_node:
            yield _of_another_node(node, job)
        return
    who = f"{listing(having)} all have" if having else "no listed node has"
    cause, summary = SHARED if having else FOREIGN, f"{who} the address {given}"
    if is_loopback(address):
        cause, summary = LOOPBACK, f"MASTER_ADDR={given} is another machine on every node"
    elif address != given:
        summary = f"{given} resolves to {address}, which {who}"
    yield _wrong(job, cause, summary, given, summary, at=CLUSTER, culprits=having or tuple(nets))


def _of_another_node(node: str, job: Job) -> Finding:
    """MASTER_ADDR is a listed node and not the first. torchrun's c10d lets any node host the store, and its
    static rendezvous rank 0's alone; which of them a job takes is said by --rdzv-backend."""
    summary = f"MASTER_ADDR={job.master_addr} is this node, but rank 0 runs on {job.master_node}"
    evidence = f"{job.master_addr} is {node}"
    or_first = Fix(text=f"or put {node} first in the hosts file", effect="next launch")
    backend = job.env.get(BACKEND, "")
    if job.launcher != "torchrun" or backend == "static":
        return _wrong(job, NOT_FIRST, summary, node, evidence, at=node, fixes=[or_first])
    if backend == "c10d":
        return ok(
            CLUSTER, f"MASTER_ADDR={job.master_addr} is {node}, which hosts the store (rdzv-backend c10d)"
        )
    summary += "; torchrun lets it host the store only with --rdzv-backend c10d"
    cause = NOT_FIRST.but(confidence=LIKELY, settle_by=f"--rdzv-backend of the job, or {BACKEND}")
    found = _wrong(job, cause, summary, node, evidence, at=node, fixes=[or_first])
    return replace(found, status=Status.WARN)


def _name(
    given: str, resolves: Mapping[str, ResolveFacts], nets: Mapping[str, NetFacts], job: Job
) -> Iterator[Finding]:
    """What each node takes the name for. Two addresses of one node are the same answer."""
    address = job.data_addresses.get(job.master_node or "", "")
    entry = entries("or add the name with its address to /etc/hosts there", {given: address})
    fixes = [entry] if entry.commands else []
    first: dict[str, str] = {}
    for node, facts in resolves.items():
        found = next((one for one in (*facts.peers, facts.own) if one.name == given), None)
        if found is None or not found.asked:
            yield unknown(node, f"MASTER_ADDR={given} was not looked up here")
            continue
        answer = found.error or listing(found.addresses) or "no address"
        elsewhere = [one for one in found.addresses if not is_loopback(one)]
        if found.failed:
            cause, summary = UNRESOLVED, f"cannot resolve MASTER_ADDR={given}: {answer}"
        elif elsewhere:
            first[node] = elsewhere[0]
            continue
        elif node == job.master_node:
            continue  # it may be loopback there: rank 0's client reaches its own server all the same
        else:
            cause, summary = LOOPBACK_THERE, f"resolves MASTER_ADDR={given} to {answer}, which is itself"
        yield _wrong(job, cause, summary, answer, f"{node}: {answer}", at=node, fixes=fixes)
    having = holders(nets) if first else {}
    owned = {node: having.get(parse(one), []) for node, one in first.items()}
    leads = {node: owned[node][0] if len(owned[node]) == 1 else one for node, one in first.items()}
    agreed = majority(leads)
    common = PEERS(agreed.value or "the same on all nodes")
    for node in agreed.minority:
        than = f"on most nodes it is {agreed.value}" if agreed.value else "the nodes do not agree"
        summary, evidence = f"resolves MASTER_ADDR={given} to {first[node]}; {than}", f"{node}: {first[node]}"
        cause = DIFFERS.but(confidence=agreed.confidence)
        yield _wrong(job, cause, summary, first[node], evidence, at=node, expected=common, fixes=fixes)
    if agreed.value:
        yield from _belongs(next(first[node] for node in first if leads[node] == agreed.value), nets, job)


def _wrong(
    job: Job,
    cause: Cause,
    summary: str,
    observed: str,
    evidence: str,
    *,
    at: str,
    culprits: tuple[str, ...] = (),
    expected: Expected | None = None,
    fixes: Sequence[Fix] = (),
) -> Finding:
    address = job.data_addresses.get(job.master_node or "")
    where = job.env_from.get("MASTER_ADDR", "the job's environment")
    variable = seen(where, f"MASTER_ADDR={job.master_addr}", "file", at=CONTROL)
    return cause.fail(
        summary,
        at=at,
        culprits=culprits,
        observed=observed,
        expected=expected or CONFIG(f"{job.master_node} ({address})" if address else str(job.master_node)),
        seen=[variable, seen("addresses of the nodes", evidence, at=CONTROL)],
        fixes=[*_set(job), *fixes],
    )


def _set(job: Job) -> list[Fix]:
    address = job.data_addresses.get(job.master_node or "")
    if not address or is_loopback(address):
        return []
    text = f"use the address of {job.master_node}, for all ranks"
    return [in_job(text, f"export MASTER_ADDR={quoted(address)}")]
