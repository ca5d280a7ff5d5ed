"""What is accepted in netdoctor.toml: no cause of the verdict, seen everywhere, green only where measured."""

import json
import tracemalloc
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdoctor import cli
from netdoctor.compat import UTC
from netdoctor.engine.assemble.accepted import Suppression, is_open
from netdoctor.engine.assemble.report import Context, build
from netdoctor.engine.judge import judge
from netdoctor.engine.run import Outcome
from netdoctor.errors import InputError
from netdoctor.model import CLUSTER, Finding, Status, fail, nodes_of, pair, unknown, warn
from netdoctor.report.diff import diff
from netdoctor.report.formats import html, markdown, prom, short
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.formats.junit import render as junit
from netdoctor.report.formats.sarif import render as sarif
from netdoctor.report.formats.text import render
from netdoctor.report.model import Report
from netdoctor.report.redact import redact
from netdoctor.report.save import load, save
from netdoctor.scanning import ScanRequest, judge_saved, kept_request
from netdoctor.scanning.settings import read
from netdoctor.tui import pages
from netdoctor.tui.state import opened
from tests.core.fake import hint, saying, store_of
from tests.engine.test_build import RUN
from tests.report import strict
from tests.scanning.ground import Ground
from tests.strangers import strangers

TODAY = datetime.now(UTC).date()
SOON = TODAY + timedelta(days=9)


def on(node: str, key: str = "worn", **details: Any) -> Finding:
    return fail(node, f"{node} is worn", cause=hint(key, node, **details))


def scan(ground: Ground, toml: str, *said: Finding, **asked: Any) -> Report:
    """A scan in which the check net.one says this, with what is accepted in `toml`."""
    Path("netdoctor.toml").write_text(toml)
    ground.checks[1] = saying("net.one", *said)
    return loads(dumps(ground.scan(ScanRequest(hosts=("n[1-3]",), **asked)), facts=True))


def suppress(**keys: str) -> str:
    lines = {"check": '"net.one"', "reason": '"RMA 4711"', **keys}
    return "[[suppress]]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items() if value)


def row(report: Report, check: str = "net.one") -> str:
    return dict(zip(report.matrix.checks, report.matrix.cells, strict=True))[check]


def notes(report: Report) -> str:
    return "\n".join(note.text for note in report.notes)


def test_an_accepted_failure_is_ready_and_says_so_everywhere(ground: Ground) -> None:
    bad = scan(ground, "", on("n2"))
    assert (bad.verdict.state, bad.verdict.exit_code) == ("not_ready", 1)
    report = scan(ground, suppress(nodes='"n[2-9]"', until=f"{SOON}"), on("n2"))
    assert (report.verdict.state, report.verdict.exit_code) == ("ready", 0)
    assert report.verdict.headline == f"1 known problem accepted until {SOON}, 3 checks pass on 3 nodes"
    assert (report.causes, row(report)) == ((), ".-.")
    (one,) = report.suppressed
    assert (one.status, one.node_list, one.reason, one.until) == (
        "fail",
        ("n2",),
        "RMA 4711",
        SOON.isoformat(),
    )
    assert (one.place, one.fingerprint) == ("netdoctor.toml:1", bad.causes[0].fingerprint)
    said = f"accepted until {SOON}: RMA 4711"
    line = f"FAIL net.one n2 is bad (until {SOON}: RMA 4711; netdoctor.toml:1)"
    shown = render(report)
    assert f"READY       1 known problem accepted until {SOON}, 3 checks" in shown
    assert f"\naccepted  {line}\n" in shown
    assert short.render(report) == f"READY 1 known problem accepted until {SOON}, 3 checks pass on 3 nodes\n"
    assert json.loads(dumps(report))["suppressed"][0]["title"] == "n2 is bad"
    assert f'<skipped message="{said}; n2 is worn" />' in junit(report)
    assert "netdoctor_suppressed 1\n" in prom.render(report)
    assert "- accepted: FAIL net.one n2 is bad" in markdown.render(report)
    assert line in html.render(report)
    (told,) = strict.sarif(sarif(report))["results"]
    assert told["suppressions"] == [{"kind": "external", "justification": f"RMA 4711 (until {SOON})"}]
    assert f"  accepted  {line}" in [shown.text for shown in pages.banners(opened(report), 0.0, 200)]
    # It is neither healed nor new, whichever of the two reports is older.
    assert not diff(bad, report).healed
    assert not diff(report, bad).new
    hidden = redact(report)
    assert hidden.suppressed[0].node_list == ("node002",)
    assert hidden.suppressed[0].fingerprint != one.fingerprint


