"""The software and RDMA checks over one cluster, grouped as in a scan."""

from typing import Any

import pytest

from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, SoftwareFacts
from netdoctor.store import Store

from . import build
from .build_hw import all_gpus, hca, nccl, rdma, roce_gids, roce_port, softwares, torch
from .build_hw import software as one_software

OLD = one_software(
    torch=torch(version="2.4.0+cu118", cuda="11.8"),
    nccl=(nccl("2.20.5"),),
    packages={"torch": "2.4.0+cu118", "nvidia-nccl-cu12": None},
)
USUAL = one_software(packages={"torch": "2.6.0+cu124", "nvidia-nccl-cu12": "2.21.5"})


def roce(i: int, **changes: Any) -> RdmaFacts:
    return rdma(hca("mlx5_0", ports=(roce_port(i=i, **changes),)))


def causes(software: dict[str, SoftwareFacts], hcas: dict[str, RdmaFacts]) -> dict[str, set[str]]:
    store = Store()
    facts: dict[str, dict[str, Any]] = {
        "node": dict(build.nodes(4)),
        "session": {build.name(i): build.session(i) for i in range(1, 5)},
        "host": dict(build.hosts(4)),
        "limits": dict.fromkeys(build.names(4), build.limits()),
        "net": dict(build.nets(4)),
        "software": dict(softwares(4, **dict.fromkeys(build.names(4), USUAL) | software)),
        "gpu": dict(all_gpus(4)),
        "rdma": {build.name(i): roce(i) for i in range(1, 5)} | hcas,
        "env": dict.fromkeys(build.names(4), EnvFacts()),
    }
    for group, values in facts.items():
        for node, value in values.items():
            store.put(group, node, value)
    store.cluster["job"] = build.job(4, packages=("torch", "nvidia-nccl-cu12"))
    checks = [one for one in ordered(load_builtin().values()) if one.family in ("ssh", "sw", "rdma")]
    judgement = judge(checks, build.names(4), store)
    assert judgement.tracebacks == []
    return {group.key: set(group.culprits) for group in diagnose(judgement)}


def test_a_healthy_cluster_is_silent() -> None:
    assert causes({}, {}) == {}


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_one_torch_that_differs_is_one_cause(node: str) -> None:
    assert causes({node: OLD}, {}) == {"torch-version": {node}}


def test_what_does_not_follow_from_torch_stays() -> None:
    bad = roce(3, gids=roce_gids(3)[:2])
    assert causes({"n3": OLD}, {"n3": bad}) == {"torch-version": {"n3"}, "gid-no-ipv4": {"n3"}}
