"""The text report: golden files, and the layout rules that hold for any report."""

import dataclasses
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.report import summary
from netdoctor.report.commands import to_paste
from netdoctor.report.describe import explains, fix_label
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.formats.jsonl import render as jsonl
from netdoctor.report.formats.junit import render as junit
from netdoctor.report.formats.markdown import render as markdown
from netdoctor.report.formats.short import render as short
from netdoctor.report.formats.text import render
from netdoctor.report.model import (
    Cause,
    CommandRecord,
    Explained,
    FamilyRow,
    FixRecord,
    Gap,
    Note,
    Phase,
    Report,
    Result,
)
from netdoctor.report.results import Index
from tests.counting import calls
from tests.report.build import lost, sample_report, with_evidence

GOLDEN = Path(__file__).with_name("golden")
REPORTS: dict[str, Callable[[], Report]] = {
    "ready": lambda: sample_report("ready"),
    "not_ready": lambda: sample_report("not_ready"),
    "undecided": lambda: sample_report("undecided"),
    "interrupted": lambda: sample_report("ready", interrupted=True),
    "thousand": lambda: sample_report("not_ready", nodes=1000),
}


@pytest.mark.parametrize("width", [100, 80, 60, 50])
@pytest.mark.parametrize("name", REPORTS)
def test_golden(name: str, width: int, update_golden: bool) -> None:
    compare(f"{name}_{width}.txt", render(REPORTS[name](), width=width), update_golden)


@pytest.mark.parametrize(("name", "verbosity"), [("quiet", -1), ("verbose", 1), ("very_verbose", 2)])
def test_golden_volume(name: str, verbosity: int, update_golden: bool) -> None:
    report = with_evidence(sample_report("not_ready"))
    compare(f"{name}.txt", render(report, verbosity=verbosity), update_golden)


def test_golden_colour(update_golden: bool) -> None:
    shown = render(sample_report("not_ready"), color=True)
    compare("colour.txt", shown.replace("\x1b", "<ESC>"), update_golden)


def compare(name: str, shown: str, update: bool) -> None:
    path = GOLDEN / name
    if update:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(shown)
    assert shown == path.read_text(), "different; when meant so: pytest tests/report --update-golden"


@pytest.mark.parametrize("nodes", [4, 64, 1000])
def test_three_causes_fit_the_first_screen(nodes: int) -> None:
    assert len(render(sample_report("not_ready", nodes=nodes)).splitlines()) <= 40


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [100, 80, 60, 50])
def test_only_commands_are_wider_than_the_screen(name: str, width: int) -> None:
    report = REPORTS[name]()
    commands = {c.shell for cause in report.causes for fix in cause.fixes for c in fix.commands}
    commands |= {cause.verify.shell for cause in report.causes if cause.verify}
    for line in render(report, width=width).splitlines():
        known = any(command in line for command in commands) or "netdoctor " in line or "for node in" in line
        assert len(line) <= width or known, line


@pytest.mark.parametrize("width", [80, 50])
def test_an_address_is_never_broken(width: int) -> None:
    """It is clicked, or pasted."""
    report = sample_report("not_ready")
    see = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    causes = tuple(dataclasses.replace(cause, see=see) for cause in report.causes)
    shown = render(dataclasses.replace(report, causes=causes), width=width).splitlines()
    assert sum(line.endswith(see) for line in shown) == len(causes)


@pytest.mark.parametrize("name", REPORTS)
def test_our_own_text_is_ascii(name: str) -> None:
    assert render(REPORTS[name](), verbosity=2).isascii()


@pytest.mark.parametrize("width", [100, 80, 60, 50])
def test_commands_stand_alone_and_whole(width: int) -> None:
    lines = [line.strip() for line in render(sample_report("not_ready"), width=width).splitlines()]
    for cause in sample_report("not_ready").causes:
        for fix in cause.fixes:
            for command in fix.commands:
                assert command.shell in lines
                shlex.split(command.shell)


CI_COMMANDS = (
    "::add-mask::READY", "::stop-commands::x", "::set-output name=a::b", "##[add-mask]x", "##[error]x",
    "##vso[task.setvariable variable=PATH]/tmp", "##teamcity[buildStatus text='ok']", "#####vso[x]",
)  # fmt: skip


