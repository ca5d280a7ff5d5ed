"""Documents of cluster managers, and our own: Ray's cluster file, Kubernetes lists, netdoctor's JSON."""

from __future__ import annotations

from typing import Any

from netdoctor.inventory.names import leaf_fault, rail_fault
from netdoctor.inventory.readers.base import Source, Stop
from netdoctor.inventory.readers.documents import items, line_of, mapping, read

HOSTS_SCHEMA = "netdoctor.hosts/1"
GPU = "nvidia.com/gpu"
# Which of its labels says where a pod stands among its like; kubectl sorts worker-10 before worker-2.
_INDEX = (
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)


def read_ray(source: Source) -> None:
    """``provider: {type: local, head_ip, worker_ips}`` of `ray up`, the head first."""
    document = mapping(read(source))
    provider = mapping(document.get("provider"))
    line = line_of(document, "provider")
    auth = mapping(document.get("auth"))
    if provider.get("type") not in ("local", None) or not provider.get("head_ip"):
        kind = provider.get("type") or "without head_ip"
        source.refuse(
            line,
            "",
            f"provider {kind}: its addresses are not in the file",
            "ray get-worker-ips FILE names them",
        )
        raise Stop
    workers = items(provider.get("worker_ips"))
    for address in (provider["head_ip"], *workers):
        source.host(str(address), line, user=auth.get("ssh_user"))
    if auth.get("ssh_private_key"):
        source.note("not taken: ssh_private_key; say it in ssh config, or with --ssh-key")
    if auth.get("ssh_proxy_command"):
        source.note("not taken: ssh_proxy_command; say it in ssh config")


def read_kubernetes(source: Source) -> None:
    """``kubectl get pods -o json`` or ``get nodes -o json``: names and addresses."""
    document = mapping(read(source))
    listed = items(document.get("items")) if "items" in document else [document]
    kinds = {str(mapping(item).get("kind", "Pod")) for item in listed}
    if not kinds <= {"Pod", "Node"}:
        source.refuse(
            None, "", f"Kubernetes objects of kind {', '.join(sorted(kinds))}", "get pods, or nodes"
        )
        raise Stop
    waiting: list[str] = []
    unready: list[str] = []
    found: list[tuple[int, str, dict[str, Any]]] = []
    for position, item in enumerate(map(mapping, listed)):
        meta, status = mapping(item.get("metadata")), mapping(item.get("status"))
        name = str(meta.get("name", ""))
        pod = item.get("kind", "Pod") == "Pod"
        address = status.get("podIP") if pod else _internal(status)
        if pod and (not address or status.get("phase") != "Running"):
            waiting.append(f"{name} ({status.get('phase', 'no status')})")
            continue
        if not pod and not _is_ready(status, mapping(item.get("spec"))):
            unready.append(name)
        where = _index(mapping(meta.get("labels"))) if pod else None
        gpus = _gpus(item) if pod else mapping(status.get("allocatable")).get(GPU)
        found.append((position if where is None else where, name, {"address": address, "gpus": gpus}))
    labelled = sum(
        _index(mapping(mapping(mapping(i).get("metadata")).get("labels"))) is not None for i in listed
    )
    if labelled and labelled == len(listed) and len({position for position, _, _ in found}) == len(found):
        found.sort(key=lambda one: one[0])
    for _, name, fields in found:
        source.host(name, None, **fields)
    if waiting:
        source.note("left out, as they do not run", waiting)
    if unready:
        source.note("not ready, or cordoned", unready)
    source.note("SSH may not be served there; inside a pod: netdoctor scan --local")


def _internal(status: dict[str, Any]) -> Any:
    """A node's address among its own."""
    known = {a.get("type"): a.get("address") for a in map(mapping, items(status.get("addresses")))}
    return known.get("InternalIP") or known.get("Hostname")


def _is_ready(status: dict[str, Any], spec: dict[str, Any]) -> bool:
    conditions = {c.get("type"): c.get("status") for c in map(mapping, items(status.get("conditions")))}
    return conditions.get("Ready") == "True" and not spec.get("unschedulable")


def _index(labels: dict[str, Any]) -> int | None:
    text = next((str(labels[name]) for name in _INDEX if name in labels), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _gpus(pod: dict[str, Any]) -> int | None:
    """The GPUs of all containers of a pod; None where it asks for none, or in no number."""
    total = 0
    for container in map(mapping, items(mapping(pod.get("spec")).get("containers"))):
        limit = str(mapping(mapping(container.get("resources")).get("limits")).get(GPU, 0))
        total += int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 5 else 0
    return total or None


def read_ours(source: Source) -> None:
    """A saved report, or what `netdoctor hosts convert --to json` wrote.

    Interpreters are not taken: whose file it is cannot be seen in it, and python= decides what runs on nodes.
    """
    document = mapping(read(source))
    schema = str(document.get("schema", ""))
    run = mapping(document.get("run"))
    if run.get("redacted"):
        source.refuse(None, "", "a redacted report names no node that could be logged in to")
        raise Stop
    if schema == HOSTS_SCHEMA:
        listed = items(document.get("hosts"))
    elif schema.startswith("netdoctor.report/"):
        listed = items(mapping(run.get("replay")).get("targets")) or [
            {**mapping(t), "host": mapping(t).get("address") or mapping(t).get("id")}
            for t in items(document.get("targets"))
        ]
    else:
        source.refuse(
            None, "", f"a JSON document with the schema '{schema[:60]}'", "not one with hosts in it"
        )
        raise Stop
    pythons = []
    for item in map(mapping, listed):
        name, host = str(item.get("id", "")), item.get("host")
        fields: dict[str, Any] = {key: item.get(key) for key in ("port", "user", "slots", "gpus")}
        if host is not None and name in (f"{host}:{item.get('port')}", f"[{host}]:{item.get('port')}"):
            name = str(host)  # the port is part of such a name
        before = len(source.entries)
        groups = tuple(str(g) for g in items(item.get("groups")))
        source.host(name, None, address=host, groups=groups, **fields)
        for key, fault_of in (("leaf", leaf_fault), ("rail", rail_fault)):
            if len(source.entries) > before and (value := item.get(key)) is not None:
                if fault := fault_of(str(value)):
                    source.refuse(None, name, fault.message, fault.hint)
                setattr(source.entries[-1], key, str(value))
        if item.get("python"):
            pythons.append(name)
    if pythons:
        source.note("not taken: python=, which decides what runs there; say --python", pythons)
