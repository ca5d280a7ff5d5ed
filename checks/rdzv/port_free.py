"""The rendezvous port on rank 0's node."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.processes import end_command, running_for
from netdoctor.checks._shared.text import title_text
from netdoctor.facts.net import Listener, NetFacts, PortHolderFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    DERIVED,
    Cause,
    Finding,
    Fix,
    at,
    in_job,
    look,
    ok,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.local_ports import hands_out

# Ports below need CAP_NET_BIND_SERVICE (ip(7); net.ipv4.ip_unprivileged_port_start, 1024 by default).
PRIVILEGED = 1024
# What torchrun and env:// use unless told otherwise; proposals start here.
DEFAULT_PORT = 29500


BUSY = Cause("master-port-busy", "The rendezvous port on {nodes} is used by a process that is not visible")
ROOT_ONLY = Cause("master-port-privileged", "The rendezvous port on {nodes} may only be opened by root")
EPHEMERAL = Cause(
    "master-port-ephemeral",
    "The kernel of {nodes} may give the rendezvous port to another program before launch",
)


@check(source="https://docs.pytorch.org/docs/stable/elastic/run.html")
def rdzv_port_free(
    holders: Mapping[str, PortHolderFacts], job: Job, nets: Mapping[str, NetFacts]
) -> Iterator[Finding]:
    """The rendezvous port on rank 0's node is free.

    Looks at:
        Sockets in LISTEN state on the master port, who owns them and since when, whether the port can be
        bound, and whether the kernel may give it to another program: net.ipv4.ip_local_port_range without
        ip_local_reserved_ports.

    Matters because:
        Rank 0 ends with "The server socket has failed to listen ... EADDRINUSE", or its ranks talk to the
        store of another job. A port inside the ephemeral range is free now, but may be taken at launch.

    Fix:
        End the leftover process, choose another port below the ephemeral range, or reserve it.
    """
    master = job.master_node
    if master is None:
        yield skip("no first node: there is no rendezvous")
    elif master not in holders:
        yield skip(f"{master}, the host of the rendezvous, gave no answer")
    elif holders[master].port != job.master_port:
        yield unknown(master, f"port {holders[master].port} was tested instead of port {job.master_port}")
    else:
        text = "use another port, for all ranks (torchrun: --master-port, or in --rdzv-endpoint)"
        another = in_job(text, f"export MASTER_PORT={_proposal(job.master_port, nets)}")
        yield from at(master, _on_master(master, holders[master], nets[master], another))


def _on_master(master: str, holder: PortHolderFacts, net: NetFacts, another: Fix) -> Iterator[Finding]:
    port, error = holder.port, holder.bind_error or ""
    if holder.other_scan and "EADDRINUSE" in error:
        error = ""  # it ends within seconds, and was alone there
    tried, expected = seen(f"bind port {port}", error), f"a port from {PRIVILEGED} on"
    if holder.listeners:
        yield _busy(holder, another)
    elif "EADDRINUSE" in error:
        summary, expected = f"port {port} cannot be bound: {error}", "a port that can be bound"
        yield BUSY.fail(summary, observed=error, expected=expected, seen=tried, fixes=another)
    elif "EACCES" in error or (error and port < PRIVILEGED):
        summary = f"port {port} cannot be opened by this user: {error}"
        yield ROOT_ONLY.fail(summary, observed=error, expected=expected, seen=tried, fixes=another)
    elif error:
        yield unknown(master, f"port {port} could not be tried: {error}")
    elif port < PRIVILEGED:
        summary = f"port {port} can only be opened by root"
        yield ROOT_ONLY.warn(summary, observed=str(port), expected=expected, fixes=another)
    elif hands_out(net, port):
        low, high = net.ephemeral_ports
        yield EPHEMERAL.warn(
            f"port {port} lies in the range {low}-{high} from which the kernel picks ports",
            observed=str(port),
            expected=DERIVED(f"a port outside {low}-{high}, or one of net.ipv4.ip_local_reserved_ports"),
            seen=seen("/proc/sys/net/ipv4/ip_local_port_range", f"{low} {high}", "file"),
            fixes=another,
        )
    else:
        yield ok(CLUSTER, f"port {port} is free on {master}")


def _busy(holder: PortHolderFacts, another: Fix) -> Finding:
    who = _who(holder.listeners[0])
    fixes = [another]
    if (pid := holder.listeners[0].pid or 0) > 1:
        show = look("see whose process it is", f"ps -o pid,user,etime,args -p {pid}")
        end = run(
            "if an earlier job left it behind, end it",
            end_command(pid, holder.listeners[0].process),
            root=True,
            risk="medium",
            loses="the work of that process",
        )
        fixes = [show, end, another]
    several = len(holder.listeners) > 1
    sockets = [
        f"{one.address}:{one.port}{f' {_who(one)}' if several else ''}" for one in holder.listeners[:4]
    ]
    return BUSY.but(title=f"The rendezvous port on {{nodes}} is used by {title_text(who)}").fail(
        f"port {holder.port} is used by {who}",
        observed=who,
        expected="nobody",
        seen=[seen(f"ss -tlnp 'sport = :{holder.port}'", socket, "command") for socket in sockets],
        fixes=fixes,
    )


def _proposal(excluded: int, nets: Mapping[str, NetFacts]) -> int:
    """The next port after the usual one that no node's kernel hands out by itself."""
    kinds = {(net.ephemeral_ports, net.reserved_ports): net for net in nets.values()}
    candidates: list[int] = [*range(DEFAULT_PORT + 1, DEFAULT_PORT + 1000), *range(20000, PRIVILEGED, -1)]
    fit = (p for p in candidates if p != excluded and not any(hands_out(net, p) for net in kinds.values()))
    return next(fit, DEFAULT_PORT + 1)


def _who(one: Listener) -> str:
    """``python3 (pid 4711) of user alice, running for 3 h``."""
    name = one.process or "a process"
    pid = f" (pid {one.pid})" if one.pid is not None else ""
    user = one.user or (f"uid {one.uid}" if one.uid is not None else "")
    age = f", {running_for(one.age_s)}" if one.age_s is not None else ""
    return f"{name}{pid}" + (f" of user {user}" if user else "") + age
