"""Saved facts judged again, and parts of a report measured again: as the report was made."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.base import Why
from netdoctor.facts.software import CALLING
from netdoctor.model import Finding, fail, run, skip, warn
from netdoctor.options import OPTIONS
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.model import Report
from netdoctor.scanning import ScanRequest, judge_saved, kept_request, plan_part
from netdoctor.store import load
from tests.core.fake import hint, saying
from tests.scanning.ground import Ground
from tests.scanning.test_replay import SAID

SAVED = Path("saved.json")
SLOW = fail("n2", "n2 is slow", cause=hint("slow", "n2", fixes=(run("heal it", "heal", on="n2"),)))


def scanned(ground: Ground, *hosts: str, **said: Any) -> Report:
    """A report as it is read from its file."""
    report = ground.scan(ScanRequest(hosts=hosts or ("n[1-3]",), **said))
    return loads(dumps(report, facts=True))


def commands(report: Report) -> list[str]:
    return [command.shell for cause in report.causes for fix in cause.fixes for command in fix.commands]


def outcome(report: Report) -> tuple[str, int, dict[str, str]]:
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    return report.verdict.state, report.verdict.exit_code, rows


@pytest.fixture
def full(ground: Ground) -> Ground:
    ground.checks.append(saying("bw.pair", SLOW, profile="full"))
    return ground


# Facts judged again


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"profile": "full"}, id="profile"),
        pytest.param({"only": ("bw.*",)}, id="only"),
        pytest.param({"only": ("*",)}, id="only, all"),
        pytest.param({"skip": ("net.two",)}, id="skip"),
        pytest.param({"profile": "full", "node": "n[1-2]"}, id="nodes"),
        pytest.param({"profile": "full", "fail_on": "never"}, id="fail-on"),
    ],
)
def test_facts_are_judged_as_they_were(full: Ground, said: dict[str, Any]) -> None:
    report = scanned(full, **said)
    assert outcome(judge_saved(report, {}, SAVED)) == outcome(report)


def test_strict_stays_strict(ground: Ground) -> None:
    ground.checks.append(saying("net.x", skip("not looked at", "n2", gap="busy")))
    report = scanned(ground, strict=True)
    assert report.verdict.state == "undecided"
    assert outcome(judge_saved(report, {}, SAVED)) == outcome(report)
    assert judge_saved(report, {"strict": False}, SAVED).verdict.state == "ready"
    assert judge_saved(report, {"strict": False, "require": ("net",)}, SAVED).verdict.state == "undecided"
    assert judge_saved(report, {"strict": False, "require": ("ssh",)}, SAVED).verdict.state == "ready"
    with pytest.raises(InputError, match="--require disk: no checks are called so; take of: net, ssh"):
        judge_saved(report, {"require": ("disk",)}, SAVED)


def test_what_is_said_now_wins(full: Ground) -> None:
    full.checks.append(saying("net.x", warn("n1", "odd")))
    report = scanned(full, profile="full")
    assert judge_saved(report, {"profile": "launch"}, SAVED).verdict.state == "ready"
    assert judge_saved(report, {"skip": ("bw.*",), "fail_on": "warn"}, SAVED).verdict.exit_code == 4
    assert judge_saved(report, {"only": ("net.one",)}, SAVED).matrix.checks == ("ssh.login", "net.one")
    assert judge_saved(report, {"node": "n3"}, SAVED).matrix.nodes == ("n3",)
    with pytest.raises(InputError, match="n9"):
        judge_saved(report, {"node": "n9"}, SAVED)


def test_a_narrowed_report_is_judged_by_what_it_shows(full: Ground) -> None:
    """Not by what --last would ask for."""
    narrowed = kept_request(scanned(full, profile="full"), {"only": ("net.one",), "save": None})
    report = full.scan(narrowed)
    again = judge_saved(report, {}, SAVED)
    assert again.matrix.checks == ("ssh.login", "net.one")
    assert again.run.selected == ("net.one",)
    assert again.run.replay == report.run.replay


def test_commands_log_in_as_the_scan_did(full: Ground) -> None:
    report = scanned(full, "n1", "ml@n2:2202", profile="full", ssh_config=Path("/c"), jump="gate")
    (command,) = commands(report)
    assert command == "ssh -F /c -J gate -p 2202 ml@n2 heal"
    again = judge_saved(report, {}, SAVED)
    assert commands(again) == [command]
    assert again.run.ssh_command == "ssh -F /c -J gate"
    (command,) = commands(judge_saved(report, {"jump": "other"}, SAVED))
    assert command == "ssh -F /c -J other -p 2202 ml@n2 heal"


def test_what_is_said_of_the_job_now_is_what_facts_are_judged_by(full: Ground) -> None:
    report = scanned(full, profile="full", launcher="torchrun", master_port=29400)
    now = {"launcher": "srun", "image": "pytorch:25.03", "backend": "gloo", "master_port": 29500}
    again = judge_saved(report, now, SAVED)
    job = load(again.facts).cluster_fact("job")
    assert {name: getattr(job, name) for name in now} == now
    (verify,) = [cause.verify.shell for cause in again.causes if cause.verify]
    words = "--master-port 29500 --launcher srun --image pytorch:25.03 --backend gloo"
    assert verify.startswith(f"netdoctor scan --facts saved.json {words} ")
    # What a launcher needs was asked of torchrun.
    launch = load(again.facts).node["launch"]
    assert {node: one.why for node, one in launch.items()} == dict.fromkeys(("n1", "n2", "n3"), Why.FAILED)
    same = judge_saved(report, {"launcher": "torchrun"}, SAVED)
    assert "launch" not in load(same.facts).node


@pytest.mark.parametrize("name", [name for name, one in OPTIONS.items() if one.asks_nodes])
def test_what_only_nodes_can_answer_is_refused(full: Ground, name: str) -> None:
    value = SAID[name]
    flag = OPTIONS[name].flag
    with pytest.raises(InputError, match=rf"{flag} is a question to the nodes, and --facts saved\.json"):
        judge_saved(scanned(full), {name: value}, SAVED)


def test_what_the_scan_asked_nodes_may_be_said_again(full: Ground) -> None:
    report = scanned(full, packages="torch")
    assert outcome(judge_saved(report, {"packages": "torch"}, SAVED)) == outcome(report)


def test_a_node_s_own_user_and_port_win_in_commands_too(full: Ground) -> None:
    report = scanned(full, "n1", "ml@n2:2202", profile="full", ssh_user="ops", ssh_port=22)
    assert commands(report) == ["ssh -p 2202 ml@n2 heal"]
    report = scanned(full, "n1", "n2", profile="full", ssh_user="ops", ssh_port=44222)
    assert commands(report) == ["ssh -p 44222 ops@n2 heal"]
    assert report.run.ssh_command == "ssh -l ops -p 44222"


@pytest.mark.parametrize(
    "kept", [{}, {"targets": [], "options": {"jump": "-oX"}}, {"targets": [{"id": "n2", "host": "-oX"}]}]
)
def test_a_report_that_does_not_say_how_it_was_made_is_judged_all_the_same(
    full: Ground, kept: dict[str, Any]
) -> None:
    report = scanned(full, profile="full", fail_on="never")
    odd = dataclasses.replace(report.run, replay=kept, ssh_command="touch /evil")
    again = judge_saved(dataclasses.replace(report, run=odd), {}, SAVED)
    assert outcome(again) == outcome(report)
    assert commands(again) == ["ssh n2 heal"]
    with pytest.raises(InputError, match="huge"):
        judge_saved(dataclasses.replace(report, run=dataclasses.replace(odd, profile="huge")), {}, SAVED)


def test_trouble_of_a_check_that_nobody_knows_here_is_told(full: Ground) -> None:
    report = scanned(full, profile="full")
    del full.checks[-1]
    again = judge_saved(report, {}, SAVED)
    assert [n.text for n in again.notes if n.level == "warn"] == [
        "not judged again, because nobody knows them here: bw.pair (see --checks-dir)"
    ]
    named = scanned(full, only=("net.one",))
    del full.checks[1:]
    with pytest.raises(InputError, match="--checks-dir"):
        judge_saved(named, {}, SAVED)


def test_a_baseline_is_read_again_only_when_it_is_named_now(ground: Ground) -> None:
    report = scanned(ground)
    options = {**report.run.replay["options"], "baseline": "/gone.json"}
    kept = {**report.run.replay, "options": options}
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, replay=kept))
    assert judge_saved(report, {}, SAVED).verdict.state == "ready"
    with pytest.raises(InputError, match=r"gone\.json"):
        judge_saved(report, {"baseline": Path("/gone.json")}, SAVED)


def test_facts_of_nodes_that_the_report_does_not_show_are_judged(ground: Ground) -> None:
    report = scanned(ground)
    bare = dataclasses.replace(report.matrix, checks=(), nodes=(), cells=())
    assert judge_saved(dataclasses.replace(report, matrix=bare), {}, SAVED).matrix == report.matrix


def test_an_interrupted_scan_stays_undecided(ground: Ground) -> None:
    report = scanned(ground)
    cut = dataclasses.replace(report, run=dataclasses.replace(report.run, ended_by="interrupt"))
    assert judge_saved(cut, {}, SAVED).verdict.exit_code == 3


def test_a_part_says_how_much_it_is(full: Ground) -> None:
    def part(**said: Any) -> tuple[int, int, int, int] | None:
        report = scanned(full, **said)
        again = judge_saved(report, {}, SAVED)
        assert again.verdict.part == report.verdict.part
        found = report.verdict.part
        return found and (found.checks, found.of_checks, found.nodes, found.of_nodes)

    assert part() is part(only=("*",)) is part(skip=("bw.*",)) is part(node="n[1-3]") is None
    assert part(only=("net.one",)) == (2, 3, 3, 3)
    assert part(only=("bw.pair",)) == (2, 4, 3, 3)
    assert part(skip=("net.one",)) == (2, 3, 3, 3)
    assert part(node="n2") == (3, 3, 1, 3)
    assert part(only=("net.two",), node="n2") == (2, 3, 1, 3)
    whole = scanned(full)
    assert judge_saved(whole, {"node": "n1"}, SAVED).verdict.state == "partial_pass"
    assert judge_saved(whole, {}, SAVED).verdict.state == "ready"


# Parts measured again


def measured(ground: Ground, report: Report, **given: Any) -> Report:
    part = plan_part(report, {"save": None, **given}, None, checks=("net.two",), nodes=("n2",))
    return part.assemble(part.plan.scan().run(part.plan.transport))


def test_the_job_is_the_report_s_whatever_this_shell_holds(ground: Ground) -> None:
    then = {"NCCL_SOCKET_IFNAME": "eth0", "MASTER_PORT": "29401", "HOME": "/root"}
    report = scanned(ground, environ=then, packages="torch")
    again = measured(ground, report, environ={"NCCL_SOCKET_IFNAME": "eth9", "NCCL_DEBUG": "INFO"})
    job = load(again.facts).cluster_fact("job")
    assert job.env == {"NCCL_SOCKET_IFNAME": "eth0", "MASTER_PORT": "29401"}
    assert set(job.env_from.values()) == {CALLING}
    assert (job.master_port, job.master_node, job.packages) == (29401, "n1", ("torch",))


def test_an_env_file_that_has_gone_since_is_not_missed(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "train.env"
    path.write_text("NCCL_IB_DISABLE=1\n")
    report = scanned(ground, env_file=path)
    path.unlink()
    assert load(measured(ground, report).facts).cluster_fact("job").env == {"NCCL_IB_DISABLE": "1"}


def test_a_job_that_is_given_now_is_the_job(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "now.env"
    path.write_text("NCCL_IB_DISABLE=1\n")
    again = measured(ground, scanned(ground, master_port=1234), env_file=path, master_port=4321)
    job = load(again.facts).cluster_fact("job")
    assert (job.env, job.master_port) == ({"NCCL_IB_DISABLE": "1"}, 4321)


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"BASH_ENV": "/evil"}}, {"env": {"NCCL_X": "a\0b"}}, {"env": {"NCCL_X\n": "a"}},
        {"master_addr": "-oX"}, {"master_addr": "a b"}, {"master_port": 0}, {"master_port": 70000},
    ],
)  # fmt: skip
def test_a_strangers_job_keeps_the_rules_of_an_env_file(ground: Ground, change: dict[str, Any]) -> None:
    report = scanned(ground)
    job = report.facts["cluster"]["job"]
    odd = {**report.facts["cluster"], "job": {"value": {**job["value"], **change}}}
    report = dataclasses.replace(report, facts={**report.facts, "cluster": odd})
    with pytest.raises(InputError, match="report"):
        measured(ground, report)


def test_a_part_is_judged_as_strictly_as_the_whole(ground: Ground) -> None:
    ground.checks.append(saying("net.three", skip("n1 is busy", "n1", gap="busy")))
    for said in ({"strict": True}, {"require": ("net",)}):
        report = scanned(ground, **said)
        assert report.verdict.state == "undecided"
        assert measured(ground, report).verdict.state == "undecided"
    assert measured(ground, scanned(ground)).verdict.state == "ready"
    assert measured(ground, scanned(ground, strict=True, fail_on="never")).verdict.exit_code == 0


def test_a_part_is_bounded_as_the_whole_was(ground: Ground) -> None:
    report = scanned(ground, timeout=7.0, deadline=60.0, budget=5.0, parallel=2)
    request = plan_part(report, {}, None, checks=None, nodes=("n1",)).plan.request
    assert (request.timeout, request.deadline, request.budget, request.parallel) == (7.0, 60.0, 5.0, 2)


def test_a_part_keeps_how_the_whole_was_made(ground: Ground) -> None:
    report = scanned(ground, skip=("net.one",))
    again = measured(ground, report)
    assert again.run.replay == report.run.replay
    assert again.matrix.checks == ("ssh.login", "net.two")


def test_only_what_is_known_can_run(ground: Ground) -> None:
    report = scanned(ground)
    del ground.checks[-1]
    with pytest.raises(InputError, match="--checks-dir"):
        plan_part(report, {}, None, checks=("net.two",), nodes=None)


def test_what_does_not_apply_stays_so(ground: Ground) -> None:
    said: list[Finding] = [skip("one node")]
    ground.checks.append(saying("net.x", *said))
    report = scanned(ground, strict=True)
    assert outcome(judge_saved(report, {}, SAVED)) == outcome(report)
    assert report.verdict.state == "ready"
