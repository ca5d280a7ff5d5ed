"""What is known, as a fold over events, and what follows from it: rows, groups, order. Nothing here draws.

A status is its letter (see `netdoctor.report.summary.LETTERS`); two more stand in a matrix that is being
filled: ``~`` for a result that is under way and a space for one that has not begun.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from string import digits

from netdoctor.report import fmt, summary
from netdoctor.report.model import Cause, Report, Result, TargetRecord
from netdoctor.report.results import Index
from netdoctor.tui.events import Began, Ended, Event, Failed, NodeDone, Phase

# Badness of letters, worst last; a cell that waits for its first value says least.
ORDER = " -.b~!?X"
RANK = {letter: rank for rank, letter in enumerate(ORDER)}
_RANK_OF_BYTE = bytes(RANK.get(chr(code), 0) for code in range(256))
BAD = frozenset("X!?")
SORTS = ("worst", "listed", "name")
GROUPS_ABOVE = 60
LOG_NUMBERS = 10_000  # causes that logs name have numbers above it, and no report has so many
NEWS_KEPT = 50


@dataclass(frozen=True, slots=True)
class Cells:
    """A matrix, node by node: the letter of node i and check j is cells[i * len(checks) + j]."""

    nodes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cells: bytes = b""

    def row(self, row: int) -> bytes:
        width = len(self.checks)
        return self.cells[row * width : (row + 1) * width]

    def letter(self, row: int, column: int) -> str:
        return chr(self.cells[row * len(self.checks) + column])


@dataclass(frozen=True, slots=True)
class PhaseState:
    """A phase of the engine. Moments are in the seconds of the events."""

    name: str
    done: int
    total: int
    began: float
    ended: float | None = None  # None while it goes on
    budget_ends: float | None = None  # when experiments with a time budget mean to be over


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything the screens show that is not a matter of where somebody looks."""

    cells: Cells = field(default_factory=Cells)
    report: Report | None = None
    scanning: bool = False
    partial: bool = False
    source: str = ""
    profile: str = ""
    began: float = 0.0
    now: float = 0.0
    phases: tuple[PhaseState, ...] = ()
    answered: Mapping[str, float] = field(default_factory=dict)  # node to the second of its first answer
    troubled: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    busy: frozenset[int] = frozenset()  # indices into cells.cells that are being measured again
    running: str = ""  # which checks and nodes these are
    message: str = ""
    stamp: int = 0  # counts changes of the report
    numbers: Mapping[str, int] = field(default_factory=dict)  # of each cause ever shown, by Known.key_of
    log: tuple[Cause, ...] = ()  # causes that logs name, from LOG_NUMBERS + 1 on; part of no report

    @property
    def live(self) -> bool:
        """Whether a scan of everything goes on and fills the matrix."""
        return self.scanning and not self.partial

    @property
    def verdict(self) -> str:
        if self.report is None:
            return "SCANNING" if self.scanning else "NO REPORT"
        return summary.verdict(self.report)


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after a batch of events. What grows is copied once per batch, not once per event."""
    letters: dict[int, int] = {}
    answered: dict[str, float] = {}
    for event in events:
        if isinstance(event, tuple):
            row, column, letter = event
            width = len(state.cells.checks)
            if 0 <= row < len(state.cells.nodes) and 0 <= column < width:
                letters[row * width + column] = ord(letter)
        elif isinstance(event, NodeDone):
            answered[event.node] = event.at
            state = replace(state, now=event.at)
            if event.text:
                text = f"{fmt.plain(event.node, 60)} {fmt.plain(event.text, 60)}"
                troubled, news = (*state.troubled, event.node), (text, *state.news)[:NEWS_KEPT]
                state = replace(state, troubled=troubled, news=news)
        elif isinstance(event, Phase):
            state = _phase(state, event)
        else:
            state = _turn(_put(state, letters, answered), event)
            letters, answered = {}, {}
    return _put(state, letters, answered)


def _put(state: State, letters: Mapping[int, int], answered: Mapping[str, float]) -> State:
    """With what a batch has gathered. letters: by their indices into cells.cells."""
    if letters:
        cells = bytearray(state.cells.cells)
        for index, letter in letters.items():
            cells[index] = letter
        filled = replace(state.cells, cells=bytes(cells))
        state = replace(state, cells=filled, busy=state.busy.difference(letters))
    if answered:
        state = replace(state, answered={**state.answered, **answered})
    return state


def _turn(state: State, event: Began | Ended | Failed) -> State:
    if isinstance(event, Failed):
        return replace(
            state, now=event.at, scanning=False, partial=False, busy=frozenset(), message=event.text
        )
    if isinstance(event, Ended):
        return replace(opened(event.report, state), now=event.at, message=event.text)
    common = replace(
        state,
        scanning=True,
        partial=event.partial,
        began=event.at,
        now=event.at,
        phases=(),
        answered={},
        troubled=(),
        news=(),
        message=event.text,
    )
    if event.partial:
        return replace(common, busy=_busy(state.cells, event), running=_running(state.cells, event))
    cells = Cells(
        nodes=event.nodes,
        checks=tuple(check for check, _ in event.checks),
        families=tuple(family for _, family in event.checks),
        cells=b" " * (len(event.nodes) * len(event.checks)),
    )
    return replace(
        common,
        cells=cells,
        report=None,
        source=event.source,
        profile=event.profile,
        busy=frozenset(),
        stamp=state.stamp + 1,
    )


def _running(cells: Cells, event: Began) -> str:
    """The checks and nodes of a re-run, the check that was asked for first."""
    checks = "all checks"
    if event.requested:
        more = f" +{len(event.requested) - 1}" if len(event.requested) > 1 else ""
        checks = f"{fmt.plain(event.requested[0], 40)}{more}"
    few = len(event.nodes) < len(cells.nodes) or len(event.nodes) == 1
    return f"{checks} on {fmt.fold(event.nodes[:200], 40) if few else f'all {len(event.nodes)} nodes'}"


def _busy(cells: Cells, event: Began) -> frozenset[int]:
    rows = {node: row for row, node in enumerate(cells.nodes)}
    columns = {check: column for column, check in enumerate(cells.checks)}
    return frozenset(
        rows[node] * len(cells.checks) + columns[check]
        for node in event.nodes
        if node in rows
        for check, _ in event.checks
        if check in columns
    )


def _phase(state: State, event: Phase) -> State:
    phases = list(state.phases)
    index = next((i for i, phase in enumerate(phases) if phase.name == event.name), None)
    over = event.total > 0 and event.done >= event.total
    if index is None:
        # Phases follow each other: a new one ends the one before.
        phases = [replace(p, ended=p.ended if p.ended is not None else event.at) for p in phases]
        ends = None if event.left is None else event.at + event.left
        ended = event.at if over else None
        phases.append(PhaseState(event.name, event.done, event.total, event.at, ended, ends))
    else:
        known = phases[index]
        phases[index] = replace(
            known,
            done=event.done if event.done or not over else known.done,
            total=event.total or known.total,
            ended=event.at if over else None,
        )
    return replace(state, phases=tuple(phases), now=event.at)


def opened(report: Report, before: State | None = None) -> State:
    """The state that shows a finished report."""
    before = before or State()
    report, numbers = numbered(report, before.numbers, before.report)
    families = {check.id: check.family for check in report.checks}
    return replace(
        before,
        report=report,
        cells=cells_of(report, families),
        scanning=False,
        partial=False,
        busy=frozenset(),
        source=report.run.hosts_source.get("path") or report.run.hosts_source.get("format") or "",
        profile=report.run.profile,
        stamp=before.stamp + 1,
        numbers=numbers,
    )


def numbered(
    report: Report, numbers: Mapping[str, int], before: Report | None
) -> tuple[Report, dict[str, int]]:
    """The report with its causes under the numbers that they had, and the numbers of all causes so far.

    One that now is about other nodes keeps its number, too; a new one gets a number that none has had.
    """
    known, found = dict(numbers), keyed(report.causes)
    given: dict[int, int] = {}
    for key, cause in found.items():
        number = known.get(key)
        if number is None and before is not None:
            used = {*given.values(), *(known[other] for other in found if other in known)}
            number = next((c.id for c in before.causes if _same(c, cause) and c.id not in used), None)
        if number is None:
            number = max(known.values()) + 1 if numbers else cause.id
        known[key] = given[cause.id] = number
    if all(old == new for old, new in given.items()):
        return report, known
    return replace(
        report,
        causes=tuple(replace(cause, id=given[cause.id]) for cause in report.causes),
        results=tuple(
            replace(r, cause=given.get(r.cause, r.cause)) if r.cause is not None else r
            for r in report.results
        ),
        families=tuple(
            replace(row, causes=tuple(given.get(number, number) for number in row.causes))
            for row in report.families
        ),
    ), known


def _same(one: Cause, other: Cause) -> bool:
    """Whether two causes are one trouble on some of the same nodes."""
    return one.key == other.key and not set(one.node_list).isdisjoint(other.node_list)


def by_family(checks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(check, family) pairs with families together, in the order in which they first come."""
    index = {family: i for i, family in enumerate(dict.fromkeys(family for _, family in checks))}
    return sorted(checks, key=lambda pair: index[pair[1]])


