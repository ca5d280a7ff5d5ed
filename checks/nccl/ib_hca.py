"""The HCA ports that NCCL would use on each node."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from netdoctor.advice import propose_hcas
from netdoctor.check import check
from netdoctor.checks._shared.env import change, export, unread
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.rdma import NO_HCAS, has_any
from netdoctor.checks._shared.text import listing
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import DERIVED, LIKELY, Cause, Finding, Fix, Status, in_job, ok, seen, skip, unknown
from netdoctor.rules.nccl_ib import halves, prefix_surprises, selected_ports, switched_off_by
from netdoctor.rules.variables import Environment, effective_env, values
from netdoctor.rules.versions import Version, nccl_version
from netdoctor.text import is_plain_name

VARIABLE = "NCCL_IB_HCA"

OFF = Cause("nccl-ib-off", "NCCL is set not to use the HCAs of {nodes}")
NO_MATCH = Cause("nccl-ib-hca-nomatch", "NCCL_IB_HCA matches none of the HCAs of {nodes}")
PREFIX = Cause("nccl-ib-hca-prefix", "NCCL_IB_HCA matches more HCAs of {nodes} than it names")
MIXED = Cause("nccl-ib-mixed-transport", "NCCL on {nodes} would use TCP while other nodes use their HCAs")
LAYER = Cause(
    "nccl-ib-link-layer", "NCCL on {nodes} would use HCAs of another link layer than the other nodes"
)
HALF = Cause("nccl-ib-half", "NCCL would use a part of a network port of {nodes} only")
FEWER = Cause("nccl-ib-fewer", "NCCL would use fewer HCA ports on {nodes} than on other nodes")
TWO_LAYERS = Cause("nccl-ib-two-layers", "NCCL would mix InfiniBand and RoCE ports on {nodes}")


@dataclass(frozen=True, slots=True)
class Transport:
    """A node as NCCL's InfiniBand transport sees it."""

    node: str
    hcas: tuple[Hca, ...]
    env: Environment
    active: tuple[HcaPort, ...]  # ports in state ACTIVE
    used: tuple[HcaPort, ...]  # those of them that the variables leave
    off: str | None  # the variable that leaves none

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(sorted({port.link_layer for port in self.used}))

    @property
    def are_active(self) -> str:
        names = listing([port.name for port in self.active])
        return f"{names} {'is' if len(self.active) == 1 else 'are'} active"

    def details(self, **more: Any) -> dict[str, Any]:
        """The fields of a finding about this node, unless `more` has others."""
        ports = listing([f"{port.name} {port.link_layer} ACTIVE" for port in self.active], 10)
        evidence = [seen("/sys/class/infiniband", ports or "no active port", "file")]
        names = (VARIABLE, "NCCL_IB_DISABLE", "NCCL_NET")
        if given := ", ".join(str(self.env[name]) for name in names if name in self.env):
            evidence.append(seen("environment", given, "file"))
        used = listing([port.name for port in self.used], 10) or "TCP"
        expected = DERIVED("the active HCA ports, as on the other nodes")
        return {"at": self.node, "observed": used, "expected": expected, "seen": evidence, **more}


