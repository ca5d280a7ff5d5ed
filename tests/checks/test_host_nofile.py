import pytest

from netdoctor.checks.host_nofile import host_nofile
from netdoctor.model import Status

from .build import cause, causes, host, hosts, limits, names


@pytest.mark.parametrize(
    ("soft", "status"),
    [(256, Status.FAIL), (1024, Status.WARN), (4096, None), (1048576, None), (None, None)],
)
def test_judges_the_soft_limit(soft: int | None, status: Status | None) -> None:
    findings = list(host_nofile({"n1": limits(nofile_soft=soft)}, hosts(1)))
    assert [one.status for one in findings] == ([status] if status else [])


def test_the_job_can_raise_a_soft_limit() -> None:
    facts = {"n1": limits(nofile_soft=1024, nofile_hard=524288)}
    session, in_job = cause(host_nofile(facts, hosts(1)), "nofile-low").fixes
    assert in_job.commands[0].shell == "ulimit -n 65536"
    assert session.root
    assert session.commands[1].shell.endswith("prlimit --pid $(pgrep -o -x sshd) --nofile=65536:65536")


def test_a_low_hard_limit_needs_root() -> None:
    facts = {"n1": limits(nofile_soft=256, nofile_hard=256)}
    fixes = cause(host_nofile(facts, hosts(1)), "nofile-low").fixes
    assert all(fix.root for fix in fixes)


def test_one_node_with_a_limit_of_its_own_in_the_lab() -> None:
    lab = {node: host(i, in_lab=True) for i, node in enumerate(names(3), 1)}
    facts = {"n1": limits(), "n2": limits(nofile_soft=256), "n3": limits()}
    findings = list(host_nofile(facts, lab))
    assert causes(findings) == {"nofile-low": {"n2"}}
    assert findings[0].status is Status.FAIL
    assert list(host_nofile({node: limits(nofile_soft=1024) for node in lab}, lab)) == []