def cells_of(report: Report, families: Mapping[str, str]) -> Cells:
    """The matrix of a report turned round: its rows are checks, ours are nodes. Families stay together."""
    matrix = report.matrix
    rows = {check: j for j, check in enumerate(matrix.checks)}
    order = [rows[check] for check, _ in by_family([(c, families.get(c, "")) for c in matrix.checks])]
    width = len(order)
    cells = bytearray(len(matrix.nodes) * width)
    for column, j in enumerate(order):
        cells[column::width] = matrix.cells[j].encode("ascii", "replace")
    return Cells(
        nodes=matrix.nodes,
        checks=tuple(matrix.checks[j] for j in order),
        families=tuple(families.get(matrix.checks[j], "") for j in order),
        cells=bytes(cells),
    )


def keyed(causes: Iterable[Cause]) -> dict[str, Cause]:
    """Causes by what stays the same in the next report: the fingerprint, with a number where it repeats."""
    found: dict[str, Cause] = {}
    count: Counter[str] = Counter()
    for cause in causes:
        again = count[cause.fingerprint]
        count[cause.fingerprint] += 1
        found[f"{cause.fingerprint} {again}" if again else cause.fingerprint] = cause
    return found


def is_of_log(cause: Cause) -> bool:
    return cause.id > LOG_NUMBERS


