"""A trial as text for people, and as the object that JSON has. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.explain.joining import Proof
from netdoctor.inventory.nodeset import fold
from netdoctor.report.formats.trial import ladder_lines
from netdoctor.report.model import Report, TrialCause, TrialLadder, TrialRecord, TrialRung
from netdoctor.text import clean, hung
from netdoctor.trial.following import Follower
from netdoctor.trial.judging import Ended, Judgement, State
from netdoctor.trial.ladder import Ladder

SCHEMA = "netdoctor.trial/1"
LABEL = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why it failed, as logs and checks together say. sure: ``certain``, ``likely``, ``possible``."""

    title: str
    sure: str
    source: str  # what says so
    fixes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """A trial that is over. planned: address of each node that the job should use, where known."""

    job: Follower
    judgement: Judgement
    ended: Ended
    seconds: float
    command: tuple[str, ...]
    added: tuple[str, ...] = ()
    logs: str = ""
    fault: str = ""  # why logs are not whole
    causes: tuple[Cause, ...] = ()
    planned: Mapping[str, str]
    again: str = ""  # how to start for good
    ladder: Ladder | None = None


def causes_of_scan(report: Report, proved: Collection[str], proofs: Sequence[Proof]) -> list[Cause]:
    """The problems that the scan found and no line of a log tells of."""
    nodes = {cause.key: cause.node_list for cause in report.causes}
    return [
        Cause(
            title=proof.title,
            sure="certain" if proof.sure else "likely",
            source=f"scan, {proof.check}",
            fixes=proof.fixes[:2],
            nodes=nodes.get(proof.key, ()),
            key=proof.key,
        )
        for proof in proofs
        if proof.fails and f"{proof.check}: {proof.title}" not in proved
    ]


def transport(result: TrialResult) -> list[str]:
    """What the ranks talk over, held against what was planned."""
    job = result.job
    lines = []
    words: dict[str, list[str]] = {}
    for node, counts in job.networks.items():
        for word in counts:
            words.setdefault(word, []).append(node)
    lines += [f"NCCL: {word} on {fold(nodes, 40)}" for word, nodes in list(words.items())[:4]]
    addresses = {node: [a for a in found if not _loopback(a)] for node, found in job.addresses.items()}
    used = {node: found for node, found in addresses.items() if found and result.planned.get(node)}
    other = [node for node, found in used.items() if result.planned[node] not in found]
    if other:
        node, more = other[0], f" ({len(other)} nodes)" if other[1:] else ""
        text = f"TCP from {', '.join(addresses[node][:3])} on {node}{more}"
        lines.append(f"{text}; {result.planned[node]} was planned")
    elif used:
        owner = "its node's" if len(used) == 1 else f"the {len(used)} nodes'"
        lines.append(f"TCP over {owner} planned addresses, such as {next(result.planned[n] for n in used)}")
    return lines


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def lines(result: TrialResult, width: int) -> Iterator[str]:
    """For people, at most `width` columns but for what is pasted."""
    judgement = result.judgement
    yield from wrapped(judgement.headline, f"{judgement.state.upper():<{LABEL - 1}} ", width)
    if result.ladder is not None:
        if result.ladder.why:
            yield from wrapped(result.ladder.why, f"{'ladder':<{LABEL}}", width)
        yield from ("", *ladder_lines(ladder_record(result.ladder), width), "")
    for label, texts in _rows(result):
        for i, text in enumerate(texts):
            yield from wrapped(text, f"{'' if i else label:<{LABEL}}", width)
    yield from cause_lines(result.causes, width)
    yield ""
    if result.logs:
        yield f"{'logs':<{LABEL}}{result.logs}"
    if result.again:
        yield f"{'next':<{LABEL}}{result.again}"


def cause_lines(causes: Sequence[Cause], width: int) -> Iterator[str]:
    """The first causes for people, commands to paste whole."""
    for number, cause in enumerate(causes[:3]):
        yield ""
        label = "cause" if not number else "or"
        yield from wrapped(f"{cause.title} ({cause.sure}: {cause.source})", f"{label:<{LABEL}}", width)
        for fix in cause.fixes[:2]:
            first, *commands = fix.split("\n")
            yield from wrapped(first, f"{'fix':<{LABEL}}", width)
            yield from (f"  {clean(command, 2000)}" for command in commands)