@pytest.mark.parametrize("said", CI_COMMANDS)
def test_no_ci_takes_a_word_of_a_node_for_a_command(said: str) -> None:
    """Wherever the line happens to be wrapped, and in every format that a job prints."""
    text = f"x {said} " * 40
    cause = sample_report("not_ready").causes[0]
    fix = dataclasses.replace(cause.fixes[0], text=text, widens=text, where=text)
    shell = CommandRecord(run_on=("n1",), shell=f"ssh n1 'echo {said}'")
    cause = dataclasses.replace(
        cause, title=text, seen=(text, said), why=text, settle_by=text, see=said,
        fixes=(dataclasses.replace(fix, commands=(shell,)),),
    )  # fmt: skip
    report = dataclasses.replace(
        sample_report("not_ready"), causes=(cause,), notes=(Note(level="warn", text=text),)
    )
    shown = [render(report, width=width, verbosity=2) for width in range(40, 101, 6)]
    shown += [short(report), markdown(report), junit(report), jsonl(report).decode()]
    shown += [dumps(report).decode(), dumps(report, pretty=True).decode()]
    for line in "".join(shown).splitlines():
        assert not line.lstrip().startswith("::"), line
        assert not re.search(r"##\w*\[", line), line
    assert loads(dumps(report)).causes == (cause,)


def test_no_colour_unless_asked() -> None:
    assert "\x1b" not in render(sample_report("not_ready"), verbosity=2)


@pytest.mark.thorough
def test_saved_report_shows_the_same() -> None:
    for make in REPORTS.values():
        report = with_evidence(make()) if make().results else make()
        for width in (100, 60):
            for verbosity in (-1, 0, 1, 2):
                again = loads(dumps(report, facts=True))
                assert render(again, width=width, verbosity=verbosity) == render(
                    report, width=width, verbosity=verbosity
                )


def test_more_than_three_nodes_become_a_loop() -> None:
    shown = render(many_nodes(5))
    names = " ".join(f"gpu-a{n:02}" for n in range(1, 6))
    assert f"      for node in {names}; do ssh \"$node\" 'sudo true'; done\n" in shown
    assert "      ssh gpu-a01 'sudo true'\n" in render(many_nodes(3))


def test_two_commands_on_two_nodes_each_are_no_loops() -> None:
    shells = [f"ssh n{n} {word}" for word in ("true", "uptime") for n in (1, 2)]
    records = [CommandRecord(run_on=(s.split()[1],), shell=s, inner=s.split()[2]) for s in shells]
    assert to_paste(records) == shells


def test_the_same_command_four_times_without_a_nodes_name_is_no_loop() -> None:
    assert to_paste([CommandRecord(run_on=("job",), shell="true")] * 4) == ["true"] * 4


def test_a_header_as_wide_as_the_screen_stays_one_line() -> None:
    header = render(sample_report("ready"), width=200).splitlines()[0]
    assert render(sample_report("ready"), width=len(header)).splitlines()[0] == header


def test_commands_that_make_no_loop_are_counted() -> None:
    commands = tuple(
        CommandRecord(run_on=(f"n{n}",), shell=f"ssh -p 22{n} h{n} 'set-name n{n}'", inner=f"set-name n{n}")
        for n in range(9)
    )
    shown = render(with_fix(commands))
    assert "# and 6 more like these: --all" in shown
    assert shown.count("set-name") == 3
    assert render(with_fix(commands), all_causes=True).count("set-name") == 9


def many_nodes(count: int) -> Report:
    return with_fix(
        tuple(
            CommandRecord(run_on=(f"gpu-a{n:02}",), shell=f"ssh gpu-a{n:02} 'sudo true'", inner="sudo true")
            for n in range(1, count + 1)
        )
    )


def with_fix(commands: tuple[CommandRecord, ...]) -> Report:
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], fixes=(FixRecord(text="heal it", commands=commands),))
    return dataclasses.replace(report, causes=(cause,))


def test_fix_label_says_what_the_fix_costs() -> None:
    fix = FixRecord(
        text="load the module",
        commands=(CommandRecord(run_on=("gpu-a02",), shell="ssh gpu-a02 'sudo modprobe x'"),),
        needs_root=True,
        needs_reboot=True,
        persistent=False,
        widens="lets jobs read physical memory",
        risk="high",
    )
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], fixes=(fix,))
    report = dataclasses.replace(report, causes=(cause,))
    shown = " ".join(render(report).split())
    assert (
        "fix RISK HIGH: load the module [on gpu-a02, root, at once, lost at reboot, needs a reboot; "
        "lets jobs read physical memory]"
    ) in shown
    assert "fix       \x1b[31;1mRISK HIGH: \x1b[0mload" in render(report, color=True)


