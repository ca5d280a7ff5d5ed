"""Draw the TUI's screens as SVG, and the HTML report as PNG, into docs/screens/.

    python scripts/screenshots.py            write docs/screens/*
    python scripts/screenshots.py --to DIR   write them elsewhere

Causes, a cause, a filter and a re-run come from docs/demo-report.json, which `make demo` recorded
(NETDOCTOR_DEMO_REPORT); what four nodes cannot show comes from the samples of the tests. No cluster and
no terminal is needed; the HTML report is left as it is where there is no Chromium.
"""

import argparse
import asyncio
import base64
import re
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# ruff: noqa: E402  imported from the checkout, whose tests hold the samples

from netdoctor.report.formats import html
from netdoctor.report.model import Report
from netdoctor.report.moved import moved
from netdoctor.report.save import LAST, load
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.events import Event, NodeDone, Phase
from netdoctor.tui.state import State, fold, opened
from tests.report.browser import Browser, find
from tests.report.test_html import with_rates
from tests.tui import harness
from tests.tui.test_states import stream

DEMO = moved(load(ROOT / "docs" / "demo-report.json"), LAST)  # as where it was saved
SMALL, WINDOW, WIDE = (80, 24), (100, 30), (140, 36)
Size = tuple[int, int]
SHOTS: dict[str, tuple[Report, Size, Sequence[str]]] = {
    "causes": (DEMO, (120, 32), []),
    "cause": (DEMO, SMALL, ["enter"]),
    "filter": (DEMO, SMALL, ["4", "slash", *"net"]),
    "matrix-checks": (DEMO, (120, 30), ["2"]),
    "matrix": (harness.rich_report(1000), WINDOW, ["2"]),
    "matrix-small": (harness.rich_report(32), SMALL, ["2"]),
    "matrix-wide": (harness.rich_report(32), WIDE, ["2"]),
    "overview": (harness.rich_report(1000), (120, 30), ["2", "minus"]),
    "pairs": (harness.rich_report(32), SMALL, ["3"]),
    "heat": (harness.rich_report(8), WINDOW, ["3", "tab", "v"]),
    "bandwidth": (harness.rich_report(), WINDOW, ["3", "tab", "tab"]),
    "node": (harness.with_hardware(harness.rich_report()), WINDOW, ["2", "4"]),
}


async def shot(app: NetdoctorApp, size: Size, keys: Sequence[str]) -> str:
    """The SVG of what is shown after some keys, the same each time."""
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        svg = app.export_screenshot(title="netdoctor")
    # Fonts from the network have no place in a page; ids differ from run to run.
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code,", "font-family: ui-monospace, Menlo, Consolas, Fira Code,")
    return re.sub(r"terminal-\d+", "terminal", svg)


def application(state: State, after: float = 0) -> NetdoctorApp:
    """As it is so many seconds after noon, in a terminal that draws boxes."""
    return NetdoctorApp(state, now=lambda: harness.NOON + after, box=True)


def live_few() -> NetdoctorApp:
    """Four nodes, of which one has yet to answer, and what compares them is not judged."""
    checks = DEMO.matrix.checks
    began = harness.began(DEMO)
    events: list[Event] = [began, Phase(harness.NOON, "connect", 0, 4)]
    for n, name in enumerate(DEMO.matrix.nodes[:3]):
        events += [
            NodeDone(harness.NOON + 1 + n / 10, name),
            Phase(harness.NOON + 1 + n / 10, "connect", n + 1, 4),
        ]
        for column, (check, family) in enumerate(began.checks):
            letter = DEMO.matrix.cells[checks.index(check)][n]
            if family not in ("net", "bw", "time", "gloo") and letter != "b":
                events.append((n, column, letter))
    app = application(fold(State(), events), 4)
    app.where, app.events = replace(app.where, view="matrix"), deque()
    return app


def live() -> NetdoctorApp:
    app = application(fold(opened(harness.rich_report(64)), stream()), 9)
    app.where, app.events = replace(app.where, view="matrix"), deque()
    app.spin = 0
    return app


# Regions of the page, each from the top of a section on.
PAGES = {"html": ("light", "h1", 1000), "html-dark": ("dark", "#pairs", 1345)}


def pages(folder: Path, program: str) -> None:
    """The HTML report of eight nodes, in a light and a dark browser."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "report.html")
        file.write_text(html.render(with_rates(harness.rich_report(8))), "utf-8")
        browser = Browser(program, Path(place, "profile"))
        try:
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=1000,
                height=1000,
                deviceScaleFactor=1,
                mobile=False,
            )
            browser.open(file.as_uri())
            for name, (scheme, start, height) in PAGES.items():
                feature = {"name": "prefers-color-scheme", "value": scheme}
                browser.call("Emulation.setEmulatedMedia", features=[feature])
                top = browser.value(
                    f"document.querySelector('{start}').getBoundingClientRect().top + scrollY"
                )
                clip = {"x": 0, "y": max(top - 16, 0), "width": 1000, "height": height, "scale": 1}
                shot = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
                (folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
        finally:
            browser.close()


def rerun() -> NetdoctorApp:
    """One cause is run again, and has been for four seconds."""
    part = replace(
        harness.began(DEMO, partial=True), nodes=DEMO.causes[0].node_list, requested=DEMO.causes[0].checks
    )
    events = [part, *(Phase(harness.NOON + 1 + 3 * done, "ports", done, 4) for done in (0, 1))]
    app = application(fold(opened(DEMO), events), 4)
    app.events = deque()
    return app


def healed() -> NetdoctorApp:
    """What changed since a report in which there was one more cause."""
    app = application(opened(harness.rich_report(state="ready")))
    app.base, app.base_name = harness.rich_report(), "the report as it was before the last run"
    return app


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screens")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    shots = [(name, application(opened(report)), size, keys) for name, (report, size, keys) in SHOTS.items()]
    shots += [
        ("live", live(), WINDOW, []),
        ("live-few", live_few(), (120, 30), []),
        ("rerun", rerun(), SMALL, []),
        ("diff", healed(), (120, 30), ["5"]),
    ]
    for name, app, size, keys in shots:
        with harness.no_waiting(app):
            (folder / f"{name}.svg").write_text(asyncio.run(shot(app, size, keys)), "utf-8")
    program = find()
    if program is not None:
        pages(folder, program)
    print(f"{len(shots)} screens in {folder}; HTML {'drawn' if program else 'left out: no Chromium'}")


if __name__ == "__main__":
    main()
