"""The report as one HTML file that needs nothing else: no script, no font, no image, no network.

It is built as a tree, so that text from nodes can be nothing but text; a Content-Security-Policy in the file
refuses whatever is not in it, and of styles all but the one that is ours by its hash.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from netdoctor.report import commands, describe, families, fmt, summary
from netdoctor.report.formats import plots, trial
from netdoctor.report.formats.elements import CLASSES, add, badge, command, hidden, prose, table
from netdoctor.report.model import Cause, EvidenceRecord, FixRecord, Report
from netdoctor.report.results import Index

# Rows of the matrix, one for all nodes that say the same; of other tables; results with evidence of a cause.
MOST_GROUPS = 200
MOST_ROWS = 200
MOST_EVIDENCE = 20
MOST_NAMED = 5
EVIDENCE_SHOWN = 4_000
SINGLE_ROWS = 64

_WORST_FIRST = "X?!b"
_KINDS = {
    "look": "inspect, changes nothing",
    "job": "job's environment or script",
    "hosts": "hosts file",
    "console": "console of the node",
    "owner": "owner of the network or machine",
}
# Facts that headers show, in the order in which people look for them; others follow.
_FACTS = (
    *("hostname", "container", "kernel", "memory_bytes", "gpus", "gpu_model", "driver", "python", "torch"),
    "nccl",
)


def render(report: Report) -> str:
    """Return the whole page."""
    style = Path(__file__).with_name("report.css").read_text("utf-8")
    page = ET.Element("html", lang="en")
    _head(page, report, style)
    body = add(page, "body")
    header = add(body, "header")
    _summary(header, report)
    main = add(body, "main")
    index = Index(report)
    for name, title, fill in (
        ("causes", "Causes", _causes),
        ("trial", "The job, tried", trial.section),
        ("accepted", "Accepted", _accepted),
        ("families", "What was looked at", _families),
        ("matrix", "Matrix", _matrix),
        ("pairs", "Pairs", plots.pairs),
        ("bandwidth", "All-reduce by size", plots.sizes),
        ("ladder", "Training on more and more nodes", plots.ladder),
        ("nodes", "Nodes", _nodes),
        ("gaps", "Not tested", _gaps),
        ("notes", "Notes", _notes),
    ):
        section = ET.Element("section", {"id": name, "aria-labelledby": f"{name}-title"})
        add(section, "h2", title, id=f"{name}-title")
        fill(section, report, index)
        if len(section) > 1:
            main.append(section)
    _tiles(header, report, {section.get("id") or "" for section in main})
    _contents(body, main)
    _end(add(body, "footer"), report)
    return "<!doctype html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _head(page: ET.Element, report: Report, style: str) -> None:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = add(page, "head")
    add(head, "meta", charset="utf-8")
    # As early as can be: it holds for what follows it.
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "meta", name="color-scheme", content="light dark")
    add(head, "meta", name="referrer", content="no-referrer")
    add(head, "title", f"{summary.verdict(report)}: {', '.join(summary.header(report)[1:])}")
    add(head, "style", style)


def _summary(header: ET.Element, report: Report) -> None:
    state = {"ready": "p", "not_ready": "f"}.get(report.verdict.state, "u")
    add(header, "h1", summary.verdict(report), class_=f"verdict {state}")
    add(header, "p", summary.headline(report), class_="headline")
    if stopped := summary.stopped(report):
        add(header, "p", stopped)
    add(header, "p", "   ".join(summary.header(report)), class_="made")
    times = [fmt.plain(t, 40) for t in (report.run.started, report.run.finished)]
    when = add(header, "p", class_="made")
    for time, then in zip(times, (" to ", f", {fmt.seconds(report.run.duration_ms)}"), strict=True):
        add(when, "time", time).tail = then


def _tiles(header: ET.Element, report: Report, sections: Container[str]) -> None:
    """How many causes, usable nodes and things not tested, each a link to its section."""
    tiles = add(header, "ul", class_="tiles")

    def tile(section: str, figure: str, label: str, text: str) -> None:
        item = add(tiles, "li")
        add(item, "span", figure, class_="figure").tail = " "
        add(item, "a", label, href=f"#{section}") if section in sections else add(item, "span", label)
        if text:
            add(item, "p", text)

    statuses = Counter(cause.status for cause in report.causes)
    by_status = ", ".join(f"{n} {summary.word(status)}" for status, n in statuses.items())
    tile("causes", str(len(report.causes)), "cause" if len(report.causes) == 1 else "causes", by_status)
    good, every = report.healthy_nodes, report.matrix.nodes
    if report.verdict.part is None and every:  # of a part nothing can be said
        names = fmt.nodes_text(report, good, 120) if good else "none"
        tile("nodes", f"{len(good)} of {len(every)}", "nodes usable", names)
    found = report.verdict
    missing = [*(one.what for one in found.gaps), *(one.what for one in found.not_tested)]
    more = [f"{len(missing) - MOST_NAMED} more"] if len(missing) > MOST_NAMED else []
    names = ", ".join([*(fmt.plain(what, 60) for what in missing[:MOST_NAMED]), *more])
    tile("gaps", str(len(missing)), "not tested", names)


def _contents(body: ET.Element, main: ET.Element) -> None:
    """Links to the sections that there are, before them."""
    nav = ET.Element("nav", {"aria-label": "Contents"})
    items = add(nav, "ul")
    for section in main:
        add(add(items, "li"), "a", section[0].text or "", href=f"#{section.get('id')}")
    body.insert(1, nav)


def _causes(section: ET.Element, report: Report, index: Index) -> None:
    for cause in report.causes:
        _cause(section, report, cause, index)
    if step := summary.next_step(report):
        does, then = step
        add(section, "p", f"Next: {does}")
        if then:
            command(section, then)


def _cause(section: ET.Element, report: Report, cause: Cause, index: Index) -> None:
    article = add(section, "article", id=f"cause-{cause.id}", aria_labelledby=f"cause-{cause.id}-title")
    title = add(article, "h3", f"[{cause.id}] ", id=f"cause-{cause.id}-title")
    badge(title, cause.status)
    title[-1].tail = f" {describe.title(cause)}"
    facts = add(article, "dl")

    def entry(label: str, texts: Iterable[str]) -> None:
        for number, text in enumerate(texts):
            if number == 0:
                add(facts, "dt", label)
            prose(facts, "dd", text)

    entry("check", filter(None, [describe.cause_check(cause)]))
    entry("nodes", filter(None, [describe.cause_nodes(report, cause)]))
    entry("found", [fmt.plain(line) for line in cause.seen])
    entry("blocks", describe.blocks(report, cause, index))
    entry("also", describe.explains(report, cause, index))
    entry("since", describe.since(report, cause))
    entry("why", [fmt.plain(cause.why)] if cause.why else [])
    if address := describe.address(report, cause):
        add(facts, "dt", "see")
        add(add(facts, "dd"), "a", address, href=address)
    else:
        entry("see", [fmt.plain(cause.see)] if cause.see else [])
    every_node = describe.cause_nodes(report, cause, None)
    if len(every_node) > fmt.FOLD_LIMIT:
        _folded(article, f"all {fmt.number(len(cause.node_list), 'node')}", every_node)
    for name, fix in zip(describe.fix_names(cause.fixes), cause.fixes, strict=True):
        _fix(article, report, fix, name.capitalize())
    if cause.settle_by:
        _aim(article, "Try" if cause.status == "unknown" else "What would settle it", cause.settle_by)
    if cause.verify:
        add(article, "h4", "Verify")
        command(article, cause.verify.shell)
    _evidence(article, report, cause)


def _fix(article: ET.Element, report: Report, fix: FixRecord, label: str) -> None:
    title = add(article, "h4", f"{label} ")
    if fix.kind != "do":  # which the label says
        add(title, "span", _KINDS.get(fix.kind) or fmt.plain(fix.kind, 20), class_="tag")
    prose(article, "p", describe.fix_label(report, fix))
    for shell in commands.fix_commands(fix, every=True):
        command(article, shell)
    if fix.undo:
        undo = _folded(article, "undo")
        for shell in commands.to_paste(fix.undo):
            command(undo, shell)


def _aim(article: ET.Element, label: str, text: str) -> None:
    """A command to run, or a sentence that says what to do."""
    add(article, "h4", label)
    if text.startswith("netdoctor "):
        command(article, text)
    else:
        prose(article, "p", fmt.plain(text))


def _folded(parent: ET.Element, label: str, text: str = "") -> ET.Element:
    """What opens where it is clicked, and in print."""
    details = add(parent, "details")
    add(details, "summary", label)
    if text:
        add(details, "p", text)
    return details


def _evidence(article: ET.Element, report: Report, cause: Cause) -> None:
    results = [result for result in report.results if result.cause == cause.id and result.evidence]
    if not results:
        return
    items = sum(len(result.evidence) for result in results)
    details = _folded(article, f"evidence: {fmt.number(items, 'item')}")
    for result in results[:MOST_EVIDENCE]:
        add(details, "h4", f"{fmt.plain(result.check, 60)} on {fmt.plain(result.target, 200)}")
        for item in result.evidence:
            what = f"{fmt.plain(item.where, 200)} {fmt.plain(item.kind, 20)}: {fmt.escaped(item.what)}"
            add(details, "p", fmt.plain(what))
            if item.output:
                add(add(details, "pre", class_="output", tabindex="0"), "code", _output(item))
    if len(results) > MOST_EVIDENCE:
        add(details, "p", f"{len(results) - MOST_EVIDENCE} more results with evidence are in the JSON report")


def _output(item: EvidenceRecord) -> str:
    cut = item.truncated or len(item.output) > EVIDENCE_SHOWN
    lines = [fmt.escaped(line) for line in item.output[:EVIDENCE_SHOWN].splitlines()]
    return "\n".join([*lines, "(cut)"] if cut else lines)


def _list(section: ET.Element, lines: Sequence[str]) -> None:
    if lines:
        items = add(section, "ul")
        for line in lines[:MOST_ROWS]:
            prose(items, "li", line)


def _accepted(section: ET.Element, report: Report, index: Index) -> None:
    _list(section, summary.accepted(report))


def _families(section: ET.Element, report: Report, index: Index) -> None:
    if report.families:
        _, body = table(section, "Families of checks", ("status", "family", "checks", "where and why"))
        for row in report.families:
            line = add(body, "tr")
            badge(add(line, "td"), families.status(report, row, index))
            add(line, "th", families.label(row.family), scope="row")
            add(line, "td", str(row.checks), class_="number")
            prose(line, "td", ", ".join(filter(None, families.value(report, row, index))), class_="text")
    add(section, "p", summary.counts_line(report))


def _matrix(section: ET.Element, report: Report, index: Index) -> None:
    """The checks that are not well everywhere, the worst first; the others fold."""
    matrix = report.matrix
    if not matrix.nodes or not matrix.checks:
        return
    legend = add(section, "p")
    for letter, status in summary.LETTERS.items():
        add(legend, "span", f"{letter} {status}", class_=f"key {CLASSES[letter]}").tail = " "
    columns = list(zip(matrix.checks, matrix.cells, strict=True))
    bad = [column for column in columns if any(_badness(column[1]))]
    well = [column for column in columns if not any(_badness(column[1]))]
    if bad:
        _cells(section, matrix.nodes, sorted(bad, key=lambda column: _badness(column[1]), reverse=True))
    if well:
        all_well = f"{fmt.number(len(well), 'check')} that pass or do not apply on every node"
        _cells(_folded(section, all_well), matrix.nodes, well)


def _badness(letters: str) -> list[int]:
    """How many cells are of each kind that is not well, the worst kind first."""
    return [letters.count(letter) for letter in _WORST_FIRST]


def _cells(parent: ET.Element, nodes: Sequence[str], columns: Sequence[tuple[str, str]]) -> None:
    """A row for all nodes that say the same, the worst first; a column for each check."""
    groups: dict[str, list[str]] = {}
    for node, letters in zip(nodes, zip(*(cells for _, cells in columns), strict=True), strict=True):
        groups.setdefault("".join(letters), []).append(node)
    rows = sorted(groups.items(), key=lambda one: _badness(one[0]), reverse=True)
    head, body = table(
        parent,
        f"{fmt.number(len(nodes), 'node')} in {fmt.number(len(rows), 'row')}, "
        f"{fmt.number(len(columns), 'check')}",
        ("nodes",),
        class_="matrix",
    )
    for check, _ in columns:
        add(add(head, "th", scope="col", class_="check"), "span", fmt.plain(check, 60))
    for row, members in rows[:MOST_GROUPS]:
        line = add(body, "tr")
        many = f" ({len(members)})" if len(members) > 1 else ""
        add(line, "th", f"{fmt.fold(members)}{many}", scope="row")
        for letter in row:
            cell = add(line, "td", letter, class_=CLASSES[letter])
            hidden(cell, summary.LETTERS[letter])
    if len(rows) > MOST_GROUPS:
        add(parent, "p", f"and {len(rows) - MOST_GROUPS} rows more in the JSON report")


def _nodes(section: ET.Element, report: Report, index: Index) -> None:
    """Facts by node; where there are many nodes, a row for all that have the same."""
    targets = report.targets
    keys = [k for k in _FACTS if any(k in t.facts for t in targets)]
    keys += sorted({key for t in targets for key in t.facts} - set(keys))[:8]
    single = len(targets) <= SINGLE_ROWS
    health = dict.fromkeys(report.healthy_nodes, "usable")
    health |= dict.fromkeys(report.unhealthy_nodes, "not usable")
    health |= dict.fromkeys(report.undecided_nodes, "undecided")
    groups: dict[tuple[str, ...], list[str]] = {}
    for target in targets:
        reached = health.get(target.id, "") if target.reached else "not reached"
        row = (reached, *(fmt.fact(key, target.facts.get(key)) for key in keys))
        row = (fmt.plain(target.address or "", 60), fmt.plain(target.user, 60), *row) if single else row
        groups.setdefault((fmt.plain(target.id, 200), *row) if single else row, []).append(target.id)
    if not groups:
        return
    names = [fmt.plain(key, 40).replace("_", " ").removesuffix(" bytes") for key in keys]
    where = ("address", "user") if single else ()
    _, body = table(section, "Facts by node", ("nodes", *where, "state", *names))
    for row, nodes in list(groups.items())[:MOST_ROWS]:
        line = add(body, "tr")
        many = f" ({len(nodes)})" if len(nodes) > 1 else ""
        add(line, "th", f"{fmt.fold(nodes)}{many}", scope="row")
        for text in row[1:] if single else row:
            add(line, "td", text)
    if len(groups) > MOST_ROWS:
        add(section, "p", f"and {len(groups) - MOST_ROWS} rows more in the JSON report")


def _gaps(section: ET.Element, report: Report, index: Index) -> None:
    lines = []
    for gap in report.verdict.gaps:
        where = f" on {fmt.nodes_text(report, gap.nodes)}" if gap.nodes else ""
        lines.append(f"{fmt.plain(gap.what, 200)}{where}: {fmt.plain(gap.reason, 300)}")
    profile = fmt.plain(report.run.profile, 40)
    lines += [f"{fmt.plain(one.what, 200)}: not in profile {profile}" for one in report.verdict.not_tested]
    _list(section, lines)


def _notes(section: ET.Element, report: Report, index: Index) -> None:
    healed = [f"fixed: {line}" for line in summary.healed(report)]
    _list(section, [*healed, *(fmt.plain(note.text, 1_000) for note in report.notes)])


def _end(footer: ET.Element, report: Report) -> None:
    took = fmt.seconds(report.run.duration_ms)
    add(footer, "p", f"{summary.verdict(report)}, exit {report.verdict.exit_code}, {took}")
    if again := summary.report_command(report):
        command(footer, again)
