"""Text from nodes, files and plug-ins stays text, in every widget, under every click.

One report says all of the corpus at once, each string in every field that may hold one; what each string by
itself becomes is for the tests of the sanitisers, and of the last wall here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from textual.strip import Strip
from textual.widget import Widget

from netdoctor.report.model import (
    Cause,
    CheckRecord,
    EvidenceRecord,
    Matrix,
    MeasureRecord,
    Note,
    PairRecord,
    Report,
    Result,
    TargetRecord,
)
from netdoctor.tui.actions.rerun import run
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.events import Ended, Failed, NodeDone, Phase
from netdoctor.tui.export import fixes_script
from netdoctor.tui.keys import VIEWS
from netdoctor.tui.lines import Line, inert
from netdoctor.tui.matrix import HEAD, MatrixView
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import SMALL_VIEWS
from netdoctor.tui.where import Spot
from netdoctor.tui.widgets import Bar, Page
from tests.hostile import HOSTILE
from tests.report.build import sample_report
from tests.tui.harness import NOON, FakeRunner, application, began, drive

TEXTS = tuple(HOSTILE.values())
SHAPES = {"small": (60, 20), "100": (100, 30), "160": (160, 50)}
KEYS = (
    *("2", "enter", "e", "escape", "4", "enter", "3", "v", "enter", "tab", "6", "1", "enter", "y", "Y", "v"),
    *("c", "2", "z", "tab", "z", "slash", "x", "enter", "colon", "escape", "question_mark", "escape", "n"),
    *("space", "w"),
)


def poisoned(texts: Sequence[str] = TEXTS) -> Report:
    """A report that says each of the texts wherever a string may stand: as a node, a check, a cause..."""
    report = sample_report(nodes=4)
    first = report.causes[0]
    names = tuple(text or "x" for text in texts)
    checks = tuple(
        CheckRecord(id=f"{text}.a", title=text, family=text, scope=text, cost=text) for text in texts
    )
    ids = tuple(check.id for check in checks)
    letters = ".!Xb-?" * len(texts)
    fix = first.fixes[0]
    causes = []
    for n, text in enumerate(texts):
        bad = replace(
            fix, text=text, effect=text, widens=text, risk=text, where=text,
            commands=tuple(replace(c, shell=text, inner=text) for c in fix.commands),
        )  # fmt: skip
        verify = replace(first.verify, shell=text) if first.verify else None
        known = Cause(
            id=2 * n + 1, key=text, fingerprint=text, status="fail", title=text, checks=(ids[n], text),
            nodes=text, node_list=(names[n],), confidence=text, seen=(text, text), explains=first.explains,
            held=3, fixes=(bad,), verify=verify, see=text, why=text, settle_by=text,
        )  # fmt: skip
        odd = replace(known, id=2 * n + 2, status=text, fixes=(), node_list=(), fingerprint=f"{text}2")
        causes += [known, odd]
    evidence = [EvidenceRecord(kind=t, where=t, what=t, output=f"{t}\n{t}") for t in texts]
    mixed = " ".join(text[:200] for text in texts)
    return replace(
        report,
        run=replace(
            report.run, id=mixed, started=mixed, finished=mixed, profile=mixed, ended_by=mixed,
            complete=False, hosts_source={"path": mixed, "format": mixed}, ssh_command=mixed,
            control_host={"name": mixed},
        ),
        verdict=replace(report.verdict, headline=mixed),
        targets=tuple(
            TargetRecord(id=name, address=text, port=22, user=text, reached=True, facts={text: text})
            for name, text in zip(names, texts, strict=True)
        ),
        checks=checks,
        matrix=Matrix(
            checks=ids, nodes=names, cells=tuple(letters[n : n + len(names)] for n in range(len(ids)))
        ),
        results=tuple(
            Result(check=ids[n], target=names[n], status="fail", summary=text, cause=2 * n + 1, observed=text,
                   expected=text, expected_from=text, evidence=(evidence[n],))
            for n, text in enumerate(texts)
        ),
        pairs=tuple(
            PairRecord(check=check, from_=one, to=names[n - 1], status=status, class_=text, value=n,
                       unit=text)
            for n, (one, text) in enumerate(zip(names, texts, strict=True))
            for check, status in (("net.ports", text), ("net.ports", "fail"), (text, text))
        ),
        measures=tuple(
            MeasureRecord(name=name, target=f"{text}{n}", value=n, unit=text, error=0.1)
            for n, text in enumerate(texts)
            for name in ("time.skew", text, text)
        ),
        causes=tuple(causes),
        families=tuple(replace(report.families[0], family=text, remark=text) for text in texts),
        notes=tuple(Note(level=level, text=text) for text in texts for level in ("warn", text)),
    )  # fmt: skip


REPORT = poisoned()


def controls(text: str) -> set[str]:
    return {
        c
        for c in text
        if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\u2067\u2069\u2028\u2029\ufeff"
    }


def strips(widgets: Iterable[Widget]) -> Iterator[tuple[int, Strip]]:
    """Every line that is shown by some widgets, in sight or not, with the width it should have."""
    for widget in widgets:
        if isinstance(widget, MatrixView):
            lines, top = HEAD + len(widget.rows), round(widget.scroll_y)
        else:
            assert isinstance(widget, Page | Bar)
            lines, top = len(widget.lines), round(widget.scroll_y) if isinstance(widget, Page) else 0
        for y in range(lines):
            yield widget.size.width, widget.render_line(y - top)


def assert_plain(*widgets: Widget) -> None:
    """Nothing that is drawn steers a terminal, is a link or an action, or leaves its line."""
    for width, strip in strips(widgets):
        assert not controls(strip.text), repr(strip.text)
        assert strip.cell_length == width, repr(strip.text)
        for segment in strip:
            style = segment.style
            assert style is None or (style.link is None and not any("@click" in key for key in style.meta))


def whole(app: NetdoctorApp, pilot: Any = None) -> None:
    """All that is shown is plain."""
    app.screen._on_timer_update()
    views = [*app.screen.query(Page), *app.screen.query(MatrixView)]
    assert_plain(*app.screen.query(Bar), *(view for view in views if view.display))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_screen_draws_all_of_it_as_text(shape: str) -> None:
    app = application(REPORT, runner=FakeRunner())
    app.base, app.base_name = sample_report(), " ".join(TEXTS)
    drawn: list[str] = []

    def look(app: NetdoctorApp, pilot: Any) -> None:
        assert app.known is not None
        names, kinds, causes = REPORT.matrix.nodes, app.kinds, list(app.known.by_key)
        assert len(kinds) > len(TEXTS)
        about: dict[str, list[dict[str, Any]]] = {
            "cause": [{"cause": key} for key in causes],
            "evidence": [{"cause": key} for key in causes],
            "node": [{"cursor": Spot(None, name)} for name in names],
            "pairs": [{"kind": kind, "values": values} for kind in kinds for values in (False, True)],
            "pair": [{"kind": kind, "group": names[:3]} for kind in kinds],
        }
        for view in VIEWS if shape != "small" else SMALL_VIEWS:
            every = about.get(view, [{}])
            app.where = replace(app.where, view=view, **every[0])
            app.draw(top=True)
            whole(app)
            drawn.append(view)
            for fields in every[1 :: 1 if shape == "100" else 10]:
                app.where = replace(app.where, **fields)
                # Further down every node lists all the checks.
                app.page.show(app.page_lines()[: 12 if view == "node" else None], top=True)
                assert_plain(app.page)
        for text in TEXTS:
            app.say(text)
            assert_plain(app.bars["status"])

    drive(app, SHAPES[shape], look)
    assert app.crash is None
    assert set(drawn) == set(VIEWS if shape != "small" else SMALL_VIEWS)


def test_keys_on_every_screen() -> None:
    app = application(REPORT, runner=FakeRunner())
    app.base = sample_report()
    assert drive(app, (100, 30), *(step for key in KEYS for step in (key, whole)))
    assert app.crash is None


def test_a_click_on_it_does_nothing_of_its_own() -> None:
    runner = FakeRunner()
    app = application(REPORT, runner=runner)
    clicked: list[int] = []

    # The last two lines hold our own keys; everything above shows text from the report.
    async def clicks(app: NetdoctorApp, pilot: Any) -> None:
        for y in range(3, 26, 3):
            await pilot.click(offset=(20, y))
            clicked.append(y)
            assert not app._exit

    drive(app, (100, 30), *(step for key in ("1", "2", "3", "4", "enter") for step in (key, clicks)))
    assert len(clicked) == 5 * 8
    assert runner.asked == []
    assert app.crash is None


def test_copied_and_exported_text_holds_nothing_that_steers() -> None:
    app = application(REPORT)
    copied: list[str] = []

    def copy(app: NetdoctorApp, pilot: Any) -> None:
        assert app.known is not None
        for key in app.known.by_key:
            app.where = replace(app.where, view="cause", cause=key)
            for action in ("copy-fix", "copy-all", "copy-verify", "copy-names"):
                app._clipboard = ""
                app.act(action)
                copied.append(app.clipboard)

    drive(app, (100, 30), copy)
    assert sum(map(bool, copied)) > 4 * len(TEXTS)
    assert not controls("".join(copied)) - {"\n"}
    for cause in REPORT.causes:
        script = fixes_script(REPORT, (cause,))
        assert not controls(script) - {"\n"}
        if controls(cause.title):
            # A command that cannot be seen is a comment.
            assert all(line.startswith("#") or not line for line in script.splitlines())


def test_live_events_and_messages() -> None:
    mixed = " ".join(text[:200] for text in TEXTS)
    app = application(runner=FakeRunner())

    def tell(app: NetdoctorApp, pilot: Any) -> None:
        app.take([replace(began(REPORT), source=mixed, profile=mixed)])
        whole(app)
        for text in TEXTS:
            done = [NodeDone(NOON, text, text), NodeDone(NOON + 9, "gpu-a02", text)]
            app.take([Phase(NOON, text, 1, 4), *done, Phase(NOON + 60, text, 1, 4)])
            assert_plain(*app.screen.query(Bar))
        assert len(app.state.phases) > 90
        for text in TEXTS:
            app.take([Failed(NOON, text)])
            assert_plain(app.page, *app.screen.query(Bar))
        for text in TEXTS:
            app.take([Ended(NOON, sample_report(), text)])
            assert_plain(*app.screen.query(Bar))

    drive(app, (100, 30), tell)
    assert app.crash is None


def test_questions_and_pickers() -> None:
    runner = FakeRunner()
    app = application(REPORT, runner=runner)
    questions: list[Sequence[Line]] = []
    asked = 0

    def ask(app: NetdoctorApp, pilot: Any) -> None:
        app.ask = lambda question, *then: questions.append(question)  # type: ignore[method-assign]
        for text in TEXTS:
            runner.question = text or "x"
            app.agreed, app.agreed_costs = False, frozenset()
            run(app, Request(checks=(f"{text}.a",), nodes=(text or "x",)))
        app.page.show([line for lines in questions for line in lines])
        assert_plain(app.page)

    def look(app: NetdoctorApp, pilot: Any) -> None:
        nonlocal asked
        assert len(app.screen_stack) == 2
        whole(app)
        asked += 1

    drive(app, (100, 30), ask)
    assert len(questions) == len(TEXTS)
    app = application(REPORT, runner=runner)
    drive(app, (100, 30), "2", "r", look, "n", "colon", look, "escape", "question_mark", look)
    assert asked == 3
    assert runner.asked == []
    assert app.crash is None


@pytest.mark.parametrize("name", HOSTILE)
def test_the_last_wall(name: str) -> None:
    assert not controls(inert(HOSTILE[name]))
