"""The HTML report: well formed by a strict reader, closed to the world, the same for everybody who reads."""

import base64
import dataclasses
import hashlib
import itertools
import re
from functools import cache
from html.parser import HTMLParser

import pytest

from netdoctor.engine.registry import load as load_checks
from netdoctor.report.foreign import disowned
from netdoctor.report.formats.html import render
from netdoctor.report.model import CommandRecord, Gap, MeasureRecord, PairRecord, Part, Report, Untested
from tests.report.build import sample_report, with_evidence

VOID = {"meta", "br", "hr", "img", "input", "link", "base", "col", "source", "track", "wbr", "area", "embed"}
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section"),
    *("article", "h1", "h2", "h3", "h4", "p", "ul", "li", "a", "dl", "dt", "dd", "pre", "code", "details"),
    *("summary", "div", "span", "i", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("time", "svg", "desc", "line", "text", "polyline", "circle", "rect"),
}  # fmt: skip
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "id", "class", "href", "role", "tabindex"),
    *("scope", "aria-label", "aria-labelledby", "viewbox", "points", "x", "y", "x1", "x2", "y1", "y2", "cx"),
    *("cy", "r", "width", "height"),
}  # fmt: skip


class Reader(HTMLParser):
    """Reads a page and stops where an element is not closed in its place, or is none of ours."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: dict[int, str] = {}
        self.parents: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS, tag
        named = {name: value or "" for name, value in attrs}
        assert len(named) == len(attrs), f"an attribute twice: {attrs}"
        assert named.keys() <= ATTRIBUTES, named
        assert re.match(r"#|https://[a-z0-9.-]+/", named.get("href", "#")), named
        self.tags.append((tag, named))
        self.parents.append(tuple(self.open))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        number = len(self.tags) - 1
        self.text[number] = self.text.get(number, "") + data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data[:80]}")

    def of(self, tag: str) -> list[str]:
        """The texts of all elements of a kind, up to their first child."""
        return [self.text.get(n, "").strip() for n, (name, _) in enumerate(self.tags) if name == tag]

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [named for name, named in self.tags if name == tag]


def with_rates(report: Report) -> Report:
    """`report` with rates of all pairs, one of them slow, and an all-reduce by size."""
    names = report.matrix.nodes
    pairs = tuple(
        PairRecord(
            check="bw.pair",
            from_=src,
            to=dst,
            status="fail" if dst == names[1] else "pass",
            class_="slow" if dst == names[1] else "ok",
            value=12.5 if dst == names[1] else 46.1,
            unit="GB/s",
        )
        for src in names
        for dst in names
        if src != dst
    )
    others = [p for p in report.pairs if p.check != "bw.pair"]
    measures = tuple(
        MeasureRecord(name=f"bw.allreduce.{what}.{1 << power}", target="cluster", value=value, unit="GB/s")
        for power in range(10, 31, 4)
        for what, value in (("busbw", 2.0 * power), ("algbw", 1.0 * power), ("time", 0.25 * power))
    )
    return dataclasses.replace(report, pairs=(*others, *pairs), measures=(*report.measures, *measures))


def with_see(report: Report, address: str) -> Report:
    return dataclasses.replace(report, causes=(dataclasses.replace(report.causes[0], see=address),))


def classes(shown: Reader, name: str) -> list[str]:
    """The texts of all elements of a class."""
    return [shown.text.get(n, "").strip() for n, (_, a) in enumerate(shown.tags) if a.get("class") == name]


@cache
def page(nodes: int = 4) -> Reader:
    return Reader(render(with_rates(with_evidence(sample_report(nodes=nodes)))))


def test_the_page_asks_nobody_for_anything() -> None:
    (policy,) = [a["content"] for a in page().attributes("meta") if "http-equiv" in a]
    digest = base64.b64encode(hashlib.sha256(page().of("style")[0].encode() + b"\n").digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"url\(|@import|expression", page().of("style")[0])
    before = [name for name, _ in page().tags[: [n for n, _ in page().tags].index("style")]]
    assert before.index("meta") < before.index("title")


def test_verdict_causes_and_commands_are_there() -> None:
    shown = page()
    assert shown.of("h1") == ["NOT READY"]
    assert len(shown.attributes("article")) == 3
    commands = shown.of("code")
    cause = sample_report().causes[0]
    assert cause.fixes[0].commands[0].shell in commands
    assert cause.verify is not None
    assert cause.verify.shell in commands
    assert "No MIG\nnone" in commands
    assert "2 nodes were skipped: --node gpu-a[01-04]" in shown.of("li")


def test_a_cause_names_each_kind_of_fact_once() -> None:
    (cause, *_) = sample_report().causes
    shown = Reader(render(dataclasses.replace(sample_report(), causes=(cause,))))
    drawn = [
        (tag, shown.text.get(n, "").strip())
        for n, (tag, _) in enumerate(shown.tags)
        if shown.parents[n][-2:] == ("article", "dl")
    ]
    start = drawn.index(("dt", "found"))
    assert drawn[start : start + 4] == [("dt", "found"), *(("dd", line) for line in cause.seen)]
    labels = [text for tag, text in drawn if tag == "dt"]
    assert labels[:3] == ["check", "nodes", "found"]
    assert len(set(labels)) == len(labels)


def test_fixes_say_what_they_are_and_what_takes_them_back() -> None:
    report = sample_report()
    (first,) = report.causes[0].fixes
    undo = (CommandRecord(run_on=("gpu-a03",), shell="ssh gpu-a03 'take it back'"),)
    fixes = (
        dataclasses.replace(first, kind="look"),
        dataclasses.replace(first, kind="console", undo=undo, loses="the session"),
        dataclasses.replace(first, kind="owner", commands=()),
    )
    cause = dataclasses.replace(report.causes[0], fixes=fixes)
    shown = Reader(render(dataclasses.replace(report, causes=(cause,))))
    tags = [shown.text[n] for n, (_, named) in enumerate(shown.tags) if named.get("class") == "tag"]
    assert tags == ["inspect, changes nothing", "console of the node", "owner of the network or machine"]
    assert shown.of("h4")[:3] == ["Inspect", "Fix", "Or"]
    assert "ssh gpu-a03 'take it back'" in shown.of("code")
    assert sum("loses the session" in text for text in shown.of("p")) == 1


def test_who_does_not_see_reads_the_same() -> None:
    shown = page()
    levels = [int(tag[1]) for tag, _ in shown.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = [a["id"] for _, a in shown.tags if "id" in a]
    assert len(ids) == len(set(ids))
    named = {word for _, a in shown.tags for word in a.get("aria-labelledby", "").split()}
    assert named <= set(ids)
    links = [a["href"] for a in shown.attributes("a")]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert all(a.get("scope") in ("col", "row") for a in shown.attributes("th"))
    assert len(shown.of("caption")) == len(shown.attributes("table")) > 4
    # Colour is never alone: each cell of the matrix and of the heat map has a word beside it.
    said = {text.strip() for text in shown.of("i")}
    assert {"pass", "warn", "fail", "blocked", "skip"} <= said
    (plot,) = shown.attributes("svg")
    assert (plot["role"], plot["aria-labelledby"]) == ("img", "plot-title plot-text")
    assert any("busbw at most 60 GB/s" in text for text in shown.of("desc"))


@pytest.mark.parametrize(
    ("state", "figures"),
    [("not_ready", ["3", "2 of 4", "0"]), ("ready", ["0", "4 of 4", "0"])],
)
def test_tiles_have_causes_usable_nodes_and_what_was_not_tested(state: str, figures: list[str]) -> None:
    gap = Gap(family="bw", what="the all-reduce", reason="no torch")
    report = sample_report(state)
    assert classes(Reader(render(report)), "figure") == figures
    verdict = dataclasses.replace(report.verdict, gaps=(gap,), not_tested=(Untested(what="ports"),))
    shown = Reader(render(dataclasses.replace(report, verdict=verdict)))
    assert classes(shown, "figure") == [*figures[:2], "2"]
    assert "the all-reduce, ports" in shown.of("p")
    assert "ports: not in profile full" in shown.of("li")
    assert ("a", {"href": "#gaps"}) in shown.tags


def test_of_a_part_no_tile_says_what_is_usable() -> None:
    report = sample_report("ready")
    part = Part(checks=1, of_checks=40, nodes=4, of_nodes=4)
    verdict = dataclasses.replace(report.verdict, state="partial_pass", part=part)
    assert classes(Reader(render(dataclasses.replace(report, verdict=verdict))), "figure") == ["0", "0"]


def test_the_matrix_shows_trouble_first_and_folds_checks_that_are_well() -> None:
    shown = page()
    of_matrix = [n for n, (tag, a) in enumerate(shown.tags) if (tag, a.get("class")) == ("table", "matrix")]
    trouble, well = of_matrix
    assert "details" not in shown.parents[trouble]
    assert "details" in shown.parents[well]
    columns = [n for n, (tag, a) in enumerate(shown.tags) if (tag, a.get("class")) == ("th", "check")]
    first = [shown.text[n + 1] for n in columns if trouble < n < well]
    matrix = sample_report().matrix
    cells = dict(zip(matrix.checks, matrix.cells, strict=True))
    assert [("X" in cells[check], "!" in cells[check]) for check in first[:3]] == [
        *[(True, False)] * 2,
        (False, True),
    ]
    assert set(first) == {check for check, letters in cells.items() if set(letters) & set("X?!b")}
    assert any("checks that pass or do not apply on every node" in text for text in shown.of("summary"))


@pytest.mark.parametrize("address", sorted({c.source for c in load_checks().checks.values() if c.source}))
def test_addresses_of_the_catalogue_are_links(address: str) -> None:
    shown = Reader(render(with_see(sample_report(), address)))
    assert ("a", {"href": address}) in shown.tags


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "http://docs.kernel.org/x",
        "https://user@docs.kernel.org/x",
        'https://docs.kernel.org/x" onclick="alert(1)',
        "https://docs.kernel.org:8443/x",
        "see https://docs.kernel.org/x",
    ],
)
def test_what_is_no_plain_address_stays_text(address: str) -> None:
    shown = Reader(render(with_see(sample_report(), address)))
    assert not [a for a in shown.attributes("a") if not a["href"].startswith("#")]
    assert address in shown.of("dd")


def test_an_address_in_a_report_of_somebody_else_stays_text() -> None:
    report = with_see(sample_report(), "https://docs.kernel.org/x")
    shown = Reader(render(disowned(report, "uid 12")))
    assert "https://docs.kernel.org/x" in shown.of("dd")


def test_what_stands_in_backticks_is_code() -> None:
    cause = dataclasses.replace(sample_report().causes[0], why="set ``A=1`` or `B`, not ` alone")
    shown = render(dataclasses.replace(sample_report(), causes=(cause,)))
    assert "set <code>A=1</code> or <code>B</code>, not ` alone</dd>" in shown


def test_pairs_are_a_heat_map_and_large_clusters_tell_the_worst() -> None:
    assert page().of("td").count("12.5X") == 3
    assert {"h0", "h4"} <= {a.get("class") for a in page().attributes("td")}
    large = page(49)
    # 48 pairs to one slow node are one row.
    assert "gpu-a[01,03-49] (48)" in large.of("td")
    assert large.of("td").count("gpu-a02") == 1
    # The one pair of net.ports is drawn, the 2,352 of bw.pair are not.
    assert [a.get("class") for a in page().attributes("table")].count("heat") == 2
    assert page().of("span").count("usual or better") == 1, "no legend of rates over open and filtered"
    assert [a.get("class") for a in large.attributes("table")].count("heat") == 1


@pytest.mark.parametrize("differ", [False, True], ids=["alike", "all different"])
def test_a_thousand_nodes_fold(differ: bool) -> None:
    report = sample_report(nodes=1000)
    if differ:
        rows = tuple(
            "".join(".!X"[n // 3**power % 3] for n in range(1000))
            for power in range(len(report.matrix.checks))
        )
        targets = tuple(dataclasses.replace(t, facts={"kernel": t.id}) for t in report.targets)
        report = dataclasses.replace(
            report, matrix=dataclasses.replace(report.matrix, cells=rows), targets=targets
        )
    shown = render(report)
    assert len(shown) < (600_000 if differ else 60_000)
    assert ("gpu-a0001" if differ else "gpu-a[0700-0731]") in shown


def test_evidence_stands_below_its_own_cause() -> None:
    report = with_evidence(sample_report())
    (_, *articles) = render(report).split("<article")
    numbers = [n for n, article in enumerate(articles, 1) if "evidence: 1 item" in article]
    assert numbers == [report.results[0].cause]


def test_an_all_reduce_that_moved_nothing_is_drawn() -> None:
    nothing = MeasureRecord(name="bw.allreduce.busbw.1024", target="cluster", value=0.0, unit="GB/s")
    shown = Reader(render(dataclasses.replace(sample_report(), measures=(nothing,))))
    assert any("busbw at most 0 GB/s" in text for text in shown.of("desc"))


def test_ready_has_no_section_without_content() -> None:
    shown = Reader(render(sample_report("ready")))
    assert shown.of("h1") == ["READY"]
    assert shown.of("h2") == ["What was looked at", "Matrix", "Nodes"]