ALL = fail(CLUSTER, "all", cause=hint("all", CLUSTER))
CUT = fail(pair("n1", "n2"), "cut", cause=hint("cut", "n1", "n2"))
ODD = warn("n2", "odd", cause=hint("odd", "n2"))
SILENT = unknown("n2", "no answer")
ENDED = TODAY - timedelta(days=1)


@pytest.mark.parametrize(
    ("toml", "said", "state", "told"),
    [
        pytest.param(suppress(nodes='"n1"'), on("n2"), "not_ready", "matches nothing", id="another node"),
        pytest.param(suppress(check='"net.two"'), on("n2"), "not_ready", "matches nothing", id="other check"),
        pytest.param(suppress(check='"net.*"'), on("n2"), "ready", "", id="a glob"),
        pytest.param(suppress(check="", cause='"worn"'), on("n2"), "ready", "", id="a cause"),
        pytest.param(
            suppress(check="", cause='"torn"'), on("n2"), "not_ready", "matches nothing", id="other cause"
        ),
        pytest.param(suppress(until=f"{TODAY}"), on("n2"), "ready", "", id="its last day"),
        pytest.param(suppress(until=f"{ENDED}"), on("n2"), "not_ready", "not applied any more", id="ended"),
        pytest.param(suppress(), SILENT, "undecided", "could not be measured cannot be", id="unknown"),
        pytest.param(suppress(nodes='"n1"'), ALL, "not_ready", "matches nothing", id="more than its nodes"),
        pytest.param(suppress(), ALL, "ready", "", id="the cluster"),
        pytest.param(suppress(), ODD, "ready", "", id="a warning"),
        pytest.param(suppress(nodes='"n1"'), CUT, "not_ready", "matches nothing", id="half of a pair"),
    ],
)
def test_scope(ground: Ground, toml: str, said: Finding, state: str, told: str) -> None:
    report = scan(ground, toml, said, fail_on="warn")
    assert report.verdict.state == state
    assert report.verdict.exit_code == {"ready": 0, "not_ready": 1, "undecided": 3}[state]
    assert (told in notes(report)) if told else ("netdoctor.toml" not in notes(report))
    assert bool(report.suppressed) == (state == "ready")


def test_of_a_cause_on_two_nodes_only_the_named_one_is_accepted(ground: Ground) -> None:
    report = scan(ground, suppress(nodes='"n1"'), on("n1"), on("n2"))
    assert (report.verdict.state, row(report)) == ("not_ready", "-X.")
    assert [(c.node_list, c.title) for c in report.causes] == [(("n2",), "n2 is bad")]
    assert [s.node_list for s in report.suppressed] == [("n1",)]
    assert report.verdict.headline == "1 known problem accepted, 1 problem stops the launch"
    assert (report.healthy_nodes, report.unhealthy_nodes) == (("n1", "n3"), ("n2",))
    both = suppress(nodes='"n1"') + suppress(nodes='"n2"', reason='"the other"', until=f"{SOON}")
    report = scan(ground, both, on("n1"), on("n2"))
    assert report.verdict.state == "ready"
    assert report.verdict.headline.startswith(f"2 known problems accepted, the first until {SOON}, ")
    assert "\naccepted  FAIL net.one n2 is bad" in render(report)
    assert "(and 1 more: -v)" in render(report)


def test_what_another_check_found_of_the_same_has_to_be_named(ground: Ground) -> None:
    ground.checks[2] = saying("net.two", on("n2"))
    report = scan(ground, suppress(), on("n2"))
    assert report.verdict.state == "not_ready"
    assert "net.two found it on the same nodes, but is not named; cause = 'worn' accepts all" in notes(report)
    assert scan(ground, suppress(check="", cause='"worn"'), on("n2")).verdict.state == "ready"


def test_what_was_not_measured_is_not_accepted_with_the_rest_of_its_cause(ground: Ground) -> None:
    """An unknown of the whole cluster, or of an accepted node, under the key of an accepted failure."""
    everywhere = [on("n1"), on("n2"), on("n3")]
    whole = unknown(CLUSTER, "x", cause=hint("worn", CLUSTER))
    report = scan(ground, suppress(check="", cause="'worn'"), *everywhere, whole)
    assert (report.verdict.state, row(report)) == ("undecided", "???")
    assert len(report.suppressed) == 1
    report = scan(
        ground, suppress(check="", cause="'worn'"), on("n1"), unknown("n2", "x", cause=hint("worn", "n2"))
    )
    assert (report.verdict.state, row(report)) == ("undecided", "-?.")


