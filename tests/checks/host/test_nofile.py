from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.host.nofile import host_nofile
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, LimitFacts, Node
from netdoctor.model import Finding, Status

from ..build import cause, causes, host, hosts, job, limits, names, node
from ..build_hw import all_gpus, gpus, no_gpus


def judge(
    facts: dict[str, LimitFacts],
    known: dict[str, HostFacts] | None = None,
    gpus: dict[str, GpuFacts] | None = None,
    listed: dict[str, Node] | None = None,
    **said: Any,
) -> list[Finding]:
    return list(host_nofile(facts, known or hosts(len(facts)), gpus, listed or {}, job(**said)))


@pytest.mark.parametrize(
    ("soft", "status"),
    [(256, Status.FAIL), (1024, Status.WARN), (4096, None), (1048576, None), (None, None)],
)
def test_judges_the_soft_limit(soft: int | None, status: Status | None) -> None:
    findings = list(judge({"n1": limits(nofile_soft=soft)}))
    assert [one.status for one in findings] == ([status] if status else [])


def test_the_job_can_raise_a_soft_limit() -> None:
    facts = {"n1": limits(nofile_soft=1024, nofile_hard=524288)}
    session, in_job = cause(judge(facts), "nofile-low").fixes
    assert in_job.commands[0].shell == "ulimit -n 65536"
    assert session.root
    # The hard limit is higher, and stays.
    assert "'* soft nofile 65536'" in session.commands[0].shell
    assert session.commands[1].shell.endswith("prlimit --pid $(pgrep -o -x sshd) --nofile=65536:")
    # The kernel's own hard limit is as much as is advised.
    session, in_job = cause(judge({"n1": limits(nofile_soft=1024, nofile_hard=4096)}), "nofile-low").fixes
    assert in_job.commands[0].shell == "ulimit -n 4096"
    assert "'* - nofile 65536'" in session.commands[0].shell
    assert session.commands[1].shell.endswith("--nofile=65536:65536")


@pytest.mark.parametrize(
    ("hard", "flag"),
    [(1048576, "65536:1048576"), (None, "65536:-1"), (4096, "65536:65536"), (65536, "65536:65536")],
)
def test_no_fix_lowers_a_hard_limit(hard: int | None, flag: str) -> None:
    facts = {"n1": limits(nofile_soft=1024, nofile_hard=hard)}
    boxed = {"n1": replace(hosts(1)["n1"], container="docker")}
    _, larger = cause(judge(facts, boxed), "nofile-low").fixes
    assert f"--ulimit nofile={flag} " in larger.commands[0].shell


def test_a_low_hard_limit_needs_root() -> None:
    facts = {"n1": limits(nofile_soft=256, nofile_hard=256)}
    fixes = cause(judge(facts), "nofile-low").fixes
    assert all(fix.root for fix in fixes)


def test_a_distribution_s_own_limit_is_enough_for_small_jobs() -> None:
    def warned(count: int, cards: int | None, listed: int | None = None, **said: str) -> bool:
        facts = {name: limits(nofile_soft=1024, nofile_hard=1048576) for name in names(count)}
        card = no_gpus() if not cards else replace(gpus(), devices=gpus().devices[:1] * cards)
        known = {} if cards is None else dict.fromkeys(facts, card)
        slots = {name: node(i, slots=listed) for i, name in enumerate(facts, 1)}
        machines = {name: host(i, cpu_count=32) for i, name in enumerate(facts, 1)}
        statuses = {finding.status for finding in judge(facts, machines, known, slots, **said)}
        assert statuses <= {Status.WARN}
        return bool(statuses)

    for count, cards, listed, enough in (
        (1, 8, None, True), (2, 8, None, True), (4, 8, None, False), (16, 1, None, True),
        (17, 1, None, False), (2, 8, 1, True), (2, 8, 16, False), (2, None, None, False), (4, 0, None, True),
        (8, 0, None, False), (8, 0, 8, True), (3, 0, 100, False),
    ):  # fmt: skip
        assert warned(count, cards, listed) is not enough, (count, cards, listed)
    assert warned(4, 8, backend="gloo") is False
    assert warned(4, 0, 8, backend="nccl") is True


def test_one_node_with_a_limit_of_its_own_in_the_lab() -> None:
    lab = {node: host(i, shares_machine=True) for i, node in enumerate(names(3), 1)}
    facts = {"n1": limits(), "n2": limits(nofile_soft=256), "n3": limits()}
    findings = list(judge(facts, lab))
    assert causes(findings) == {"nofile-low": {"n2"}}
    assert findings[0].status is Status.FAIL
    assert list(judge({node: limits(nofile_soft=1024) for node in lab}, lab)) == []


NONE = {name: no_gpus() for name in names(2)}


@pytest.mark.parametrize(
    ("gpus", "said", "slots", "status"),
    [
        pytest.param(NONE, {}, 1, Status.WARN, id="no GPU, two ranks"),
        pytest.param(all_gpus(2), {"backend": "gloo"}, 1, Status.WARN, id="gloo, said"),
        pytest.param(NONE, {}, 27, Status.WARN, id="as many ranks as they are enough for"),
        pytest.param(NONE, {}, 28, Status.FAIL, id="too many ranks"),
        pytest.param(NONE, {}, None, Status.FAIL, id="a rank per CPU"),
        pytest.param(NONE, {"backend": "nccl"}, 1, Status.FAIL, id="nccl, said"),
        pytest.param(all_gpus(2), {}, 1, Status.FAIL, id="GPUs"),
        pytest.param({"n1": no_gpus()}, {}, 1, Status.FAIL, id="GPUs of a node unread"),
    ],
)
def test_a_small_job_of_gloo_needs_few(
    gpus: dict[str, GpuFacts], said: dict[str, str], slots: int | None, status: Status
) -> None:
    facts = {name: limits(nofile_soft=256) for name in names(2)}
    listed = {name: node(i, slots=slots) for i, name in enumerate(names(2), 1)}
    found = judge(
        facts, {name: host(i, cpu_count=32) for i, name in enumerate(names(2), 1)}, gpus, listed, **said
    )
    assert {finding.status for finding in found} == {status}
    assert all(("not for NCCL" in one.summary) == (status is Status.WARN) for one in found)
