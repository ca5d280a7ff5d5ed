from typing import Any

import pytest

from netdoctor.checks.gpu.link import gpu_link
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import Finding, Status

from ..build import causes
from ..build_hw import gpu, gpus, no_gpus, process


def judge(*nodes: GpuFacts) -> list[Finding]:
    return list(gpu_link({f"n{i}": facts for i, facts in enumerate(nodes, start=1)}))


def board(count: int = 4, odd: int = -1, **changes: Any) -> GpuFacts:
    """A node with so many GPUs, the one with index `odd` otherwise."""
    devices: tuple[Gpu, ...] = tuple(gpu(i, **(changes if i == odd else {})) for i in range(count))
    return gpus(devices=devices)


def test_healthy() -> None:
    assert judge(board(), board()) == []


@pytest.mark.parametrize(
    ("changes", "key", "status"),
    [
        ({"nvlinks_active": 16}, "gpu-nvlink-down", Status.WARN),
        ({"nvlinks_active": 0}, "gpu-nvlink-down", Status.FAIL),
        ({"pcie_width": 8}, "gpu-pcie-narrow", Status.WARN),
        ({"pcie_generation": 4}, "gpu-pcie-narrow", Status.WARN),
    ],
)
def test_one_gpu_with_less_than_its_peers(changes: dict[str, int], key: str, status: Status) -> None:
    findings = judge(board(), board(odd=2, **changes))
    assert causes(findings) == {key: {"n2"}}
    (finding,) = findings
    assert finding.status is status
    assert "GPU 2" in finding.summary


@pytest.mark.parametrize(
    ("changes", "has"),
    [({}, "PCIe 4 x16"), ({"pcie_width": None}, "PCIe 4 x?")],
)
def test_a_slow_slot_is_told_beside_what_its_peers_have(changes: dict[str, Any], has: str) -> None:
    findings = judge(board(), board(odd=2, pcie_generation=4, **changes))
    (told,) = [f.summary for f in findings if f.status is Status.WARN]
    assert told == f"GPU 2 is on {has}, its peers on PCIe 5 x16"


def test_a_link_that_is_slower_than_its_siblings() -> None:
    slow = board(odd=2, nvlinks_other_mbyte_s=((4, 13281), (9, 26562)))
    (finding,) = judge(board(), slow)
    assert causes([finding]) == {"gpu-nvlink-slow": {"n2"}}
    assert finding.summary == "GPU 2 has NVLink 4 at 13.28 GB/s, its others at 26.56"
    # Bridges of two generations, or a faster one: nobody is slow.
    assert not judge(board(), board(odd=2, nvlinks_other_mbyte_s=((4, 53125),)))
    assert not judge(board(nvlink_mbyte_s=None), board())
    named = judge(board(), board(odd=1, nvlinks_active=16, nvlinks_down=(3, 7)))
    assert "down: 3 and 7" in named[0].evidence[0].output


@pytest.mark.parametrize(
    "changes",
    [
        {"nvlinks_active": 8},
        {"nvlinks": 0, "nvlinks_active": 0},  # switched off for the driver
        {"pcie_width": 8, "pcie_width_most": 8},
        {"pcie_generation": 3},
    ],
)
def test_what_all_of_a_kind_have_is_right(changes: dict[str, int]) -> None:
    devices = tuple(gpu(i, **changes) for i in range(4))
    assert judge(gpus(devices=devices), gpus(devices=devices)) == []


def test_nodes_all_of_whose_boards_say_that_their_links_are_down() -> None:
    def node(**changes: Any) -> GpuFacts:
        return gpus(devices=tuple(gpu(i, nvlinks_active=0, **changes) for i in range(4)))

    findings = judge(node(), node())
    assert [f.status for f in findings] == [Status.WARN, Status.WARN]
    assert causes(findings) == {"gpu-nvlink-none": {"n1", "n2"}}
    # A bridge that nobody bought, MIG, a fabric that is not ready yet, one GPU handed to a guest.
    for excuse in ({"name": "NVIDIA H100 PCIe"}, {"mig_enabled": True}, {"fabric_state": 2}):
        assert causes(judge(node(**excuse))) == {}
    assert causes(judge(gpus(devices=(gpu(0, nvlinks_active=0),)))) == {}


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        pytest.param({"pcie_width": 8}, True, id="wired to sixteen lanes"),
        pytest.param({"pcie_width": 8, "name": "NVIDIA L40S"}, False, id="a slot may have fewer wires"),
        pytest.param({"pcie_width": 1, "name": "NVIDIA GH200 480GB"}, False, id="no PCIe to its processor"),
        pytest.param(
            {"pcie_width": 4, "name": "Tesla V100-SXM2-16GB", "compute_capability": "7.0"}, False, id="POWER9"
        ),
        pytest.param({"pcie_width": 8, "pcie_width_most": None}, False, id="the most is not told"),
        pytest.param({"pcie_generation_now": 1}, False, id="idle"),
        pytest.param({"pcie_generation_now": 1, "throttle_reasons": None}, False, id="perhaps idle"),
        pytest.param({"pcie_generation_now": 1, "throttle_reasons": 0}, False, id="no process on it"),
        pytest.param(
            {"pcie_generation_now": 3, "throttle_reasons": 0, "processes": (process(),)}, True, id="in use"
        ),
    ],
)
def test_a_link_against_what_gpu_and_slot_can_do(changes: dict[str, Any], is_said: bool) -> None:
    """On a node alone, where no peer says what is usual."""
    findings = [f for f in judge(gpus(devices=(gpu(0, **changes),))) if f.status is not Status.SKIP]
    assert [f.cause and f.cause.key for f in findings] == (["gpu-pcie-narrow"] if is_said else [])
    assert all("it and its slot can do PCIe 5 x16" in f.summary for f in findings)


