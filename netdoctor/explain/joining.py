"""What logs admit, held against what a scan measured. Pure.

A scan sees the cluster as it is now and the logs tell of earlier, so that it takes out only what lines merely
admit and what stands until somebody mends it: a cause that a line names, memory that ran out or a link that
flapped stay, with a remark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from netdoctor.explain.knowledge import Knowledge, Role
from netdoctor.explain.model import Confidence, Explanation, Reason
from netdoctor.text import listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A cause that a scan found."""

    key: str  # as the check has it
    title: str
    check: str
    fixes: tuple[str, ...] = ()  # for this cluster: what each does, then a command a line
    sure: bool = True  # the check knows, and does not suspect
    fails: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a scan says."""

    proofs: Sequence[Proof] = ()
    passed: frozenset[str] = frozenset()  # checks that looked at every node and found all well
    open: Mapping[str, str] = field(default_factory=dict)  # those that could not tell everywhere, and why


def join(explanation: Explanation, measured: Measured, knowledge: Knowledge) -> Explanation:
    """The explanation with what the scan proves first and what it refutes out; what it left open stays."""
    proved: list[Reason] = []
    left: list[Reason] = []
    refuted: dict[str, str] = {}
    for reason in explanation.reasons:
        checks, found = reason.known.checks, _proofs(reason.known.causes, measured.proofs)
        if found:
            sure = any(proof.sure and proof.fails for proof in found)
            confidence = Confidence.CERTAIN if sure else reason.confidence
            proved.append(_proved(reason, found, confidence))
        elif checks and measured.passed.issuperset(checks):
            why = f"{listing(checks)} looked at every node and found all well"
            if not reason.known.standing or _is_stated(reason):
                left.append(replace(reason, proof=(f"not now: {why}",)))
            else:
                refuted[reason.known.label] = why
        else:
            unmeasured = [
                f"could not tell: {one}: {measured.open[one]}" for one in checks if one in measured.open
            ]
            left.append(replace(reason, proof=tuple(unmeasured[:2])))
    proved.sort(key=lambda reason: list(Confidence).index(reason.confidence))
    if proved and proved[0].confidence is Confidence.CERTAIN:
        left = [
            replace(one, confidence=Confidence.LIKELY) if one.confidence is Confidence.CERTAIN else one
            for one in left
        ]
    admitted = {reason.known.label for reason in explanation.reasons}
    more = _unasked(admitted, measured, knowledge)
    guess = explanation.is_guess and not proved
    return replace(explanation, reasons=(*proved, *left, *more), refuted=refuted, is_guess=guess)


def _is_stated(reason: Reason) -> bool:
    """Whether a line says so itself, as the kernel of a GPU that was lost: it was, whatever is so by now."""
    stated = any(line.role is Role.CAUSE for line in reason.lines)
    return reason.confidence is Confidence.CERTAIN or (reason.confidence is Confidence.LIKELY and stated)


def _proofs(keys: Sequence[str], proofs: Sequence[Proof]) -> list[Proof]:
    """Those with one of the keys, which may be globs: checks make some keys of parts."""
    return [proof for proof in proofs if any(fnmatchcase(proof.key, key) for key in keys)]


def _proved(reason: Reason, proofs: Sequence[Proof], confidence: Confidence) -> Reason:
    return replace(
        reason,
        confidence=confidence,
        proof=tuple(f"{proof.check}: {proof.title}" for proof in proofs),
        fixes=tuple(dict.fromkeys(fix for proof in proofs for fix in proof.fixes)),
    )


def _unasked(admitted: set[str], measured: Measured, knowledge: Knowledge) -> list[Reason]:
    """What the scan found failing that no line spoke of: possible, as nothing ties it to this failure."""
    spoken = [key for label in admitted for key in knowledge.causes[label].causes]
    failing = [proof for proof in measured.proofs if proof.fails and not _proofs(spoken, [proof])]
    possible = Confidence.POSSIBLE
    return [
        _proved(Reason(known=known, confidence=possible, weight=0.0, lines=()), found, possible)
        for known in knowledge.causes.values()
        if known.label not in admitted and (found := _proofs(known.causes, failing))
    ]
