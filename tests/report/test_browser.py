"""The HTML report in a real browser: nothing runs, nothing is asked for, everything can be read."""

import base64
import dataclasses
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from netdoctor.report import describe
from netdoctor.report.formats.html import render
from netdoctor.report.model import CommandRecord, EvidenceRecord, Report
from tests.hostile import HOSTILE
from tests.report.browser import NAMES, Browser, find
from tests.report.build import sample_report, with_evidence
from tests.report.test_html import Reader, with_rates

# What a page that did not escape would run, or fetch from {url}.
LIVE = {
    "script": "<script>window.owned = 1</script>",
    "out-of-style": "</style><script>window.owned = 1</script>",
    "out-of-title": "</title><script>window.owned = 1</script>",
    "out-of-pre": "</code></pre><script>window.owned = 1</script>",
    "handler": "<img src=x onerror='window.owned = 1'>",
    "out-of-attribute": "\"><svg onload='window.owned = 1'>",
    "out-of-attribute-by-event": "' autofocus onfocus='window.owned = 1' x='",
    "image": "<img src='{url}/image'>",
    "style": "<style>body {{ background: url({url}/style) }}</style>",
    "link": "<link rel=stylesheet href='{url}/link'>",
    "refresh": "<meta http-equiv=refresh content='0;url={url}/refresh'>",
    "frame": "<iframe src='{url}/frame'></iframe>",
    "base": "<base href='{url}/base/'>",
    "object": "<object data='{url}/object'></object>",
    "prefetch": "<link rel=prefetch href='{url}/prefetch'><link rel=icon href='{url}/icon'>",
}
SKIPPED = f"no Chromium on this machine, looked for: {', '.join(NAMES)}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find()
    if program is None:
        pytest.skip(SKIPPED)
    started = Browser(program, tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def listener() -> Iterator[tuple[str, list[str]]]:
    """A web server on this machine: its address, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def hostile_report(url: str) -> Report:
    """A report that says every attack in a title, a command, evidence, a name and a fact."""
    attacks = [*HOSTILE.values(), *(text.format(url=url) for text in LIVE.values())]
    report = with_rates(with_evidence(sample_report()))
    first = report.causes[0]
    causes = tuple(
        dataclasses.replace(
            first,
            id=number,
            title=attack,
            seen=(attack,),
            fixes=(
                dataclasses.replace(
                    first.fixes[0],
                    text=attack,
                    commands=(CommandRecord(run_on=("control",), shell=attack, inner=attack),),
                ),
            ),
        )
        for number, attack in enumerate(attacks, 1)
    )
    results = tuple(
        dataclasses.replace(
            report.results[0],
            cause=number,
            evidence=(EvidenceRecord(kind="command", where=attack, what=attack, output=attack),),
        )
        for number, attack in enumerate(attacks, 1)
    )
    targets = tuple(
        dataclasses.replace(target, id=attack, facts={attack: attack})
        for target, attack in zip(report.targets, LIVE.values(), strict=False)
    )
    run = dataclasses.replace(report.run, hosts_source={"path": LIVE["out-of-title"]})
    return dataclasses.replace(report, run=run, causes=causes, results=results, targets=targets)


def live(url: str) -> str:
    """All attacks as they are, but for the refresh, which leaves the page and which no policy stops."""
    return "".join(text for name, text in LIVE.items() if name != "refresh").format(url=url)


def opened(browser: Browser, folder: Path, page: str) -> None:
    file = folder / "report.html"
    file.write_text(page, "utf-8")
    browser.open(file.as_uri())


def test_a_hostile_report_runs_nothing_and_asks_for_nothing(
    browser: Browser, listener: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, asked = listener
    # First what has no protection, so that silence afterwards means something.
    opened(browser, tmp_path, "<!doctype html><title>x</title>" + live(f"{url}/bare"))
    assert browser.value("window.owned") == 1
    assert {"/bare/image", "/bare/link"} <= set(asked)

    report = hostile_report(f"{url}/report")
    shown = render(report)
    opened(browser, tmp_path, shown)
    assert browser.value("typeof window.owned") == "undefined"
    assert browser.value("document.scripts.length") == 0
    assert [request["request"]["url"] for request in browser.saw("Network.requestWillBeSent")] == [
        (tmp_path / "report.html").as_uri()
    ]
    # Not even the policy had something to refuse: there is nothing in the page that asks.
    assert browser.saw("Log.entryAdded") == []
    assert browser.saw("Runtime.exceptionThrown") == []
    # The browser has made the tree out of it that was written, and every text is where it can be read.
    tags = browser.value("[...document.querySelectorAll('*')].map(e => e.localName).join(' ')")
    assert tags == " ".join(tag.lower() for tag, _ in Reader(shown).tags)
    text = browser.value("document.body.textContent")
    assert all(describe.title(cause) in text for cause in report.causes)

    # And if an attack did get in, the policy alone holds it.
    opened(browser, tmp_path, shown.replace("</main>", live(f"{url}/inside") + "</main>"))
    assert browser.value("typeof window.owned") == "undefined"
    assert browser.saw("Log.entryAdded")
    assert not [path for path in asked if not path.startswith("/bare/")]


def test_everybody_can_read_it(browser: Browser, tmp_path: Path) -> None:
    report = with_rates(with_evidence(sample_report()))
    opened(browser, tmp_path, render(report))
    assert browser.saw("Log.entryAdded") == []  # the policy lets our style pass
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            roles.setdefault(node["role"]["value"], []).append(name)
    assert "NOT READY" in roles["heading"]
    assert any("drops connections that come from the other nodes" in name for name in roles["heading"])
    assert "net.ports" in roles["columnheader"]
    assert "gpu-a03" in roles["rowheader"]
    assert any(
        "Bandwidth of the all-reduce" in name for name in [*roles.get("image", []), *roles.get("img", [])]
    )
    assert {"main", "navigation", "contentinfo", "table"} <= roles.keys()

    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", media="screen", features=[feature])
        assert browser.value(CONTRAST) >= 4.5, scheme  # WCAG 2.2, 1.4.3
        paper = browser.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]")
        assert (int(paper) < 128) == (scheme == "dark")

    wide = browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, "the page itself never scrolls sideways; tables do"
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    # Closed on the screen, and on paper there is nobody to open it.
    assert browser.value("document.querySelector('details pre').getBoundingClientRect().height") > 10
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF-")


def test_on_a_phone_words_stay_whole_and_a_click_takes_a_command(browser: Browser, tmp_path: Path) -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
    )
    browser.call("Emulation.setEmulatedMedia", media="screen", features=[])
    try:
        opened(browser, tmp_path, render(with_rates(with_evidence(sample_report()))))
        assert browser.value("document.documentElement.scrollWidth") == 390
        heights = "[...document.querySelectorAll('#nodes td, #nodes th')].map(e => e.clientHeight)"
        assert max(browser.value(heights)) < 40, "one line a cell"
        families = "(e => e.scrollWidth - e.clientWidth)(document.querySelector('#families .scroll'))"
        assert browser.value(families) == 0, "no word of the families is off the screen"
        lines = "[...document.querySelectorAll('time')].map(e => e.getClientRects().length)"
        assert browser.value(lines) == [1, 1], "no time breaks inside"
        taken = browser.value(
            "document.querySelector('.command').scrollIntoView(), "
            "(({x, y}) => [x + 30, y + 20])(document.querySelector('.command').getBoundingClientRect())"
        )
        at = {"x": taken[0], "y": taken[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            browser.call("Input.dispatchMouseEvent", type=kind, **at)
        selected = browser.value("getSelection().toString().trim()")
        assert selected == browser.value("document.querySelector('.command').textContent")
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


# The least contrast of any text against what is behind it, as WCAG 2.2 defines it.
CONTRAST = """(() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
  };
  let least = 99;
  for (const element of document.body.querySelectorAll('*')) {
    if (![...element.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(element);
    const ink = light(parts(element.closest('svg') ? style.fill : style.color));
    const back = light(behind(element));
    least = Math.min(least, (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05));
  }
  return least;
})()"""
