"""What was not read is never green: any value of a healthy cluster that can turn a cell red is taken away.

Which values a check looks at is found by trying: a value matters to a cell when some other value makes it
warn or fail. The same cell is not a pass when the value is empty, as it is where a node could not read it.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.model import Status
from netdoctor.store import Store, dump, load

from . import build, build_hw
from .test_together import cluster

COUNT = 3
# The node whose values are taken away; the other two are the majority.
NODE = "n3"
TROUBLE = (Status.WARN, Status.FAIL)


def healthy() -> Store:
    store = cluster(COUNT)
    names = build.names(COUNT)
    facts: dict[str, dict[str, Any]] = {
        "env": dict.fromkeys(names, build.env()),
        "gpu": dict(build_hw.all_gpus(COUNT)),
        "rdma": dict(build_hw.rdmas(COUNT)),
        "software": dict(build_hw.softwares(COUNT)),
    }
    for group, values in facts.items():
        for node, value in values.items():
            store.put(group, node, value)
    store.cluster["loss"] = LossMatrix(
        probes=tuple(
            LossProbe(src=a, dst=b, address=build.address(i), sent=250, arrived=250, answered=250)
            for a in names
            for i, b in enumerate(names, 1)
            if a != b
        ),
        seconds=1.25,
    )
    return store


CHECKS = [one for one in ordered(load_builtin().values()) if one.family != "bw"]


def judged(data: dict[str, Any]) -> Judgement:
    return judge(CHECKS, build.names(COUNT), load(data))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every plain value and its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        # Equal entries are alike: the first and the last tell.
        for i in sorted({0, len(value) - 1}) if value else ():
            yield from leaves(value[i], (*path, i))
    elif value is not None:
        yield path, value


def with_value(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def others(value: Any) -> list[Any]:
    """Values that somebody might have read instead."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [type(value)(n) for n in (0, 1, value / 2, value * 2 + 1, 10**6)]
    return [f"{value}x", "0", "1.0", "down"]


def passes(result: Judgement) -> set[tuple[str, str]]:
    return {(c, n) for c, row in result.cells.items() for n, status in row.items() if status is Status.PASS}


def troubles(result: Judgement) -> set[tuple[str, str]]:
    return {(c, n) for c, row in result.cells.items() for n, status in row.items() if status in TROUBLE}


# Empty, and measured all the same.
NOT_UNREAD = {
    ("host.nofile", "limits", "nofile_soft"): "None is no limit",
    ("gpu.driver", "gpu", "kernel_driver"): "NVML says the release as well",
    ("gpu.driver", "gpu", "library_driver"): "the module's release is what is compared",
    ("net.interface", "net", "speed_mbit_s"): "virtual interfaces have none",
    ("net.interface", "net", "carrier"): "operstate says it as well",
    ("ssh.login", "session", "passed_over"): "every address that was tried answered",
    ("nccl.ib-hca", "rdma", "uverbs_ok"): "rdma.hca is unknown then",
    ("nccl.ib-hca", "rdma", "uverbs_there"): "uverbs_ok says it as well",
    ("rdma.hca", "rdma", "uverbs_there"): "uverbs_ok says it as well",
}
DATA = json.loads(json.dumps(dump(healthy())))


def test_the_cluster_is_healthy() -> None:
    statuses = {status for row in judged(DATA).cells.values() for status in row.values()}
    assert statuses == {Status.PASS, Status.SKIP}


@pytest.mark.thorough
@pytest.mark.parametrize("group", sorted(DATA["node"].keys() - {"node", "firewall"}))
def test_a_value_that_matters_is_not_green_when_it_is_empty(group: str) -> None:
    green = passes(judged(DATA))
    mattering, still = 0, set()
    for path, value in leaves(DATA["node"][group][NODE]["value"], ("node", group, NODE, "value")):
        worse = [troubles(judged(with_value(DATA, path, other))) & green for other in others(value)]
        matters = set().union(*worse)
        mattering += bool(matters)
        for empty in (None, "") if isinstance(value, str) else (None,):
            left = matters & passes(judged(with_value(DATA, path, empty))) if matters else set()
            still |= {(check, group, str(path[-1])) for check, _ in left}
    assert mattering or group in ("env", "port_holder", "time"), "no value of it can turn a cell red"
    assert still == {one for one in NOT_UNREAD if one[1] == group}
