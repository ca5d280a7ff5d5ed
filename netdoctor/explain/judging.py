"""Recognised lines to causes, the likeliest first. Pure, and the same in any order of files.

Each pattern says of itself how likely which cause is. What several patterns say of a cause adds up as
independent evidence: 1 - (1-a)(1-b)… A line that says itself what is wrong outweighs what others made of it:
symptoms and echoes count less once there is one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from netdoctor.explain.again import AGAINST, BOARD, PROGRAM, SUPPORTS, Again, again
from netdoctor.explain.collecting import Gathered
from netdoctor.explain.knowledge import CERTAIN, Knowledge, Pattern, Role
from netdoctor.explain.lines import RAISED, WARNS
from netdoctor.explain.model import Confidence, Explanation, Hit, Quote, Ranks, Reason
from netdoctor.explain.quoting import quote

LIKELY_FROM = 0.5
# What a symptom or an echo still says beside a line that names a cause, of its full weight.
BESIDE_CAUSE = {Role.CAUSE: 1.0, Role.SYMPTOM: 0.4, Role.ECHO: 0.15, Role.CONTEXT: 1.0}
# What an echo still says where there is a symptom.
ECHO_BESIDE_SYMPTOM = 0.4
# A line that leaves this much of a doubt does not name a cause yet.
NAMES_FROM = 50
# And one that is likelier than this for some cause is of a process that failed.
ENDS_FROM = 40
REASONS_MAX = 8
# A job that hangs says little after the line that it hangs at.
LAST_WORDS = 10
LINES_MAX = 6
ECHOES_MAX = 12
UNKNOWN_SHOWN = 10


def judge(gathered: Gathered, knowledge: Knowledge) -> Explanation:
    """The causes that the lines admit."""
    hits = _by_all(_in_the_end(_counting(ordered(gathered.hits)), gathered), gathered.ranks)
    hits = _in_order_of_death(hits)
    # Where a line names one of the two, nothing is to be guessed.
    stated = any(_names_any(hit.pattern) and {BOARD, PROGRAM} & hit.pattern.admits.keys() for hit in hits)
    recurrence = None if stated else again(hits, gathered.host_of)
    weights = _weights(hits, recurrence)
    by_label: dict[str, list[Hit]] = {}
    for hit in hits:
        for label in hit.pattern.admits:
            by_label.setdefault(label, []).append(hit)
    reasons = [
        Reason(
            known=knowledge.causes[label],
            confidence=_confidence(label, weight, by_label[label]),
            weight=round(weight, 4),
            lines=tuple(_lines_for(label, by_label[label])),
        )
        for label, weight in weights.items()
        if weight > 0.01
    ]
    order = {id(hit): number for number, hit in enumerate(hits)}
    position = {label: order[id(found[0])] for label, found in by_label.items()}
    reasons.sort(
        key=lambda r: (
            list(Confidence).index(r.confidence),
            -r.weight,
            position[r.known.label],
            r.known.label,
        )
    )
    reasons = _one_certain(reasons, position)
    first = _first(hits)
    raised = _raised_before(first, gathered.unknown)
    if raised is not None:  # what follows may be its consequence
        first = raised
        reasons = [replace(one, confidence=Confidence.POSSIBLE) for one in reasons]
    unknown = sorted(ordered(gathered.unknown), key=lambda hit: WARNS.search(hit.text) is not None)
    echoes = [hit for hit in hits if hit.pattern.role is Role.ECHO and hit is not first]
    return Explanation(
        reasons=tuple(reasons[:REASONS_MAX]),
        ranks=_ranks(gathered, first),
        echoes=tuple(_each_kind(echoes, ECHOES_MAX)),
        echo_ranks=tuple(sorted({hit.speaker.rank for hit in echoes if hit.speaker.rank is not None})),
        echo_count=sum(gathered.counts.get(i, 0) for i in {h.pattern.id for h in echoes}),
        unknown=tuple(quote(hit) for hit in unknown[:UNKNOWN_SHOWN]),
        sources=tuple(gathered.sources),
        again=recurrence.sentence if recurrence is not None else "",
    )


def ordered(hits: Iterable[Hit]) -> list[Hit]:
    """By time where lines have one; times without a zone and such with one are not compared.

    A line before the first time of its log counts as of then; logs without comparable times stand behind.
    """
    every = list(hits)
    aware = sum(1 for h in every if h.when and h.when.aware)
    naive = sum(1 for h in every if h.when and not h.when.aware)
    kind = aware > naive
    begins: dict[str, float] = {}
    for hit in sorted(every, key=lambda hit: hit.number, reverse=True):
        if hit.when and hit.when.aware is kind:
            begins[hit.file] = hit.when.seconds

    def key(hit: Hit) -> tuple[bool, float, str, int, str]:
        seconds = hit.when.seconds if hit.when and hit.when.aware is kind else None
        if hit.when is None:
            seconds = begins.get(hit.file)
        return (seconds is None, seconds or 0.0, hit.file, hit.number, hit.pattern.id)

    return sorted(every, key=key)


def _counting(hits: Sequence[Hit]) -> list[Hit]:
    """Those that count: of the right rank, with the patterns that they need, differing where compared."""
    hits = [hit for hit in hits if hit.pattern.rank in (None, hit.speaker.rank)]
    values: dict[str, set[str]] = {}
    for hit in hits:
        if hit.pattern.differs:
            values.setdefault(hit.pattern.id, set()).add(hit.value)
    differing = {name for name, found in values.items() if len(found) > 1}
    compared = [hit for hit in hits if not hit.pattern.differs or hit.pattern.id in differing]
    present = {hit.pattern.id for hit in compared}
    return [hit for hit in compared if present.issuperset(hit.pattern.needs)]


def _by_all(hits: Sequence[Hit], ranks: Collection[int]) -> list[Hit]:
    """With what a line means that every rank says: a path that all miss is no matter of one node."""
    by: dict[str, set[int | None]] = {}
    for hit in hits:
        if hit.pattern.by_all:
            by.setdefault(hit.pattern.id, set()).add(hit.speaker.rank)
    every = {name for name, speakers in by.items() if len(ranks) > 1 and speakers.issuperset(ranks)}
    return [
        replace(hit, pattern=replace(hit.pattern, admits=hit.pattern.by_all))
        if hit.pattern.id in every
        else hit
        for hit in hits
    ]


def _in_order_of_death(hits: Sequence[Hit]) -> list[Hit]:
    """What only follows from a failure is an echo where one is told before it, in its log or by the clock."""
    fatal = next((hit for hit in hits if _ends(hit.pattern)), None)
    if fatal is None:
        return list(hits)
    behind = hits.index(fatal)
    return [
        replace(hit, pattern=replace(hit.pattern, role=Role.ECHO))
        if number > behind and hit.pattern.follows and (hit.file == fatal.file or (hit.when and fatal.when))
        else hit
        for number, hit in enumerate(hits)
    ]


def _ends(pattern: Pattern) -> bool:
    """Whether a line is of a process that failed by itself, and not of one that waited."""
    direct = pattern.role in (Role.CAUSE, Role.SYMPTOM) and not (pattern.follows or pattern.differs)
    return direct and max(pattern.admits.values(), default=0) >= ENDS_FROM


def _in_the_end(hits: Sequence[Hit], gathered: Gathered) -> list[Hit]:
    """Without what was tried again until it worked: nothing failed, and the log goes on behind it."""
    works: dict[str, int] = {}
    for hit in hits:
        if hit.pattern.works:
            last = gathered.last[hit.pattern.id, hit.file]
            works[hit.file] = max(works.get(hit.file, 0), last)
    hits = [
        hit
        for hit in hits
        if not (hit.pattern.retried and gathered.last[hit.pattern.id, hit.file] < works.get(hit.file, 0))
    ]
    if any(hit.pattern.role is not Role.CONTEXT and not hit.pattern.retried for hit in hits):
        return list(hits)
    lines = {source.name: source.lines for source in gathered.sources}
    return [
        hit
        for hit in hits
        if not hit.pattern.retried
        or lines.get(hit.file, 0) - gathered.last[hit.pattern.id, hit.file] <= LAST_WORDS
    ]


def _weights(hits: Sequence[Hit], recurrence: Again | None) -> dict[str, float]:
    patterns = [*{hit.pattern.id: hit.pattern for hit in hits}.values()]
    if recurrence is not None and recurrence.favours:
        other = PROGRAM if recurrence.favours == BOARD else BOARD
        patterns.append(Pattern(supports={recurrence.favours: SUPPORTS}, against={other: AGAINST}))
    certain = {
        label
        for pattern in patterns
        if pattern.role is Role.CAUSE
        for label, percent in pattern.admits.items()
        if percent >= NAMES_FROM
    }
    symptoms = any(pattern.role in (Role.SYMPTOM, Role.CAUSE) for pattern in patterns)
    doubt: dict[str, float] = {}
    for pattern in patterns:
        for label, percent in pattern.admits.items():
            worth = 1.0
            if certain and label not in certain:
                worth = BESIDE_CAUSE[pattern.role]
            elif symptoms and pattern.role is Role.ECHO:
                worth = ECHO_BESIDE_SYMPTOM
            doubt[label] = doubt.get(label, 1.0) * (1 - worth * min(percent, 99.5) / 100)
    for pattern in patterns:
        for label, percent in pattern.supports.items():
            if label in doubt:
                doubt[label] *= 1 - min(percent, 99) / 100
    weights = {label: 1 - left for label, left in doubt.items()}
    for pattern in patterns:
        for label, percent in pattern.against.items():
            if label in weights:
                weights[label] *= 1 - percent / 100
    return weights


def _confidence(label: str, weight: float, hits: Sequence[Hit]) -> Confidence:
    patterns = (hit.pattern for hit in hits if hit.pattern.role is Role.CAUSE)
    if weight >= 0.99 and any(pattern.admits.get(label) == CERTAIN for pattern in patterns):
        return Confidence.CERTAIN
    return Confidence.LIKELY if weight >= LIKELY_FROM else Confidence.POSSIBLE


def _one_certain(reasons: Sequence[Reason], position: Mapping[str, int]) -> list[Reason]:
    """Of several causes that lines name, the first in time is certain; the others may be its doing."""
    certain = sorted(
        (r for r in reasons if r.confidence is Confidence.CERTAIN),
        key=lambda r: (position[r.known.label], r.known.label),
    )
    rest = [r for r in reasons if r.confidence is not Confidence.CERTAIN]
    return [*certain[:1], *(replace(r, confidence=Confidence.LIKELY) for r in certain[1:]), *rest]


def _lines_for(label: str, hits: Sequence[Hit]) -> Iterable[Quote]:
    """The lines that speak for a cause, the strongest kinds first, each kind once and then once more."""
    direct = [hit for hit in hits if hit.pattern.role is not Role.ECHO] or hits
    strong = sorted(direct, key=lambda hit: -hit.pattern.admits[label])  # which keeps the order of equal ones
    return _each_kind(strong, LINES_MAX)


def _each_kind(hits: Iterable[Hit], most: int) -> list[Quote]:
    """One line of each kind, and each line once."""
    kinds: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        kinds.setdefault((hit.pattern.id, hit.value), hit)
    unique = {(hit.file, hit.number): hit for hit in reversed(kinds.values())}
    return [quote(hit) for hit in list(reversed(unique.values()))[:most]]


def _first(hits: Sequence[Hit]) -> Hit | None:
    """The first line that names a cause; else the first symptom, such as only follow last, else an echo."""

    def order(hit: Hit) -> int:
        if hit.pattern.role is Role.ECHO:
            return 3
        return 0 if _names_any(hit.pattern) else 1 + hit.pattern.follows

    return min((hit for hit in hits if hit.pattern.role is not Role.CONTEXT), key=order, default=None)


def _raised_before(first: Hit | None, unknown: Sequence[Hit]) -> Hit | None:
    """An exception of the program that nobody knows, before anything that only follows from something."""
    if first is None or _names_any(first.pattern):
        return None
    raised = [hit for hit in unknown if RAISED.search(hit.text)]
    earliest = ordered([first, *raised])[0]
    return earliest if earliest is not first else None


def _names_any(pattern: Pattern) -> bool:
    return pattern.role is Role.CAUSE and max(pattern.admits.values(), default=0) >= NAMES_FROM


def _ranks(gathered: Gathered, first: Hit | None) -> Ranks:
    present, world = tuple(sorted(gathered.ranks)), gathered.world_size
    silent: tuple[int, ...] = ()
    if world and gathered.ranks_named and present and present[-1] < world:
        silent = tuple(rank for rank in range(world) if rank not in gathered.ranks)
    by = replace(first.speaker, host=gathered.host_of(first)) if first else None
    return Ranks(
        world_size=world,
        present=present,
        silent=silent,
        quiet=tuple(sorted(rank for rank, failing in gathered.logs.items() if not failing)) if first else (),
        hosts=tuple(gathered.hosts),
        first=quote(replace(first, speaker=by)) if first and by else None,
    )
