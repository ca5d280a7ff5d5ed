"""What ranks of a torch experiment could not do, as findings: who died, froze or never arrived."""

from collections.abc import Iterator, Mapping

from netdoctor.checks._words import listing
from netdoctor.facts.bandwidth import RankTrouble, Session
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    Finding,
    Fix,
    fail,
    skip,
    unknown,
)

_TITLES = {
    "import": "torch cannot be imported on {nodes}",
    "device": "torch cannot use the GPU on {nodes}",
    "killed": "a rank on {nodes} was killed in the middle of the experiment",
    "exited": "a rank on {nodes} ended by itself in the middle of the experiment",
    "frozen": "a rank on {nodes} froze in the middle of the experiment",
    "silent": "netdoctor lost {nodes} in the middle of an experiment",
    "store": "{nodes} cannot reach the rendezvous of a torch job",
    "connect": "{nodes} cannot connect to the other ranks of a torch job",
    "stuck": "a torch job does not get going: the others wait for {nodes}",
    "error": "torch.distributed fails on {nodes}",
}


def trouble(session: Session, nodes: Mapping[str, object]) -> Iterator[Finding]:
    """A finding for each node at the root of what went wrong; the others were not measured, and say why."""
    roots: dict[str, RankTrouble] = {}
    echoes: list[RankTrouble] = []
    for one in session.trouble:
        if one.first:
            roots.setdefault(one.node, one)
        else:
            echoes.append(one)
    everybody = set(session.ranks)
    # What all ranks say alike names nobody.
    shared = len(roots) == len(everybody) > 1
    for node, one in roots.items():
        evidence = [
            Evidence(kind="probe", where=node, what=f"rank {one.rank}, {one.during}", output=one.detail)
        ]
        evidence += [
            Evidence(kind="probe", where=e.node, what=f"rank {e.rank}, {e.during}", output=e.detail)
            for e in echoes[:2]
        ]
        hint = CauseHint(
            key=f"rank-{one.what}",
            title=_TITLES.get(one.what, _TITLES["error"]),
            culprits=tuple(roots) if shared else (node,),
            confidence=_confidence(one, shared),
            fixes=_fixes(one),
        )
        say = unknown if one.what == "silent" else fail
        yield say(
            node,
            f"rank {one.rank} ({_stage(one.during)}): {one.detail}",
            observed=one.what,
            evidence=evidence,
            cause=hint,
        )
    why = f"not measured: {_reason(roots)}" if roots else "not measured"
    for node in session.ranks:
        if session.trouble and node not in roots and node in nodes:
            yield skip(why, node)


def left_out(session: Session, nodes: Mapping[str, object]) -> Iterator[Finding]:
    """Nodes that took no part by intent."""
    for node, reason in session.left_out.items():
        if node in nodes:
            yield skip(f"took no part: {reason}", node)


def _reason(roots: Mapping[str, RankTrouble]) -> str:
    words = {
        "import": "torch cannot be imported on",
        "device": "no usable GPU on",
        "killed": "a rank was killed on",
        "exited": "a rank ended on",
        "frozen": "a rank froze on",
        "silent": "lost",
    }
    first = next(iter(roots.values()))
    return f"{words.get(first.what, 'trouble on')} {listing(roots, 3)}"


def _stage(during: str) -> str:
    return {
        "start": "starting",
        "import": "importing torch",
        "imported": "before the rendezvous",
        "store": "reaching the rendezvous",
        "peers": "waiting for the others",
        "group": "connecting to the others",
        "mesh": "connecting to the others",
        "ready": "measuring",
    }.get(during, during or "starting")


def _confidence(one: RankTrouble, shared: bool) -> Confidence:
    if one.what in ("killed", "frozen", "import", "device", "exited", "silent"):
        return Confidence.CERTAIN
    return Confidence.SUSPECTED if shared or one.what in ("stuck", "error") else Confidence.LIKELY


def _fixes(one: RankTrouble) -> tuple[Fix, ...]:
    if one.what == "killed":
        shell = "journalctl -k --since '-10 min' | grep -iE 'out of memory|oom|killed process'"
        return (
            Fix(
                text="see whether the kernel killed it for memory, or somebody did",
                commands=(Command(run_on=one.node, shell=shell),),
                root=True,
            ),
        )
    if one.what == "frozen":
        shell = "ps -eo pid,stat,wchan:32,etime,comm | awk '$2 ~ /^[DT]/'"
        return (
            Fix(
                text="see what is stopped or waits for a device there",
                commands=(Command(run_on=one.node, shell=shell),),
            ),
        )
    if one.what == "device":
        shell = "dmesg | grep -E 'NVRM|Xid'"
        return (
            Fix(
                text="read what the driver says of the GPU",
                commands=(
                    Command(run_on=one.node, shell="nvidia-smi"),
                    Command(run_on=one.node, shell=shell),
                ),
                root=True,
            ),
        )
    if one.what == "import":
        program = "import torch, torch.distributed; print(torch.__version__)"
        shell = f"python3 -c '{program}'"
        return (
            Fix(
                text="run the import by hand in the job's interpreter",
                commands=(Command(run_on=one.node, shell=shell),),
            ),
        )
    return ()