@pytest.mark.parametrize(
    "changes", [{"pcie_width": 8, "pcie_width_most": 8}, {"pcie_generation": 4}, {"nvlinks_active": 12}]
)
def test_a_slot_that_is_narrow_on_every_node_is_how_they_are_built(changes: dict[str, int]) -> None:
    assert judge(*(board(odd=3, **changes) for _ in range(3))) == []
    assert list(causes(judge(board(odd=3, **changes), board(), board())).values()) == [{"n1"}]


def test_bridges_join_some_pcie_boards_only() -> None:
    def node(*up: int) -> GpuFacts:
        return gpus(
            devices=tuple(gpu(i, name="NVIDIA H100 PCIe", nvlinks_active=n) for i, n in enumerate(up))
        )

    assert judge(node(18, 18, 0, 0), node(0, 0, 0, 0)) == []


@pytest.mark.parametrize("changes", [{"nvlinks_active": 0}, {"nvlinks": 0, "nvlinks_active": 0}])
@pytest.mark.parametrize("peers", [1, 3])
def test_a_node_that_lost_every_nvlink(changes: dict[str, int], peers: int) -> None:
    lost = gpus(devices=tuple(gpu(i, **changes) for i in range(4)))
    (finding,) = [f for f in judge(lost, *(board() for _ in range(peers))) if f.status is not Status.SKIP]
    assert (finding.cause and finding.cause.key, finding.target) == ("gpu-nvlink-none", "n1")
    assert finding.status is Status.FAIL
    assert "all 4 GPUs" in finding.summary


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA RTX A6000"])
def test_pcie_boards_have_links_only_where_a_bridge_is(name: str) -> None:
    def node(active: int) -> GpuFacts:
        return gpus(devices=tuple(gpu(i, name=name, nvlinks_active=active) for i in range(2)))

    assert judge(node(0), node(0), node(12)) == []
    assert [f.status for f in judge(node(0), node(12), node(12))] == [Status.WARN]


def test_one_gpu_alone_has_nobody_to_be_linked_with() -> None:
    assert causes(judge(board(count=1, odd=0, nvlinks_active=0), board(), board())) == {}


def test_models_are_not_compared_with_each_other() -> None:
    other = tuple(
        gpu(i, name="NVIDIA L40S", nvlinks=0, nvlinks_active=0, pcie_generation=4) for i in range(4)
    )
    assert judge(board(), gpus(devices=other)) == []


def test_two_gpus_have_no_majority() -> None:
    findings = judge(board(count=1), board(count=1, odd=0, nvlinks_active=4, pcie_width=8, pcie_width_most=8))
    assert [(f.target, f.status) for f in findings] == [("n1", Status.SKIP), ("n2", Status.SKIP)]


def test_a_node_that_reports_nothing_is_not_green() -> None:
    bare = tuple(Gpu(index=i, name=gpu().name) for i in range(4))
    assert [(f.target, f.status) for f in judge(board(), gpus(devices=bare))] == [("n2", Status.SKIP)]


def test_halves_that_do_not_agree_are_not_green() -> None:
    narrow = {"pcie_width": 8, "pcie_width_most": 8, "nvlinks_active": 12}
    findings = judge(board(), gpus(devices=tuple(gpu(i, **narrow) for i in range(4))))
    assert [(f.target, f.status) for f in findings] == [("n1", Status.SKIP), ("n2", Status.SKIP)]


def test_a_gpu_with_an_error_is_somebody_elses_matter() -> None:
    assert judge(board(), board(odd=1, error="GPU is lost", nvlinks_active=0)) == []


def test_skips() -> None:
    assert [f.status for f in judge(no_gpus(), no_gpus())] == [Status.SKIP, Status.SKIP]
    mixed = judge(board(), no_gpus())
    assert [(f.target, f.status) for f in mixed] == [("n2", Status.SKIP)]
    silent = board(count=4)
    bare = tuple(Gpu(index=d.index, name=d.name) for d in silent.devices)
    assert [f.status for f in judge(gpus(devices=bare))] == [Status.SKIP]


@pytest.mark.parametrize(
    "changes", [{"nvlinks_active": None}, {"pcie_width": None}, {"pcie_generation": None}, {"name": ""}]
)
def test_one_silent_gpu_among_reporting_ones_is_not_green(changes: dict[str, Any]) -> None:
    (finding,) = judge(board(), board(odd=2, **changes))
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)
    assert "GPU 2" in finding.summary


def test_a_driver_that_was_told_to_leave_nvlink_alone() -> None:
    """Seen on virtual machines with one board, where it is right."""

    def node(count: int, links: int, off: bool) -> GpuFacts:
        boards = [gpu(i, nvlinks=links, nvlinks_active=links, nvlinks_down=()) for i in range(count)]
        return gpus(count, devices=tuple(boards), nvlink_disabled=off)

    eight = {"n1": node(8, 18, off=False), "n2": node(8, 18, off=False), "n3": node(8, 0, off=True)}
    assert causes(list(gpu_link(eight))) == {"gpu-nvlink-off": {"n3"}}
    assert causes(list(gpu_link({"n1": node(1, 0, off=True)}))) == {}
