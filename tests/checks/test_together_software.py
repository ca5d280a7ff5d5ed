"""The software and RDMA checks over one cluster, grouped as in a scan."""

import time
from dataclasses import replace
from typing import Any

import pytest

from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, SoftwareFacts
from netdoctor.model import Status
from netdoctor.store import Store

from . import build
from .build_hw import all_gpus, hca, nccl, rdma, roce_gids, roce_port, torch
from .build_hw import software as one_software

OLD = one_software(
    torch=torch(version="2.4.0+cu118", cuda="11.8"),
    nccl=(nccl("2.20.5"),),
    packages={"torch": "2.4.0+cu118", "nvidia-nccl-cu12": None},
)
USUAL = one_software(packages={"torch": "2.6.0+cu124", "nvidia-nccl-cu12": "2.21.5"})


def roce(i: int, **changes: Any) -> RdmaFacts:
    return rdma(*(hca(name, ports=(roce_port(name, i, **changes),)) for name in ("mlx5_0", "mlx5_1")))


def healthy() -> Store:
    store = Store()
    facts: dict[str, dict[str, Any]] = {
        "node": dict(build.nodes(4)),
        "session": {build.name(i): build.session(i) for i in range(1, 5)},
        "host": dict(build.hosts(4)),
        "limits": dict.fromkeys(build.names(4), build.limits()),
        "net": dict(build.nets(4)),
        "software": dict.fromkeys(build.names(4), USUAL),
        "gpu": dict(all_gpus(4)),
        "rdma": {build.name(i): roce(i) for i in range(1, 5)},
        "env": dict.fromkeys(build.names(4), EnvFacts()),
    }
    for group, values in facts.items():
        for node, value in values.items():
            store.put(group, node, value)
    store.cluster["job"] = build.job(4, packages=("torch", "nvidia-nccl-cu12"))
    return store


def judged(store: Store) -> Judgement:
    checks = [one for one in ordered(load_builtin().values()) if one.family in ("ssh", "sw", "rdma")]
    judgement = judge(checks, build.names(4), store)
    assert judgement.tracebacks == []
    return judgement


def causes(software: dict[str, SoftwareFacts], hcas: dict[str, RdmaFacts]) -> dict[str, set[str]]:
    store = healthy()
    for group, values in (("software", software), ("rdma", hcas)):
        for node, value in values.items():
            store.put(group, node, value)
    return {group.key: set(group.culprits) for group in diagnose(judged(store))}


def test_a_healthy_cluster_is_silent() -> None:
    assert causes({}, {}) == {}


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_one_torch_that_differs_is_one_cause(node: str) -> None:
    assert causes({node: OLD}, {}) == {"torch-version": {node}}


def test_what_does_not_follow_from_torch_stays() -> None:
    bad = roce(3, gids=roce_gids(3)[:2])
    assert causes({"n3": OLD}, {"n3": bad}) == {"torch-version": {"n3"}, "gid-no-ipv4": {"n3"}}


def emptied(value: Any, path: list[str]) -> Any:
    """`value` with what `path` leads to gone: None, or as empty as its kind can be."""
    if not path:
        return type(value)() if isinstance(value, str | tuple) else None
    name, *rest = path
    if isinstance(value, tuple):
        return tuple(emptied(one, rest) if i == int(name) else one for i, one in enumerate(value))
    if isinstance(value, dict):
        return {**value, name: emptied(value[name], rest)}
    return replace(value, **{name: emptied(getattr(value, name), rest)})


@pytest.mark.parametrize(
    ("check", "group", "path"),
    [
        ("sw.python", "software", "version"),
        ("sw.python", "software", "implementation"),
        ("sw.torch", "software", "torch"),
        ("sw.torch", "software", "torch/version"),
        ("sw.torch", "software", "torch/cuda"),
        ("sw.nccl", "software", "nccl"),
        ("sw.nccl", "software", "nccl/0/version"),
        ("sw.parity", "software", "packages/torch"),
        ("sw.cuda", "gpu", "cuda_driver"),
        ("rdma.hca", "rdma", "hcas"),
        ("rdma.hca", "rdma", "libibverbs"),
        ("rdma.hca", "rdma", "hcas/1/fw_version"),
        ("rdma.hca", "rdma", "hcas/1/board_id"),
        ("rdma.hca", "rdma", "hcas/1/uverbs_ok"),
        *(
            (check, "rdma", f"hcas/1/{path}")
            for check in ("rdma.port", "rdma.rate", "rdma.gid")
            for path in ("ports", "ports/0/state", "ports/0/link_layer")
        ),
        ("rdma.rate", "rdma", "hcas/1/ports/0/rate_gbit_s"),
        ("rdma.gid", "rdma", "hcas/1/ports/0/gids"),
        ("rdma.gid", "rdma", "hcas/1/ports/0/gids/3/type"),
    ],
)
def test_no_cell_is_green_without_one_value_that_it_stands_for(check: str, group: str, path: str) -> None:
    store = healthy()
    assert judged(store).cells[check]["n2"] is Status.PASS
    store.put(group, "n2", emptied(store.get(group, "n2"), path.split("/")))
    cells = judged(store).cells[check]
    assert cells.pop("n2") not in (Status.PASS, Status.WARN)
    assert set(cells.values()) == {Status.PASS}


@pytest.mark.thorough
def test_a_tie_of_thousands_of_nodes_is_judged_and_explained_in_time() -> None:
    nodes = [build.name(i) for i in range(1, 3001)]
    store = Store()
    for i, node in enumerate(nodes):
        store.put("software", node, OLD if i % 2 else USUAL)
    sw_torch = load_builtin()["sw.torch"]
    started = time.perf_counter()
    (group,) = diagnose(judge([replace(sw_torch, after=())], nodes, store))
    assert len(group.culprits) == len(nodes)
    assert time.perf_counter() - started < 8  # a quarter of a second; half a minute where it grows by squares
