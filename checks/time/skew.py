"""Clocks of the nodes against each other."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks.time._clock import CHRONY, restart
from netdoctor.facts.clock import APART_S, ClockSample, TimeFacts, skews
from netdoctor.facts.host import HostFacts
from netdoctor.model import CLUSTER, PEERS, SUSPECTED, Cause, Finding, ok, seen, skip, unknown

# torchrun drops a node whose heartbeat, stamped by that node's own clock, is older than 15 s (keep_alive
# 5 s x 3, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py). A shifted clock had no effect up to 8
# and killed living nodes from 9.5 seconds on (torch 2.13): 5 leave room for drift, 1 is on the way there.
FAIL_S = 5.0
WARN_S = APART_S

JUMPED = Cause("clock-jumped", "The clock of {nodes} was stepped during the scan", verify=("time.*",))
OFF = Cause("clock-skew", "The clock of {nodes} is off", verify=("time.*",))
DISAGREE = OFF.but(
    title="The clocks of {nodes} disagree",
    confidence=SUSPECTED,
    settle_by="compare each clock with a time server: chronyc tracking, or date -u against a known clock",
)


@check(
    explains=["time.sync"],
    profile="launch",
    source="https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
)
def time_skew(
    clocks: Mapping[str, ClockSample],
    facts: Mapping[str, TimeFacts] | None,
    hosts: Mapping[str, HostFacts] | None = None,
) -> Iterator[Finding]:
    """The clocks of all nodes agree.

    Looks at:
        Repeated exchanges of time stamps over the open session. The one with the shortest round trip
        counts; half of it is the error. Each node is compared with the median of those that agree, so the
        clock of the machine that runs netdoctor does not matter.

    Matters because:
        torchrun compares heartbeats of different nodes by wall clock: from about 10 seconds on it takes
        living nodes for dead and restarts for ever. Munge and Kerberos refuse at 300 seconds. From one
        second on, logs of different nodes cannot be read together.

    Fix:
        Let one time daemon per node synchronise with the same source, and step the clock once.
    """
    for node, clock in clocks.items():
        if clock.jumped_s:
            yield JUMPED.warn(
                f"its clock jumped by {clock.jumped_s:+.2f} s during the scan",
                at=node,
                observed=f"{clock.jumped_s:+.3f} s",
                expected="no step",
                seen=seen(
                    "time stamps at the start and the end of the scan",
                    f"{clock.jumped_s:+.3f} s between them",
                ),
                fixes=CHRONY,
            )
    if len(clocks) < 2:
        yield skip("one node: nothing to compare with")
        return
    found, tie = skews(clocks)
    for node, (off, error) in found.items():
        offset = f"{off:+.3f} s +/- {error:.3f} s"
        if abs(off) - error > WARN_S:
            time = (facts or {}).get(node)
            daemons = time.daemons if time else ()
            cause = DISAGREE if tie else OFF
            say = cause.fail if abs(off) - error > FAIL_S else cause.warn
            text = f"{abs(off):.2f} s {'ahead of' if off > 0 else 'behind'} "
            yield say(
                f"its clock is {text}{'another node' if tie else f'the median of {len(clocks)} nodes'}",
                at=node,
                observed=offset,
                expected=PEERS(f"within {WARN_S:.0f} s of the other nodes"),
                seen=seen(
                    "time stamps over the open session",
                    f"{offset}; {', '.join(daemons) or 'no time daemon found'}",
                ),
                fixes=restart(daemons, (hosts or {}).get(node)),
            )
        elif abs(off) + error > WARN_S:
            yield unknown(node, f"its clock could only be measured to +/- {error:.1f} s")
    if all(abs(off) + error <= WARN_S for off, error in found.values()):
        node, (off, error) = max(found.items(), key=lambda item: abs(item[1][0]))
        spread = max(one.offset_s for one in clocks.values()) - min(one.offset_s for one in clocks.values())
        yield ok(
            CLUSTER,
            f"worst skew {abs(off) * 1000:.1f} ms +/- {error * 1000:.1f} ms ({node}); "
            f"{spread * 1000:.1f} ms between the outermost",
        )
