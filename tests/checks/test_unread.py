"""What was not read is never green: any value of a healthy cluster that can turn a cell red is taken away,
and so is all that an answer may leave out.

Which values a check looks at is found by trying: a value matters to a cell when some other value makes it
warn or fail. The same cell is not a pass when the value is empty, as it is where a node could not read it.
"""

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from netdoctor.check import DERIVED_FACTS, Check
from netdoctor.engine.gathering import Answers
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.bandwidth import (
    AllReduce,
    LossMatrix,
    LossProbe,
    NcclTaken,
    PairRate,
    PairRates,
    RdmaRates,
    Session,
    TcpRate,
    TcpRates,
)
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.counters import LaterCounters
from netdoctor.model import Status
from netdoctor.store import Store, decode, dump, group_type, load
from netdoctor.transport.base import Reply

from . import build, build_hw, build_ray
from .bw.test_bandwidth import row
from .rdma.test_gid import roce
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
        "counters": dict.fromkeys(names, build_hw.counters()),
        "counters_later": dict.fromkeys(names, LaterCounters(reading=build_hw.counters(5060.0, 10**6))),
        "kernel_log": dict.fromkeys(names, build_hw.kernel_log()),
        "gpu_work": dict.fromkeys(names, build_hw.gpu_work()),
        "imports": dict.fromkeys(names, build_hw.imports()),
        "python_start": dict.fromkeys(names, build_hw.python_start()),
        "software": dict(build_hw.softwares(COUNT)),
        "ray": dict(build_ray.rays(COUNT)),
        "places": dict.fromkeys(names, build.places(build.place())),
    }
    for group, values in facts.items():
        for node, value in values.items():
            store.put(group, node, value)
    store.cluster["job"] = build.job(COUNT, paths=("/srv/train.py",))
    store.cluster["ray_ports"] = build_ray.ray_ports(COUNT)
    store.cluster["loss"] = LossMatrix(
        probes=tuple(
            LossProbe(src=a, dst=b, address=build.address(i), sent=250, arrived=250, answered=250)
            for a in names
            for i, b in enumerate(names, 1)
            if a != b
        ),
        seconds=1.25,
    )
    pairs = [(r, a, b) for r in range(3) for a in names for b in names if a != b]
    session = Session(backend="nccl", ranks=tuple(names), port=build.RDZV)
    store.cluster["allreduce"] = AllReduce(
        session=session,
        rows=(row(build.GIB, 40.0),),
        expected_busbw_gbyte_s=42.0,
        floor_busbw_gbyte_s=36.0,
        bound_busbw_gbyte_s=50.0,
        limited_by="mlx5_0",
        taken=dict.fromkeys(names, NcclTaken(networks=("IB",))),
    )
    store.cluster["tcp_rates"] = TcpRates(
        rates=tuple(TcpRate(src=a, dst=b, round=r, gbyte_s=1.0, seconds=1.0) for r, a, b in pairs),
        nodes=tuple(names),
        rounds=3,
        planned=3,
    )
    store.cluster["rdma_rates"] = RdmaRates(
        rates=tuple(PairRate(src=a, dst=b, round=r, gbyte_s=48.0, rail="mlx5_0:1") for r, a, b in pairs),
        nodes=tuple(names),
        rounds=3,
        planned=3,
    )
    store.cluster["pair_rates"] = PairRates(
        session=session,
        rates=tuple(PairRate(src=a, dst=b, round=r, gbyte_s=40.0) for r, a, b in pairs),
        rounds=3,
        planned=3,
    )
    return store


def on_ethernet() -> Store:
    """With RoCE instead of InfiniBand."""
    store = healthy()
    for i, node in enumerate(build.names(COUNT), 1):
        store.put("rdma", node, roce(i))
    return store


CHECKS = ordered(load_builtin().values())
# Those that look at what nodes measured together, or at HCAs.
BETWEEN = [one for one in CHECKS if one.family in ("net", "rdzv", "bw", "ray")]
OF_HCAS = [one for one in CHECKS if one.family == "rdma" or one.id == "nccl.ib-hca"]


def judged(data: dict[str, Any], checks: Sequence[Check] = CHECKS) -> Judgement:
    return judge(checks, build.names(COUNT), load(data))


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
    return [f"{value}x", "0", "1.0", "down", "filtered", "black_hole"]


def passes(result: Judgement) -> set[tuple[str, str]]:
    return {(c, n) for c, row in result.cells.items() for n, status in row.items() if status is Status.PASS}


def troubles(result: Judgement) -> set[tuple[str, str]]:
    return {(c, n) for c, row in result.cells.items() for n, status in row.items() if status in TROUBLE}


