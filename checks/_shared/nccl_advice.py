"""What to write into NCCL_SOCKET_IFNAME and NCCL_IB_HCA: advice of ours, tried with NCCL's own rules."""

from collections.abc import Iterable, Mapping, Sequence

from netdoctor.advice import IFNAME, propose_ifname
from netdoctor.checks._shared.env import each_its_own, export
from netdoctor.checks._shared.text import is_ifname, listing
from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import Fix, in_job, run
from netdoctor.rules.addresses import rows_of
from netdoctor.rules.nccl import candidates, device_of
from netdoctor.rules.variables import MAX_IFS, Environment, Source, values
from netdoctor.rules.versions import Version


def set_ifname(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Environment],
    versions: Mapping[str, Version | None],
    job: Job,
) -> tuple[Fix, ...]:
    """The proposal as a fix, where there is one. envs: what a process of the job sees on each node."""
    proposal = propose_ifname(nets, {n: values(env) for n, env in envs.items()}, versions, job.data_addresses)
    if proposal is None:
        return ()
    if proposal.value is None:
        text = "no single value fits all nodes: give each its own, and set none in the job"
        return (each_its_own(proposal.per_node, IFNAME, "/etc/nccl.conf", text=text, effect="next launch"),)
    given = [env[IFNAME] for env in envs.values() if IFNAME in env]
    in_one_place = len({setting.origin for setting in given}) == 1 and given[0].source is Source.JOB
    where = f"in {given[0].origin}, " if in_one_place else ""
    what = f"fits all {len(nets)} nodes" if len(nets) > 1 else "fits this node"
    return (in_job(f"{where}one value that {what}", export(IFNAME, proposal.value), persistent=True),)


def keep_ifnames(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Environment],
    versions: Mapping[str, Version | None],
    selected: Mapping[str, Sequence[AddressRow]],
) -> tuple[Fix, ...]:
    """A value that leaves NCCL's socket transport exactly these interfaces of each node, where one does."""
    names = list(dict.fromkeys(row.ifname for rows in selected.values() for row in rows))
    others = {row.ifname for net in nets.values() for row in rows_of(net)} - set(names)
    if not all(selected.values()) or not all(map(is_ifname, (*names, *others))):
        return ()
    for value in (f"={','.join(names)}", f"^={','.join(sorted(others))}"):
        fits = (
            candidates(nets[node], {**values(envs[node]), IFNAME: value}, versions[node])[0] == list(rows)
            for node, rows in selected.items()
        )
        if value.count(",") < MAX_IFS and all(fits):
            text = f"one value that leaves NCCL {listing(names)}"
            return (in_job(text, export(IFNAME, value), persistent=True),)
    return ()


def bring_up(names: Iterable[str]) -> tuple[Fix, ...]:
    """The first of these interfaces whose name can stand in a command."""
    for name in map(device_of, names):
        if is_ifname(name):
            text = "bring the interface up, and look at its cable"
            return (run(text, f"ip link set dev {name} up", root=True, persistent=False),)
    return ()