def test_another_problem_in_the_same_cell_stays(ground: Ground) -> None:
    other = on("n2", "torn", title="{nodes} is torn")
    report = scan(ground, suppress(check="", cause='"worn"'), on("n2"), other)
    assert (report.verdict.state, row(report)) == ("not_ready", ".X.")
    assert [c.key for c in report.causes] == ["torn"]
    assert [s.key for s in report.suppressed] == ["worn"]


def test_what_waits_for_an_accepted_problem_was_not_examined(ground: Ground) -> None:
    ground.checks.append(saying("net.three", after=("net.one",), scope="node"))
    report = scan(ground, suppress(), on("n2"))
    assert (report.verdict.state, report.verdict.exit_code) == ("undecided", 3)
    assert "1 known problem accepted (blocks 1 result)" in report.verdict.headline
    assert row(report, "net.three") == ".b."
    assert report.healthy_nodes == ("n1", "n3")


def test_what_waits_for_an_accepted_problem_and_is_not_required_leaves_the_verdict(ground: Ground) -> None:
    ground.checks.append(saying("net.three", after=("net.one",), scope="node", required=False))
    report = scan(ground, suppress(), on("n2"))
    assert (report.verdict.state, row(report, "net.three")) == ("ready", ".b.")
    assert scan(ground, suppress(), on("n2"), require=("net",)).verdict.state == "undecided"


@pytest.mark.parametrize(("nodes", "told"), [("n[1-3]", True), ("n[1-4]", False)])
def test_what_is_accepted_and_gone_is_told_once_all_its_nodes_were_examined(
    ground: Ground, nodes: str, told: bool
) -> None:
    report = scan(ground, suppress(nodes=f'"{nodes}"'))
    assert ("matches nothing that was found; it can be removed" in notes(report)) is told


def test_consequences_have_to_be_named(ground: Ground) -> None:
    ground.checks[1] = saying("net.one", on("n2"), explains=("net.two",))
    ground.checks[2] = saying("net.two", on("n2", "follows"))
    Path("netdoctor.toml").write_text(suppress())
    report = ground.scan(ScanRequest(hosts=("n[1-3]",)))
    assert report.verdict.state == "not_ready"
    assert "it has consequences in net.two, which it does not name" in notes(report)
    Path("netdoctor.toml").write_text(suppress(check='["net.one", "net.two"]'))
    assert ground.scan(ScanRequest(hosts=("n[1-3]",))).verdict.state == "ready"


def test_it_lies_beside_the_hosts_file_and_is_found_again(ground: Ground) -> None:
    Path("cluster").mkdir()
    Path("cluster/hosts.txt").write_text("n[1-3]\n")
    Path("cluster/netdoctor.toml").write_text(suppress())
    ground.checks[1] = saying("net.one", on("n2"))
    report = save(ground.scan(ScanRequest(hosts=("cluster/hosts.txt",))))
    assert report.verdict.state == "ready"
    assert ground.scan(ScanRequest(hosts=("n[1-3]",))).verdict.state == "not_ready"
    assert (
        ground.scan(ScanRequest(hosts=("cluster/hosts.txt",), suppress=Path(""))).verdict.state == "not_ready"
    )
    assert ground.scan(kept_request(load(), {})).verdict.state == "ready"
    assert judge_saved(load(), {}, Path("x")).verdict.state == "ready"
    Path("cluster/netdoctor.toml").unlink()
    again = ground.scan(kept_request(load(), {}))
    assert again.verdict.state == "not_ready"
    assert "cannot be found any more: what it accepted counts again" in notes(again)


