"""The rendezvous port on rank 0's node."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._words import listing, title_text
from netdoctor.facts.net import Listener, NetFacts, PortHolderFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    unknown,
    warn,
)

# Ports below need CAP_NET_BIND_SERVICE (ip(7); net.ipv4.ip_unprivileged_port_start, 1024 by default).
PRIVILEGED = 1024
# What torchrun and env:// use unless told otherwise; proposals start here.
DEFAULT_PORT = 29500


@check(
    source="https://docs.pytorch.org/docs/stable/elastic/run.html",
)
def rdzv_port_free(
    holders: Mapping[str, PortHolderFacts], job: Job, nets: Mapping[str, NetFacts]
) -> Iterator[Finding]:
    """Nobody listens on the rendezvous port of rank 0's node yet.

    Looks at:
        Sockets in LISTEN state on the master port, who owns them and since when, whether the port could be
        bound, and whether the kernel hands it out by itself (net.ipv4.ip_local_port_range).

    Matters because:
        Rank 0 ends with "The server socket has failed to listen ... EADDRINUSE", or its ranks talk to the
        store of another job. A port inside the ephemeral range is free now and taken at launch, now and then.

    Fix:
        End the process that was left behind, or choose another port below the ephemeral range.
    """
    master = job.master_node
    if master is None:
        yield skip("no first node: there is no rendezvous")
        return
    held = holders.get(master)
    if held is None:
        yield skip(f"{master}, where the rendezvous would be, could not be asked")
        return
    low, high = nets[master].ephemeral_ports if master in nets else (32768, 60999)
    other = _proposal(job.master_port, nets)
    if held.listeners:
        yield _busy(master, held, other)
    elif held.bind_error and "EADDRINUSE" in held.bind_error:
        yield _unseen(master, held, other)
    elif held.bind_error and ("EACCES" in held.bind_error or job.master_port < PRIVILEGED):
        yield _privileged(master, held, other)
    elif held.bind_error:
        yield unknown(master, f"port {held.port} could not be tried: {held.bind_error}")
    elif held.port < PRIVILEGED:
        yield warn(
            master,
            f"port {held.port} can only be opened by root",
            observed=str(held.port),
            expected=f"a port from {PRIVILEGED} on",
            expected_from=ExpectedFrom.CONSTANT,
            cause=_hint("master-port-privileged", PRIVILEGED_TITLE, master, _other(other)),
        )
    elif low <= held.port <= high:
        yield warn(
            master,
            f"port {held.port} lies in the range {low}-{high} from which the kernel picks ports",
            observed=str(held.port),
            expected=f"a port outside {low}-{high}",
            expected_from=ExpectedFrom.DERIVED,
            evidence=(
                Evidence(
                    kind="file",
                    where=master,
                    what="/proc/sys/net/ipv4/ip_local_port_range",
                    output=f"{low} {high}",
                ),
            ),
            cause=_hint(
                "master-port-ephemeral",
                "The kernel of {nodes} may give the rendezvous port to somebody else before launch",
                master,
                _other(other),
            ),
        )
    else:
        yield ok(CLUSTER, f"port {held.port} is free on {master}")


PRIVILEGED_TITLE = "The rendezvous port on {nodes} may only be opened by root"


def _busy(master: str, held: PortHolderFacts, other: int) -> Finding:
    first = held.listeners[0]
    who = _who(first)
    fixes: list[Fix] = []
    if first.pid is not None and first.pid > 1:
        fixes.append(
            Fix(
                text="if it was left behind by an earlier job, end it",
                commands=(
                    Command(
                        run_on=master,
                        shell=f"ps -o pid,user,etime,args -p {first.pid} && kill {first.pid}",
                    ),
                ),
                root=True,
                risk="medium",
            )
        )
    fixes.append(_other(other))
    return fail(
        master,
        f"port {held.port} is taken by {who}",
        observed=who,
        expected="nobody",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=tuple(
            Evidence(
                kind="command",
                where=master,
                what=f"ss -tlnp 'sport = :{held.port}'",
                output=f"{one.address}:{one.port}" + (f" {_who(one)}" if len(held.listeners) > 1 else ""),
            )
            for one in held.listeners[:4]
        ),
        cause=_hint(
            "master-port-busy",
            f"The rendezvous port on {{nodes}} is taken by {title_text(who)}",
            master,
            *fixes,
        ),
    )


def _unseen(master: str, held: PortHolderFacts, other: int) -> Finding:
    return fail(
        master,
        f"port {held.port} cannot be bound: {held.bind_error}",
        observed=str(held.bind_error),
        expected="a port that can be bound",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(kind="probe", where=master, what=f"bind port {held.port}", output=str(held.bind_error)),
        ),
        cause=_hint(
            "master-port-busy",
            "The rendezvous port on {nodes} is taken by a process that cannot be seen",
            master,
            _other(other),
        ),
    )


def _privileged(master: str, held: PortHolderFacts, other: int) -> Finding:
    return fail(
        master,
        f"port {held.port} cannot be opened by this user: {held.bind_error}",
        observed=str(held.bind_error),
        expected=f"a port from {PRIVILEGED} on",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(kind="probe", where=master, what=f"bind port {held.port}", output=str(held.bind_error)),
        ),
        cause=_hint("master-port-privileged", PRIVILEGED_TITLE, master, _other(other)),
    )


def _hint(key: str, title: str, master: str, *fixes: Fix) -> CauseHint:
    return CauseHint(key=key, title=title, culprits=(master,), fixes=fixes)


def _other(port: int) -> Fix:
    return Fix(
        text="use another port, for all ranks (torchrun: --master-port, or in --rdzv-endpoint)",
        commands=(Command(run_on="job", shell=f"export MASTER_PORT={port}"),),
        effect="next launch",
        persistent=False,
    )


def _proposal(taken: int, nets: Mapping[str, NetFacts]) -> int:
    """The next port after the usual one that no node's kernel hands out by itself."""
    ranges = [net.ephemeral_ports for net in nets.values()]
    candidates: list[int] = [*range(DEFAULT_PORT + 1, DEFAULT_PORT + 1000), *range(20000, PRIVILEGED, -1)]
    for port in candidates:
        if port != taken and not any(low <= port <= high for low, high in ranges):
            return port
    return DEFAULT_PORT + 1


def _who(one: Listener) -> str:
    """``python3 (pid 4711) of user alice, running for 3 h``."""
    name = one.process or "a process"
    pid = f" (pid {one.pid})" if one.pid is not None else ""
    user = one.user or (f"uid {one.uid}" if one.uid is not None else "")
    parts = [f"{name}{pid}" + (f" of user {user}" if user else "")]
    if one.age_s is not None:
        parts.append(f"running for {_age(one.age_s)}")
    return listing([", ".join(parts)])


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
