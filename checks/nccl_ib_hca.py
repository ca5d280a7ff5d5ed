"""The HCA ports that NCCL would use on each node."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.checks._env import change
from netdoctor.checks._majority import majority
from netdoctor.checks._rdma import is_plain_name
from netdoctor.checks._words import listing, quoted
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    warn,
)
from netdoctor.rules.nccl_ib import MAX_IB_DEVS, prefix_surprises, selected_ports
from netdoctor.rules.variables import Environment, effective_env, param, values

VARIABLE = "NCCL_IB_HCA"


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as NCCL's InfiniBand transport sees it. active: ports in state ACTIVE; used: of these,
    the ones that the variables leave."""

    node: str
    hcas: tuple[Hca, ...]
    env: Environment
    active: tuple[HcaPort, ...]
    used: tuple[HcaPort, ...]
    reason: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(sorted({port.link_layer for port in self.used}))


@check(
    source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_ib/init.cc",
)
def nccl_ib_hca(
    nodes: Mapping[str, RdmaFacts],
    envs: Mapping[str, EnvFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL uses the HCAs, and equally many of one kind on every node.

    Looks at:
        Active HCA ports, and NCCL_IB_HCA, NCCL_IB_DISABLE and NCCL_NET of the job, the login session
        and NCCL's configuration files. Names are prefixes unless the list begins with ``=``:
        ``mlx5_1`` also selects mlx5_10 to mlx5_19.

    Matters because:
        A list that matches nothing is no error for NCCL: it goes on over TCP, many times slower,
        or hangs when other nodes use their HCAs. Fewer ports on one node hold back all. InfiniBand
        and RoCE ports do not connect to each other.

    Fix:
        Set NCCL_IB_HCA to exact names, or take it out where all HCAs belong to the job.
    """
    if job.backend == "gloo":
        yield skip("the job uses gloo")
        return
    seen = {
        node: _look(node, facts, effective_env((envs or {}).get(node), job)) for node, facts in nodes.items()
    }
    if not any(facts.hcas for facts in nodes.values()):
        yield skip("no HCA on any node")
        return
    if not any(one.active for one in seen.values()):
        yield skip("no active HCA port on any node")
        return
    fixes = _propose(seen)
    reported: set[str] = set()
    some_use = any(one.used for one in seen.values())
    for one in seen.values():
        finding = _none_used(one, some_use, fixes) or _prefix(one)
        if finding:
            reported.add(one.node)
            yield finding
    for finding in _unlike(seen, reported, fixes):
        reported.add(finding.target)
        yield finding
    for node, one in seen.items():
        if node not in reported and one.used:
            text = listing([port.name for port in one.used], 10)
            yield ok(node, f"NCCL uses {text}", observed=text)


def _look(node: str, facts: RdmaFacts, env: Environment) -> Seen:
    active = tuple(port for _, port in selected_ports(facts.hcas, None))
    plain = values(env)
    used = tuple(port for _, port in selected_ports(facts.hcas, plain.get(VARIABLE)))
    reason = ""
    if not used and active:
        reason = f"{VARIABLE}={plain.get(VARIABLE)} ({env[VARIABLE].origin}) matches none of them"
    net = plain.get("NCCL_NET", "")
    if param(plain.get("NCCL_IB_DISABLE"), 0) != 0:
        used = ()
        reason = f"{env['NCCL_IB_DISABLE']} switches them off"
    elif net.lower() == "socket":
        used = ()
        reason = f"NCCL_NET={net} ({env['NCCL_NET'].origin}) asks for TCP"
    return Seen(node, facts.hcas, env, active, used, reason)


def _none_used(one: Seen, peers_use: bool, fixes: tuple[Fix, ...]) -> Finding | None:
    if one.used or not one.active:
        return None
    names = listing([port.name for port in one.active])
    by_switch = not one.reason.startswith(VARIABLE)
    if by_switch:
        variable = one.reason.partition("=")[0]
        return _trouble(
            one,
            f"{names} {'is' if len(one.active) == 1 else 'are'} active, and NCCL would use TCP: {one.reason}",
            # The same everywhere may be wanted, for a test; on some nodes only it is a hang.
            finding=fail if peers_use else warn,
            key="nccl-ib-off",
            title="NCCL is told not to use the HCAs of {nodes}",
            fixes=(change(one.env[variable]),),
        )
    return _trouble(
        one,
        f"{names} {'is' if len(one.active) == 1 else 'are'} active, and NCCL would use TCP without"
        f" a word: {one.reason}{_netdev_hint(one)}",
        finding=fail,
        key="nccl-ib-hca-nomatch",
        title=VARIABLE + " matches none of the HCAs of {nodes}",
        # Without the variable NCCL takes all active ports; with exact names it takes these.
        fixes=(change(one.env[VARIABLE]), *fixes),
    )


def _netdev_hint(one: Seen) -> str:
    value = one.env[VARIABLE].value.lstrip("^=")
    names = {name for hca in one.hcas for name in hca.netdevs}
    asked = [item.partition(":")[0] for item in value.split(",")]
    if any(item in names or item.startswith(("eth", "ens", "eno", "enp", "bond")) for item in asked):
        return "; it takes names of RDMA devices, not of network interfaces"
    if any(item != item.strip() for item in asked):
        return "; the space in the list belongs to the name"
    return ""


def _prefix(one: Seen) -> Finding | None:
    if VARIABLE not in one.env or not one.used:
        return None
    value, origin = one.env[VARIABLE].value, one.env[VARIABLE].origin
    surprises = prefix_surprises(one.hcas, value)
    if not surprises:
        return None
    name, more = next(iter(surprises.items()))
    excluding = value.startswith("^")
    exact = "^=" + value[1:] if excluding else "=" + value
    verb = "excludes" if excluding else "selects"
    return _trouble(
        one,
        f"{VARIABLE}={value} ({origin}) also {verb} {listing(more)}, because {name} is a prefix",
        finding=warn,
        key="nccl-ib-hca-prefix",
        title=VARIABLE + " matches more HCAs of {nodes} than it names",
        fixes=(
            Fix(
                text="match the names exactly",
                commands=(Command(run_on="job", shell=f"export {VARIABLE}={quoted(exact)}"),),
                effect="next launch",
            ),
        )
        if all(is_plain_name(part) for part in exact.lstrip("^=").replace(":", ",").split(","))
        else (),
    )


def _unlike(seen: Mapping[str, Seen], reported: set[str], fixes: tuple[Fix, ...]) -> Iterator[Finding]:
    """Nodes that use none, fewer ports or another link layer than most nodes."""
    using = {node: one for node, one in seen.items() if one.used}
    if not using:
        return
    layers = {node: one.layers for node, one in using.items()}
    usual_layers = majority(layers)
    counts = {node: len(one.used) for node, one in using.items()}
    spread = majority(counts)
    usual = spread.value if spread.value is not None else max(counts.values())
    for node, one in seen.items():
        if node in reported:
            continue
        if not one.used:
            yield _trouble(
                one,
                f"no active HCA port, so NCCL would use TCP here and the HCAs on {listing(using, 3)}",
                finding=fail,
                key="nccl-ib-mixed-transport",
                title="NCCL on {nodes} would use TCP while other nodes use their HCAs",
                fixes=(),
                observed="no active port",
            )
        elif node in usual_layers.minority:
            yield _trouble(
                one,
                f"NCCL would use {' and '.join(one.layers)} ports here,"
                f" {' and '.join(_others(layers, node))} on other nodes: they do not connect",
                finding=fail,
                key="nccl-ib-link-layer",
                title="NCCL on {nodes} would use HCAs of another link layer than the other nodes",
                fixes=_one_layer(seen),
                observed=" and ".join(one.layers),
                confidence=Confidence.LIKELY if usual_layers.tie else Confidence.CERTAIN,
            )
        elif counts[node] < usual:
            yield _trouble(
                one,
                f"NCCL would use {counts[node]} HCA port{'s' if counts[node] > 1 else ''} here,"
                f" {usual} on {'another node' if spread.tie else 'most nodes'}",
                finding=warn,
                key="nccl-ib-fewer",
                title="NCCL would use fewer HCA ports on {nodes} than on other nodes",
                fixes=fixes if VARIABLE in one.env else (),
                confidence=Confidence.LIKELY if spread.tie else Confidence.CERTAIN,
            )
        elif len(one.layers) > 1:
            yield _trouble(
                one,
                "NCCL would use InfiniBand and RoCE ports side by side: where their order differs"
                " between nodes they do not connect",
                finding=warn,
                key="nccl-ib-two-layers",
                title="NCCL would mix InfiniBand and RoCE ports on {nodes}",
                fixes=_one_layer(seen),
            )


def _others(layers: Mapping[str, tuple[str, ...]], node: str) -> tuple[str, ...]:
    return next(value for other, value in layers.items() if value != layers[node])


def _propose(seen: Mapping[str, Seen]) -> tuple[Fix, ...]:
    """A value that selects the active ports on every node, tried with NCCL's own rules."""
    active = {node: one for node, one in seen.items() if one.active}
    everything = all(
        selected_ports(one.hcas, None) and len({p.link_layer for p in one.active}) == 1
        for one in active.values()
    )
    if everything:
        return _exact(active, "InfiniBand", "Ethernet")
    return _one_layer(seen)


def _one_layer(seen: Mapping[str, Seen]) -> tuple[Fix, ...]:
    """Exact names of the ports of the link layer that most ports have."""
    ports = [port for one in seen.values() for port in one.active]
    infiniband = sum(not port.is_roce for port in ports)
    layer = "InfiniBand" if 2 * infiniband >= len(ports) else "Ethernet"
    return _exact({node: one for node, one in seen.items() if one.active}, layer)


def _exact(active: Mapping[str, Seen], *layers: str) -> tuple[Fix, ...]:
    names: dict[str, None] = {}
    for one in active.values():
        for hca in one.hcas:
            if any(port in one.active and port.link_layer in layers for port in hca.ports):
                names.setdefault(hca.name)
    if not names or len(names) > MAX_IB_DEVS or not all(is_plain_name(name) for name in names):
        return ()
    value = "=" + ",".join(names)
    for one in active.values():
        picked = selected_ports(one.hcas, value)
        if not picked or any(port.link_layer not in layers for _, port in picked):
            return ()
    return (
        Fix(
            text=f"name the HCAs exactly; tried with {len(active)} nodes",
            commands=(Command(run_on="job", shell=f"export {VARIABLE}={quoted(value)}"),),
            effect="next launch",
        ),
    )


def _trouble(
    one: Seen,
    summary: str,
    *,
    finding: Callable[..., Finding],
    key: str,
    title: str,
    fixes: tuple[Fix, ...],
    observed: str | None = None,
    confidence: Confidence = Confidence.CERTAIN,
) -> Finding:
    settings = [str(one.env[name]) for name in (VARIABLE, "NCCL_IB_DISABLE", "NCCL_NET") if name in one.env]
    return finding(
        one.node,
        summary,
        observed=observed or listing([port.name for port in one.used], 10) or "TCP",
        expected="the active HCA ports, as on the other nodes",
        expected_from=ExpectedFrom.DERIVED,
        evidence=(
            Evidence(
                kind="file",
                where=one.node,
                what="/sys/class/infiniband",
                output=listing([f"{port.name} {port.link_layer} ACTIVE" for port in one.active], 10)
                or "no active port",
            ),
            *(
                [Evidence(kind="file", where=one.node, what="environment", output=", ".join(settings))]
                if settings
                else []
            ),
        ),
        cause=CauseHint(
            key=key,
            title=title,
            culprits=(one.node,),
            confidence=confidence,
            fixes=fixes,
            verify=("nccl.ib-hca",),
        ),
    )
