"""Five clusters as the text report, the TUI and the page show them, in docs/screens/gallery.

    python scripts/gallery.py

Each is to be looked at after a change of how anything is drawn. Pages are left out without a Chromium.
"""

import asyncio
import base64
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
# ruff: noqa: E402  imported from the checkout, whose tests hold the samples

import screenshots

from netdoctor.report.formats import html, text
from netdoctor.report.model import Cause, Counts, Explained, Report, Result, Verdict
from netdoctor.tui.state import opened
from tests.report.browser import Browser, find
from tests.report.build import sample_report
from tests.tui import harness

FOLDER = ROOT / "docs" / "screens" / "gallery"
WIDTHS = (80, 100)
WINDOWS = ((80, 24), (100, 30), (160, 45), (200, 50))
BROWSERS = (390, 1280)


def one_cause(nodes: list[int], letter: str, cause: Cause, *, alone: bool) -> Report:
    """A thousand nodes of which some have a cause. alone: nothing else could be asked of them."""
    report: Report = sample_report("ready", nodes=1000)
    (check,) = cause.checks
    names = tuple(report.matrix.nodes[n] for n in nodes)
    cells = []
    for row, letters in zip(report.matrix.checks, report.matrix.cells, strict=True):
        new = letter if row == check else "b" if alone else None
        one = list(letters)
        for n in nodes if new else ():
            one[n] = new or ""
        cells.append("".join(one))
    held = [Explained(check=c, target=n) for c in report.matrix.checks for n in names if alone and c != check]
    whole = "".join(cells)
    counts = {name: whole.count(sign) for sign, name in ((".", "pass_"), ("X", "fail"), ("!", "warn"))}
    counts |= {"blocked": whole.count("b"), "skip": whole.count("-")}
    family = check.partition(".")[0]
    return replace(
        report,
        verdict=Verdict(
            state="not_ready" if letter == "X" else "ready",
            exit_code=int(letter == "X"),
            fail_on="fail",
            counts=Counts(**counts),
        ),
        targets=tuple(replace(t, reached=t.id not in names or not alone) for t in report.targets),
        matrix=replace(report.matrix, cells=tuple(cells)),
        causes=(replace(cause, node_list=names, explains=tuple(held)),),
        results=tuple(
            Result(check=row, target=name, status=status, summary=cause.title, cause=1)
            for row in report.matrix.checks
            if (status := cause.status if row == check else "blocked" if alone else "")
            for name in names
        ),
        healthy_nodes=tuple(n for n in report.matrix.nodes if letter != "X" or n not in names),
        unhealthy_nodes=names if letter == "X" else (),
        families=tuple(
            replace(row, status=cause.status if row.family == family else row.status, causes=(1,))
            if alone or row.family == family
            else row
            for row in report.families
        ),
    )


DEAD = Cause(
    id=1,
    key="ssh-timeout",
    fingerprint="sha256:1",
    status="fail",
    checks=("ssh.login",),
    nodes="gpu-a0437",
    node_list=(),
    title="gpu-a0437 does not answer on port 22",
    confidence="certain",
    held=39,
    seen=("TCP connect to 10.20.1.187:22: no answer in 10.0 s",),
)
SLOW = Cause(
    id=1,
    key="pair-slow",
    fingerprint="sha256:1",
    status="warn",
    checks=("bw.pair",),
    nodes="gpu-a[0193-0224]",
    node_list=(),
    title="gpu-a[0193-0224] are slower than the others",
    confidence="certain",
    seen=("pairs with them reach 11.8 to 12.4 GB/s, all others 45.1 to 46.3 GB/s",),
)
READY = harness.rich_report(state="ready")
ALIKE = {"status": "pass", "class_": "ok", "value": 46.1}
CLUSTERS = {
    # In the report's own words, and with no pair that is slow.
    "healthy": replace(
        READY,
        verdict=replace(READY.verdict, headline=""),
        pairs=tuple(replace(p, **ALIKE) if p.value else p for p in READY.pairs),
        notes=(),
    ),
    "three-faults": harness.rich_report(),
    "all-dead": harness.unreachable(),
    "one-dead-of-1000": one_cause([436], "X", DEAD, alone=True),
    "32-slow-of-1000": one_cause(list(range(192, 224)), "!", SLOW, alone=False),
}


def pages(program: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        browser = Browser(program, Path(place, "profile"))
        try:
            for name, report in CLUSTERS.items():
                file = Path(place, f"{name}.html")
                file.write_text(html.render(report), "utf-8")
                for width in BROWSERS:
                    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
                    browser.call("Emulation.setDeviceMetricsOverride", **size)
                    browser.open(file.as_uri())
                    shot = browser.call("Page.captureScreenshot")
                    (FOLDER / f"{name}-page-{width}.png").write_bytes(base64.b64decode(shot["data"]))
        finally:
            browser.close()


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, report in CLUSTERS.items():
        for width in WIDTHS:
            (FOLDER / f"{name}-{width}.txt").write_text(text.render(report, width=width), "utf-8")
        for columns, lines in WINDOWS:
            app = screenshots.application(opened(report))
            with harness.no_waiting(app):
                svg = asyncio.run(screenshots.shot(app, (columns, lines), []))
            (FOLDER / f"{name}-{columns}x{lines}.svg").write_text(svg, "utf-8")
    program = find()
    if program is not None:
        pages(program)


if __name__ == "__main__":
    main()
