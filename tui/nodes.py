"""The Node screen, and the cell under the cursor of the matrix spelled out. Lines for a given width."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from netdoctor.errors import InputError
from netdoctor.factlines import decode
from netdoctor.facts.base import Missing
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.rdma import HcaPort, RdmaFacts
from netdoctor.report import describe, fmt, summary
from netdoctor.report.kept import Live, Squeezed, as_facts, unpack
from netdoctor.report.model import Report
from netdoctor.store import from_saved
from netdoctor.text import ranges
from netdoctor.tui.lines import (
    LETTER_OF,
    STYLES,
    TWO_COLUMNS,
    Line,
    cell_span,
    fit,
    labelled,
    line,
    side_by_side,
    status_span,
    width_of,
    wrap,
)
from netdoctor.tui.state import RANK, Cells, Known, worst

MOST_GROUPS = 50
NAMED_MOST = 20  # nodes


def page(known: Known, cells: Cells, name: str, width: int, *, every: bool = False) -> list[Line]:
    """A node: its causes, its checks, its facts, those first that differ from the majority.

    every: with the checks that pass or do not apply, too.
    """
    row = cells.nodes.index(name)
    report = known.report
    target = known.targets.get(name)
    letters = cells.row(row)
    status = summary.LETTERS.get(worst(letters), "unknown")
    reach = "not reached"
    if target is not None and target.reached:
        reach = f"{fmt.plain(target.user, 40)}@{fmt.plain(target.address or '', 60)}:{target.port}"
    lines = [
        line(
            f" {fit(fmt.plain(name, 200), 40).rstrip()}  ",
            status_span(status),
            (f"   {reach}", "dim"),
            (f"   rank order {target.order}" if target else "", "dim"),
        ),
        Line(),
    ]
    for item in known.causes_of(name)[:8]:
        head, word = f" [{item.id}] ", status_span(item.status)
        pieces = wrap(describe.title(item), width - width_of(head + word[0]) - 4)
        lines.append(line(head, word, f"  {pieces[0]}", key=("cause", known.key_of(item))))
        lines += [line(" " * width_of(head + word[0]) + f"  {piece}") for piece in pieces[1:3]]
    if len(lines) > 2:
        lines.append(Line())
    lines += [*hardware(known, name, width), Line()]
    facts = _facts(report, name, min(44, width - 2))
    checks = _checks(known, cells, row, width - 48 if width >= TWO_COLUMNS else width, every)
    if width >= TWO_COLUMNS:
        return lines + side_by_side(facts, checks, 44)
    return lines + checks + [Line()] + facts


# GPUs and HCAs


@lru_cache(8)
def _hardware_of(known: Known, name: str) -> tuple[object, object]:
    """What the report holds of a node's GPUs and RDMA devices: facts, or why they are missing; None for a
    report without facts. Raises InputError for a damaged one."""
    store, groups = as_facts(known.report.facts), ("gpu", "rdma")
    if not store:
        return None, None
    if isinstance(store, Live):
        decoded = store.store()
        return decoded.get("gpu", name), decoded.get("rdma", name)
    if isinstance(store, Squeezed):
        found = _line_of(store, name)
    else:
        every = store.plain().get("node")
        by_node = {group: every.get(group) for group in groups} if isinstance(every, dict) else {}
        found = {g: facts[name] for g, facts in by_node.items() if isinstance(facts, dict) and name in facts}
    gpu, rdma = (from_saved(group, found[group]) if group in found else None for group in groups)
    return gpu, rdma


def _line_of(store: Squeezed, name: str) -> dict[str, Any]:
    """The facts of one node among those of thousands: other lines are passed over undecoded."""
    plain = name.isascii() and name.isprintable() and not {'"', "\\"}.intersection(name)
    sign = f'"node":"{name}"'.encode() if plain else b""
    for position, data in unpack(store.packed("", "").facts, "its facts"):
        if sign in data and (one := decode(data, position, unread=True)).node == name:
            return dict(one.facts)
    return {}


def hardware(known: Known, name: str, width: int) -> list[Line]:
    """The GPUs and the ports of RDMA devices of a node, those alike in one row."""
    try:
        gpu, rdma = _hardware_of(known, name)
    except InputError as error:
        return [line((" hardware  ", "label"), (f"unknown: {fmt.plain(str(error), 100)}", "dim"))]
    if gpu is None and rdma is None:
        return [line((" hardware  ", "label"), ("unknown: this report has no facts of it", "dim"))]
    return [*_gpus(gpu, width), *_hcas(rdma, width)]


def _unknown(label: str, found: object) -> list[Line]:
    why = f": {fmt.plain(found.detail, 80)}" if isinstance(found, Missing) and found.detail else ""
    return [line((f" {label:<10}", "label"), (f"unknown{why}", "dim"))]


def _gpus(found: object, width: int) -> list[Line]:
    if not isinstance(found, GpuFacts):
        return _unknown("GPUs", found)
    driver = fmt.plain(found.driver_version or found.kernel_driver or "unknown", 40)
    if not found.devices:
        text_ = fmt.plain(found.nvml_message or found.nvml.replace("_", " "), 100)
        many = fmt.number(len(found.pci), "NVIDIA GPU")
        text = (
            f"{many} on the PCI bus, NVML lists none ({text_})"
            if found.pci
            else "no NVIDIA GPU on the PCI bus"
        )
        return [line((" GPUs      ", "label"), (text, "dim"))]
    same: dict[tuple[str, ...], list[Gpu]] = {}
    for one in found.devices:
        same.setdefault(_gpu(one), []).append(one)
    rows = [
        (",".join(ranges(sorted(one.index for one in some))), *texts[:3], _temperatures(some), *texts[3:])
        for texts, some in same.items()
    ]
    remark = f"{len(found.devices)}   driver {driver}   CUDA {fmt.plain(found.cuda_driver or 'unknown', 20)}"
    return [line((" GPUs      ", "label"), (remark, "dim")), *_table(rows, width)]


def _gpu(one: Gpu) -> tuple[str, ...]:
    """Model, memory, PCIe link and ECC errors of a GPU, and what it says is wrong."""
    memory = fmt.fact("memory_bytes", one.memory_total_bytes) or "memory unknown"
    lanes = f"x{one.pcie_width}" if one.pcie_width else "lanes unknown"
    lanes += f" of x{one.pcie_width_most}" if one.pcie_width_most not in (None, one.pcie_width) else ""
    link = f"PCIe {one.pcie_generation or '?'} {lanes}" if one.pcie_width else "PCIe unknown"
    errors = "unknown" if one.ecc_uncorrected is None else fmt.number(one.ecc_uncorrected, "error")
    ecc = "ECC off" if one.ecc_enabled is False else f"ECC {errors}"
    return fmt.plain(one.name or "model unknown", 40), memory, link, ecc, fmt.plain(one.error or "", 60)


def _temperatures(some: Sequence[Gpu]) -> str:
    known = [one.temperature_c for one in some if one.temperature_c is not None]
    if not known:
        return "C unknown"
    missing = f", {len(some) - len(known)} unknown" if len(known) < len(some) else ""
    return f"{min(known)} C{missing}" if min(known) == max(known) else f"{min(known)}-{max(known)} C{missing}"


def _hcas(found: object, width: int) -> list[Line]:
    if not isinstance(found, RdmaFacts):
        return _unknown("HCAs", found)
    unbound = fmt.number(len(found.unbound_pci), "card")
    remark = f"{len(found.hcas) or 'none'}" + (
        f"   {unbound} without an RDMA device" if found.unbound_pci else ""
    )
    rows = []
    for hca in found.hcas:
        netdevs = ", ".join(fmt.plain(name, 16) for name in hca.netdevs) or "no interface"
        for port in hca.ports:
            rows.append((fmt.plain(port.name, 24), *_port(port), netdevs, _gid(port)))
        if not hca.ports:
            rows.append((fmt.plain(hca.name, 24), "ports unknown", "", "", netdevs, ""))
    return [line((" HCAs      ", "label"), (remark, "dim")), *_table(rows, width)]


def _port(port: HcaPort) -> tuple[str, str, str]:
    rate = f"{port.rate_gbit_s:g} Gbit/s" if port.rate_gbit_s is not None else "rate unknown"
    return (
        fmt.plain(port.state or "state unknown", 16),
        rate,
        fmt.plain(port.link_layer or "layer unknown", 16),
    )


def _gid(port: HcaPort) -> str:
    """The GID that others are likely to use: of RoCE the last of version 2, else the first."""
    of_v2 = [gid for gid in port.gids if "v2" in (gid.type or "")]
    gid = of_v2[-1] if of_v2 else next(iter(port.gids), None)
    return f"GID {gid.index} {fmt.plain(gid.gid, 40)}" if gid is not None else "GID unknown"


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[Line]:
    """Rows in columns; what does not fit into the width goes to the next line, whole."""
    sizes = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows[:MOST_GROUPS]:
        text = "  "
        for cell_, size in zip(row, sizes, strict=True):
            if len(text) > 6 and width_of(text) + width_of(cell_) > width - 1:
                lines.append(line(text.rstrip()))
                text = "      "
            text += fit(cell_, min(size, width - 7)) + "  " * (size > 0)
        lines.append(line(text.rstrip()))
    more = [line((f"   and {len(rows) - MOST_GROUPS} more", "dim"))] if len(rows) > MOST_GROUPS else []
    return [*lines, *more]


def _facts(report: Report, name: str, width: int) -> list[Line]:
    lines = [line((" facts", "label"), ("   * differs from most nodes", "dim"))]
    others: list[Line] = []
    facts = next((t.facts for t in report.targets if t.id == name), {})
    for fact, value in facts.items():
        given = fmt.fact(fact, value)
        every = Counter(fmt.fact(fact, t.facts[fact]) for t in report.targets if fact in t.facts)
        typical, times = every.most_common(1)[0]
        odd = fact != "hostname" and given != typical and times * 2 > every.total()
        (lines if odd else others).append(
            line(
                (" * " if odd else "   ", "warn"),
                (f"{fmt.plain(fact, 14):<14} ", "label"),
                (fit(given, width - 18).rstrip(), "warn" if odd else ""),
            )
        )
        if odd:
            lines.append(line((f"   {'':<14} most: {fit(typical, width - 24).rstrip()}", "dim")))
    if not facts:
        lines.append(line(("   none known", "dim")))
    return lines + others


def _checks(known: Known, cells: Cells, row: int, width: int, every: bool) -> list[Line]:
    name = cells.nodes[row]
    order = sorted(range(len(cells.checks)), key=lambda c: "X?!b~.- ".find(cells.letter(row, c)))
    lines = [line((" checks", "label"))]
    quiet = Counter(letter for c in order if (letter := cells.letter(row, c)) in ".-") if not every else {}
    for column in order:
        if cells.letter(row, column) in quiet:
            continue
        letter, check = cells.letter(row, column), cells.checks[column]
        result = known.result(check, name)
        text = fmt.plain(result.summary, 300) if result else ""
        if letter == "b":
            waits = known.cause_of(check, name)
            text = f"blocked by [{waits.id}]" if waits else text
        # What is wrong is read to its end.
        style = "" if letter in "X!?" else "dim"
        room = max(width - 26, 10)
        pieces = [fit(text, room).rstrip()] if style else wrap(text, room)[:3]
        head = f" {fit(fmt.plain(check, 60), 20)} "
        lines.append(line(cell_span(letter), head, (pieces[0], style), key=("cell", check, name)))
        lines += [line(" " * 25, (piece, style)) for piece in pieces[1:]]
    words = {".": "pass", "-": "do not apply"}
    for letter in (letter for letter in words if letter in quiet):
        lines.append(line(cell_span(letter), (f" {quiet[letter]} {words[letter]}   a shows them", "dim")))
    return lines


def strip(known: Known, cells: Cells, width: int) -> list[Line]:
    """Each node with the worst that it says, where nodes are few; else how many there are of each cause."""
    if len(cells.nodes) > NAMED_MOST:
        return [line(("  nodes", "label")), *groups(known, cells, width)]
    lines, parts, used = [], [("  nodes ", "label")], 8
    for at, name in enumerate(cells.nodes):
        text = f" {fit(fmt.plain(name, 40), min(width_of(fmt.plain(name, 40)), 24))}  "
        if used + 3 + width_of(text) > width and len(parts) > 1:
            lines.append(line(*parts))
            parts, used = [("        ", "")], 8
        parts += [cell_span(worst(cells.row(at))), (text, "")]
        used += 3 + width_of(text)
    return [*lines, line(*parts)]


@lru_cache(2)  # the same for each place of the cursor
def groups(known: Known, cells: Cells, width: int) -> list[Line]:
    """The nodes of each cause, and of the others how many say what at the worst: what the overview shows."""
    others, lines = set(cells.nodes), []
    for number, item in enumerate(known.listed):
        others -= known.members[item.id]
        if number >= MOST_GROUPS:
            continue
        letter, count = LETTER_OF.get(item.status, "?"), len(item.node_list)
        first, *more = wrap(fmt.fold(item.node_list, 400), width - 18) if item.node_list else [""]
        mark = (f"[{item.id}] ", "dim")
        lines.append(line(cell_span(letter), f"{count:>5}  ", mark, (first, "head")))
        lines += [line(" " * 14, (piece, "head")) for piece in more[:2]]
        lines += [line(" " * 14, (piece, "dim")) for piece in wrap(describe.title(item), width - 16)[:4]]
    if len(known.listed) > MOST_GROUPS:
        lines.append(line((f"   and {len(known.listed) - MOST_GROUPS} more causes", "dim")))
    lines += [Line()] if lines else []
    same = Counter(cells.row(row) for row, name in enumerate(cells.nodes) if name in others)
    worst_of: Counter[str] = Counter()
    for letters, count in same.items():
        worst_of[worst(letters)] += count
    for letter, count in sorted(worst_of.items(), key=lambda one: -RANK.get(one[0], 0)):
        text = f"without a cause, {summary.word(summary.LETTERS.get(letter, 'unknown'))}"
        lines.append(line(cell_span(letter), f"{count:>5}  ", (text, "dim")))
    return lines


def cell(known: Known, cells: Cells, node: str, check: str, width: int) -> list[Line]:
    """The cell under the cursor, for the second pane: what it says, its cause, and the fix of that."""
    letter = cells.letter(cells.nodes.index(node), cells.checks.index(check))
    status = summary.LETTERS.get(letter, "")
    result, item = known.result(check, node), known.cause_of(check, node)
    item = item if letter in "X!?b" else None
    lines = [line(" ", status_span(status) if status else "not yet", f"   cause [{item.id}]" if item else "")]
    title = fmt.plain(known.titles.get(check) or "", 300)
    lines += [line((piece, "dim")) for piece in wrap(title, width - 2, " ")] if title else []
    if result is not None and result.summary:
        lines += [Line(), *(line(piece) for piece in wrap(fmt.plain(result.summary, 600), width - 2, " "))]
    for label, text in (("found", result.observed), ("expected", result.expected)) if result else ():
        if text is not None:
            lines += labelled(f" {label:<10}", wrap(fmt.plain(text, 600), width - 13))
    if item is not None:
        head = f" [{item.id}]"
        lines += [Line(), *labelled(f"{head:<11}", wrap(describe.title(item), width - 13), "head")]
    if item is not None and item.fixes:
        lines += labelled(" fix       ", wrap(describe.script_label(known.report, item.fixes[0]), width - 13))
        lines.append(line(("           y copies it, enter opens the cause", "dim")))
    return lines


def row(cells: Cells, node: str, checks: Sequence[str], width: int) -> list[Line]:
    """What a node has said so far of these checks, one a line."""
    at = cells.nodes.index(node)
    lines = [line((f" {piece}", "dim")) for piece in wrap(_counts(cells, at, checks), width - 2)]
    lines.append(Line())
    for check in checks:
        letter = cells.letter(at, cells.checks.index(check))
        word = "not yet" if letter == " " else ""
        lines.append(
            line(cell_span(letter), f" {fit(fmt.plain(check, 60), max(width - 14, 8))} ", (word, "dim"))
        )
    return lines


def _counts(cells: Cells, at: int, checks: Sequence[str] = ()) -> str:
    """How many checks, of these or of all, say what of a node."""
    row = cells.row(at)
    letters = bytes(row[cells.checks.index(check)] for check in checks) or row
    words = {**summary.LETTERS, "~": "running", " ": "not yet"}
    return ", ".join(
        f"{letters.count(letter.encode())} {word}"
        for letter, word in words.items()
        if letter.encode() in letters
    )


def under_cursor(
    known: Known | None, cells: Cells, node: str, check: str | None, width: int, *, group: Sequence[str] = ()
) -> list[Line]:
    """Three lines about the cell under the cursor, spelled out; without a check about the node.

    group: the checks that then are counted, none for all.
    """
    row = cells.nodes.index(node)
    name = fmt.plain(node, 60)
    if check is None:
        return [line(f" {name}   {_counts(cells, row, group)}"), Line(), Line()]
    letter = cells.letter(row, cells.checks.index(check))
    status = summary.LETTERS.get(letter, "")
    word = summary.word(status) if status else {"~": "running", " ": "not yet"}.get(letter, "")
    shown_check = fmt.plain(check, 60)
    result = known.result(check, node) if known else None
    item = known.cause_of(check, node) if known else None
    mark = f"[{item.id}] " if item and letter in "X!?b" else ""
    text = fmt.plain(result.summary, 400) if result else ""
    if letter == ".":
        text = text or fmt.plain((known.titles.get(check) if known else "") or "", 300)
    head = f" {name} x {shown_check}   "
    rest = f"   {mark}{text}"
    lines = [
        line(
            head,
            (word, STYLES.get(letter, "")),
            fit(rest, max(width - width_of(head) - width_of(word) - 1, 4)),
        )
    ]
    if item and letter in "X!?b":
        evidence = fmt.plain(item.seen[0], 400) if item.seen else describe.title(item)
        lines.append(line(("   found  ", "label"), fit(evidence, width - 12)))
        if item.fixes:
            label = describe.fix_label(known.report, item.fixes[0]) if known else ""
            lines.append(line(("   fix    ", "label"), fit(label, width - 12)))
    return [*lines, Line(), Line(), Line()][:3]
