from typing import Any

from netdoctor.checks.time.source import time_source
from netdoctor.facts.clock import TimeFacts, TimeReport
from netdoctor.model import Finding, Status

from ..build import causes, host, hosts, name, time_facts

A, B, C = "10.0.0.250", "10.0.0.251", "192.0.2.1"


def follows(source: str, *sources: str, daemon: str = "chronyd") -> TimeFacts:
    return time_facts(reports=(TimeReport(daemon=daemon, source=source, sources=(source, *sources)),))


def judged(*nodes: TimeFacts, **machines: Any) -> list[Finding]:
    times = {name(i): one for i, one in enumerate(nodes, 1)}
    return list(time_source(times, hosts(len(nodes)) | machines))


SILENT = [
    [follows(A)] * 3,
    # Four servers everywhere, and each follows the one that it likes best.
    [follows(A, B), follows(A, B), follows(B, A)],
    [follows(A), follows(B), follows(C)],
    [follows(A), follows(B)],
    [follows(A), follows(A), follows(B), follows(C)],
    [follows(f"{i}.debian.pool.ntp.org", daemon="systemd-timesyncd") for i in range(3)],
    [follows(A), follows(A), follows("ntp.ubuntu.com", daemon="systemd-timesyncd")],
    [follows(A), follows(A), time_facts()],
]


def test_silent_where_there_is_one_source_or_no_majority() -> None:
    for nodes in SILENT:
        assert causes(judged(*nodes)) == {}, nodes
    # What the nodes have none of, or have from the machine that carries them, is not compared.
    contained = judged(follows(A), follows(B, C), n2=host(2, container="docker"))
    for findings in (judged(time_facts(), time_facts()), contained):
        assert [one.status for one in findings] == [Status.SKIP]


def test_names_who_follows_another() -> None:
    (finding,) = judged(follows(A, B), follows(A, B), follows(C))
    assert causes([finding]) == {"time-other-source": {"n3"}}
    assert finding.status is Status.WARN
    assert f"follows {C}, and does not know {A}" in finding.summary