def _rows(result: TrialResult) -> list[tuple[str, Sequence[str]]]:
    job, found = result.job, list(result.judgement.found)
    rows: list[tuple[str, Sequence[str]]] = [("found", found), ("over", transport(result))]
    how = {
        Ended.TIME: f"ended by netdoctor after {result.seconds:.0f} s",
        Ended.STEPS: f"ended by netdoctor after {job.steps()} steps, {result.seconds:.0f} s",
        Ended.JOB: f"ended after {result.seconds:.0f} s",
        Ended.INTERRUPT: f"interrupted after {result.seconds:.0f} s",
    }[result.ended]
    reached = set(job.swept) - set(job.left)
    if result.seconds:
        rest = [node for node in job.nodes if node not in reached]
        clean_up = "no process is left" if not rest else f"not known to be clean: {fold(rest, 60)}"
        rows.append(("ran", [f"{how}; {clean_up}"]))
    rows += [("left", [f"{node}: {', '.join(names)}" for node, names in job.left.items()])]
    lost = sum(one.left_out for all_ in job.processes.values() for one in all_)
    notes = [f"the logs are not whole: {result.fault}"] if result.fault else []
    notes += [f"{lost} bytes of output came too fast and were left out of the logs"] if lost else []
    return [*rows, ("note", notes)]


def wrapped(text: str, label: str, width: int) -> list[str]:
    """A text of anybody's behind its label, made inert."""
    return hung(clean(text, 2000), label, max(width, 40), " " * LABEL)


def cause_rows(causes: Sequence[Cause]) -> list[dict[str, Any]]:
    """Causes as JSON has them."""
    return [
        {
            "key": cause.key,
            "title": cause.title,
            "confidence": cause.sure,
            "source": cause.source,
            "nodes": list(cause.nodes),
            "fix": list(cause.fixes),
        }
        for cause in causes
    ]


def to_json(result: TrialResult) -> dict[str, Any]:
    """The object of schema netdoctor.trial/1. Times in seconds since the start."""
    job = result.job
    return {
        "schema": SCHEMA,
        "state": str(result.judgement.state),
        "headline": result.judgement.headline,
        "found": list(result.judgement.found),
        "nodes_at_fault": list(result.judgement.nodes),
        "ended_by": str(result.ended),
        "seconds": round(result.seconds, 3),
        "command": list(result.command),
        "added": list(result.added),
        "world_size": job.world or None,
        "joined": len(job.joined),
        "first_step_s": job.first_step_s(),
        "steps": job.steps(),
        "steps_per_s": job.rate(),
        "over": transport(result),
        "ranks": [
            {
                "rank": rank.number,
                "node": rank.node,
                "waits_s": rank.waits_s,
                "joined_s": rank.joined_s,
                "first_step_s": rank.first_step_s,
                "steps": rank.steps,
                "steps_per_s": rank.rate,
            }
            for _, rank in sorted(job.ranks.items())
        ],
        "processes": [
            {"node": one.node, "state": one.state, "code": one.code, "ended_s": one.ended_s}
            for all_ in job.processes.values()
            for one in all_
        ],
        "lost": dict(job.lost),
        "left": {node: list(names) for node, names in job.left.items()},
        "causes": cause_rows(result.causes),
        "ladder": _ladder(result.ladder) if result.ladder is not None else None,
        "logs": result.logs or None,
    }


def to_record(result: TrialResult, finished: str, nodes: int) -> TrialRecord:
    """What the report of the nodes keeps of a trial. finished: RFC 3339 in UTC. nodes: on how many; a ladder
    may have ended on fewer."""
    job, judgement = result.job, result.judgement
    ladder = result.ladder
    return TrialRecord(
        state=str(judgement.state),
        headline=judgement.headline,
        finished=finished,
        seconds=round(result.seconds, 3),
        command=result.command,
        ended_by=str(result.ended),
        nodes=nodes,
        world_size=job.world or None,
        joined=len(job.joined),
        first_step_s=job.first_step_s(),
        steps=job.steps(),
        steps_per_s=job.rate(),
        over=tuple(transport(result)),
        found=judgement.found,
        nodes_at_fault=judgement.nodes,
        causes=tuple(
            TrialCause(title=c.title, confidence=c.sure, source=c.source, nodes=c.nodes, key=c.key)
            for c in result.causes
        ),
        ladder=ladder_record(ladder) if ladder is not None else None,
        logs=result.logs or None,
    )


def ladder_record(ladder: Ladder) -> TrialLadder:
    return TrialLadder(
        rungs=tuple(
            TrialRung(nodes=len(r.nodes), ranks=r.ranks, state=str(r.state), steps_per_s=r.rate)
            for r in ladder.rungs
        ),
        from_nodes=ladder.from_nodes,
        nodes_at_fault=ladder.nodes,
        headline=ladder.why,
    )


def _ladder(ladder: Ladder) -> dict[str, Any]:
    rungs, searched = (
        [
            {"nodes": list(r.nodes), "ranks": r.ranks, "state": str(r.state), "steps_per_s": r.rate}
            for r in some
        ]
        for some in (ladder.rungs, ladder.searched)
    )
    return {
        "rungs": rungs,
        "searched": searched,
        "from_nodes": ladder.from_nodes,
        "nodes_at_fault": list(ladder.nodes),
        "why": ladder.why,
    }


EXIT_CODES = {State.STARTED: 0, State.FAILED: 1, State.UNDECIDED: 3, State.INTERRUPTED: 130}
