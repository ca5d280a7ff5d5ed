"""Text from nodes, files and plug-ins stays text, in every widget, under every click."""

import dataclasses
from typing import Any

import pytest

from netdoctor.report.model import (
    Cause,
    CheckRecord,
    EvidenceRecord,
    MeasureRecord,
    Note,
    PairRecord,
    Report,
    Result,
    TargetRecord,
)
from netdoctor.tui import pairs
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.events import Ended, Event, Failed, NodeDone, Phase
from netdoctor.tui.export import fixes_script
from netdoctor.tui.keys import VIEWS
from netdoctor.tui.lines import inert
from netdoctor.tui.runner import Request
from netdoctor.tui.state import Known, opened
from netdoctor.tui.widgets import Bar
from tests.hostile import HOSTILE
from tests.report.build import sample_report
from tests.tui.harness import NOON, FakeRunner, application, began, drive, settle

# Each of these gets an application and keys of its own; the whole corpus goes through the pages of one.
WORST = ("ansi-clear", "osc-52-clipboard", "bidi-override", "markup-click", "markup-bad-close", "long-name")
KEYS = (
    *(
        "2",
        "enter",
        "e",
        "escape",
        "4",
        "enter",
        "3",
        "v",
        "enter",
        "tab",
        "6",
        "1",
        "enter",
        "y",
        "Y",
        "v",
        "c",
    ),
    *(
        "2",
        "z",
        "tab",
        "z",
        "slash",
        "x",
        "enter",
        "colon",
        "escape",
        "question_mark",
        "escape",
        "n",
        "space",
        "w",
    ),
)


def poisoned(text: str) -> Report:
    """A report that says `text` wherever a string may stand."""
    report = sample_report(nodes=4)
    names = (text or "x", "gpu-a02", f"{text}2", "gpu-a04")
    checks = tuple(
        CheckRecord(id=f"{text}.a{i}" if i < 3 else c.id, title=text, family=text if i < 3 else c.family,
                    scope=text, cost=text)
        for i, c in enumerate(report.checks)
    )  # fmt: skip
    ids = tuple(c.id for c in checks)
    evidence = EvidenceRecord(kind=text, where=text, what=text, output=f"{text}\n{text}")
    fix = dataclasses.replace(
        report.causes[0].fixes[0],
        text=text, effect=text, widens=text, risk=text, where=text,
        commands=tuple(
            dataclasses.replace(c, shell=text, inner=text) for c in report.causes[0].fixes[0].commands
        ),
    )  # fmt: skip
    first = report.causes[0]
    cause = Cause(
        id=1, key=text, fingerprint=text, status="fail", title=text, checks=(ids[0], text), nodes=text,
        node_list=names[:1], confidence=text, seen=(text, text), explains=first.explains,
        held=3, fixes=(fix,),
        verify=dataclasses.replace(first.verify, shell=text) if first.verify else None,
        see=text, why=text, settle_by=text,
    )  # fmt: skip
    odd = dataclasses.replace(cause, id=2, status=text, fixes=(), node_list=(), fingerprint=f"{text}2")
    return dataclasses.replace(
        report,
        run=dataclasses.replace(
            report.run, id=text, started=text, finished=text, profile=text, ended_by=text, complete=False,
            hosts_source={"path": text, "format": text}, ssh_command=text, control_host={"name": text},
        ),
        verdict=dataclasses.replace(report.verdict, headline=text),
        targets=tuple(
            TargetRecord(id=n, address=text, port=22, user=text, reached=True, facts={text: text})
            for n in names
        ),
        checks=checks,
        matrix=dataclasses.replace(report.matrix, checks=ids, nodes=names),
        results=tuple(
            Result(check=ids[0], target=n, status="fail", summary=text, cause=1, observed=text, expected=text,
                   expected_from=text, evidence=(evidence,))
            for n in names
        ),
        pairs=(
            PairRecord(check=text, from_=names[0], to=names[1], status=text, class_=text, value=1, unit=text),
            PairRecord(check=text, from_=names[1], to=names[0], status="fail", class_=text, unit=text),
        ),
        measures=(
            MeasureRecord(name=text, target=text, value=1.0, unit=text, error=0.1),
            MeasureRecord(name=text, target=f"{text}b", value=2.0, unit=text),
        ),
        causes=(cause, odd),
        families=tuple(dataclasses.replace(f, family=text, remark=text) for f in report.families[:2]),
        notes=(Note(level="warn", text=text), Note(level=text, text=text)),
    )  # fmt: skip


def controls(text: str) -> set[str]:
    return {
        c
        for c in text
        if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\u2067\u2069\u2028\u2029\ufeff"
    }


