import pytest

from netdoctor.checks.host.memlock import host_memlock
from netdoctor.facts.host import HostFacts, LimitFacts
from netdoctor.facts.rdma import Hca, RdmaFacts
from netdoctor.model import Finding, Status

from ..build import GIB, cause, causes, found, host, hosts, limits, names, session

HCA = RdmaFacts(hcas=(Hca(name="mlx5_0"),))
NONE = RdmaFacts()


def low(soft: int = 65536, hard: int | None = 65536) -> LimitFacts:
    return limits(memlock_soft_bytes=soft, memlock_hard_bytes=hard)


def judge(
    facts: dict[str, LimitFacts],
    rdma: RdmaFacts | None = HCA,
    machines: dict[str, HostFacts] | None = None,
) -> list[Finding]:
    devices = dict.fromkeys(facts, rdma) if rdma else None
    return list(host_memlock(facts, machines or hosts(len(facts)), devices))


def test_unlimited_is_silent() -> None:
    assert judge({"n1": limits(), "n2": limits()}) == []


def test_without_hcas_it_does_not_apply() -> None:
    findings = judge({"n1": low(), "n2": limits()}, NONE)
    assert [one.status for one in findings] == [Status.SKIP, Status.SKIP]
    assert "no RDMA device" in findings[0].summary


@pytest.mark.parametrize(
    ("soft", "status"),
    [(65536, Status.FAIL), (8 * 1024**2, Status.FAIL), (GIB, Status.WARN), (16 * GIB, None)],
)
def test_judges_the_soft_limit(soft: int, status: Status | None) -> None:
    findings = judge({"n1": low(soft), "n2": limits()})
    assert [one.status for one in findings] == ([status] if status else [])


def test_a_soft_limit_below_a_high_hard_one_is_also_the_jobs_business() -> None:
    session, in_job = cause(judge({"n1": low(hard=None)}), "memlock-low").fixes
    assert session.commands[0].run_on == "n1"
    assert in_job.commands[0].run_on == "job"


def test_units_of_a_finite_hard_limit() -> None:
    file, running = cause(judge({"n1": low(hard=32 * GIB)}), "memlock-low").fixes[0].commands
    assert f"'* - memlock {32 * GIB // 1024}'" in file.shell
    assert f"--memlock={32 * GIB}:{32 * GIB}" in running.shell


def test_a_low_hard_limit_needs_root() -> None:
    sessions, service = cause(judge({"n1": low()}), "memlock-low").fixes
    assert "limits.d" in sessions.commands[0].shell
    assert "prlimit --pid $(pgrep -o -x sshd) --memlock=unlimited:unlimited" in sessions.commands[1].shell
    assert "LimitMEMLOCK=infinity" in service.commands[0].shell


def test_a_worker_of_ray_has_the_limits_of_its_raylet() -> None:
    """No limits.conf and no sshd reaches it."""
    by_ray = {"n1": session(1, transport="ray")}
    found = list(host_memlock({"n1": low()}, hosts(1), {"n1": HCA}, by_ray))
    now, later = cause(found, "memlock-low").fixes
    (command,) = now.commands
    assert command.shell.startswith("for pid in $(pgrep -x raylet)")
    assert "--memlock=unlimited:unlimited" in command.shell
    assert not now.persistent
    # Above a hard limit root needs a capability that it has not in every container.
    assert "needs CAP_SYS_RESOURCE" in now.text
    assert "LimitMEMLOCK=infinity in its unit; else ulimit -l unlimited" in later.text


def test_a_container_gets_a_flag() -> None:
    findings = judge({"n1": low()}, machines={"n1": host(1, container="docker")})
    assert "--ulimit memlock=-1" in cause(findings, "memlock-low").fixes[0].commands[0].shell


def test_in_the_lab_the_machines_limit_does_not_apply() -> None:
    """Its HCAs are pretended. Also not where a scan was stopped before others had answered."""
    lab = {node: host(i, shares_machine=True) for i, node in enumerate(names(3), 1)}
    for heard in (names(3), ["n1"]):
        findings = judge({node: low() for node in heard}, machines={node: lab[node] for node in heard})
        assert {f.target: f.status for f in findings} == dict.fromkeys(heard, Status.SKIP)
        assert "shares one machine" in findings[0].summary


def test_in_the_lab_a_node_below_the_machine_is_at_fault_itself() -> None:
    lab = {node: host(i, shares_machine=True) for i, node in enumerate(names(3), 1)}
    findings = judge({"n1": low(2**23), "n2": low(), "n3": low(2**23)}, machines=lab)
    assert causes(findings) == {"memlock-low": {"n2"}}
    assert set(found(findings, Status.FAIL)) == {"n2"}
    findings = judge({"n1": limits(), "n2": low(), "n3": limits()}, machines=lab)
    assert causes(findings) == {"memlock-low": {"n2"}}
    assert findings[0].status is Status.FAIL


def test_unread_devices_leave_it_unknown() -> None:
    assert judge({"n1": low()}, None)[0].status is Status.UNKNOWN
    assert judge({"n1": limits()}, None) == []
