"""How long a login takes, compared across the cluster."""

from collections.abc import Iterator, Mapping
from statistics import median

from netdoctor.check import check
from netdoctor.checks.ssh._login import of_sshd
from netdoctor.facts.host import Login, Session
from netdoctor.model import CLUSTER, LIKELY, Cause, Finding, Measure, ok, run, seen, skip, unknown

# One unanswered DNS query costs five seconds (resolv.conf(5): timeout, default 5 s): a login above that waits
# for a name server, as sshd does with UseDNS or GSSAPI (sshd_config(5)).
SLOW_MS = 5000.0
# Many logins at once queue for the processor of the machine that runs netdoctor; that slows all nodes alike.
TIMES_USUAL = 3.0

SLOW = Cause("ssh-slow-login", "Logging in to {nodes} takes longer than a name server's timeout", LIKELY)
_SET, _UNSET = of_sshd("10-fast-login", "UseDNS no", "GSSAPIAuthentication no")
ASK_NOBODY = run(
    "stop sshd from asking a name server or Kerberos about every client; open sessions stay",
    _SET,
    undo=_UNSET,
    root=True,
    effect="next login",
)


@check(required=False, via="ssh", source="https://man.openbsd.org/sshd_config#UseDNS")
def ssh_speed(sessions: Mapping[str, Session]) -> Iterator[Finding]:
    """Logging in to a node does not take much longer than to the others.

    Looks at:
        The time from TCP connect to the end of authentication, and its median over all nodes, which
        includes the load of this machine.

    Matters because:
        Launchers log in to every node, some of them one after another, some with a timeout of ten
        seconds. If a login waits for a name server, lookups on that node are slow for the job, too.

    Fix:
        Remove the name server that does not answer from /etc/resolv.conf there, or set ``UseDNS no`` and
        ``GSSAPIAuthentication no`` in its sshd_config.
    """
    times: dict[str, float] = {}
    for node, session in sessions.items():
        if session.outcome == Login.OK and session.login_ms is not None:
            times[node] = session.login_ms
        elif session.outcome == Login.OK and session.transport == "ssh":
            yield unknown(node, "the time of its login was not measured")
        elif session.outcome == Login.OK:
            yield skip("reached without a login over SSH", node)
    typical = median(times.values()) if times else 0.0
    for node, took in times.items():
        if took > SLOW_MS and took > typical * TIMES_USUAL:
            text = f"{took / 1000:.1f} s"
            yield SLOW.warn(
                f"the login took {text}, the median is {typical / 1000:.1f} s",
                at=node,
                observed=text,
                expected=f"under {SLOW_MS / 1000:.0f} s",
                seen=seen("ssh login", text),
                measures={"ssh.speed": Measure(value=took, unit="ms")},
                fixes=ASK_NOBODY,
            )
    if typical > SLOW_MS:
        yield ok(
            CLUSTER,
            f"logins take {typical / 1000:.1f} s everywhere: this machine, or the path to the nodes, is slow",
        )
