"""What the renderings say alike: counts, headlines, who explains what, where a fix runs. No layout here.

Everything returned is one line of text that `netdoctor.text.clean` has seen, or a command made visible.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from netdoctor.report.model import Cause, CommandRecord, Counts, FamilyRow, FixRecord, Part, Report, Result
from netdoctor.text import clean, has_ci_command

STATUSES = ("pass", "warn", "fail", "blocked", "skip", "unknown")
LETTERS = {".": "pass", "!": "warn", "X": "fail", "b": "blocked", "-": "skip", "?": "unknown"}
WORDS = {
    "pass": "ok",
    "warn": "WARN",
    "fail": "FAIL",
    "blocked": "held",
    "skip": "skip",
    "unknown": "UNKNOWN",
}
VERDICTS = {"ready": "READY", "not_ready": "NOT READY", "undecided": "UNDECIDED", "partial_pass": "CHECKED"}
FAMILIES = {"net": "network", "sw": "software", "bw": "bandwidth"}

LAST = ".netdoctor/last.json"
FOLD_LIMIT = 60
LOOP_ABOVE = 3
COMMAND_LIMIT = 3
_WIDE = 100_000

_HBM = re.compile(r" HBM\d\w*$")
_SHELL_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def plain(text: object, limit: int = 2_000) -> str:
    """Return anything as one harmless line; what is cut ends in three dots."""
    shown = clean(text if isinstance(text, str) else str(text), _WIDE)
    return shown if len(shown) <= limit else shown[: limit - 3].rstrip() + "..."


def is_inert(char: str) -> bool:
    """Return whether a character is drawn as itself and steers nothing."""
    return char.isprintable() and (char.isascii() or clean(f"x{char}x") == f"x{char}x")


def escaped(text: str) -> str:
    r"""Return `text` with each character that cannot be seen written as ``\x1b``, ``\u202e`` or ``\n``.

    And ``##[``, which some CI take for a command in their log, as ``#\x23[``.
    """
    if has_ci_command(text):
        text = text.replace("##", "#\\x23")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if is_inert(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def command(shell: str) -> str:
    """Return a command as it may be shown: unchanged, or a comment when it holds what cannot be seen.

    As a comment it does nothing when it is pasted all the same.
    """
    shown = escaped(shell)
    return shown if shown == shell else f"# do not run, it holds control characters: {shown}"


def word(status: str) -> str:
    """Return the status as the text report writes it."""
    return WORDS.get(status) or (plain(status, 12).upper() or "UNKNOWN")


def verdict(report: Report) -> str:
    """Return READY, NOT READY or UNDECIDED; CHECKED for a part that passes."""
    state = report.verdict.state
    return VERDICTS.get(state) or plain(state.replace("_", " "), 24).upper()


def count(counts: Counts, status: str) -> int:
    return int(getattr(counts, "pass_" if status == "pass" else status))


def total(counts: Counts) -> int:
    """Return the number of results."""
    return sum(count(counts, status) for status in STATUSES)


def tally(counts: Counts, *, zeros: bool = False) -> str:
    """Return ``159 pass, 1 skip``; with `zeros` all six."""
    pairs = ((count(counts, status), status) for status in STATUSES)
    return ", ".join(f"{n} {status}" for n, status in pairs if n or zeros) or "none"


def counts_line(report: Report) -> str:
    """Return ``40 checks x 4 nodes = 160 results: 140 pass, …`` with all six statuses."""
    counts, checks, nodes = report.verdict.counts, len(report.matrix.checks), len(report.matrix.nodes)
    results = total(counts)
    product = f"{number(checks, 'check')} x {number(nodes, 'node')} = {number(results, 'result')}"
    if checks * nodes != results:
        product = f"{number(checks, 'check')}, {number(nodes, 'node')}, {number(results, 'result')}"
    return f"{product}: {tally(counts, zeros=True)}"


def number(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def part_text(part: Part) -> str:
    """Return how much was looked at: ``1 of 43 checks on 1 of 6 nodes``."""
    checks = f"{part.checks} of {number(part.of_checks, 'check')}"
    nodes = f"{part.nodes} of {number(part.of_nodes, 'node')}"
    if part.checks == part.of_checks:
        checks = f"all {part.checks} checks"
    if part.nodes == part.of_nodes:
        nodes = f"all {part.nodes} nodes" if part.nodes > 1 else "the one node"
    in_parts = (part.checks, part.nodes) == (part.of_checks, part.of_nodes)
    return f"{checks} on {nodes}{', in parts' if in_parts else ''}"


def seconds(ms: float) -> str:
    """Return a duration as ``11.8 s`` or ``134 s``."""
    return f"{ms / 1000:.1f} s" if abs(ms) < 100_000 else f"{ms / 1000:.0f} s"


def figure(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "no number"


def headline(report: Report) -> str:
    """Return the words after the verdict: those of the engine, or counts when it has none."""
    given = plain(report.verdict.headline, 400)
    if report.verdict.state == "ready":
        counts = report.verdict.counts
        if f"{number(total(counts), 'result')}: " in given:
            return given
        return f"{number(total(counts), 'result')}: {tally(counts)}    {given}".rstrip()
    if given:
        return given
    if report.verdict.state == "not_ready":
        stops = sum(cause.status == "fail" for cause in report.causes)
        risks = sum(cause.status == "warn" for cause in report.causes)
        parts = [f"{number(stops, 'problem')} stop{'s' if stops == 1 else ''} the launch"] if stops else []
        parts += [f"{risks} will cause trouble"] if risks else []
        return ", ".join(parts) or "see the table"
    lost = report.undecided_nodes
    examined = len(report.matrix.nodes) - len(lost)
    where = f" on the {number(examined, 'node')} examined" if examined > 0 and lost else ""
    rest = f"; {nodes_text(report, lost)} could not be examined fully" if lost else ""
    return f"no problem proven{where}{rest}"


def stopped(report: Report) -> str | None:
    """Return one line about a run that did not end by itself, where the headline is not the engine's."""
    run = report.run
    if run.complete or report.verdict.headline:
        return None
    by = {"interrupt": "stopped by an interrupt", "deadline": "stopped by the deadline"}.get(run.ended_by)
    left = report.verdict.counts.unknown
    return (
        f"{by or 'not complete'} after {seconds(run.duration_ms)}: "
        f"{number(left, 'result')} unknown, the rest is true"
    )


