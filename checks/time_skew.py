"""Clocks of the nodes against each other."""

from collections.abc import Iterator, Mapping
from statistics import median

from netdoctor.check import check
from netdoctor.checks._clock import restart
from netdoctor.facts.clock import ClockSample, TimeFacts
from netdoctor.model import (
    CLUSTER,
    CauseHint,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Measure,
    fail,
    ok,
    skip,
    unknown,
    warn,
)

# torchrun drops a node whose heartbeat, stamped by that node's own clock, is older than 15 s (keep_alive
# 5 s x 3, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py). A shifted clock had no effect up to 8
# and killed living nodes from 9.5 seconds on (torch 2.13): 5 leave room for drift, 1 is on the way there.
FAIL_S = 5.0
WARN_S = 1.0


@check(
    explains=["time.sync"],
    profile="launch",
    source="https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
)
def time_skew(clocks: Mapping[str, ClockSample], facts: Mapping[str, TimeFacts] | None) -> Iterator[Finding]:
    """The clocks of all nodes agree.

    Looks at:
        Repeated exchanges of time stamps over the open session; the one with the least round trip counts, and
        half of that is the error. Each node is compared with the median of those that agree, so the clock of
        the machine that runs netdoctor does not matter.

    Matters because:
        torchrun compares heartbeats of different nodes by wall clock: from about 10 seconds on it declares
        living nodes dead and restarts for ever. Munge and Kerberos give up at 300 seconds. Logs of different
        nodes cannot be read together from one second on.

    Fix:
        Let one time daemon per node synchronise with the same source, and step the clock once.
    """
    for node, clock in clocks.items():
        if clock.jumped_s:
            yield _jumped(node, clock)
    if len(clocks) < 2:
        yield skip("one node: nothing to compare with")
        return
    agreeing = _agreeing(clocks)
    tie = len(agreeing) * 2 <= len(clocks)
    usual = median(clocks[node].offset_s for node in agreeing)
    base_error = median(clocks[node].error_s for node in agreeing)
    spread = max(one.offset_s for one in clocks.values()) - min(one.offset_s for one in clocks.values())
    worst: tuple[float, float, str] | None = None
    silent = True
    for node, clock in clocks.items():
        off = clock.offset_s - usual
        error = clock.error_s + base_error
        if tie:
            # Nobody can be called right: what counts is how far apart they are.
            off = max((clock.offset_s - one.offset_s for one in clocks.values()), key=abs)
            error = clock.error_s + max(one.error_s for one in clocks.values())
        sure = abs(off) - error
        if sure > WARN_S:
            silent = False
            yield _off(node, off, error, tie, len(clocks), facts)
        elif abs(off) + error > WARN_S:
            silent = False
            yield unknown(
                node,
                f"its clock could only be measured to +/- {error:.1f} s",
                measures=_measure(off, error),
            )
        if worst is None or abs(off) > abs(worst[0]):
            worst = (off, error, node)
    if silent and worst is not None:
        off, error, node = worst
        yield ok(
            CLUSTER,
            f"worst skew {abs(off) * 1000:.1f} ms +/- {error * 1000:.1f} ms ({node}); "
            f"{spread * 1000:.1f} ms between the outermost",
            measures=_measure(off, error),
        )


def _agreeing(clocks: Mapping[str, ClockSample]) -> list[str]:
    """The most nodes whose clocks lie within one second of each other."""
    order = sorted(clocks, key=lambda node: clocks[node].offset_s)
    best: list[str] = []
    first = 0
    for last, node in enumerate(order):
        while clocks[node].offset_s - clocks[order[first]].offset_s > WARN_S:
            first += 1
        if last + 1 - first > len(best):
            best = order[first : last + 1]
    return best


def _off(
    node: str, off: float, error: float, tie: bool, count: int, facts: Mapping[str, TimeFacts] | None
) -> Finding:
    time = (facts or {}).get(node)
    daemons = time.daemons if time else ()
    text = f"{abs(off):.2f} s {'ahead of' if off > 0 else 'behind'} "
    text += "another node" if tie else f"the median of {count} nodes"
    running = ", ".join(daemons) if daemons else "no time daemon seen"
    say = fail if abs(off) - error > FAIL_S else warn
    return say(
        node,
        f"its clock is {text}",
        observed=f"{off:+.3f} s +/- {error:.3f} s",
        expected=f"within {WARN_S:.0f} s of the other nodes",
        expected_from=ExpectedFrom.PEERS,
        evidence=(
            Evidence(
                kind="probe",
                where=node,
                what="time stamps over the open session",
                output=f"{off:+.3f} s +/- {error:.3f} s; {running}",
            ),
        ),
        measures=_measure(off, error),
        cause=CauseHint(
            key="clock-skew",
            title="The clocks of {nodes} disagree" if tie else "The clock of {nodes} is off",
            culprits=(node,),
            confidence=Confidence.SUSPECTED if tie else Confidence.CERTAIN,
            fixes=(restart(node, daemons),),
            verify=("time.*",),
            settle_by="compare each with a time server: chronyc tracking, or date -u against a known clock"
            if tie
            else None,
        ),
    )


def _jumped(node: str, clock: ClockSample) -> Finding:
    return warn(
        node,
        f"its clock jumped by {clock.jumped_s:+.2f} s during the scan",
        observed=f"{clock.jumped_s:+.3f} s",
        expected="no step",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(
                kind="probe",
                where=node,
                what="time stamps at the start and the end of the scan",
                output=f"{clock.jumped_s:+.3f} s between them",
            ),
        ),
        cause=CauseHint(
            key="clock-jumped",
            title="The clock of {nodes} was stepped during the scan",
            culprits=(node,),
            fixes=(restart(node, ("chronyd",)),),
            verify=("time.*",),
        ),
    )


def _measure(off: float, error: float) -> dict[str, Measure]:
    return {"time.skew": Measure(value=off * 1000, unit="ms", error=error * 1000)}
