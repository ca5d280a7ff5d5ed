"""Whether a gang's pods find nodes, by what kubectl says of them."""

import json
from typing import Any

import pytest

from netdoctor.errors import InputError
from netdoctor.launch.gang import add_gang
from netdoctor.launch.gang_kinds import GangOptions
from tests.launch.gangs import job, job_spec

GPU = "nvidia.com/gpu"
CONTAINER = "- {name: train, image: t:1, resources: {limits: {nvidia.com/gpu: 8, memory: 1Ti}}}\n"


def node(name: str, gpus: Any = 8, ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "190", "memory": "2Ti"} | ({GPU: str(gpus)} if gpus is not None else {})
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | spec.pop("labels", {})},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def pod(host: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}, {"name": "sidecar"}]
    return {"kind": "Pod", "spec": {"nodeName": host, "containers": containers}, "status": {"phase": phase}}


def made(*objects: dict[str, Any], more: str = "") -> str:
    manifest = job(job_spec(containers=CONTAINER, pod_more=more))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return add_gang("job.yaml", manifest, GangOptions(), ("nodes.json", listed.encode()))


def notes(text: str) -> list[str]:
    return [line.removeprefix("# note: ") for line in text.splitlines() if line.startswith("# note: ")]


ALL = [node(f"gpu-{n}") for n in range(8)]
IDLE = pod("gpu-0", 0)


def test_nodes_that_have_all_are_not_spoken_of() -> None:
    control = node("control", None, unschedulable=True)
    control["metadata"]["labels"] = {}
    lines = notes(made(*ALL, control, IDLE))
    assert not [line for line in lines if "gpu-" in line or "control" in line or "nodes.json" in line]


@pytest.mark.parametrize(
    ("seventh", "says"),
    [
        ([node("gpu-7", 7)], "gpu-7 has 7 of 8 nvidia.com/gpu"),
        ([node("gpu-7", unschedulable=True)], "gpu-7 is cordoned"),
        ([node("gpu-7", ready="Unknown")], "gpu-7 is not ready"),
        ([node("gpu-7"), pod("gpu-7", 2)], "gpu-7 has 6 of 8 nvidia.com/gpu free"),
        ([node("gpu-7", None)], "gpu-7 has no nvidia.com/gpu"),
        ([], "no node has them"),
    ],
)
def test_the_node_without_room_is_named(seventh: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(InputError) as caught:
        made(*ALL[:7], *seventh, IDLE)
    head = "nodes.json: Job train: 8 pods of 8 nvidia.com/gpu, and nodes for 7: "
    assert str(caught.value) == head + says
    if seventh:  # where another one stands in for it, it is a note
        assert f"Job train: {says}" in notes(made(*ALL[:7], *seventh, node("gpu-8"), IDLE))


def test_pods_that_are_over_use_nothing_and_two_may_share_a_node() -> None:
    made(*ALL, pod("gpu-3", 8, "Succeeded"), pod("gpu-4", 8, "Failed"))
    made(*(node(f"big-{n}", 16) for n in range(4)), IDLE)


def test_a_selector_leaves_nodes_out() -> None:
    pool = {"labels": {"pool": "train"}}
    some = [node(f"gpu-{n}", **pool) for n in range(8)]
    made(*some, node("other", 4), IDLE, more="nodeSelector: {pool: train}\n")
    with pytest.raises(InputError, match="nodes for 0: no node has them"):
        made(*ALL, IDLE, more="nodeSelector: {pool: train}\n")


def test_what_is_not_known_is_a_note() -> None:
    assert "nodes.json has no pods: what others use is not known" in notes(made(*ALL))
    manifest = job(job_spec(containers="- {name: train, image: t:1}\n"))
    plain = add_gang("j", manifest, GangOptions(), ("n", json.dumps({"items": [node("a")]}).encode()))
    assert any("asks for no devices; room on nodes is not tested" in n for n in notes(plain))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nodes.json: not JSON"),
        (b"[" * 100_000, "nodes.json: not JSON"),
        (b"{}", "no node in it; write it with: kubectl get nodes,pods -A -o json"),
        (b'[{"kind": "Node"}]', "no node in it"),
        (b'{"items": [{"kind": "Node", "metadata": {"name": {}}, "status": []}, 3, null]}', "no node in it"),
    ],
)
def test_what_is_no_list_of_nodes(content: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", "[(]")):
        add_gang("job.yaml", job(job_spec(containers=CONTAINER)), GangOptions(), ("nodes.json", content))
