import pytest

from netdoctor.checks.rdzv.port_free import rdzv_port_free
from netdoctor.facts.net import Listener, PortHolderFacts
from netdoctor.model import Finding, Kind, Status

from ..build import RDZV, cause, causes, job, net, nets

STALE = Listener(
    port=RDZV, address="0.0.0.0", uid=1000, user="alice", pid=4711, process="python3", age_s=10_800
)


def judge(
    *listeners: Listener,
    port: int = RDZV,
    bind_error: str | None = None,
    where: str = "n1",
    other_scan: bool = False,
) -> list[Finding]:
    held = {node: PortHolderFacts(port=port) for node in ("n1", "n2")}
    held[where] = PortHolderFacts(
        port=port, listeners=listeners, bind_error=bind_error, other_scan=other_scan
    )
    return list(rdzv_port_free(held, job(2, master_port=port), nets(2)))


def test_a_free_port_passes() -> None:
    (finding,) = judge()
    assert finding.status is Status.PASS


def test_names_process_user_and_age() -> None:
    findings = judge(STALE)
    assert causes(findings) == {"master-port-busy": {"n1"}}
    assert findings[0].summary == "port 29500 is used by python3 (pid 4711) of user alice, running for 3 h"
    show, kill, other = cause(findings, "master-port-busy").fixes
    assert (show.kind, kill.kind, kill.loses) == (Kind.LOOK, None, "the work of that process")
    assert show.commands[0].shell == "ps -o pid,user,etime,args -p 4711"
    # Pasted again, when the number is somebody else's, it ends nothing.
    assert kill.commands[0].shell == '[ "$(ps -o comm= -p 4711)" = python3 ] && kill 4711'
    assert other.commands[0].shell == "export MASTER_PORT=29501"


def test_a_holder_that_cannot_be_seen() -> None:
    assert "a process" in judge(Listener(port=RDZV, address="::"))[0].summary
    named = judge(Listener(port=RDZV, address="::", pid=7, process="a; reboot"))
    assert cause(named, "master-port-busy").fixes[1].commands == ()
    assert causes(judge(bind_error="EADDRINUSE")) == {"master-port-busy": {"n1"}}


def test_another_scan_is_not_accused() -> None:
    (finding,) = judge(bind_error="EADDRINUSE", other_scan=True)
    assert finding.status is Status.PASS
    assert causes(judge(STALE, bind_error="EADDRINUSE", other_scan=True)) == {"master-port-busy": {"n1"}}


def test_other_nodes_may_use_the_port() -> None:
    (finding,) = judge(STALE, where="n2")
    assert finding.status is Status.PASS


def test_a_port_of_the_ephemeral_range_warns() -> None:
    findings = judge(port=40000)
    assert causes(findings) == {"master-port-ephemeral": {"n1"}}
    assert findings[0].status is Status.WARN


def test_a_reserved_port_is_nobody_elses() -> None:
    held = {"n1": PortHolderFacts(port=40000)}
    for reserved, good in (("39990-40010", True), ("8080,40000", True), ("40001", False)):
        there = {"n1": net(1, reserved_ports=reserved), "n2": net(2)}
        (finding,) = rdzv_port_free(held, job(2, master_port=40000), there)
        assert finding.status is (Status.PASS if good else Status.WARN), reserved


@pytest.mark.parametrize(("error", "status"), [("EACCES", Status.FAIL), (None, Status.WARN)])
def test_privileged_ports(error: str | None, status: Status) -> None:
    findings = judge(port=80, bind_error=error)
    assert causes(findings) == {"master-port-privileged": {"n1"}}
    assert findings[0].status is status


def test_1024_is_the_first_port_that_anybody_may_open() -> None:
    assert causes(judge(port=1023, bind_error="EPERM")) == {"master-port-privileged": {"n1"}}
    (finding,) = judge(port=1024, bind_error="EPERM")
    assert (finding.status, finding.summary) == (Status.UNKNOWN, "port 1024 could not be tried: EPERM")
    assert [one.status for one in judge(port=1024)] == [Status.PASS]


def test_without_an_answer_of_the_master_nobody_passes() -> None:
    (finding,) = rdzv_port_free({}, job(2), nets(2))
    assert finding.status is Status.SKIP


def test_the_proposal_avoids_every_nodes_range() -> None:
    wide = {"n1": net(1, ephemeral_ports=(15000, 65000)), "n2": net(2)}
    held = {"n1": PortHolderFacts(port=RDZV, listeners=(STALE,))}
    findings = list(rdzv_port_free(held, job(2), wide))
    assert cause(findings, "master-port-busy").fixes[-1].commands[0].shell == "export MASTER_PORT=14999"


def test_another_port_than_the_one_looked_at_is_unknown() -> None:
    held = {"n1": PortHolderFacts(port=RDZV)}
    (finding,) = rdzv_port_free(held, job(2, master_port=RDZV + 100), nets(2))
    assert finding.status is Status.UNKNOWN
