"""Kubernetes: a headless service and an Indexed Job with one pod a node, each with one torchrun."""

import re
from typing import Any

from netdoctor.launch import shell
from netdoctor.launch.emit_deepspeed import job_env
from netdoctor.launch.model import LaunchPlan, Part, Parts
from netdoctor.launch.shell import comment

# What the API server takes for the name of a service: RFC 1035, and room for the pod's index behind it.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")


def parts(plan: LaunchPlan) -> Parts:
    from yaml import safe_dump_all

    count = plan.even("the pods of a Job are all alike")
    name = plan.options.job.lower()
    name = name if _NAME.fullmatch(name) else "job1"
    lines = shell.opening(plan)
    lines += [comment(f"{n}={v.text}: {v.why}") for n, v in job_env(plan).items()]
    lines += [*shell.left_out(plan), comment(f"{count} per node: {plan.nodes[0].processes.why}")]
    lines.append(comment("interfaces and HCAs are the nodes' own: they hold with hostNetwork alone"))
    lines.append(
        comment("MASTER_ADDR is the pod of index 0, on any node: that the port is free there is guessed")
    )
    lines += shell.of_single_nodes(plan)
    lines.append(comment("nodeAffinity takes names as listed for those of Kubernetes: guessed"))
    if plan.options.image is None:
        lines.append(comment("the image is not known: --image, or write it below `name: train`"))
    found = [_service(name), _job(plan, name, count)]
    return [
        Part(
            name="job.yaml",
            text=shell.text(lines) + safe_dump_all(found, sort_keys=False),
            purpose="kubectl apply -f job.yaml",
        )
    ]


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}},
    }


def _job(plan: LaunchPlan, name: str, count: int) -> dict[str, Any]:
    nodes = len(plan.nodes)
    env = {name: value.text for name, value in job_env(plan).items()}
    # The pod of index 0, whichever node it runs on.
    env |= {"MASTER_ADDR": f"{name}-0.{name}", "MASTER_PORT": plan.env["MASTER_PORT"].text}
    start = (
        f"exec torchrun --nnodes={nodes} --nproc-per-node={count} "
        '--node-rank="$JOB_COMPLETION_INDEX" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"'
    )
    words = [*([] if shell.is_python(plan) else ["--no-python"]), *plan.options.script]
    container: dict[str, Any] = {"name": "train"}
    if plan.options.image is not None:
        container["image"] = plan.options.image
    container |= {
        "command": ["sh", "-c", start, "sh", *map(_literal, words)],
        "env": [{"name": key, "value": _literal(value)} for key, value in env.items()],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  the pod's own
    }
    if all(node.gpus for node in plan.nodes):
        container["resources"] = {"limits": {"nvidia.com/gpu": count}}
    if "NCCL_IB_HCA" in plan.env:
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spread = {"labelSelector": {"matchLabels": {"job-name": name}}, "topologyKey": "kubernetes.io/hostname"}
    affinity: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}
    }
    if plan.options.nodelist:
        listed = [node.id if ":" not in node.id else node.host for node in plan.nodes]
        names = {"key": "kubernetes.io/hostname", "operator": "In", "values": listed}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod = {
        "subdomain": name,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "restartPolicy": "Never",
        "affinity": affinity,
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    spec = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "template": {"spec": pod}},
    }


def _literal(text: str) -> str:
    """As Kubernetes takes it word for word: $(NAME) would be a variable, and $$ is a dollar."""
    return text.replace("$", "$$")
