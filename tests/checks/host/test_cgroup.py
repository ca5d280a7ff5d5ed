from typing import Any

from netdoctor.checks.host.cgroup import host_cgroup
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.model import Finding, Status

from ..build import GIB, causes, host, limits, node, said, tuning
from ..build_hw import gpus


def judged(
    machine: HostFacts | None = None, nproc: int | None = None, gpu: GpuFacts | None = None, **changes: Any
) -> list[Finding]:
    one = machine or host(uid=1000, user="ml")
    return said(host_cgroup(tuning(**changes), limits(nproc_soft=nproc), one, node(), gpu or gpus()))


SILENT: list[dict[str, Any]] = [
    {},
    {"memory_limit_bytes": 64 * GIB, "processes_limit": 10_000, "processes_left": 9_000, "cores_limit": 32.0},
    {"nproc": 4096},
    {"nproc": 10, "machine": host(uid=0)},
    {"cpus_allowed": 8},
    # The machine itself has no more.
    {"machine": host(uid=1000, cpu_count=2), "cpus_allowed": 2},
    {"machine": host(uid=1000, memory_total_bytes=4 * GIB), "memory_limit_bytes": 4 * GIB},
    {"cpus_allowed": None},
]
SPEAKING: list[tuple[dict[str, Any], str, Status, str]] = [
    ({"cpus_allowed": 2}, "limit-cores", Status.WARN, "2 of 64 processors"),
    ({"cores_limit": 1.5}, "limit-cores", Status.WARN, "1.5 of 64 processors"),
    ({"memory_limit_bytes": 2 * GIB}, "limit-memory", Status.WARN, "2.0 GiB"),
    ({"processes_limit": 9000, "processes_left": 400}, "limit-processes", Status.WARN, "400 more"),
    ({"processes_limit": 100}, "limit-processes", Status.WARN, "100 more"),
    ({"processes_limit": 40}, "limit-processes", Status.FAIL, "40 more"),
    ({"nproc": 300}, "limit-processes", Status.WARN, "RLIMIT_NPROC"),
    ({"nproc": 30}, "limit-processes", Status.FAIL, "RLIMIT_NPROC"),
]


def test_silent_where_ranks_have_what_they_need() -> None:
    for changes in SILENT:
        assert judged(**changes) == [], changes


def test_names_what_is_short() -> None:
    for changes, key, status, words in SPEAKING:
        findings = judged(**changes)
        assert causes(findings) == {key: {"n1"}}, changes
        assert [one.status for one in findings] == [status], changes
        assert words in findings[0].summary


def test_one_rank_needs_little() -> None:
    assert judged(gpu=GpuFacts(nvml="no_library"), cpus_allowed=1, processes_limit=64) == []
