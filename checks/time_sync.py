"""What keeps each node's clock right."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._clock import install, restart
from netdoctor.checks._words import listing
from netdoctor.facts.clock import ChronyTracking, TimeFacts
from netdoctor.facts.host import HostFacts, Node
from netdoctor.model import (
    CauseHint,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    skip,
    unknown,
    warn,
)

# Daemons that set the clock from the network, of which a machine needs one. ptp4l and phc2sys are a pair.
NTP = ("chronyd", "systemd-timesyncd", "ntpd", "openntpd", "ntpd-rs")
PTP = ("phc2sys", "ptp4l")
# The bound on a clock's error that chrony reports, |offset| + dispersion + delay / 2 (RFC 5905): above a
# second the node is on the way to what time.skew fails.
CHRONY_BOUND_S = 1.0


@check(
    required=False,
    source="https://chrony-project.org/doc/4.6/chronyc.html#tracking",
)
def time_sync(node: Node, time: TimeFacts, host: HostFacts) -> Iterator[Finding]:
    """A time daemon runs and has synchronised the clock.

    Looks at:
        Which time daemons run, what chrony and systemd-timesyncd say of themselves, and the kernel's own
        clock state (adjtimex).

    Matters because:
        An undisciplined clock drifts by seconds in a week. Beyond 10 seconds between nodes torchrun declares
        living nodes dead; beyond 300 munge and Kerberos refuse them; short-lived certificates need less.

    Fix:
        Run one time daemon, with a source that it can reach (UDP port 123).
    """
    if host.container:
        yield skip("container: its clock is the machine's, kept outside", node.id)
        return
    if host.in_lab and not time.daemons:
        yield skip("lab node: shares the clock and time daemon of the machine that carries the lab", node.id)
        return
    daemons = [one for one in time.daemons if one in NTP]
    if len(daemons) > 1:
        yield _warn(
            node.id,
            "time-daemons-fight",
            "{nodes} run{s} several time daemons that set the clock in turn",
            f"{listing(daemons)} run at the same time",
            listing(daemons),
            "one time daemon",
            Fix(text=f"keep one of {listing(daemons)} and disable the others", root=True),
        )
        return
    if time.chrony is not None:
        problem = _chrony(time.chrony)
        if problem:
            yield _unsynchronised(node.id, problem, daemons)
        return
    if "systemd-timesyncd" in daemons and time.timesyncd_synchronized is False:
        yield _unsynchronised(node.id, "systemd-timesyncd has not reached a server yet", daemons)
        return
    if time.kernel_synchronized or time.timesyncd_synchronized:
        return
    # phc2sys and chrony without rtcsync leave STA_UNSYNC set: it does not prove the contrary.
    if any(one in PTP for one in time.daemons):
        return
    if "chronyd" in daemons:
        yield unknown(
            node.id, f"chronyd runs; its state could not be read ({time.chrony_error or 'no answer'})"
        )
    elif daemons:
        yield _unsynchronised(node.id, f"{daemons[0]} runs and has not synchronised the clock", daemons)
    elif time.kernel_synchronized is None:
        yield unknown(node.id, "neither a time daemon nor the kernel's clock state could be seen")
    else:
        yield _warn(
            node.id,
            "time-no-daemon",
            "Nothing keeps the clock of {nodes} right",
            "no time daemon runs, and the kernel's clock is not synchronised",
            "no time daemon",
            "a time daemon that is synchronised",
            install(node.id),
        )


def _chrony(tracking: ChronyTracking) -> str | None:
    """What is wrong with chrony's state, or None."""
    # 7F7F0101 (127.127.1.1) is the local clock itself: nothing disciplines it.
    local = tracking.reference.upper() in ("7F7F0101", "127.127.1.1", "", "00000000")
    if local or tracking.stratum == 0 or tracking.leap == "Not synchronised":
        return "chronyd has no source that it trusts"
    bound = abs(tracking.offset_s) + tracking.root_dispersion_s + tracking.root_delay_s / 2
    if bound > CHRONY_BOUND_S:
        return f"chronyd is within {bound:.1f} s of its source only"
    return None


def _unsynchronised(node: str, problem: str, daemons: list[str]) -> Finding:
    return _warn(
        node,
        "time-unsynchronised",
        "The time daemon of {nodes} has not synchronised the clock",
        problem,
        problem,
        "synchronised",
        restart(node, daemons),
    )


def _warn(node: str, key: str, title: str, summary: str, observed: str, expected: str, fix: Fix) -> Finding:
    return warn(
        node,
        summary,
        observed=observed,
        expected=expected,
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(Evidence(kind="command", where=node, what="adjtimex, chronyc tracking", output=summary),),
        cause=CauseHint(key=key, title=title, culprits=(node,), fixes=(fix,)),
    )