def header(report: Report) -> list[str]:
    """Return the parts of the first line: tool, hosts, nodes and GPUs, profile."""
    source = report.run.hosts_source
    job = plain(source.get("job", ""), 60)
    parts = [
        f"{plain(report.tool.name, 40)} {plain(report.tool.version, 40)}".rstrip(),
        plain(source.get("path") or source.get("format") or "", 60) + (f" ({job})" if job else ""),
        ", ".join(filter(None, [number(len(report.targets), "node"), gpus(report)])),
        f"profile {plain(report.run.profile, 40)}",
    ]
    return [part for part in parts if part]


def gpus(report: Report) -> str:
    """Return ``32 GPUs (8 x H100 80GB each)``, or '' when no node's GPUs are known."""
    seen = [found for target in report.targets if (found := _gpu(target.facts)) is not None]
    amount = sum(n for n, _ in seen)
    if not amount:
        return ""
    known = "" if len(seen) == len(report.targets) else f" on {len(seen)} of {len(report.targets)} nodes"
    kinds = set(seen)
    if len(kinds) == 1:
        n, model = kinds.pop()
        each = " each" if len(seen) > 1 else ""
        return f"{number(amount, 'GPU')}{known}" + (f" ({n} x {model}{each})" if model else "")
    models = sorted({model for n, model in kinds if n and model})
    return f"{number(amount, 'GPU')}{known}" + (f" ({', '.join(models[:3])})" if models else "")


def _gpu(facts: Mapping[str, Any]) -> tuple[int, str] | None:
    amount, name = facts.get("gpus"), facts.get("gpu_model")
    if not isinstance(amount, int):
        return None
    model = plain(name, 40) if isinstance(name, str) else ""
    return amount, _HBM.sub("", model.removeprefix("NVIDIA "))