def mark(cause: Cause) -> str:
    """``[2]``; ``[L1]`` for a cause that a log names."""
    return f"[L{cause.id - LOG_NUMBERS}]" if is_of_log(cause) else f"[{cause.id}]"


class Known:
    """A report by its keys, built once for each report that is shown."""

    def __init__(self, report: Report, log: Sequence[Cause] = ()) -> None:
        self.report = report
        self.index = Index(report)
        # Its causes and those that logs name, what stops a job first.
        self.listed = sorted((*report.causes, *log), key=lambda cause: cause.status != "fail")
        self.causes: dict[int, Cause] = {cause.id: cause for cause in self.listed}
        self.by_key = keyed(self.listed)
        self._keys = {cause.id: key for key, cause in self.by_key.items()}
        self.targets: dict[str, TargetRecord] = {target.id: target for target in report.targets}
        self.titles = {check.id: check.title for check in report.checks}

    def key_of(self, cause: Cause) -> str:
        """Its fingerprint, which the same trouble has in the next report; with a number where it repeats."""
        return self._keys[cause.id]

    def cause_at(self, key: str | None) -> Cause | None:
        return self.by_key.get(key) if key is not None else None

    def result(self, check: str, node: str) -> Result | None:
        return self.index.results.get((check, node))

    def cause_of(self, check: str, node: str) -> Cause | None:
        """The cause that a cell belongs to or waits for."""
        result = self.result(check, node)
        if result is not None and result.cause is not None:
            return self.causes.get(result.cause)
        for cause in self.report.causes:
            if check in cause.checks and node in cause.node_list:
                return cause
        return None

    def causes_of(self, node: str) -> list[Cause]:
        """The causes with which a node has to do, its own first."""
        waiting = self.by_node.get(node, ())
        direct = [c for c in self.report.causes if node in self.members[c.id]]
        rest = [c for c in self.report.causes if c.id in waiting and node not in self.members[c.id]]
        return direct + rest

    @cached_property
    def members(self) -> dict[int, frozenset[str]]:
        return {cause.id: frozenset(cause.node_list) for cause in self.listed}

    @cached_property
    def by_node(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for result in self.report.results:
            if result.cause is not None:
                found.setdefault(result.target, set()).add(result.cause)
        return found


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes drawn as one row."""

    members: tuple[int, ...]  # indices into Cells.nodes
    letters: bytes  # which they share


def columns_of(cells: Cells, columns: Sequence[int] | None = None) -> Sequence[int]:
    return range(len(cells.checks)) if columns is None else columns


def letters_of(cells: Cells, row: int, columns: Sequence[int] | None) -> bytes:
    """The letters of a node in some columns, None for all."""
    letters = cells.row(row)
    return letters if columns is None else bytes(letters[column] for column in columns)


def worst(letters: bytes) -> str:
    """The worst letter, a space for none."""
    if not letters:
        return " "
    return ORDER[max(letters.translate(_RANK_OF_BYTE))]


@lru_cache(4096)
def badness(letters: bytes) -> tuple[int, ...]:
    """A key that sorts worse rows first: by fails, unknowns, warnings, waiting, skips."""
    return tuple(-letters.count(letter) for letter in b"X?!b-")


def arranged(
    cells: Cells,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
    *,
    sort: str = "worst",
    reverse: bool = False,
    by: int | None = None,
) -> list[int]:
    """Row indices in the order asked for. sort: one of SORTS, or ``check`` with `by` a column."""
    chosen = list(range(len(cells.nodes)) if rows is None else rows)
    if sort == "name":
        chosen.sort(key=lambda row: natural(cells.nodes[row]))
    elif sort == "check" and by is not None:
        chosen.sort(key=lambda row: -RANK.get(cells.letter(row, by), 0))
    elif sort == "worst":
        chosen.sort(key=lambda row: badness(letters_of(cells, row, columns)))
    return chosen[::-1] if reverse else chosen


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key under which n2 comes before n10."""
    parts = filter(None, re.split("([0-9]+)", name[:200] + "\0"))
    return [(0, int(part), part) if part[0] in digits else (1, 0, part) for part in parts]


def grouped(cells: Cells, rows: Sequence[int], columns: Sequence[int] | None = None) -> list[Group]:
    """Rows whose letters are equal, together, in the order of their first members."""
    groups: dict[bytes, list[int]] = {}
    for row in rows:
        groups.setdefault(letters_of(cells, row, columns), []).append(row)
    return [Group(tuple(members), letters) for letters, members in groups.items()]


def uniform(cells: Cells) -> frozenset[int]:
    """Columns in which every node says the same: they tell nodes apart from nothing."""
    width, nodes = len(cells.checks), len(cells.nodes)
    columns = (cells.cells[column::width] for column in range(width))
    return frozenset(
        n for n, letters in enumerate(columns) if nodes > 1 and letters.count(letters[:1]) == nodes
    )


def not_green(cells: Cells) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(checks, nodes) that have anything but pass and skip."""
    bad = frozenset(b"X!?b")
    width = len(cells.checks)
    checks = [c for i, c in enumerate(cells.checks) if bad & set(cells.cells[i::width])]
    nodes = [n for i, n in enumerate(cells.nodes) if bad & set(cells.row(i))]
    return tuple(checks), tuple(nodes)


def slow(state: State, least_s: float = 2.0) -> tuple[float, float, tuple[str, ...]] | None:
    """(seconds so far, usual seconds, nodes) for nodes that have not answered long after most did."""
    waiting = [node for node in state.cells.nodes if node not in state.answered]
    times = sorted(at - state.began for at in state.answered.values())
    if not waiting or not times or not state.scanning or state.partial:
        return None
    typical = times[len(times) // 2]
    elapsed = state.now - state.began
    if elapsed < max(least_s, 3 * typical) or len(waiting) > len(times):
        return None
    return elapsed, typical, tuple(waiting)


def left_s(state: State) -> tuple[str, float] | None:
    """How sure that is, in words, and the seconds that are left; None when that cannot be said.

    A time budget is the most that is spent. A phase that counts its nodes tells after a quarter of them.
    """
    going = [phase for phase in state.phases if phase.ended is None]
    budget = [phase.budget_ends for phase in going if phase.budget_ends is not None]
    if budget:
        left = budget[-1] - state.now
        return ("at most", left) if left > 0 else None
    counting = [phase for phase in going if phase.total and phase.total <= 4 * phase.done < 4 * phase.total]
    if not counting:
        return None
    phase = counting[-1]
    return "about", (state.now - phase.began) * (phase.total - phase.done) / phase.done
