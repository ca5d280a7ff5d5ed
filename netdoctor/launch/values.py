"""What a job's variables should be, from the facts of a scan. Only what is in those is called measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from netdoctor.advice import propose_hcas, propose_ifname
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.net import NetFacts, PortMatrix
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.inventory.nodeset import fold
from netdoctor.launch.model import Evidence, Value, from_scan, from_user, guess
from netdoctor.rules import gloo
from netdoctor.rules.addresses import network, parse, rows_of
from netdoctor.rules.local_ports import hands_out
from netdoctor.rules.nccl_ib import (
    GID_SCAN_SINCE,
    choose_gid_index,
    routable_gids,
    selected_ports,
    switched_off_by,
)
from netdoctor.rules.paths import release
from netdoctor.rules.rails import CROSS_NIC, crossings
from netdoctor.rules.variables import effective_env, values
from netdoctor.rules.versions import at_least
from netdoctor.store import Store
from netdoctor.text import is_ifname

PORT = 29500
# Outside the kernel's usual ephemeral range, 32768 to 60999, and not below 1024.
OTHER_PORTS = (29500, 29501, 29502, 29503)
NCCL = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
# What a report's own job may have set, and a plan says anew.
PROPOSED = (*NCCL, CROSS_NIC, "GLOO_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT")
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "TORCH_DISTRIBUTED_DEBUG": "INFO"}


@dataclass(slots=True)
class Settings:
    """The variables of a job."""

    env: dict[str, Value] = field(default_factory=dict)  # for all nodes
    per_node: dict[str, dict[str, Value]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # what is not known, and why
    remarks: list[str] = field(default_factory=list)  # for people
    network: str = ""  # that holds the addresses of all nodes, empty where none does


class ScanFacts:
    """The facts of a report about some nodes, by group; empty without a report."""

    def __init__(self, nodes: Sequence[str], evidence: Evidence | None) -> None:
        self.nodes = list(nodes)
        self.store = evidence.facts if evidence else Store()
        job = self.store.cluster_fact("job")
        self.job = job if isinstance(job, Job) else Job()
        self._groups: dict[str, dict[str, Any]] = {}

    def group(self, name: str) -> dict[str, Any]:
        """The nodes that have this fact."""
        if name not in self._groups:
            self._groups[name] = self.store.present(name, self.nodes)
        return self._groups[name]

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Where peers dial each node, where the node has that address."""
        nets = self.group("net")
        dialled = self.job.data_addresses
        return {n: dialled[n] for n in self.nodes if n in dialled and n in nets and _row(nets[n], dialled[n])}


def settings(
    targets: Sequence[Target],
    evidence: Evidence | None,
    *,
    port: int | None = None,
    default_port: int = PORT,
    env: Mapping[str, str] | None = None,
    debug: bool = False,
) -> Settings:
    """The variables of a job on these nodes, the first of which has rank 0.

    port, env: what the user says; it counts, whatever was measured. default_port: where nothing is known.
    """
    user_values = {name: from_user(text, "--env") for name, text in (env or {}).items()}
    if port is not None:
        user_values["MASTER_PORT"] = from_user(port, "--port")
    facts = ScanFacts([target.id for target in targets], evidence)
    found = Settings()
    found.env["MASTER_ADDR"] = master_addr(targets, facts)
    found.env["MASTER_PORT"] = _port(targets[0], facts, default_port, found.remarks)
    if debug:
        found.env |= {name: from_user(text, "--debug") for name, text in DEBUG.items()}
    nets, addresses = facts.group("net"), facts.addresses
    networks = {str(network(_row(nets[node], address))) for node, address in addresses.items()}
    if len(addresses) == len(targets) and len(networks) == 1:
        found.network = networks.pop()
    _nccl(facts, found)
    _gloo(facts, found)
    for name in user_values:
        found.left_out.pop(name, None)
        for per_node in found.per_node.values():
            per_node.pop(name, None)
    for name, was in facts.job.env.items():
        proposed = found.env.get(name)
        if name in PROPOSED and proposed and proposed.text != was and name not in user_values:
            where = facts.job.env_from.get(name, "the job's environment")
            found.remarks.append(f"{where} has {name}={was}; what follows replaces it")
    found.env |= user_values
    return found