@pytest.mark.parametrize(
    ("fix", "label"),
    [
        (FixRecord(text="ask for it", kind="owner"), "ask for it"),
        (
            FixRecord(text="name them", kind="hosts", effect="next scan", where="on node1"),
            "name them [on node1, in the hosts file, next scan]",
        ),
    ],
)
def test_fix_label_of_words_says_when_only_of_the_hosts_file(fix: FixRecord, label: str) -> None:
    assert fix_label(sample_report("not_ready"), fix) == label


def test_what_a_cause_explains_leaves_out_its_own_result_and_what_did_not_run() -> None:
    report = sample_report("not_ready")
    ends = [
        ("net.ports", "gpu-a03"),
        ("bw.pair", "gpu-a01"),
        ("time.sync", "gpu-a01"),
        ("time.skew", "gpu-a02"),
    ]
    cause = dataclasses.replace(
        report.causes[0], explains=tuple(Explained(check=check, target=end) for check, end in ends)
    )
    assert explains(report, cause, Index(report)) == ["time.skew on gpu-a02"]


def test_suspected_causes_say_so_and_what_would_settle_them() -> None:
    report = sample_report("not_ready")
    cause = dataclasses.replace(
        report.causes[0], confidence="suspected", settle_by="netdoctor scan --last --only net.firewall"
    )
    shown = render(dataclasses.replace(report, causes=(cause,)))
    assert "[1] FAIL  suspected: gpu-a03 drops" in shown
    assert "    settle    netdoctor scan --last --only net.firewall\n" in shown


def test_ten_causes_then_a_count() -> None:
    report = sample_report("not_ready")
    causes = tuple(dataclasses.replace(report.causes[1], id=n) for n in range(1, 18))
    report = dataclasses.replace(report, causes=causes)
    assert "\nand 7 more: --all\n\n" in (shown := render(report))
    assert "\n\n\n" not in shown
    assert "\nand 7 more: --all\n\nNOT READY, exit 1" in render(report, verbosity=-1)
    assert "[17]" in render(report, all_causes=True)
    assert "[11]" not in render(report).split("next ")[0]


def test_long_node_lists_are_cut_and_whole_with_v() -> None:
    nodes = tuple(f"n{3 * n:05}" for n in range(400))
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], node_list=nodes)
    report = dataclasses.replace(report, causes=(cause,))
    assert "(400 nodes)" in render(report)
    assert "01197" not in render(report)
    assert "01197" in render(report, verbosity=1)


def test_evidence_that_is_left_out_is_counted() -> None:
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], seen=tuple(f"line {n}" for n in range(9)))
    report = dataclasses.replace(report, causes=(cause,))
    assert "line 4 (and 4 more: -v)" in render(report)
    assert "line 8" in render(report, verbosity=1)


def test_more_causes_are_no_longer_each() -> None:
    """Of seven causes nobody sees five lines each where three have three."""
    report = sample_report("not_ready")
    long = dataclasses.replace(report.causes[0], seen=tuple(f"seen {n}" for n in range(9)))
    seven = dataclasses.replace(report, causes=tuple(dataclasses.replace(long, id=n) for n in range(1, 8)))
    assert render(seven).count("seen 1 (and 7 more: -v)") == 7
    assert render(seven, verbosity=1).count("seen 8") == 7


def test_nodes_that_differ_in_addresses_alone_share_a_line() -> None:
    report = sample_report("ready")
    results = tuple(
        Result(
            check="net.part0",
            target=node,
            status="pass",
            summary=f"eth0 10.0.0.{n} of 10.0.0.9{' (predicted)' if n == 4 else ''}",
        )
        for n, node in enumerate(report.matrix.nodes, 1)
    )
    shown = render(dataclasses.replace(report, results=results), verbosity=1)
    assert "      gpu-a[01-03] ok: eth0 10.0.0.[1-3] of 10.0.0.9\n" in shown
    assert "      gpu-a04 ok: eth0 10.0.0.4 of 10.0.0.9 (predicted)\n" in shown


def test_times_are_those_of_phases_and_logins() -> None:
    report = sample_report("ready")
    phases = (Phase(name="connect", duration_ms=930), Phase(name="ports", duration_ms=3_100))
    targets = tuple(dataclasses.replace(t, login_ms=100.0 * t.order) for t in report.targets)
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, phases=phases), targets=targets)
    shown = render(loads(dumps(report)), verbosity=2)
    assert "times     connect     0.9 s\n          ports       3.1 s\n" in shown
    assert "logins    median 200 ms; slowest gpu-a04 300 ms, gpu-a03 200 ms, gpu-a02 100 ms\n" in shown
    assert " ms\n" not in render(with_evidence(sample_report("not_ready")), verbosity=2)


