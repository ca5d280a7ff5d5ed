"""Families of checks in one line each, and what stands in the head of a report about nodes and versions."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.judge import Judgement
from netdoctor.engine.run import Outcome
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Status
from netdoctor.report.model import Cause, FamilyRow

# Families in the order in which trouble travels; others follow by name.
_REACHED = ("ssh", "slurm", "ray", "facts", "meet")
_NODE = ("host", "time", "fs", "path")
FAMILY_ORDER = (*_REACHED, *_NODE, "net", "rdzv", "sw", "gpu", "amd", "rdma", "nccl", "gloo", "bw")


def sort_key(family: str) -> tuple[int, str]:
    """Where a family stands among the others, for sorting."""
    return (FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER), family)


def families(
    judgement: Judgement, causes: Sequence[Cause], heads: Mapping[str, Mapping[str, Any]]
) -> list[FamilyRow]:
    """heads: header_facts() of each node."""
    by_family: dict[str, list[Check]] = {}
    for check in judgement.checks:
        by_family.setdefault(check.family, []).append(check)

    rows = []
    for family in sorted(by_family, key=sort_key):
        checks = by_family[family]
        ids = {c.id for c in checks}
        statuses = {s for c in checks for s in judgement.cells[c.id].values()}
        blocking = {c.id for c in causes if any(e.check in ids for e in c.explains)}
        failing = {c.id for c in causes if ids & set(c.checks)}
        rows.append(
            FamilyRow(
                family=family,
                checks=len(checks),
                status=_family_status(statuses),
                causes=tuple(sorted(failing | blocking)),
                remark=_remark(family, checks, judgement, heads, statuses),
            )
        )
    return rows


def _family_status(found: Set[Status]) -> str:
    """The worst status by name, ``blocked`` only when nothing was judged, ``skip`` when nothing applied."""
    for status in (Status.FAIL, Status.UNKNOWN, Status.WARN):
        if status in found:
            return str(status)
    if Status.PASS in found:
        return str(Status.PASS)
    return Status.BLOCKED.value if Status.BLOCKED in found else Status.SKIP.value


def _remark(
    family: str,
    checks: Sequence[Check],
    judgement: Judgement,
    heads: Mapping[str, Mapping[str, Any]],
    statuses: Set[Status],
) -> str:
    """Versions and the like that people look for, when all reached nodes agree; why a family was skipped."""
    facts = [head for head in heads.values() if head]

    def common(key: str) -> str | None:
        values = {f.get(key) for f in facts}
        return str(next(iter(values))) if len(values) == 1 and None not in values else None

    versions = {
        "sw": (("torch", "torch {}"), ("nccl", "NCCL {}"), ("python", "Python {}")),
        "gpu": (("driver", "driver {}"),),
    }.get(family, ())
    parts = [text.format(value) for key, text in versions if (value := common(key))]
    if not parts and statuses == {Status.SKIP}:
        reasons = Counter(r for c in checks for r in judgement.reasons.get(c.id, {}).values() if r)
        parts = [reasons.most_common(1)[0][0]] if reasons else []
    return ", ".join(parts)


def header_facts(node: str, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {}
    host = outcome.store.get("host", node)
    if isinstance(host, HostFacts):
        if host.hostname != node:
            found["hostname"] = host.hostname
        found["kernel"] = host.kernel
        found["memory_bytes"] = host.memory_total_bytes
        if host.container:
            found["container"] = host.container
    gpu = outcome.store.get("gpu", node)
    if isinstance(gpu, GpuFacts) and gpu.devices:
        found["gpus"] = len(gpu.devices)
        models = [device.name for device in gpu.devices]
        found["gpu_model"] = max(dict.fromkeys(models), key=models.count)
        found["driver"] = gpu.driver_version
    software = outcome.store.get("software", node)
    if isinstance(software, SoftwareFacts):
        found["python"] = software.version
        if software.torch:
            found["torch"] = software.torch.version
        if software.nccl and software.nccl[0].version:
            found["nccl"] = software.nccl[0].version
    return found
