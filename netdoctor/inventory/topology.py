"""Which leaf switch each host is connected to, read from what fabrics and clouds say of it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from netdoctor.errors import InputError
from netdoctor.facts.cabling import by_switches, leaf_name, natural
from netdoctor.inventory.model import Target
from netdoctor.inventory.names import rail_fault
from netdoctor.inventory.nodeset import expand
from netdoctor.text import clean

KINDS = (
    "ibnetdiscover, iblinkinfo, `lldpcli -f json show neighbors` as NODE.json, Slurm's topology.conf or "
    "`scontrol show topology`, `kubectl get nodes -o json`, `aws ec2 describe-instance-topology` (with "
    "describe-instances), `gcloud compute instances list --format json`, OCI's rdmaTopologyData as "
    "NODE.json, a saved report"
)
# Labels of a Kubernetes node that name its leaf, the most particular first: NVIDIA topograph, AWS, GCP, OCI.
# [https://github.com/NVIDIA/topograph/blob/main/docs/reference/node-labels.md]
LABELS = (
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-4",  # of p6-b200 and p6-b300 the lowest
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "oci.oraclecloud.com/rdma.local_block_id",
    "oci.oraclecloud.com/host.rack_id",
)
# A CA's description: the host, then its HCA, also as udev names it. [rdma-ndd, "%h %d"; rdma-core
# kernel-boot/rdma_rename.c]
_CA = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]*)[ :](?P<hca>(?:HCA-|mlx\d_\w*?|hfi\d_|bnxt_re|irdma)\d+"
    r"|(?:ib|roce|iw|opa)[opsx]\w+)\b"
)
_IBNETDISCOVER = (
    # Switch	41 "S-b8cef603008032b8"		# "MF0;IB-ComputeLeaf-007:MQM8700/U1" enhanced port 0 lid 2382
    re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"(?:S-)?([^"]*)"\s*#\s*"([^"]*)"'),
    # [1]	"H-043f720300f4bc9e"[1](43f720300f4bc9e) 	# "gpu1 mlx5_3" lid 5 4xHDR
    re.compile(r'^\[(\d+)\]\s*"H-[^"]*"\S*\s*#\s*"([^"]*)"'),
)
_IBLINKINFO = (
    re.compile(r"(Switch|CA): (?:0x([0-9a-f]+) )?(.*):\s*$"),
    #   5    1[  ] ==( 4X  53.125 Gbps Active/  LinkUp)==>      12    1[  ] "gpu1 mlx5_0" ( )
    re.compile(r'^\s*\d+\s+(\d+)\[[^"]*LinkUp\s*\)==>[^"]*"([^"]*)"'),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What one file says. links: (host, port, switch) of each port that is connected; titles: the name of a
    switch that has a number in `links`, where several may share one; ends: which port of the switch it is, by
    host and port; names: other names of a host."""

    links: tuple[tuple[str, str, str], ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[tuple[str, str], str] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read(name: str, text: str) -> Topology:
    """What a file says. name: of the file, whose stem is the host where each host has its own file.

    InputError where it is none that is known, or says nothing.
    """
    stem = re.sub(r"\.(lldp|rdma)?\.?(json|txt)?$", "", name.rpartition("/")[2])
    try:
        found = _of_json(json.loads(text), stem) if text.lstrip()[:1] in ("{", "[") else _of_text(text)
    except (ValueError, RecursionError, InputError):  # no JSON, too deep, no node set
        found = None
    if found is None:
        raise InputError(
            f"{clean(name, 200)}: nothing that says where hosts are connected; known are {KINDS}"
        )
    if not (found.links or found.names):
        raise InputError(f"{clean(name, 200)}: it names no host and no switch")
    return found


def _of_text(text: str) -> Topology | None:
    if re.search(r"^\s*(Switch|Block)Name=", text, re.M | re.I):
        return Topology(links=tuple(_slurm(text)))
    if re.search(r'^Switch\s+\d+\s+"', text, re.M):
        return _infiniband(text, *_IBNETDISCOVER)
    if re.search(r"^(?:Switch|CA): ", text, re.M):
        return _infiniband(text, *_IBLINKINFO)
    return None


def _switch_name(description: str) -> str:
    """``MF0;IB-Leaf-101:MQM8700/U1`` is how a managed switch writes its name."""
    return re.sub(r"^MF0;|:[A-Z0-9]+/.*$", "", description.strip())


def _infiniband(text: str, head: re.Pattern[str], port: re.Pattern[str]) -> Topology:
    """head: (kind, number, name) of a switch or CA; port: (its number, the name of what is connected)."""
    links = []
    ends: dict[tuple[str, str], str] = {}
    switch = ""
    titles: dict[str, str] = {}
    for line in text.splitlines():
        if found := head.match(line):
            switch = (found[2] or found[3]) if found[1] == "Switch" else ""
            titles[switch] = _switch_name(found[3])
        elif switch and (found := port.search(line)) and (ca := _CA.match(found[2])):
            # openibd of MLNX_OFED counts them from 1.
            number = re.fullmatch(r"HCA-(\d+)", ca["hca"])
            hca = f"mlx5_{int(number[1]) - 1}" if number else ca["hca"]
            links.append((ca["host"], hca, switch))
            ends[ca["host"], hca] = found[1]
    return Topology(links=tuple(links), titles=titles, ends=ends)


def _slurm(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = {
            name.lower(): value
            for name, _, value in (w.partition("=") for w in line.partition("#")[0].split())
        }
        # A switch above others shows their nodes, too, in what scontrol prints.
        if words.get("nodes") and "switches" not in words and words.get("level", "0") == "0":
            for host in expand(words["nodes"]):
                yield host, "", words.get("switchname") or words.get("blockname", "")


def _of_json(data: Any, stem: str) -> Topology | None:
    if isinstance(data, list):
        return _gcloud(_rows(data))
    if not isinstance(data, dict):
        return None
    if "facts" in data:
        return _report(_map(data["facts"]))
    if "lldp" in data:
        return _lldp(data["lldp"], stem)
    if "Instances" in data:
        found = [(one.get("InstanceId"), one.get("NetworkNodes")) for one in _rows(data["Instances"])]
        # From the core to the leaf.
        nodes = [(str(i), "", str(nodes[-1])) for i, nodes in found if isinstance(nodes, list) and nodes]
        return Topology(links=tuple(nodes))
    if "Reservations" in data:
        ones = [one for group in _rows(data["Reservations"]) for one in _rows(group.get("Instances"))]
        return Topology(names={str(one.get("InstanceId")): tuple(_aws_names(one)) for one in ones})
    rows = _rows(data.get("items"))
    if any("resourceStatus" in one for one in rows):
        return _gcloud(rows)
    if "items" in data or data.get("kind") == "Node":
        return Topology(links=tuple(_kubernetes(rows or [data])))
    block = _map(data.get("rdmaTopologyData", data)).get("customerLocalBlock")
    return Topology(links=((stem, "", str(block)),)) if block else None


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _gcloud(instances: Sequence[Mapping[str, Any]]) -> Topology | None:
    """Of instances: the sub-block, else the second of ``/cluster/rack/host``."""
    links = []
    for one in instances:
        status = _map(one.get("resourceStatus"))
        topology = _map(status.get("physicalHostTopology"))
        parts = [part for part in str(status.get("physicalHost") or "").split("/") if part]
        rack = parts[1] if len(parts) == 3 else ""
        leaf = next((topology[key] for key in ("subblock", "subBlock", "block") if topology.get(key)), rack)
        if one.get("name") and leaf:
            links.append((str(one["name"]), "", str(leaf)))
    return Topology(links=tuple(links)) if any("resourceStatus" in one for one in instances) else None


def _report(facts: Mapping[str, Any]) -> Topology:
    """A saved report of ours: what the nodes reported of their ports."""
    found = [
        (host, one)
        for host, more in _map(_map(facts.get("node")).get("cabling")).items()
        for one in _rows(_map(_map(more).get("value", more)).get("ports"))
    ]
    links = []
    titles: dict[str, str] = {}
    ends: dict[tuple[str, str], str] = {}
    for host, one in found:
        port, switch, title = (str(one.get(key) or "") for key in ("port", "switch", "switch_name"))
        if switch:
            links.append((host, port.partition(":")[0], switch))
            titles |= {switch: title} if title else {}
            ends[links[-1][:2]] = str(one.get("at") or "")
    return Topology(links=tuple(links), titles=titles, ends=ends)


def _lldp(lldp: Any, host: str) -> Topology:
    """Of `lldpcli -f json`, which writes one of a thing as an object by its name, or of json0, where
    everything is a list and the name is a field."""
    links = []
    titles: dict[str, str] = {}
    ends: dict[tuple[str, str], str] = {}
    for part in _several(lldp):
        for one in _several(part.get("interface")):
            for name, row in [(one["name"], one)] if isinstance(one.get("name"), str) else one.items():
                for switch, title in _chassis(_map(row)):
                    links.append((host, str(name), switch))
                    titles[switch] = title
                    ends[host, str(name)] = _value(next(iter(_several(_map(row).get("port"))), {}), "id")
    return Topology(links=tuple(links), titles=titles, ends=ends)


def _several(value: Any) -> list[dict[str, Any]]:
    return _rows(value if isinstance(value, list) else [value])


def _value(record: Mapping[str, Any], key: str) -> str:
    return str(next(iter(_several(record.get(key))), {}).get("value") or "")


def _chassis(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(its number, its name); one without a name is nobody's switch."""
    for chassis in _several(row.get("chassis")):
        if name := _value(chassis, "name"):
            yield _value(chassis, "id") or name, name
        else:  # {"leaf1": {"id": {"type": "mac", "value": …}}}; without a name {"id": …} itself
            for title, more in chassis.items():
                if title not in ("id", "name"):
                    yield _value(_map(more), "id") or title, title


def _aws_names(one: Mapping[str, Any]) -> Iterator[str]:
    for key in ("PrivateDnsName", "PrivateIpAddress", "PublicDnsName", "PublicIpAddress"):
        if one.get(key):
            yield str(one[key])
    yield from (str(tag.get("Value")) for tag in _rows(one.get("Tags")) if tag.get("Key") == "Name")


def _kubernetes(nodes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for node in nodes:
        metadata = _map(node.get("metadata"))
        labels = _map(metadata.get("labels"))
        leaf = next((labels[label] for label in LABELS if labels.get(label)), None)
        if leaf and metadata.get("name"):
            yield str(metadata["name"]), "", str(leaf)


def _titles(found: Sequence[Topology]) -> dict[str, str]:
    return {switch: title for one in found for switch, title in one.titles.items() if title}


def leaves(found: Sequence[Topology]) -> dict[str, str]:
    """The leaf of each host, by every name of it."""
    titles = _titles(found)
    links = ((host.lower(), port, switch) for one in found for host, port, switch in one.links)
    return _by_every_name(by_switches(links, titles), found)


def cabling(found: Sequence[Topology]) -> list[tuple[str, str, str, str]]:
    """(host, its port, the switch's name, the switch's port) of each cable whose port is known."""
    titles = _titles(found)
    cables = {
        (host, port): (titles.get(switch, switch), one.ends.get((host, port), ""))
        for one in found
        for host, port, switch in one.links
        if port
    }
    order = sorted(cables, key=lambda cable: [natural(name) for name in cable])
    return [(*cable, *cables[cable]) for cable in order]


def rails(found: Sequence[Topology]) -> dict[str, str]:
    """``mlx5_0:leaf1,mlx5_1:leaf2`` of each host whose ports are on several switches, by every name of it."""
    titles = _titles(found)
    often = Counter(titles.values())
    ports: dict[str, dict[str, str]] = {}
    for host, port, switch in (link for one in found for link in one.links):
        title = titles.get(switch, switch)
        if port:
            ports.setdefault(host.lower(), {})[port] = leaf_name(title if often[title] < 2 else switch)
    by_host = {
        host: ",".join(f"{port}:{several[port]}" for port in sorted(several, key=natural))
        for host, several in ports.items()
        if len(set(several.values())) > 1
    }
    return _by_every_name({host: rail for host, rail in by_host.items() if not rail_fault(rail)}, found)


def _by_every_name(by_host: dict[str, str], found: Sequence[Topology]) -> dict[str, str]:
    """With the further names of hosts that no host of another value has, as those of a group may."""
    values: dict[str, set[str]] = {}
    for host, names in (pair for one in found for pair in one.names.items()):
        for name in names if host.lower() in by_host else ():
            values.setdefault(name.lower(), set()).add(by_host[host.lower()])
    return by_host | {name: next(iter(several)) for name, several in values.items() if len(several) == 1}


def with_leaves(
    targets: Sequence[Target], by_host: Mapping[str, str], rails_of: Mapping[str, str] | None = None
) -> tuple[list[Target], list[str]]:
    """Targets with their leaf and rails, those of a leaf one after the other; and what there is to say of it.

    Leaves come in the order of their first host, so that the first host stays the first. InputError where no
    target is known.
    """
    leaf_of, rail_of = _finder(by_host), _finder(rails_of or {})
    found = [
        replace(target, leaf=leaf_of(target) or target.leaf, rail=rail_of(target) or target.rail)
        for target in targets
    ]
    without = [target.id for target in found if target.leaf is None]
    if len(without) == len(found):
        names = ", ".join(list(by_host)[:3])
        raise InputError(f"--topology knows none of these hosts; it names {clean(names, 120)} and such")
    order = {leaf: i for i, leaf in enumerate(dict.fromkeys(target.leaf for target in found))}
    if None in order:
        order[None] = len(order)
    ordered = sorted(found, key=lambda target: order[target.leaf])
    counts = Counter(one.leaf for one in found if one.leaf is not None)
    notes = [f"{len(counts)} leaves: " + ", ".join(f"{leaf} {n}" for leaf, n in counts.items())]
    if without:
        notes.append(f"no leaf is known of {', '.join(without[:8])}" + (" and more" if without[8:] else ""))
    if any(a.order > b.order for a, b in pairwise(ordered)):
        notes.append("hosts are in the order of their leaves, so that neighbouring ranks share one")
    return [replace(target, order=i) for i, target in enumerate(ordered)], notes


def _finder(by_host: Mapping[str, str]) -> Callable[[Target], str | None]:
    """What is known of a host; also by the first word of its name, where all of that word have the same."""
    by_short: dict[str, set[str]] = {}
    for host, value in by_host.items():
        if not host[:1].isdigit():
            by_short.setdefault(host.partition(".")[0], set()).add(value)
    short = {name: next(iter(several)) for name, several in by_short.items() if len(several) == 1}

    def find(target: Target) -> str | None:
        for key in (target.id.lower(), target.host.lower()):
            if value := by_host.get(key) or short.get(key.partition(".")[0]):
                return value
        return None

    return find