# Empty, and measured all the same.
NOT_UNREAD = {
    ("host.nofile", "limits", "nofile_soft"): "None is no limit",
    ("host.cgroup", "tuning", "cpus_allowed"): "a system without affinity lets a session use them all",
    ("gpu.driver", "gpu", "kernel_driver"): "NVML says the release as well",
    ("gpu.driver", "gpu", "library_driver"): "the module's release is what is compared",
    ("gpu.ecc", "gpu", "remap_pending"): "boards before Ampere have no rows to remap",
    ("gpu.ecc", "gpu", "remap_failed"): "boards before Ampere have no rows to remap",
    ("gpu.ecc", "gpu", "banks_without_spare"): "boards before Ampere have no rows to remap",
    ("gpu.ecc", "gpu", "sram_exceeded"): "boards before Ampere do not tell; the pass says who may ask",
    ("gpu.link", "gpu", "pcie_width_most"): "what most boards have is expected then",
    ("gpu.link-errors", "gpu", "nvlink_recoveries"): "a board without NVLinks has none to count",
    ("gpu.link-errors", "gpu", "pcie_replays"): "a guest's board may count those of NVLinks alone",
    ("gpu.throttle", "gpu", "margin_c"): "boards before Ada tell a temperature; the reasons say it as well",
    ("gpu.throttle", "gpu", "operating_margin_c"): "the margin at which it slows down is another limit",
    ("gpu.throttle", "gpu", "slowdown_margin_c"): "the margin to operate at is another limit",
    ("slurm.node", "session", "detail"): "a task that answers needs no words",
    ("gpu.parity", "gpu", "power_limit_w"): "NVML says it together with the default, or neither",
    ("gpu.parity", "gpu", "power_default_w"): "NVML says it together with the limit, or neither",
    ("gpu.fabric", "gpu", "fabric_status"): "NVML says it together with the state",
    ("net.interface", "net", "speed_mbit_s"): "virtual interfaces have none",
    ("net.interface", "net", "carrier"): "operstate says it as well",
    ("ssh.login", "session", "passed_over"): "every address that was tried answered",
    ("nccl.ib-hca", "rdma", "uverbs_ok"): "rdma.hca is unknown then",
    ("nccl.ib-hca", "rdma", "uverbs_there"): "uverbs_ok says it as well",
    ("rdma.hca", "rdma", "uverbs_there"): "uverbs_ok says it as well",
    ("sw.import", "imports", "error"): "without one it went well",
    ("ray.version", "ray", "commit"): "a build of one's own has none, and says its version",
    ("ray.resources", "ray", "gpus"): "Ray hands out none then",
    ("bw.allreduce", "allreduce", "floor_busbw_gbyte_s"): "the pass says why nothing is expected",
    ("bw.tcp", "tcp_rates", "gbyte_s"): "nothing arrived in one round of three, as the localiser judges it",
}
DATA = json.loads(json.dumps(dump(healthy())))
ROCE = json.loads(json.dumps(dump(on_ethernet())))
# Facts of which no value is emptied here.
NOT_HERE = {
    "node": "from the hosts file, and read as a whole",
    "job": "from the caller, and read as a whole",
    "wanted": "from the caller, and read as a whole",
    "baseline": "from a saved report; what it does not hold is not compared",
    "paths": "worked out here from other facts",
    "collectives": "of a full scan: tests/checks/bw/test_collectives.py",
    "groups": "asked for by name: tests/checks/bw/test_groups.py",
    "ladder": "of a full scan: tests/checks/bw/test_ladder.py",
    "bmc": "of a full scan: tests/checks/host/test_bmc.py",
    "health": "what a machine does not count is no finding: tests/checks/host/test_health.py",
    "net_setup": "where nothing sets interfaces up, nothing is judged: tests/checks/net/test_after_reboot.py",
    "cabling": "which switch a port is on nobody need say: tests/checks/rdma/test_rail_switch.py",
    "gpu_bits": "of a full scan: tests/checks/gpu/test_bits.py",
    "accelerators": "GPUs of AMD, which this cluster has not",
    "firewall": "looked at where something was filtered",
    "mesh": "asked for by name; an exit status that is not there is a login that failed",
    "launch": "asked for by name, with --launcher or --image",
    "reach": "asked for by name; a status that is not there is no answer",
    "job_shells": "asked for by name; an error is unknown or a failure",
    "shell_env": "asked for by name; an error is unknown",
    "sharing": "asked for by name; who says nothing of a folder is in failed_nodes",
    "storage": "asked for by name; who says nothing of the path is in failed_nodes",
    "nccl_answer": "without it the prediction counts",
}
# Facts without a value that alone turns a cell red.
HARMLESS = ("env", "port_holder", "time")


@pytest.mark.parametrize("data", [DATA, ROCE])
def test_the_cluster_is_healthy(data: dict[str, Any]) -> None:
    statuses = {status for row in judged(data).cells.values() for status in row.values()}
    assert statuses == {Status.PASS, Status.SKIP}


def test_every_fact_is_among_them() -> None:
    needed = {need for check in load_builtin().values() for need in check.needs}
    every = {need.info.group for need in needed if need.fact not in DERIVED_FACTS}
    assert {*DATA["node"], *DATA["cluster"], *NOT_HERE} >= every


