"""What a verdict does not speak of: what could have been examined and was not."""

from collections.abc import Collection, Sequence

from netdoctor.check import Check, Profile
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.assemble.families import sort_key
from netdoctor.engine.judge import Judgement
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status
from netdoctor.report.model import Gap, Part, Untested
from netdoctor.store import Store

# What the checks of a family look at, as it stands behind "not tested"; `the checks of site` for a plug-in's.
SUBJECTS = {
    "ssh": "the logins",
    "slurm": "what Slurm starts",
    "ray": "the Ray cluster",
    "facts": "the files of facts",
    "meet": "the tasks that call",
    "host": "the hosts' settings",
    "time": "the clocks",
    "fs": "the file systems",
    "path": "the job's files",
    "net": "the network",
    "rdzv": "the rendezvous",
    "sw": "the job's Python",
    "gpu": "the GPUs",
    "amd": "AMD's GPUs",
    "rdma": "the HCAs",
    "env": "the sessions' variables",
    "nccl": "NCCL's choices",
    "gloo": "gloo's choices",
    "bw": "the all-reduce",
}
# A check that looks at something else than its family does.
OF_CHECKS = {"bw.rdma": "the rates of RDMA"}
# What checks beyond profile quick test, the weightiest first; a check that is not named is called by its id.
TESTED = {
    "ports": ("net.ports", "rdzv.reach", "ray.ports", "net.container"),
    "clocks": ("time.skew",),
    "path MTU": ("net.path-mtu",),
    "routes": ("net.route",),
    "all-reduce": ("bw.allreduce",),
    "packet loss": ("net.loss",),
    "firewalls": ("net.firewall",),
    "link errors": ("net.errors", "rdma.errors", "gpu.link-errors"),
    "rates": ("bw.tcp", "bw.pair", "bw.rdma"),
    "speed of GPUs": ("gpu.work",),
    "results of GPUs": ("gpu.bits",),
    "imports": ("sw.import",),
}
# Of these, what takes two nodes.
BETWEEN_NODES = ("ports", "clocks", "path MTU", "routes", "packet loss", "rates")
NAMES_MAX = 8


def required(judgement: Judgement, context: Context) -> frozenset[str]:
    """The families in which a gap leaves the verdict open."""
    every = {check.family for check in judgement.checks} if context.strict else set()
    return frozenset(every | set(context.require))


def gaps(judgement: Judgement, context: Context) -> tuple[Gap, ...]:
    """One for each family and reason, in the order of the families.

    What does not apply is no gap, and trouble tells for itself. What the profile or --skip leaves out was not
    asked for: it is one where --require names its family, for a required check of it. --only is what somebody
    wants to see alone.
    """
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for check in judgement.checks:
        for node, reason in judgement.gaps.get(check.id, {}).items():
            if judgement.cells[check.id].get(node) in (Status.SKIP, Status.PASS):
                nodes, checks = found.setdefault((check.family, reason), ({}, {}))
                nodes[node] = checks[check.id] = None
    for family in set(context.require) - {check.family for check in judgement.checks}:
        if context.run.selected == ("*",):
            by = "--skip" if context.run.skipped else f"profile {context.run.profile}"
            found[family, f"left out by {by}"] = (dict.fromkeys(judgement.nodes), {})
    for check in _left_out(judgement, context):
        if check.required and check.family in context.require:
            by = f"profile {context.run.profile}"
            if Profile(context.run.profile).includes(check.profile):
                by = "--skip"
            nodes, checks = found.setdefault((check.family, f"left out by {by}"), ({}, {}))
            nodes |= dict.fromkeys(judgement.nodes)
            checks[check.id] = None
    return tuple(
        Gap(
            family=family,
            what=_subject(family, checks),
            reason=reason,
            nodes=tuple(n for n in judgement.nodes if n in nodes),
            checks=tuple(checks),
        )
        for (family, reason), (nodes, checks) in sorted(found.items(), key=lambda one: sort_key(one[0][0]))
    )


def _left_out(judgement: Judgement, context: Context) -> list[Check]:
    """What profile full has and the scan had not, but for what takes more nodes than there are."""
    ran = {check.id for check in judgement.checks}
    between = {check for what in BETWEEN_NODES for check in TESTED[what]} if len(judgement.nodes) < 2 else ()
    return [c for c in context.of_profile_full if c.id not in ran and c.id not in between]


def not_tested(judgement: Judgement, context: Context, store: Store) -> tuple[Untested, ...]:
    """What the profile leaves out. What --skip does is told by how many checks there were."""
    profile = Profile(context.run.profile)
    idle = "gpu" if absent(judgement, store) else ""
    larger = [c for c in _left_out(judgement, context) if not profile.includes(c.profile)]
    left_out = [c.id for c in larger if c.family != idle]
    known = {check: what for what, checks in TESTED.items() for check in checks}
    found: dict[str, list[str]] = {what: [] for what in TESTED}
    for check in left_out:
        found.setdefault(known.get(check, check), []).append(check)
    return tuple(Untested(what=what, checks=tuple(checks)) for what, checks in found.items() if checks)


def absent(judgement: Judgement, store: Store) -> tuple[str, ...]:
    """``GPU`` where GPUs were asked for, and every node says that it has none of any make."""

    def has_none(node: str) -> bool:
        gpu, others = store.get("gpu", node), store.get("accelerators", node)
        if not (isinstance(gpu, GpuFacts) and isinstance(others, AcceleratorFacts)):
            return False
        boards = gpu.pci or gpu.devices or gpu.device_nodes or gpu.blocked
        return not (
            boards or gpu.nvml == "mismatch" or others.amd or others.kfd or others.kfd_hidden or others.others
        )

    ran = any(check.family == "gpu" for check in judgement.checks)
    return ("GPU",) if ran and judgement.nodes and all(map(has_none, judgement.nodes)) else ()


def _subject(family: str, checks: Collection[str]) -> str:
    """In words, what the family looks at, or its one check that looks at something else."""
    (check,) = checks if len(checks) == 1 else ("",)
    return OF_CHECKS.get(check) or SUBJECTS.get(family, f"the checks of {family}")


def part_of(
    checks: Collection[str], of_checks: Collection[str], nodes: int, of_nodes: int, *, before: bool = False
) -> Part | None:
    """What was looked at, None for everything.

    checks: ids of those that judged; of_checks: of those that the profile has. before: an earlier part is in
    it, which was looked at in other company: what parts say together is no more than they say.
    """
    every = {*of_checks, *checks}
    if not before and len(checks) == len(every) and nodes == of_nodes:
        return None
    return Part(checks=len(checks), of_checks=len(every), nodes=nodes, of_nodes=of_nodes)


def gap_names(missed: Sequence[Gap]) -> str:
    """The checks that did not judge, or the family where nobody asked for it at all."""
    names = list(dict.fromkeys(name for gap in missed for name in gap.checks or (gap.family,)))
    return ", ".join(names[:NAMES_MAX]) + (
        f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    )
