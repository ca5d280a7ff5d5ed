"""Who takes part in experiments with torch, and with what: ranks, variables, interfaces, hardware."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from netdoctor.facts.bandwidth import NO_GPU
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import Gpu
from netdoctor.facts.paths import GLOO, SOCKET, Paths
from netdoctor.facts.software import no_torch
from netdoctor.measure import expectation
from netdoctor.measure.bandwidth import data_device, socket_hardware
from netdoctor.measure.declare import Context
from netdoctor.measure.gpus import in_use, of_job
from netdoctor.measure.ranks import passed_on
from netdoctor.rules.nccl_ib import selected_ports
from netdoctor.rules.variables import effective_env, param, values

MIB, GIB = 1024**2, 1024**3
# How much of the memory of a node all its ranks may take.
MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Who takes part in experiments with torch. Mappings are by node."""

    backend: str
    counts: dict[str, int]  # of ranks
    environments: dict[str, dict[str, str]]  # as the job would have them
    ifname: dict[str, str]
    given_by: str  # who chose those, as in Session
    left_out: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = GIB  # of a rank

    @property
    def layout(self) -> list[str]:
        return [node for node, count in self.counts.items() for _ in range(count)]


def roster_of(context: Context) -> Roster | Missing:
    """The nodes that can run ranks, and how; or why there is nothing to run."""
    nodes = list(context.participants.usable())
    left_out: dict[str, str] = {}
    software = context.store.present("software", nodes)
    able = [n for n in nodes if n in software and software[n].torch is not None]
    if not able:
        return Missing(Why.NOT_EXAMINED, no_torch(software.values()))
    some = set(able)
    left_out.update({n: "torch is not installed there" for n in nodes if n not in some})
    gpus = {n: of_job(context, n) for n in able}
    cuda = [n for n in able if gpus[n][0] and software[n].torch.cuda is not None]
    backend = "nccl" if cuda and context.job.backend != "gloo" else "gloo"
    if backend == "nccl":
        some = set(cuda)
        left_out.update({n: NO_GPU for n in able if n not in some})
        busy = {n: who for n in cuda if (who := in_use(gpus[n][1]))}
        left_out.update(busy)
        able = [n for n in cuda if n not in busy]
        if not able:
            return Missing(Why.NOT_EXAMINED, left_out[cuda[0]])
    counts = {n: gpus[n][0] if backend == "nccl" else 1 for n in able}
    master = context.job.master_node
    if master in counts:
        counts = {master: counts[master], **{n: c for n, c in counts.items() if n != master}}
    if sum(counts.values()) < 2:
        if left_out:
            reasons = "; ".join(dict.fromkeys(left_out.values()))
            return Missing(Why.NOT_EXAMINED, f"too few nodes are free for it: {reasons}")
        return Missing(Why.NOT_APPLICABLE, "one rank alone has nothing to reduce with")
    ifname, environments, given = _environments(context, list(counts), backend)
    return Roster(
        backend=backend,
        counts=counts,
        environments=environments,
        ifname=ifname,
        given_by=given,
        left_out=left_out,
        memory_bytes=_memory(context, counts, {n: gpus[n][1] for n in counts} if backend == "nccl" else {}),
    )


def on_processors(context: Context, roster: Roster) -> str:
    """Why ranks are on processors, where torch is built for GPUs that are not driven here."""
    software = context.store.present("software", list(roster.counts)).values()
    rocm = any(one.torch and one.torch.hip for one in software)
    return "torch for ROCm ran gloo on processors, RCCL was not tried" if rocm else ""


def _environments(
    context: Context, nodes: Sequence[str], backend: str
) -> tuple[dict[str, str], dict[str, dict[str, str]], str]:
    """(interface by node, variables by node, who chose): the job's own choice where it made one."""
    variable = "NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    passed = passed_on(context.job)
    ifname: dict[str, str] = {}
    environments: dict[str, dict[str, str]] = {}
    given = "job"
    envs = context.store.present("env", nodes)
    sends = _sends(context, backend)
    for node in nodes:
        known = values(effective_env(envs.get(node), context.job))
        environments[node] = dict(passed)
        if len(known.get(variable, "")) > 1:
            ifname[node] = known[variable]
            continue
        on_paths = _on_paths(context, node, sends.get(node, ()))
        names = on_paths[: None if backend == "nccl" else 1] or filter(None, [data_device(context, node)])
        name = ",".join(names)
        if name:
            given = "netdoctor"
            ifname[node] = name
            environments[node][variable] = f"={name}" if backend == "nccl" else name
    return ifname, environments, given


def _sends(context: Context, backend: str) -> dict[str, set[str]]:
    """The addresses of each node that its backend would send from, by the job's paths."""
    paths, purpose = context.store.cluster_fact("paths"), SOCKET if backend == "nccl" else GLOO
    found: dict[str, set[str]] = {}
    for use in paths.uses if isinstance(paths, Paths) else ():
        if use.purpose.startswith(purpose):
            found.setdefault(use.node, set()).add(use.address)
    return found


def _on_paths(context: Context, node: str, sends: Collection[str]) -> list[str]:
    """The interfaces of the job's paths that its backend would send over.

    NCCL uses all of them at once, gloo the first. Empty where peers can dial none of them.
    """
    paths = context.store.cluster_fact("paths")
    if not isinstance(paths, Paths):
        return []
    used = [path for path in paths.paths if path.addresses.get(node) in sends and node in path.ifnames]
    return list(dict.fromkeys(path.ifnames[node] for path in used))


def _memory(context: Context, counts: Mapping[str, int], gpus: Mapping[str, Sequence[Gpu]]) -> int:
    """Bytes that one rank may take for everything: of its GPU where `gpus` has one, else of its node."""
    room: list[int] = []
    for node, count in counts.items():
        host = context.store.get_or_none("host", node)
        if node in gpus:
            free = [(d.memory_total_bytes or 0) - (d.memory_used_bytes or 0) for d in gpus[node]]
            room.append(min(free, default=GIB) // 2)
        elif host is not None:
            # Nodes that share one machine share its memory.
            share = len(counts) if host.shares_machine else 1
            room.append(int((host.memory_available_bytes or GIB) * MEMORY_SHARE / count / share))
    return max(min(room, default=GIB), 16 * MIB)


def hardware_of(context: Context, roster: Roster) -> dict[str, expectation.Hardware]:
    """What each node brings to these ranks."""
    if roster.backend == "gloo":
        ifname = roster.ifname if roster.given_by == "netdoctor" else {}
        return {n: socket_hardware(context, n, ifname.get(n)) for n in roster.counts}
    found, store = {}, context.store
    for node, count in roster.counts.items():
        env = values(effective_env(store.get_or_none("env", node), context.job))
        rdma = store.get_or_none("rdma", node)
        hcas: list[str] = []
        if rdma is not None and param(env.get("NCCL_IB_DISABLE"), 0) == 0:
            hcas = [port.name for _, port in selected_ports(rdma.hcas, env.get("NCCL_IB_HCA"))]
        found[node] = expectation.hardware(
            net=store.get_or_none("net", node),
            rdma=rdma,
            gpu=store.get_or_none("gpu", node),
            host=store.get_or_none("host", node),
            ifname=data_device(context, node),
            hcas=hcas,
            gpus=count,
        )
    return found