def master_addr(targets: Sequence[Target], facts: ScanFacts) -> Value:
    """Where the other nodes find rank 0's."""
    first = targets[0]
    address = facts.addresses.get(first.id)
    if address is None:
        why = (
            "nobody looked whether the others reach it" if facts.group("net") else "no report has its address"
        )
        return guess(first.host, f"the first host as listed; {why}")
    others = [node for node in facts.nodes if node != first.id]
    ports = facts.store.cluster_fact("ports")
    if not others or not isinstance(ports, PortMatrix):
        return from_scan(address, f"{first.id} has it; nobody tried to reach it")
    came: dict[str, bool] = {}
    for probe in ports.probes:
        if probe.dst == first.id and parse(probe.address) == parse(address) and probe.src in others:
            came[probe.src] = came.get(probe.src, True) and probe.outcome == "open"
    cut = [node for node, open_ in came.items() if not open_]
    if cut:
        return from_scan(address, f"{first.id} has it, but {fold(cut, 60)} did not reach it")
    if len(came) < len(others):
        return from_scan(address, f"{first.id} has it, {len(came)} of {len(others)} other nodes tried it")
    return from_scan(address, f"{first.id} has it, all other nodes reached it")


def _port(first: Target, facts: ScanFacts, default: int, remarks: list[str]) -> Value:
    """A port for the rendezvous on rank 0's node."""
    holder = facts.group("port_holder").get(first.id)
    net = facts.group("net").get(first.id)
    net = net or NetFacts(netdevs=(), addresses=())
    low, high = net.ephemeral_ports
    if holder is None:
        return guess(default, "the usual one; nobody looked whether it is free")
    looked_at = holder.port
    if holder.listeners or holder.bind_error:
        who = holder.listeners[0].process if holder.listeners else None
        other = next(
            (p for p in (default, *OTHER_PORTS) if p != looked_at and not hands_out(net, p)), default
        )
        by = who or "another process"
        return guess(other, f"{looked_at} is taken on {first.id} by {by}; nobody looked at {other}")
    if looked_at != facts.job.master_port or default not in (PORT, looked_at):
        return guess(default, f"the usual one; the scan looked at {looked_at}")
    if hands_out(net, looked_at):
        where = f"the ephemeral range {low}-{high} of {first.id}"
        remarks.append(f"port {looked_at} is in {where}: any connection may take it")
        return from_scan(looked_at, f"was free on {first.id}, inside the ephemeral range {low}-{high}")
    side = "reserved in" if low <= looked_at <= high else "outside"
    return from_scan(looked_at, f"was free on {first.id}, {side} the ephemeral range {low}-{high}")


def gpu_counts(facts: ScanFacts) -> dict[str, Value]:
    """How many GPUs a process of the job would see on each node; nodes that do not say are left out."""
    found: dict[str, Value] = {}
    for node, gpu in facts.group("gpu").items():
        working = [device for device in gpu.devices if device.error is None]
        lost = len(gpu.devices) - len(working)
        chosen = facts.job.env.get("CUDA_VISIBLE_DEVICES", gpu.cuda_visible_devices)
        if gpu.nvml == "ok":
            count, source = len(working), f"{len(working)} GPUs answer on {node}"
            if lost:
                source += f", {lost} do not"
            if chosen is not None and len(_visible_devices(chosen)) < count:
                count = len(_visible_devices(chosen))
                source = f"CUDA_VISIBLE_DEVICES shows {count} of {len(working)} GPUs of {node}"
            found[node] = from_scan(count, source)
        elif not _has_gpus(gpu):
            found[node] = from_scan(0, f"no GPU on {node}")
    return found


def _visible_devices(text: str) -> list[str]:
    """The devices that CUDA takes from its list: up to the first -1."""
    found: list[str] = []
    for word in text.split(","):
        if word.strip() in ("", "-1"):
            break
        found.append(word.strip())
    return found


def _has_gpus(gpu: GpuFacts) -> bool:
    return bool(gpu.devices or gpu.pci or gpu.device_nodes)


def _nccl(facts: ScanFacts, found: Settings) -> None:
    nets, gpus = facts.group("net"), facts.group("gpu")
    if reason := _unknown(facts, nets):
        found.left_out |= dict.fromkeys(NCCL, reason)
        return
    if len(gpus) == len(facts.nodes) and not any(map(_has_gpus, gpus.values())):
        found.left_out |= dict.fromkeys(NCCL, "no node has a GPU, so that nothing uses NCCL")
        return
    software, answers, logins = facts.group("software"), facts.group("nccl_answer"), facts.group("env")
    versions = {node: release(software.get(node), answers.get(node)) for node in facts.nodes}
    envs = {n: values(effective_env(logins.get(n), facts.job, versions[n])) for n in facts.nodes}
    proposal = propose_ifname(nets, envs, versions, facts.job.data_addresses)
    name = "NCCL_SOCKET_IFNAME"
    if proposal is None:
        found.left_out[name] = "no value gives every node an address that its peers share a network with"
    elif proposal.value is not None:
        networks = {str(network(row)) for row in proposal.addresses.values()}
        where = networks.pop() if len(networks) == 1 else "the address that peers dial"
        found.env[name] = from_scan(proposal.value, f"one value that selects {where} on every node")
    else:
        for node, value in proposal.per_node.items():
            found.per_node.setdefault(node, {})[name] = from_scan(
                value, f"selects {proposal.addresses[node].address}"
            )
    _hcas(facts, found, envs, versions)
    _cross_nic(facts, found)