def test_every_screen_draws_all_of_it_as_text() -> None:
    app = application(sample_report(), runner=FakeRunner())
    drawn: dict[str, str] = {}

    def push(app: NetdoctorApp, pilot: Any) -> None:
        for name, text in HOSTILE.items():
            report = poisoned(text)
            app.state = opened(report, app.state)
            app.known = Known(report)
            app.base, app.base_name = sample_report(), text
            app.cause_id, app.shown_results, app.pair_group = 1, report.results, report.matrix.nodes[:1]
            for view in VIEWS:
                app.view = view
                for app.kind in pairs.kinds(report)[:3] if view == "pairs" else [""]:
                    app.draw()
                widget = app.matrix if view == "matrix" else app.page
                lines = [widget.render_line(y).text for y in range(25)]
                lines += [bar.render_line(y).text for bar in app.query(Bar) for y in range(3)]
                drawn[f"{name} {view}"] = "".join(lines)
            app.say(text)
            drawn[f"{name} said"] = app.bar("status").render_line(1).text

    drive(app, (100, 30), push)
    assert app.crash is None
    assert len(drawn) == len(HOSTILE) * (len(VIEWS) + 1)
    assert {name: found for name, text in drawn.items() if (found := controls(text))} == {}


@pytest.mark.parametrize("name", WORST)
def test_keys_on_every_screen(name: str) -> None:
    app = application(poisoned(HOSTILE[name]), runner=FakeRunner())
    app.base = sample_report()
    lines = drive(app, (100, 30), *KEYS)
    assert lines
    assert not controls("".join(lines))
    assert app.crash is None


@pytest.mark.parametrize(
    "name",
    ["markup-click", "markup-link", "markup-unclosed", "osc-8-link", "osc-52-clipboard", "shell-quote"],
)
def test_a_click_on_it_does_nothing_of_its_own(name: str) -> None:
    runner = FakeRunner()
    app = application(poisoned(HOSTILE[name]), runner=runner)
    ended: list[bool] = []
    # The last two lines hold our own keys; everything above shows text from the report.
    for key in ("1", "2", "3", "4", "enter"):

        async def clicks(app: NetdoctorApp, pilot: Any) -> None:
            for y in range(3, 26, 5):
                await pilot.click(offset=(20, y))
            ended.append(app._exit)

        drive(application(poisoned(HOSTILE[name]), runner=runner), (100, 30), key, clicks)
    assert ended == [False] * 5
    assert runner.asked == []
    assert app.crash is None


def test_no_segment_carries_a_link_or_an_action() -> None:
    app = application(poisoned("[@click=app.quit]x[/] \x1b]8;;https://evil.example/\x1b\\y"))
    metas: list[object] = []

    def collect(app: NetdoctorApp, pilot: Any) -> None:
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                style = segment.style
                if style is not None:
                    metas.append(style.link)
                    metas.extend(key for key in (style.meta or {}) if key.startswith("@click"))

    drive(app, (100, 30), collect, "2", collect, "4", collect, "enter", collect)
    assert set(metas) == {None}


@pytest.mark.parametrize("name", WORST)
def test_copied_and_exported_text_holds_nothing_that_steers(name: str) -> None:
    report = poisoned(HOSTILE[name])
    app = application(report)
    copied: list[str] = []
    drive(
        app,
        (100, 30),
        *[step for key in ("y", "Y", "v", "c") for step in (key, lambda a, p: copied.append(a.clipboard))],
    )
    assert copied
    assert not controls("".join(copied)) - {"\n"}
    script = fixes_script(report, report.causes)
    assert not controls(script) - {"\n"}
    if controls(HOSTILE[name]):
        # A command that cannot be seen is a comment.
        assert all(line.startswith("#") or not line for line in script.splitlines())


@pytest.mark.parametrize("name", WORST)
def test_live_events_and_messages(name: str) -> None:
    text = HOSTILE[name]
    events: list[Event] = [
        dataclasses.replace(began(poisoned(text)), source=text, profile=text),
        Phase(NOON, text, 1, 4),
        NodeDone(NOON, text, text),
        NodeDone(NOON + 9, "gpu-a02", text),
        Phase(NOON + 60, text, 1, 4),
    ]
    runner = FakeRunner(lambda request, report: events)
    app = application(runner=runner, begin=Request(), now=lambda: NOON + 60)
    lines = drive(app, (100, 30), settle, lambda a, p: a.say(text), settle)
    assert not controls("".join(lines))
    runner = FakeRunner(lambda request, report: [Failed(NOON, text)])
    lines = drive(application(runner=runner, begin=Request()), (100, 30), settle)
    assert not controls("".join(lines))
    runner = FakeRunner(lambda request, report: [Ended(NOON, sample_report(), text)])
    lines = drive(application(runner=runner, begin=Request()), (100, 30), settle)
    assert not controls("".join(lines))


@pytest.mark.parametrize("name", WORST)
def test_questions_and_pickers(name: str) -> None:
    text = HOSTILE[name]
    runner = FakeRunner()
    runner.question = text or "x"
    app = application(poisoned(text), runner=runner)
    lines = drive(app, (100, 30), "2", "r")
    assert not controls("".join(lines))
    lines = drive(application(poisoned(text), runner=runner), (100, 30), "colon")
    assert not controls("".join(lines))


@pytest.mark.parametrize("name", HOSTILE)
def test_the_last_wall(name: str) -> None:
    assert not controls(inert(HOSTILE[name]))