@check(source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_ib/init.cc")
def nccl_ib_hca(
    nodes: Mapping[str, RdmaFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL uses the HCAs, and the same number of one kind on every node.

    Looks at:
        Active HCA ports, and NCCL_IB_HCA, NCCL_IB_DISABLE and NCCL_NET of the job, the login session and
        NCCL's configuration files. Names are prefixes unless the list begins with ``=``: ``mlx5_1`` also
        selects mlx5_10 to mlx5_19.

    Matters because:
        For NCCL a list that matches nothing is not an error. It continues over TCP, many times slower, or
        hangs because other nodes use their HCAs. Fewer ports on one node slow down all nodes. InfiniBand
        and RoCE ports do not connect to each other. A card on several PCIe links, as in a DGX Spark,
        shows one network port as two devices, each of which carries about half of its rate.

    Fix:
        Set NCCL_IB_HCA to exact names, or unset it if all HCAs belong to the job.
    """
    if job.backend == "gloo":
        yield skip("the job uses gloo")
        return
    if not has_any(nodes):
        yield skip(NO_HCAS)
        return
    logins = envs or {}
    transports: dict[str, Transport] = {}
    for node, facts in nodes.items():
        version = nccl_version((softwares or {}).get(node))
        transports[node] = _transport(node, facts, effective_env(logins.get(node), job, version), version)
    if not any(one.active for one in transports.values()):
        yield skip("no active HCA port that could be opened on any node")
    found = list(_findings(transports))
    yield from found
    statuses = {finding.target: finding.status for finding in found}
    for node, one in transports.items():
        gap = _unread_port(one.hcas) or (unread(logins.get(node)) if one.active else "")
        if gap and statuses.get(node) is not Status.FAIL:
            yield unknown(node, f"it is not known which HCAs NCCL uses: {gap}")
        elif node not in statuses and one.used:
            text = listing([port.name for port in one.used], 10)
            yield ok(node, f"NCCL uses {text}", observed=text)


def _transport(node: str, facts: RdmaFacts, env: Environment, version: Version | None) -> Transport:
    plain = values(env)
    off = switched_off_by(plain, version)
    active = tuple(port for _, port in selected_ports(facts.hcas, None, version))
    used = () if off else tuple(port for _, port in selected_ports(facts.hcas, plain.get(VARIABLE), version))
    return Transport(node, facts.hcas, env, active, used, off)


def _unread_port(hcas: tuple[Hca, ...]) -> str:
    for hca in hcas:
        for port in hca.ports:
            if not port.state or not port.link_layer:
                return f"the state or the link layer of {port.name} could not be read"
        if not hca.ports:
            return f"the ports of {hca.name} could not be read"
    return ""


# Tried on every node, so only where there is something to mend.
Fixes = Callable[[], tuple[Fix, ...]]


def _findings(nodes: Mapping[str, Transport]) -> Iterator[Finding]:
    mixed = any(len({port.link_layer for port in one.active}) > 1 for one in nodes.values())
    exact = cache(partial(_name_exactly, nodes, one_layer=mixed))
    some_use = any(one.used for one in nodes.values())
    judged: set[str] = set()
    for one in nodes.values():
        finding = (
            _none_used(one, some_use, exact) if one.active and not one.used else _prefix(one) or _half(one)
        )
        if finding:
            judged.add(one.node)
            yield finding
    if some_use:
        yield from _unlike(nodes, judged, exact)


def _none_used(one: Transport, peers_use: bool, exact: Fixes) -> Finding:
    if one.off:
        why = "switches them off" if one.off == "NCCL_IB_DISABLE" else "asks for TCP"
        text = f"{one.are_active}, and NCCL would use TCP: {one.env[one.off]} {why}"
        # The same everywhere may be wanted, for a test; on some nodes only it is a hang.
        return (OFF.fail if peers_use else OFF.warn)(text, **one.details(fixes=change(one.env[one.off])))
    setting = one.env[VARIABLE]
    first, *others = change(setting)
    return NO_MATCH.fail(
        f"{one.are_active}, and NCCL would silently use TCP: {setting} matches none of them"
        f"{_mistaken(setting.value, one.hcas)}",
        # Without the variable NCCL takes all active ports; with exact names it takes these.
        **one.details(fixes=(first, *exact(), *others)),
    )


def _mistaken(value: str, hcas: tuple[Hca, ...]) -> str:
    names = {name for hca in hcas for name in hca.netdevs}
    items = [item.partition(":")[0] for item in value.lstrip("^=").split(",")]
    if any(item in names or item.startswith(("eth", "ens", "eno", "enp", "bond")) for item in items):
        return "; it takes names of RDMA devices, not of network interfaces"
    if any(item != item.strip() for item in items):
        return "; NCCL takes the space in the list as part of the name"
    return ""


def _prefix(one: Transport) -> Finding | None:
    setting = one.env.get(VARIABLE)
    surprises = prefix_surprises(one.hcas, setting.value) if setting and one.used else {}
    if not setting or not surprises:
        return None
    name, more = next(iter(surprises.items()))
    excluding = setting.value.startswith("^")
    value = "^=" + setting.value[1:] if excluding else "=" + setting.value
    plain = all(is_plain_name(part) for part in value.lstrip("^=").replace(":", ",").split(","))
    fix = in_job("match the names exactly", export(VARIABLE, value), persistent=True)
    also = f"also {'excludes' if excluding else 'selects'} {listing(more)}"
    return PREFIX.warn(
        f"{setting} {also}, because {name} is a prefix", **one.details(fixes=fix if plain else ())
    )


def _half(one: Transport) -> Finding | None:
    """Where the list names one of several devices that are one port."""
    used, active = ({port.name for port in ports} for ports in (one.used, one.active))
    for group in halves(one.hcas) if VARIABLE in one.env and one.used else ():
        names = [port.name for hca in group for port in hca.ports if port.name in active]
        left = [name for name in names if name not in used]
        if left and len(left) < len(names):
            hcas = dict.fromkeys(hca.name for hca in one.hcas if {p.name for p in hca.ports} & {*used, *left})
            value = f"={','.join(hcas)}"
            fix = in_job("name all devices of the port", export(VARIABLE, value), persistent=True)
            return HALF.warn(
                f"{listing(names)} are one network port over several PCIe links, and {one.env[VARIABLE]}"
                f" leaves out {listing(left)}",
                **one.details(
                    expected=DERIVED("every active device of the port, as each has a part of its rate"),
                    fixes=fix if all(map(is_plain_name, hcas)) else (),
                ),
            )
    return None


def _unlike(nodes: Mapping[str, Transport], judged: Set[str], exact: Fixes) -> Iterator[Finding]:
    """Nodes that use none, fewer ports or another link layer than most nodes."""
    using = {node: one for node, one in nodes.items() if one.used}
    layers = {node: one.layers for node, one in using.items()}
    counts = {node: len(one.used) for node, one in using.items()}
    kinds, spread = majority(layers), majority(counts)
    typical = spread.value or max(counts.values())
    one_layer = cache(partial(_name_exactly, nodes, one_layer=True))
    peers = listing(using, 3)
    for node, one in nodes.items():
        if node in judged:
            continue
        here = " and ".join(one.layers)
        if not one.used:
            # Where few have any, it may be theirs that are not meant.
            few = 2 * len(using) <= len(nodes)
            yield (MIXED.but(confidence=LIKELY) if few else MIXED).fail(
                f"no active HCA port that NCCL may open, so it would use TCP here and the HCAs on {peers}",
                **one.details(observed="no active port that can be opened"),
            )
        elif node in kinds.minority:
            elsewhere = " and ".join(next(other for other in layers.values() if other != one.layers))
            yield LAYER.but(confidence=kinds.confidence).fail(
                f"NCCL would use {here} ports here, {elsewhere} on other nodes: they do not connect",
                **one.details(observed=here, fixes=one_layer()),
            )
        elif counts[node] < typical:
            yield FEWER.but(confidence=spread.confidence).warn(
                f"NCCL would use {counts[node]} HCA port{'s' if counts[node] > 1 else ''} here,"
                f" {typical} on {'another node' if spread.is_split else 'most nodes'}",
                **one.details(fixes=exact() if VARIABLE in one.env else ()),
            )
        elif len(one.layers) > 1:
            yield TWO_LAYERS.warn(
                "NCCL would use InfiniBand and RoCE ports together: if their order differs"
                " between nodes, they do not connect",
                **one.details(fixes=one_layer()),
            )


def _name_exactly(nodes: Mapping[str, Transport], *, one_layer: bool) -> tuple[Fix, ...]:
    """A value that selects the active ports on every node, or those of the link layer that most have."""
    active = {node: one.hcas for node, one in nodes.items() if one.active}
    value = propose_hcas(active, one_layer=one_layer)
    if value is None:
        return ()
    text = f"name the HCAs exactly; tested with {len(active)} nodes"
    return (in_job(text, export(VARIABLE, value), persistent=True),)