def _hcas(facts: ScanFacts, found: Settings, envs: Mapping[str, Mapping[str, str]], versions: Any) -> None:
    rdma = facts.group("rdma")
    off = {word for node in facts.nodes if (word := switched_off_by(envs[node], versions[node]))}
    if reason := _unknown(facts, rdma) or (f"{off.pop()} keeps NCCL from HCAs" if off else ""):
        found.left_out |= dict.fromkeys(NCCL[1:], reason)
        return
    hcas = {node: facts.hcas for node, facts in rdma.items()}
    usable = {node: selected_ports(hcas[node], None, versions[node]) for node in facts.nodes}
    without = [node for node, ports in usable.items() if not ports]
    value = propose_hcas(hcas, one_layer=True) if not without else None
    if value is None:
        reason = f"no active port that NCCL could use on {fold(without, 60)}" if without else "no list fits"
        found.left_out |= dict.fromkeys(NCCL[1:], reason)
        return
    chosen = {node: selected_ports(hcas[node], value, versions[node]) for node in facts.nodes}
    layer = next(iter(chosen.values()))[0][1].link_layer
    found.env["NCCL_IB_HCA"] = from_scan(value, f"active {layer} ports on every node")
    name = "NCCL_IB_GID_INDEX"
    if layer != "Ethernet":
        return
    ports = {(node, port.name): port for node, picked in chosen.items() for _, port in picked}
    if all(versions[node] and at_least(versions[node], GID_SCAN_SINCE) for node in facts.nodes):
        indices = {choose_gid_index(port, envs[node], versions[node]) for (node, _), port in ports.items()}
        index = f" (index {indices.pop()})" if len(indices) == 1 else ""
        found.left_out[name] = f"NCCL 2.21 and newer find the RoCE v2 row by themselves{index}"
        return
    rows = [{gid.index for gid in routable_gids(port)} for port in ports.values()]
    shared = set.intersection(*rows)
    if shared:
        found.env[name] = from_scan(min(shared), "a RoCE v2 row with an IPv4 address on every port")
    else:
        found.left_out[name] = "no GID index is a RoCE v2 row with an IPv4 address on every port"


def _cross_nic(facts: ScanFacts, found: Settings) -> None:
    """Where rails of these nodes do not meet, NCCL is kept on its own."""
    ports, paths = facts.store.cluster_fact("ports"), facts.store.cluster_fact("paths")
    if isinstance(ports, PortMatrix) and isinstance(paths, Paths):
        tried = [one for one in crossings(ports, paths) if {one.src, one.dst} <= set(facts.nodes)]
        closed = sum(not one.is_open for one in tried)
        # In a ring of cables, which has no rail on all nodes, NCCL has to cross from one to the next.
        if closed and all(set(facts.nodes) <= rail.addresses.keys() for rail in paths.rails):
            why = f"{closed} of {len(tried)} tries from one rail to another do not arrive"
            found.env[CROSS_NIC] = from_scan("0", why)


def _gloo(facts: ScanFacts, found: Settings) -> None:
    """The exact interface that holds the address which peers dial, where gloo would take that one of it."""
    name, addresses, nets = "GLOO_SOCKET_IFNAME", facts.addresses, facts.group("net")
    if reason := _unknown(facts, addresses):
        found.left_out[name] = reason
        return
    chosen: dict[str, str] = {}
    for node, address in addresses.items():
        row = _row(nets[node], address)
        # None for a name of one character, which torch takes for unset.
        devices = gloo.choose(nets[node], None, {name: row.ifname}) if row and is_ifname(row.ifname) else ()
        if row and [device.address for device in devices] == [row.address]:
            chosen[node] = row.ifname
    missing = [node for node in facts.nodes if node not in chosen]
    if missing:
        found.left_out[name] = f"no name gives gloo the address that peers dial on {fold(missing, 60)}"
    elif len(set(chosen.values())) == 1:
        found.env[name] = from_scan(
            chosen[facts.nodes[0]], "holds the address that peers dial, on every node"
        )
    else:
        for node, ifname in chosen.items():
            found.per_node.setdefault(node, {})[name] = from_scan(ifname, f"holds {addresses[node]}")


def _unknown(facts: ScanFacts, have: Mapping[str, Any]) -> str:
    """Why a value for all nodes is unknown; empty where all are in `have`."""
    if not have:
        return "not measured"
    missing = [node for node in facts.nodes if node not in have]
    return f"not measured on {fold(missing, 60)}" if missing else ""


def _row(net: NetFacts, address: str) -> Any:
    return next((row for row in rows_of(net) if parse(row.address) == parse(address)), None)