@pytest.mark.parametrize(
    ("toml", "line", "told"),
    [
        ("[[suppress]]\nchek = 'net.one'\nreason = 'x'\n", 2, "nobody knows 'chek'; did you mean check?"),
        ("\n[[supress]]\ncheck = 'net.one'\n", 2, "nobody knows 'supress'; did you mean suppress?"),
        (suppress(check="'net.oen'"), 2, "no check is called 'net.oen'; did you mean net.one?"),
        (suppress() + "\n" + suppress(reason=""), 5, 'say why: reason = "..." is required'),
        (suppress(reason="'  '"), 3, "reason is a text in quotes"),
        (suppress(check="", cause=""), 1, "say what is accepted"),
        (suppress(check="[]"), 2, "check is a text in quotes, or a list"),
        (suppress(until="'2026-12-31'"), 4, "until is a date without quotes"),
        (suppress(until="2026-12-31T00:00:00"), 4, "until is a date without quotes"),
        (suppress(nodes="'n[1-'"), 4, "n[1-"),
        ("suppress = 3\n", 1, "write each as a table of its own: [[suppress]]"),
        ("[[suppress]\n", 1, "at line 1"),
    ],
)
def test_mistakes_contact_nobody(
    ground: Ground, capsys: pytest.CaptureFixture[str], toml: str, line: int, told: str
) -> None:
    Path("netdoctor.toml").write_text(toml)
    assert cli.run(["scan", "n1"]) == 2
    err = capsys.readouterr().err
    assert "netdoctor.toml: " in err
    assert f"line {line}" in err
    assert told in err
    assert not Path(".netdoctor").exists()


def test_a_file_that_is_named_has_to_be_there(ground: Ground) -> None:
    with pytest.raises(InputError, match=r"gone\.toml: no such file"):
        scan(ground, "", suppress=Path("gone.toml"))


NODES = ("n1", "n2", "n3")
WHERE = st.sampled_from([*NODES, pair("n1", "n2"), pair("n2", "n3"), CLUSTER])
KEYS = st.sampled_from(["worn", "torn", "lost"])


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    say = draw(st.sampled_from([fail, fail, warn, unknown]))
    where = draw(WHERE)
    named = nodes_of(where) or (CLUSTER,)
    culprits = draw(st.sampled_from([named, named[:1], NODES[:2]]))
    return say(where, f"{where} is bad", cause=hint(draw(KEYS), *culprits))


@st.composite
def entries(draw: st.DrawFn) -> Suppression:
    check = draw(st.sampled_from([(), ("net.one",), ("net.three",), ("net.one", "net.two"), ("net.*",)]))
    cause = draw(KEYS | st.none()) if check else draw(KEYS)
    nodes = draw(st.none() | st.frozensets(st.sampled_from(NODES), min_size=1))
    until = draw(st.sampled_from([None, TODAY, ENDED]))
    return Suppression(check=check, cause=cause, nodes=nodes, reason="x", until=until, position="t:1")


SAID = st.lists(st.tuples(st.integers(0, 3), findings()), max_size=4)


WORN = [fail("n1", "n1 is bad", cause=hint("worn", "n1")), unknown("n1", "?", cause=hint("worn", "n1"))]
ALL = Suppression(check=("net.*",), reason="x", position="t:1")


@given(SAID, st.lists(entries(), max_size=3))
@example([(2, WORN[0]), (3, WORN[0]), (3, WORN[1])], [ALL])  # one explains both
@settings(deadline=None)
def test_no_suppression_hides_more_than_it_names(
    told: list[tuple[int, Finding]], asked: list[Suppression]
) -> None:
    """Whatever is found and accepted: green needs every trouble named, and nothing unknown or left aside."""
    said = [[finding for at, finding in told if at == number] for number in range(4)]
    checks = [saying("net.one", *said[0]), saying("net.two", *said[1], after=("net.one",))]
    checks += [saying("net.three", *said[2], explains=("net.four",)), saying("net.four", *said[3])]
    store = store_of(3)
    judgement = judge(checks, NODES, store)
    outcome = Outcome(store=store, judgement=judgement)
    context = {"run": RUN, "keep_facts": False}
    bare = build(outcome, Context(**context))
    report = build(outcome, Context(**context, suppressions=tuple(asked), today=TODAY))
    holds = [one for one in asked if one.until is None or one.until >= TODAY]

    def covers(one: Suppression, check: str, finding: Finding) -> bool:
        cause = finding.cause
        assert cause is not None
        blamed = {node for culprit in cause.culprits for node in nodes_of(culprit) or (culprit,)}
        here = not one.check or one.check == ("net.*",) or check in one.check
        return here and one.cause in (None, cause.key) and (one.nodes is None or blamed <= one.nodes)

    def named(check: str, finding: Finding) -> bool:
        """By itself; or as a consequence, by its check, of what is named."""
        explained = check == "net.four"
        return any(covers(one, check, finding) for one in holds) or any(
            explained and one.check in (("net.*",), ("net.four",)) and covers(one, "net.three", other)
            for one in holds
            for other in said[2]
        )

    spoken = [(check, f) for check, found in judgement.findings.items() for f in found]
    trouble = [(c, f) for c, f in spoken if f.status in (Status.FAIL, Status.WARN)]
    if report.verdict.state == "ready":
        assert all(named(c, f) for c, f in trouble if f.status is Status.FAIL)
        assert not any(f.status is Status.UNKNOWN for _, f in spoken)
        assert not report.verdict.counts.blocked
        assert report.suppressed or bare.verdict.state == "ready"
    # Every trouble is in a cause or among what is accepted, by name; nothing is in both.
    shown = {(c.key, n) for c in (*report.causes, *report.suppressed) for n in c.node_list}
    assert shown == {(c.key, n) for c in bare.causes for n in c.node_list}
    # A letter changes only to a skip, or to what is unknown of all nodes, and only where everything that was
    # said of that cell is named.
    unmeasured = {c for c, f in spoken if is_open(f)}
    unsure = {(c, n) for c, f in spoken if f.status is Status.UNKNOWN for n in nodes_of(f.target)}
    rows = zip(bare.matrix.cells, report.matrix.cells, bare.matrix.checks, strict=True)
    for before, after, check in rows:
        for old, new, node in zip(before, after, NODES, strict=True):
            if old != new:
                is_open_here = check in unmeasured or (check, node) in unsure
                assert (old in "X!", new) == (True, "?" if is_open_here else "-")
                assert all(named(c, f) for c, f in trouble if c == check and f.target == node)
    if not report.suppressed:
        assert replace(report, notes=()) == replace(bare, notes=())
    # What was written can be read: it is no damaged file that somebody has accepted something in.
    assert loads(dumps(report)).verdict == report.verdict


