"""Findings about a property that should be equal on all nodes."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from netdoctor.checks._majority import majority
from netdoctor.checks._words import listing, title_text
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Status,
)

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,60}")
_PATH = re.compile(r"/[\w./+@-]{1,300}")


def safe_version(text: str | None) -> str | None:
    """A version that may stand in a command; None for anything that does not look like one."""
    return text if text and _VERSION.fullmatch(text) else None


def python_of(software: SoftwareFacts) -> str:
    """The job's interpreter as a shell word; ``python3`` where its path is unusual."""
    usual = _PATH.fullmatch(software.executable)
    return shlex.quote(software.executable) if usual else "python3"


def differing(
    values: Mapping[str, str],
    noun: str,
    key: str,
    *,
    status: Status = Status.FAIL,
    why: str = "",
    fixes: Callable[[str, str], tuple[Fix, ...]] | None = None,
    evidence: Callable[[str], tuple[Evidence, ...]] | None = None,
    verify: tuple[str, ...] = (),
    explains: bool = True,
    follows: tuple[str, ...] = (),
) -> Iterator[Finding]:
    """A finding for each node whose value is not the majority's; on a tie, for every node.

    values: node id to value. noun: ``torch``. why: what follows, put behind the summary.
    fixes(node, wanted): how `node` gets the majority's value; on a tie no command is proposed,
    because nothing says which side is right. explains, follows: as in CauseHint.
    """
    spread = majority(values)
    if spread.equal:
        return
    tail = f": {why}" if why else ""
    if spread.value is None:
        sides = "; ".join(f"{value} on {listing(nodes)}" for value, nodes in list(spread.groups.items())[:4])
        hint = CauseHint(
            key=key,
            title=title_text(f"{noun} differs between ") + "{nodes}, and no version has a majority",
            culprits=tuple(values),
            confidence=Confidence.LIKELY,
            # No command: nothing says which side is right.
            fixes=(
                Fix(text="decide for one of them, and bring the other nodes to it", effect="next launch"),
            ),
            verify=verify,
            explains=explains,
            follows=follows,
        )
        for node, value in values.items():
            yield Finding(
                target=node,
                status=status,
                summary=f"{noun} {sides}{tail}",
                observed=value,
                expected="the same on all nodes",
                expected_from=ExpectedFrom.PEERS,
                evidence=evidence(node) if evidence else (),
                cause=hint,
            )
        return
    others = set(spread.minority.values())
    if len(others) == 1:
        text = f"{noun} {others.pop()} where most nodes have {spread.value}"
    else:
        text = f"another {noun} than most nodes ({spread.value})"
    for node, value in spread.minority.items():
        yield Finding(
            target=node,
            status=status,
            summary=f"{noun} {value} here, {spread.value} on most nodes{tail}",
            observed=value,
            expected=spread.value,
            expected_from=ExpectedFrom.PEERS,
            evidence=evidence(node) if evidence else (),
            cause=CauseHint(
                key=key,
                title="{nodes} {has} " + title_text(text),
                culprits=(node,),
                fixes=fixes(node, spread.value) if fixes else (),
                verify=verify,
                explains=explains,
                follows=follows,
            ),
        )
