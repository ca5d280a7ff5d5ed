"""What keeps each node's clock right."""

from collections.abc import Iterator, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.time._clock import install, restart
from netdoctor.facts.clock import TimeFacts, TimeReport
from netdoctor.facts.host import HostFacts
from netdoctor.model import HERE, Cause, Evidence, Finding, look, ok, run, seen, skip, unknown

# Daemons that set the clock from the network, of which a machine needs one. ptp4l and phc2sys are a pair.
NTP = ("chronyd", "systemd-timesyncd", "ntpd", "openntpd", "ntpd-rs")
PTP = {"phc2sys", "ptp4l"}
# The bound on a clock's error that chrony reports, |offset| + dispersion + delay / 2 (RFC 5905): above a
# second the node is on the way to what time.skew fails.
CHRONY_BOUND_S = 1.0
# Where a daemon steps the clock instead of turning it slowly (RFC 5905, STEPT): one that runs and leaves the
# clock further off than this does not keep it. Some fleets ask for 1 or 10 ms (sichek), so that the events of
# several nodes can be put in order; a job needs no more than time.skew asks for.
OFFSET_BOUND_S = 0.125

FIGHT = Cause("time-daemons-fight", "{nodes} run{s} several time daemons that set the clock in turn")
ADRIFT = Cause("time-unsynchronised", "The time daemon of {nodes} has not synchronised the clock")
NO_DAEMON = Cause("time-no-daemon", "Nothing synchronises the clock of {nodes}")
LOOK_AT_PTP = look(
    "read the messages of ptp4l and phc2sys",
    "pmc -u -b 0 'GET TIME_STATUS_NP'; journalctl -u ptp4l -u phc2sys -n 20",
    root=True,
)


@check(required=False, source="https://chrony-project.org/doc/4.6/chronyc.html#tracking")
def time_sync(time: TimeFacts, host: HostFacts) -> Iterator[Finding]:
    """A time daemon runs and has synchronised the clock.

    Looks at:
        Which time daemons run; what chrony, systemd-timesyncd, ntpd and ptp4l report (their distance from
        the source, and whether they trust it); and the kernel's own clock state (adjtimex).

    Matters because:
        A clock without a source drifts by seconds in a week. Beyond 10 seconds between nodes torchrun
        takes living nodes for dead; beyond 300 munge and Kerberos refuse them; short-lived certificates
        allow even less.

    Fix:
        Run one time daemon, with a source that it can reach (UDP port 123).
    """
    daemons = [one for one in time.daemons if one in NTP]
    running = listing(daemons)
    if host.container:
        yield skip("container: it has the clock of the machine, which is synchronised outside")
    elif host.shares_machine and not time.daemons:
        yield skip("shares one machine with other nodes: its clock is synchronised there")
    elif len(daemons) > 1:
        text = f"{running} run at the same time"
        keep = run(f"keep one of {running} and disable the others", root=True)
        yield FIGHT.warn(text, observed=running, expected="one time daemon", seen=_evidence(text), fixes=keep)
    elif text := _problem(time, daemons):
        fixes = LOOK_AT_PTP if text.startswith("ptp4l") else restart(daemons, host)
        yield ADRIFT.warn(text, observed=text, expected="synchronised", seen=_evidence(text), fixes=fixes)
    elif _is_kept(time):
        yield from (ok(HERE, text) for text in filter(None, map(_words, time.reports)))
    elif daemons:
        yield unknown(HERE, f"chronyd runs; its state could not be read ({time.chrony_error or 'no answer'})")
    elif time.kernel_synchronized is None:
        yield unknown(HERE, "neither a time daemon nor the kernel's clock state could be read")
    else:
        text = "no time daemon runs, and the kernel's clock is not synchronised"
        want = "a time daemon that is synchronised"
        fix = install(host)
        yield NO_DAEMON.warn(text, observed="no time daemon", expected=want, seen=_evidence(text), fixes=fix)


def _is_kept(time: TimeFacts) -> bool:
    # phc2sys and chrony without rtcsync leave STA_UNSYNC set: it does not prove the contrary.
    is_synchronized = time.chrony or time.kernel_synchronized or time.timesyncd_synchronized
    return bool(is_synchronized or PTP.intersection(time.daemons))


def _problem(time: TimeFacts, daemons: Sequence[str]) -> str:
    """What is wrong with the daemon that runs, as far as it says; empty where nothing is."""
    if (chrony := time.chrony) is not None:
        # 7F7F0101 (127.127.1.1) is the local clock itself: nothing disciplines it.
        local = chrony.reference.upper() in ("7F7F0101", "127.127.1.1", "", "00000000")
        if local or chrony.stratum == 0 or chrony.leap == "Not synchronised":
            return "chronyd has no source that it trusts"
        bound = abs(chrony.offset_s) + chrony.root_dispersion_s + chrony.root_delay_s / 2
        if bound > CHRONY_BOUND_S:
            return f"chronyd is within {bound:.1f} s of its source only"
    for one in time.reports:
        if one.synchronized is False:
            return f"{one.daemon} reports that it has not synchronised the clock"
        if (one.offset_s or 0) > OFFSET_BOUND_S:
            return f"{_words(one)}, but does not correct it"
    if "systemd-timesyncd" in daemons and time.timesyncd_synchronized is False:
        return "systemd-timesyncd has not reached a server yet"
    idle = daemons and "chronyd" not in daemons and not _is_kept(time)
    return f"{daemons[0]} runs and has not synchronised the clock" if idle else ""


def _words(one: TimeReport) -> str:
    if one.offset_s is None or not one.source:
        return ""
    return f"{one.daemon} is {one.offset_s * 1000:.3g} ms from {one.source}"


def _evidence(text: str) -> Evidence:
    return seen("adjtimex, chronyc tracking", text, "command")