def leaks(checks: Sequence[Check], data: dict[str, Any], *where: str) -> set[tuple[str, str, str]]:
    """(check, fact, value) that stays green with the value empty, of a fact of which some value matters."""
    # Others do not see it, and can but wait for those that do.
    checks = [one for one in checks if any(need.info.group == where[1] for need in one.needs)]
    green = passes(judged(data, checks))
    fact: Any = data
    for key in where:
        fact = fact[key]
    mattering, still = 0, set()
    for path, value in leaves(fact["value"], (*where, "value")):
        worse = [troubles(judged(with_value(data, path, other), checks)) & green for other in others(value)]
        matters = set().union(*worse)
        mattering += bool(matters)
        for empty in (None, "") if isinstance(value, str) else (None,):
            left = matters & passes(judged(with_value(data, path, empty), checks)) if matters else set()
            still |= {(check, where[1], str(path[-1])) for check, _ in left}
    assert mattering or where[1] in HARMLESS, "no value of it can turn a cell red"
    return still


@pytest.mark.thorough
@pytest.mark.parametrize("group", sorted(DATA["node"].keys() - NOT_HERE.keys()))
def test_a_value_that_matters_is_not_green_when_it_is_empty(group: str) -> None:
    assert leaks(CHECKS, DATA, "node", group, NODE) == {one for one in NOT_UNREAD if one[1] == group}


@pytest.mark.thorough
def test_nor_is_one_of_hcas_on_ethernet() -> None:
    assert leaks(OF_HCAS, ROCE, "node", "rdma", NODE) <= NOT_UNREAD.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("group", sorted(DATA["cluster"].keys() - NOT_HERE.keys()))
def test_nor_is_one_that_nodes_measured_together(group: str) -> None:
    assert leaks(BETWEEN, DATA, "cluster", group) == {one for one in NOT_UNREAD if one[1] == group}


# What an answer without a single value may say of a real machine, and is green for: by group of facts the
# checks that pass, and why.
SAYS_NOTHING = {
    "time": ({"time.skew"}, "the clocks were measured; what daemons say is for time.sync, which is unknown"),
    "rdma": (
        {"slurm.limits", "net.errors", "gpu.affinity", "bw.allreduce", "rdma.parity", "bw.rdma"},
        "a machine without HCAs says just this, and no such one has to be like the others",
    ),
}


def hollow(hint: Any) -> Any:
    """Plain data of a type in which nothing is said that may be left out."""
    if dataclasses.is_dataclass(hint):
        return {
            field.name: hollow(typing.get_type_hints(hint)[field.name])
            for field in dataclasses.fields(hint)
            if field.default is field.default_factory is dataclasses.MISSING
        }
    made, arms = typing.get_origin(hint), typing.get_args(hint)
    if made in (typing.Union, types.UnionType):
        return None if type(None) in arms else hollow(arms[0])
    if made is tuple:
        return [] if arms[1:] == (...,) else [hollow(one) for one in arms]
    return {} if made is not None else hint()


@pytest.mark.parametrize("nodes", [[NODE], build.names(COUNT)], ids=["one node", "all nodes"])
@pytest.mark.parametrize(
    "group", sorted(info.group for info in FACT_TYPES.values() if info.origin == "agent" and not info.absent)
)
def test_an_answer_that_says_nothing_is_never_green(group: str, nodes: list[str]) -> None:
    data = copy.deepcopy(DATA)
    said = {"value": hollow(group_type(group))}
    data["node"].setdefault(group, {}).update(dict.fromkeys(nodes, said))
    result = judged(data)
    looking = {c.id for c in CHECKS if any(p.info.group == group and not p.optional for p in c.needs)}
    cells = {check: result.cells[check].get(NODE) for check in looking}
    exempt, _ = SAYS_NOTHING.get(group, (set(), ""))
    assert {check for check, status in cells.items() if status is Status.PASS} <= exempt
    assert isinstance(decode(group, said), Missing) or exempt
    if not exempt:
        assert set(cells.values()) <= {Status.UNKNOWN, Status.SKIP, Status.BLOCKED}
        assert Status.UNKNOWN in cells.values() or Status.BLOCKED in cells.values()


@pytest.mark.parametrize("raw", [False, True], ids=["plain", "as it came"])
def test_what_an_answer_lacks_is_said(raw: bool) -> None:
    answer: Any = {"value": {"uptime_s": 0, "ports": [], "netdevs": []}}
    if raw:
        answer = msgspec.Raw(json.dumps(answer).encode())
    said = decode("counters", answer)
    text = "counters: the answer does not say for how long it has been up"
    assert said == Missing(Why.UNPARSABLE, text)


def test_nobody_denies_what_was_named() -> None:
    said = {"launch": {"missing": {"why": "not_applicable", "detail": "no launcher was named"}}}
    for launcher, why in ((None, Why.NOT_APPLICABLE), ("pdsh", Why.NOT_EXAMINED)):
        found = Store()
        answers = Answers(found, {"launch": {"launcher": launcher, "image": None}})
        answers.add(Reply(node=NODE, result=said))
        answers.read()
        assert found.get("launch", NODE).why is why