def test_notes_come_at_the_end() -> None:
    report = dataclasses.replace(
        sample_report("ready"),
        notes=(Note(level="info", text="these nodes are a lab; its GPUs are pretended"),),
    )
    assert render(report).splitlines()[-2] == "note      these nodes are a lab; its GPUs are pretended"


def test_a_family_that_waits_is_not_ok() -> None:
    report = sample_report("not_ready")
    rows = tuple(
        FamilyRow(family="nccl", checks=6, status="pass", causes=(1,)) if row.family == "nccl" else row
        for row in report.families
    )
    shown = render(dataclasses.replace(report, families=rows))
    assert re.search(r"^  blocked  nccl, bandwidth   by \[1\]$", shown, re.MULTILINE)


def test_a_skipped_family_is_not_ok() -> None:
    report = sample_report("ready")
    rows = (FamilyRow(family="rdma", checks=4, status="skip", causes=(), remark="no node has an HCA"),)
    shown = render(dataclasses.replace(report, families=rows))
    assert re.search(r"^  skip  rdma +no node has an HCA$", shown, re.MULTILINE)


def test_long_tables_join_rows_that_say_the_same() -> None:
    report = sample_report("ready")
    rows = tuple(
        FamilyRow(family=f"plug{n}", checks=2, status="skip", causes=(), remark="none") for n in range(12)
    )
    shown = render(dataclasses.replace(report, families=(*report.families, *rows)))
    assert re.search(r"\n  skip  plug0, plug1, (.*, )plug11\n", shown)
    assert len(shown.splitlines()) < 12


def test_without_a_saved_report_nothing_points_at_one() -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, saved_to=None))
    shown = render(report)
    assert "next      fix [1] and [2], then scan again\n" in shown
    assert "report   " not in shown


def test_a_report_saved_elsewhere_is_named() -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, saved_to="my reports/a.json"))
    shown = render(report)
    assert "netdoctor scan --last --save 'my reports/a.json'\n" in shown
    assert "netdoctor report show -v 'my reports/a.json'\n" in shown


def test_cause_without_anything_optional() -> None:
    bare = Cause(
        id=1, key="k", fingerprint="f", status="fail", title="", checks=(), nodes="", node_list=(),
        confidence="certain",
    )  # fmt: skip
    report = dataclasses.replace(sample_report("not_ready"), causes=(bare,))
    for width in (100, 80, 50):
        assert "[1] FAIL" in render(report, width=width)


def test_an_empty_report_is_not_green() -> None:
    report = sample_report("undecided")
    empty = Report(run=report.run, verdict=report.verdict)
    assert "UNDECIDED" in render(empty)
    assert "ok" not in render(empty).split()


def test_short_is_silent_when_ready_and_one_line_per_cause_otherwise() -> None:
    assert short(sample_report("ready")) == ""
    lines = short(sample_report("not_ready")).splitlines()
    assert lines[0] == "FAIL net.ports gpu-a03 drops connections that come from the other nodes"
    assert len(lines) == 3
    report = dataclasses.replace(sample_report("undecided"), causes=())
    assert short(report).startswith("UNDECIDED no problem proven")


def test_a_long_headline_says_what_was_not_tested_once() -> None:
    report = sample_report("ready")
    gap = Gap(family="bw", what="the all-reduce", reason="x" * 290, nodes=report.matrix.nodes)
    said = f"{'y' * 200}; {summary.gaps((gap,), 4)}"
    verdict = dataclasses.replace(report.verdict, gaps=(gap,), headline=said)
    shown = render(dataclasses.replace(report, verdict=verdict))
    assert shown.count("the all-reduce") == shown.count("not tested") == 1


def test_short_says_what_ready_does_not_speak_of() -> None:
    report = sample_report("ready")
    gap = Gap(family="bw", what="the all-reduce", reason="no torch", nodes=report.matrix.nodes)
    said = "40 checks pass on 4 nodes; not tested: the all-reduce (no torch)"
    verdict = dataclasses.replace(report.verdict, gaps=(gap,), headline=said)
    report = dataclasses.replace(report, verdict=verdict)
    (line,) = short(report).splitlines()
    assert line == f"READY {said}"


def test_unknown_causes_say_what_to_try() -> None:
    assert "    try       netdoctor scan --last --node gpu-a02 -vv\n" in render(sample_report("undecided"))
    assert lost("gpu-a02").status == "unknown"


@pytest.mark.thorough
def test_showing_a_report_grows_with_its_nodes_and_no_faster() -> None:
    few, many = (dumps(sample_report("not_ready", nodes=n), facts=True) for n in (1000, 4000))
    render(loads(few))
    assert calls(lambda: render(loads(many))) < 4.5 * calls(lambda: render(loads(few)))
