"""Whether a gang's pods find nodes: what `kubectl get nodes,pods -A -o json` says against what they ask for.

Only what is counted and stands in both: devices such as nvidia.com/gpu, cordons, readiness, nodeSelector.
Taints, affinity, memory and quotas are the scheduler's.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from netdoctor.errors import InputError
from netdoctor.inventory.nodeset import fold
from netdoctor.launch.gang_kinds import Gang
from netdoctor.launch.manifests import items, mapping
from netdoctor.text import clean, listing

FILE_MAX = 64 << 20
MOST = 8
_OVER = ("Succeeded", "Failed")


@dataclass(slots=True)
class Node:
    """allocatable: devices by resource. in_use: of those by pods that run, where the file has pods."""

    name: str
    labels: Mapping[str, Any]
    allocatable: dict[str, int]
    why_not: str = ""  # why no pod is put there
    in_use: Counter[str] = field(default_factory=Counter)


def room(name: str, content: bytes, gangs: Iterable[Gang]) -> list[str]:
    """What is to be said of the nodes. Raises InputError where a gang finds no room, with the reasons."""
    where = clean(name, 300)
    if len(content) > FILE_MAX:
        raise InputError(f"{where}: larger than {FILE_MAX >> 20} MiB; leave the pods out")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {clean(str(error), 160)}") from None
    objects = items(mapping(found).get("items")) or [mapping(found)]
    nodes = {node.name: node for one in objects if one.get("kind") == "Node" and (node := _node(one)).name}
    if not nodes:
        raise InputError(f"{where}: no node in it; write it with: kubectl get nodes,pods -A -o json")
    pods = [one for one in objects if one.get("kind") == "Pod"]
    for pod in pods:
        spec, phase = mapping(pod.get("spec")), mapping(pod.get("status")).get("phase")
        host = nodes.get(str(spec.get("nodeName")))
        if host is not None and phase not in _OVER:
            for container in items(spec.get("containers")):
                host.in_use.update(devices(mapping(container.get("resources"))))
    notes = [] if pods else [f"{where} has no pods: what others use is not known"]
    for gang in gangs:
        notes += _fit(where, list(nodes.values()), gang)
    return notes


def devices(resources: Mapping[str, Any]) -> dict[str, int]:
    """What of a container's limits or requests, or of allocatable, is counted: nvidia.com/gpu: 8."""
    found: dict[str, int] = {}
    for part in (resources, mapping(resources.get("requests")), mapping(resources.get("limits"))):
        for name, value in part.items():
            text = str(value)
            if "/" in str(name) and text.isdecimal() and len(text) < 7:
                found[str(name)] = int(text)
    return found


def _node(one: Mapping[str, Any]) -> Node:
    metadata, spec, status = (mapping(one.get(key)) for key in ("metadata", "spec", "status"))
    ready = [c.get("status") for c in items(status.get("conditions")) if c.get("type") == "Ready"]
    why_not = "is cordoned" if spec.get("unschedulable") is True else ""
    why_not = why_not or ("" if "True" in ready else "is not ready")
    name = clean(str(metadata.get("name") or ""), 253)
    return Node(name, mapping(metadata.get("labels")), devices(mapping(status.get("allocatable"))), why_not)


def _fit(where: str, nodes: list[Node], gang: Gang) -> list[str]:
    asks: dict[str, int] = {}
    selector: dict[str, str] = {}
    for member in gang.members:
        resources = mapping(member.container.get("resources"))
        trainer = mapping(member.trainer.get("resourcesPerNode"))
        for name, count in {**devices(resources), **devices(trainer)}.items():
            asks[name] = max(count, asks.get(name, 0))
        selector |= {key: str(value) for key, value in mapping(member.pod.get("nodeSelector")).items()}
    asks = {name: count for name, count in asks.items() if count}
    if not asks:
        return [f"{gang.title}: its container asks for no devices; room on nodes is not tested"]
    what = listing((f"{count} {clean(name, 60)}" for name, count in asks.items()), 4)
    left, reasons = 0, dict[str, list[str]]()
    for node in nodes:
        if any(str(node.labels.get(key)) != value for key, value in selector.items()):
            continue
        if not any(node.allocatable.get(name) for name in asks):  # a node without GPUs is of no interest
            if any(key.startswith(("nvidia.com/", "amd.com/")) for key in node.labels):
                reasons.setdefault(f"has no {listing(map(str, asks), 2)}", []).append(node.name)
            continue
        free = {name: node.allocatable.get(name, 0) - node.in_use[name] for name in asks}
        count = 0 if node.why_not else min(free[name] // need for name, need in asks.items())
        left += max(0, count)
        if count < 1:
            reasons.setdefault(node.why_not or _lack(node, asks, free), []).append(node.name)
    texts = [f"{clean(fold(names), 200)} {why}" for why, names in reasons.items()]
    if left < gang.count:
        lack = "; ".join(texts[:MOST]) or "no node has them"
        raise InputError(
            f"{where}: {gang.title}: {gang.count} pods of {what}, and nodes for {left}: {clean(lack, 700)}"
        )
    return [f"{gang.title}: {text}" for text in texts[:MOST]]


def _lack(node: Node, asks: Mapping[str, int], free: Mapping[str, int]) -> str:
    name = next(name for name, need in asks.items() if free[name] < need)
    total, label = node.allocatable.get(name, 0), clean(name, 60)
    if total < asks[name]:
        return f"has {total} of {asks[name]} {label}"
    return f"has {max(0, free[name])} of {total} {label} free"