def test_what_a_stranger_could_have_written_accepts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ground: Ground
) -> None:
    """Neither beside the hosts file, nor where netdoctor is called, nor by a report that names it so."""
    toml, elsewhere = Path("netdoctor.toml"), Path("accepted.toml")
    toml.write_text(suppress())
    Path("hosts.txt").write_text("n1\n")
    ground.checks[1] = saying("net.one", on("n1"))
    asked: list[dict[str, Any]] = [
        {"hosts": ("n1",)}, {"hosts": ("hosts.txt",)}, {"hosts": ("n1",), "suppress": toml},
    ]  # fmt: skip
    for one in asked:
        toml.chmod(0o664)  # the umask of many distributions
        assert ground.scan(ScanRequest(**one)).suppressed
        toml.chmod(0o666)
        with pytest.raises(InputError, match=r"netdoctor.toml: everybody may write to it \(mode 666\)"):
            ground.scan(ScanRequest(**one))
        toml.chmod(0o644)
        with strangers(monkeypatch, toml), pytest.raises(InputError, match="belongs to uid"):
            ground.scan(ScanRequest(**one))
    assert not ground.scan(ScanRequest(hosts=("n1",), suppress=Path())).suppressed
    toml.rename(elsewhere)
    toml.symlink_to(elsewhere)
    assert ground.scan(ScanRequest(hosts=("n1",))).suppressed
    with strangers(monkeypatch, toml), pytest.raises(InputError, match="it is a link that belongs to uid"):
        ground.scan(ScanRequest(hosts=("n1",)))
    elsewhere.chmod(0o666)
    assert ground.scan(ScanRequest(hosts=("n1",), suppress=elsewhere)).suppressed  # as it was named


@pytest.mark.parametrize(
    "text",
    [
        "[[suppress]]\ncheck = 'net.one'\nreason = 'x'\nnodes = [" + "'n[1-20000]'," * 12_000 + "]\n",
        "".join(
            f"[[suppress]]\ncheck = 'net.one'\nreason = 'x'\nnodes = ['n{i}[1-20000]', 'm[1-20000]']\n"
            for i in range(900)
        ),
        ".".join("a" * 90_000) + " = 1\n",
        f"x = {{{'.'.join('a' * 90_000)} = 1}}\n",
        f"{'.'.join('a' * 20)} = 1\n",
        f"[{'.'.join('a' * 400)}]\n" + "".join(f"k{i} = 1\n" for i in range(20_000)),
    ],
)
def test_a_file_is_small_in_memory_whatever_it_says(text: str, tmp_path: Path) -> None:
    path = tmp_path / "netdoctor.toml"
    path.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match=r"more than 200000 names in all|more than 16 deep|more than 32 dots"
        ) as raised:
            read(path, [saying("net.one")])
        assert len(str(raised.value)) < 300
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()