def fold(names: Sequence[str], limit: int | None = FOLD_LIMIT) -> str:
    """Return cleaned names folded, cut between names above `limit` characters."""
    cleaned = [plain(name, 200) for name in names]
    if len(cleaned) == 1:
        return cleaned[0]
    from netdoctor.inventory.nodeset import fold as fold_names

    return plain(fold_names(cleaned, limit), _WIDE)


def nodes_text(report: Report, names: Sequence[str], limit: int | None = FOLD_LIMIT) -> str:
    """Return names folded, or ``all 4 nodes`` for all of several."""
    every = report.matrix.nodes or tuple(target.id for target in report.targets)
    if len(every) > 1 and len(names) >= len(every) and set(names) >= set(every):
        return f"all {len(every)} nodes"
    return fold(names, limit)


_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


def alike(lines: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return lines with the targets they are said of, those together that differ in addresses alone.

    ``eth0 10.0.0.1`` of node1 and ``eth0 10.0.0.2`` of node2 are ``eth0 10.0.0.[1-2]`` of both.
    """
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for line, targets in lines.items():
        groups.setdefault(_ADDRESS.sub("\0", line), []).append((line, targets))
    folded = {}
    for mask, members in groups.items():
        found = zip(*(_ADDRESS.findall(line) for line, _ in members), strict=True)
        places = iter([fold(list(dict.fromkeys(addresses))) for addresses in found])
        shown = "".join(next(places) if part == "\0" else part for part in re.split("(\0)", mask))
        folded[shown] = [target for _, targets in members for target in targets]
    return folded


def logins(report: Report) -> list[str]:
    """Return how long logging in took: the middle of all, and the slowest three."""
    times = sorted((t.login_ms, t.id) for t in report.targets if t.login_ms is not None)
    if not times:
        return []
    slowest = ", ".join(f"{plain(node, 60)} {ms:.0f} ms" for ms, node in reversed(times[-3:]))
    return [f"median {times[len(times) // 2][0]:.0f} ms; slowest {slowest}"]


def pairs_text(pairs: Sequence[str]) -> list[str]:
    """Return ``n[1-2,4] -> n3``: pairs with an end in common together, largest first, three at most."""
    left = dict.fromkeys((src, dst) for src, _, dst in (pair.partition("->") for pair in pairs))
    lines: list[str] = []
    while left and len(lines) < 3:
        sizes = Counter((end, pair[end]) for pair in left for end in (1, 0))
        (end, node), _ = sizes.most_common(1)[0]
        others = [pair[1 - end] for pair in left if pair[end] == node]
        lines.append(f"{fold(others)} -> {node}" if end else f"{node} -> {fold(others)}")
        left = {pair: None for pair in left if pair[end] != node}
    return [*lines, number(len(left), "more pair")] if left else lines


def cause_nodes(report: Report, cause: Cause, limit: int | None = FOLD_LIMIT) -> str:
    """Return the culprits of a cause, folded."""
    if cause.node_list:
        return nodes_text(report, cause.node_list, limit)
    return plain(cause.nodes, 200)


def title(cause: Cause) -> str:
    """Return the cause's sentence; a weak one says so."""
    text = plain(cause.title, 600)
    return f"suspected: {text}" if cause.confidence == "suspected" else text


def cause_check(cause: Cause) -> str:
    """Return the check id that stands for a cause."""
    return plain(cause.checks[0], 60) if cause.checks else ""


def ids(causes: Iterable[int]) -> str:
    """Return ``[1], [2] and [3]``; long lists are cut."""
    marks = [f"[{n}]" for n in causes]
    if len(marks) > 4:
        return f"{marks[0]} to {marks[-1]}"
    return " and ".join(filter(None, [", ".join(marks[:-1]), marks[-1] if marks else ""]))


class Index:
    """Results of a report by check and target, built once per rendering."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.family = {check.id: check.family for check in report.checks}
        self.titles = {check.id: check.title for check in report.checks}

    @cached_property
    def results(self) -> dict[tuple[str, str], Result]:
        return {(result.check, result.target): result for result in self._report.results}

    def status(self, check: str, target: str) -> str:
        result = self.results.get((check, target))
        return result.status if result else "blocked"

    def is_plain_pass(self, result: Result) -> bool:
        """Return whether a result says no more than its letter in the matrix."""
        return (
            result.status == "pass"
            and result.observed is None
            and not result.evidence
            and result.summary in ("", "pass", self.titles.get(result.check))
        )


def explains(report: Report, cause: Cause, index: Index) -> list[str]:
    """Return what a cause accounts for: results it holds back, and results it turned bad."""
    own = {(check, node) for check in cause.checks[:1] for node in cause.node_list}
    held = [e for e in cause.explains if index.status(e.check, e.target) == "blocked"]
    bad = [
        e
        for e in cause.explains
        if index.status(e.check, e.target) not in ("blocked", "pass") and (e.check, e.target) not in own
    ]
    lines = []
    if cause.held or held:
        what = f"{number(cause.held or len(held), 'result')} not run"
        lines.append(f"{what}: {_spread(report, held)}" if held else what)
    if bad:
        lines.append(f"{number(len(bad), 'other result')}: {_spread(report, bad)}")
    return lines


def since(report: Report, cause: Cause) -> list[str]:
    """Return whether a cause is new, where the scan was held against a baseline."""
    against = report.baseline
    if against is None or cause.baseline is None:
        return []
    runs = f", {number(against.runs, 'run')}" if against.runs > 1 else ""
    known = "not in" if cause.baseline == "new" else "in"
    return [f"{plain(cause.baseline, 12)}: {known} the baseline {plain(against.name, 80)}{runs}"]


def accepted(report: Report) -> list[str]:
    """Return a line for each problem that is accepted: what, where, until when and why."""
    return [
        f"{word(one.status)} {plain(' '.join(one.checks[:1]), 60)} {plain(one.title)} "
        f"({f'until {plain(one.until, 20)}' if one.until else 'without an end'}: {plain(one.reason, 300)}; "
        f"{plain(one.place, 80)})"
        for one in report.suppressed
    ]


def healed(report: Report) -> list[str]:
    """Return a line for each cause of the baseline that is put right."""
    found = report.baseline.healed if report.baseline is not None else ()
    return [f"{word(one.status)} {plain(' '.join(one.checks[:1]), 60)} {plain(one.title)}" for one in found]


def _spread(report: Report, explained: Sequence[Any]) -> str:
    checks = list(dict.fromkeys(plain(e.check, 60) for e in explained))
    targets = list(dict.fromkeys(e.target for e in explained if e.target not in ("cluster", "control")))
    shown = ", ".join(checks)
    if len(checks) > 6:
        families = dict.fromkeys(check.partition(".")[0] for check in checks)
        shown = f"{len(checks)} checks of {plain(', '.join(families), 120)}"
    nodes = [target for target in targets if "->" not in target]
    where = [nodes_text(report, nodes)] if nodes else []
    where += pairs_text([target for target in targets if "->" in target])
    return f"{shown} on {', '.join(where)}" if where else shown


def fix_names(fixes: Iterable[FixRecord]) -> Iterator[str]:
    """Yield the label of each: ``look``, ``fix`` for the first that does more, ``or`` for others."""
    heals = False
    for fix in fixes:
        yield "look" if fix.kind == "look" else "or" if heals else "fix"
        heals = heals or fix.kind != "look"


def fixes_shown(fixes: Sequence[FixRecord]) -> Sequence[FixRecord]:
    """Return those that fit into a short report: two that heal, with what is to be looked at before."""
    shown: list[FixRecord] = []
    for fix in fixes:
        if len(shown) == 3 or sum(one.kind != "look" for one in shown) == 2:
            break
        shown.append(fix)
    return shown


def fix_label(report: Report, fix: FixRecord) -> str:
    """Return where a fix runs, as whom, when it acts, whether it lasts, what it costs, does and widens."""
    where = plain(fix.where, 200) or _where(report, fix)
    effect = plain(fix.effect, 60) if fix.kind != "look" else ""
    parts = [where] if where else []
    if fix.kind == "hosts":
        parts.append("in the hosts file")
    if fix.commands and fix.kind != "look":
        parts.append("root" if fix.needs_root else "no root")
    elif fix.needs_root:
        parts.append("root")
    if fix.commands or fix.kind == "hosts":
        parts += [effect] if effect else []
    here = fix.kind == "job" or all(name in ("job", "control") for c in fix.commands for name in c.run_on)
    if effect and not here and effect != "after reboot":
        parts.append("survives reboot" if fix.persistent else "lost at reboot")
    if fix.needs_reboot and effect != "after reboot":
        parts.append("needs a reboot")
    if fix.risk != "low":
        parts.append(f"risk {plain(fix.risk, 20)}")
    if fix.loses:
        parts.append(f"loses {plain(fix.loses, 200)}")
    tail = [plain(fix.text, 400), plain(fix.widens or "", 200)]
    if tail[1] and tail[1] in tail[0]:
        tail.pop()
    if fix.needs:
        tail.append(plain(f"needs {', '.join(fix.needs)}", 200))
    return "; ".join(filter(None, [", ".join(parts), *tail]))


def _where(report: Report, fix: FixRecord) -> str:
    names = list(dict.fromkeys(name for c in fix.commands for name in c.run_on))
    if not names:
        return ""
    if names == ["control"]:
        return "on this machine"
    if names == ["job"]:
        return "in the job's environment or script"
    return f"on {nodes_text(report, names)}"


def fix_commands(fix: FixRecord, *, every: bool = False) -> list[str]:
    """Return the lines to paste; the same command for more than three nodes becomes one loop.

    Where no loop fits, lines beyond the third are counted in a comment unless `every` is set.
    """
    lines = to_paste(fix.commands)
    if every or len(lines) <= COMMAND_LIMIT:
        return lines
    return [*lines[:COMMAND_LIMIT], f"# and {len(lines) - COMMAND_LIMIT} more like these: --all"]


def to_paste(commands: Sequence[CommandRecord]) -> list[str]:
    """Return the commands as lines; the same one for more than three nodes becomes one loop."""
    if len(commands) <= LOOP_ABOVE:
        return [command(c.shell) for c in commands]
    return list(_looped(commands))


def _looped(commands: Sequence[CommandRecord]) -> Iterator[str]:
    """Yield commands, those that differ only in the node's name as a for loop."""
    groups: dict[str, list[CommandRecord]] = {}
    for record in commands:
        groups.setdefault(_template(record) or f"\0{record.shell}", []).append(record)
    for template, records in groups.items():
        if template.startswith("\0") or len(records) <= LOOP_ABOVE:
            yield from (command(record.shell) for record in records)
        else:
            names = " ".join(record.run_on[0] for record in records)
            yield f"for node in {names}; do {template}; done"


def _template(record: CommandRecord) -> str | None:
    """Return the command with ``"$node"`` for the node's name where that is safe, else None."""
    if len(record.run_on) != 1 or escaped(record.shell) != record.shell or not record.inner:
        return None
    node = record.run_on[0]
    outer, found, rest = record.shell.partition(f" {node} ")
    if not found or not _SHELL_WORD.fullmatch(node) or not set("'\"\\#").isdisjoint(outer):
        return None
    if re.search(rf"\b{re.escape(node)}\b", rest):
        return None  # the command itself names the node: no loop over names can say that
    return f'{outer} "$node" {rest}'


def family_status(report: Report, row: FamilyRow, index: Index) -> str:
    """Return the status of a row; one that waits on every node is not green."""
    waits = row.status == "pass" and waiting(report, row.family, index)
    return "blocked" if waits and not passing(report, row.family, index) else row.status


def family_value(report: Report, row: FamilyRow, index: Index) -> tuple[str, str]:
    """Return (who, remark) of a row: ``all 4 nodes`` or ``[1] gpu-a03``, and what else is worth saying."""
    by_id = {cause.id: cause for cause in report.causes if cause.id in row.causes}
    remark = plain(row.remark, 300)
    held = {c.id: _held(row, c, index) for c in by_id.values()}
    own = [
        c
        for c in by_id.values()
        if not held[c.id] or any(index.family.get(check) == row.family for check in c.checks)
    ]
    waits = [f"{number(held[c.id], 'check')} held by [{c.id}]" for c in by_id.values() if c not in own]
    status = family_status(report, row, index)
    late = waiting(report, row.family, index) if status == "pass" and not own else []
    if late:
        good = passing(report, row.family, index)
        who = plain(good[0], 60) if len(good) == 1 else number(len(good), "node")
        verb = "waits" if len(late) == 1 else "wait"
        return f"{who}; {fold(late, 40)} {verb} for {ids(row.causes) or 'an earlier check'}", remark
    if own or (waits and status != "blocked"):
        return "; ".join([*(f"[{c.id}] {cause_nodes(report, c, 40)}".rstrip() for c in own), *waits]), ""
    if status == "blocked":
        rest = [f"{len(row.causes)} causes"] if len(row.causes) > 4 else []
        return f"waits for {''.join(rest) or ids(row.causes) or 'an earlier check'}", ""
    if status == "pass":
        return nodes_text(report, passing(report, row.family, index)), remark
    if status == "skip":
        return remark or "does not apply", ""
    letter = next((letter for letter, known in LETTERS.items() if known == status), "")
    return nodes_text(report, showing(report, row.family, letter, index)), remark


def _held(row: FamilyRow, cause: Cause, index: Index) -> int:
    """Return how many checks of a family wait for a cause."""
    waiting = {e.check for e in cause.explains if index.status(e.check, e.target) == "blocked"}
    return sum(index.family.get(check) == row.family for check in waiting)


def showing(report: Report, family: str, letter: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family has this letter."""
    rows = [cells for cells in _rows(report, family, index) if letter in cells]
    if not rows:
        return []
    return [node for n, node in enumerate(report.matrix.nodes) if any(cells[n] == letter for cells in rows)]


def _rows(report: Report, family: str, index: Index) -> list[str]:
    pairs = zip(report.matrix.checks, report.matrix.cells, strict=True)
    return [cells for check, cells in pairs if index.family.get(check) == family]


def passing(report: Report, family: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family passed and none did anything but pass or skip."""
    rows = _rows(report, family, index)
    if not rows:
        return []
    good = ({".", "-"}, {"."})
    return [
        node
        for node, column in zip(report.matrix.nodes, zip(*rows, strict=True), strict=True)
        if set(column) in good
    ]


def waiting(report: Report, family: str, index: Index) -> list[str]:
    """Return the nodes on which some check of a family waits for another."""
    return showing(report, family, "b", index)


def usable(report: Report, limit: int | None = FOLD_LIMIT) -> str:
    """Return ``27 of 32   node[0-4,6-8,...]`` where not all nodes are; of a part nothing can be said."""
    good, every = report.healthy_nodes, report.matrix.nodes
    if report.verdict.part is not None or len(good) >= len(every):
        return ""
    return f"{len(good)} of {len(every)}   {fold(good, limit) if good else 'none'}"


def family_label(family: str) -> str:
    return FAMILIES.get(family) or plain(family, 20)


def next_step(report: Report) -> tuple[str, str] | None:
    """Return (what to do, the command after it), or None when nothing is left to do."""
    if report.verdict.state == "ready":
        return None
    fails = [cause.id for cause in report.causes if cause.status == "fail"]
    warns = [cause.id for cause in report.causes if cause.status == "warn"]
    saved = report.run.saved_to
    again = f"netdoctor scan --last{'' if saved == LAST else f' --save {_quoted(saved)}'}" if saved else ""
    if report.verdict.state == "partial_pass":
        return ("look at everything:" if again else "scan everything"), again
    todo = fails or (warns if report.verdict.state == "not_ready" else [])
    if todo:
        return f"fix {ids(todo)}, then" if again else f"fix {ids(todo)}, then scan again", again
    if report.verdict.gaps and not report.verdict.counts.unknown and report.run.complete:
        return (
            "see to what was not seen, then" if again else "see to what was not seen, then scan again",
            again,
        )
    return ("examine again what is unknown:" if again else "scan again"), again


def report_command(report: Report) -> str | None:
    """Return the command that shows the saved report again."""
    saved = report.run.saved_to
    if not saved:
        return None
    return "netdoctor report show -v" if saved == LAST else f"netdoctor report show -v {_quoted(saved)}"


def _quoted(path: str) -> str:
    """Return a path as a shell word; one that cannot be seen stays visible and harmless."""
    shown = escaped(path)
    return shlex.quote(f"./{shown}" if shown.startswith("-") else shown)
