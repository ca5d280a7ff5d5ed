"""Expectations against published measurements, thresholds of the field, and their own physical bounds."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor.facts.expected_rate import ExpectedRate, NoExpectedRate
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.measure.expectation import Hardware, all_reduce, hardware, pair

H100, H200, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200"
A100, V100 = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB"


def hcas(count: int, rate_gbit_s: float, *, state: str = "ACTIVE", name: str = "mlx5_") -> tuple[Hca, ...]:
    return tuple(
        Hca(
            name=f"{name}{i}",
            ports=(
                HcaPort(
                    name=f"{name}{i}:1",
                    number=1,
                    state=state,
                    phys_state="LinkUp",
                    link_layer="InfiniBand",
                    rate_gbit_s=rate_gbit_s,
                ),
            ),
        )
        for i in range(count)
    )


def gpus(model: str, count: int = 8) -> GpuFacts:
    return GpuFacts(nvml="ok", devices=tuple(Gpu(index=i, name=model) for i in range(count)))


def node(model: str, nics: int, rate: float, *, held: int = 8, used: int | None = None) -> Hardware:
    return hardware(
        gpu=gpus(model, held), rdma=RdmaFacts(hcas=hcas(nics, rate)), gpus=held if used is None else used
    )


def netdev(speed_mbit_s: int | None, kind: str = "physical") -> NetFacts:
    dev = Netdev(
        name="eth0",
        ifindex=2,
        up=True,
        running=True,
        loopback=False,
        mtu=1500,
        speed_mbit_s=speed_mbit_s,
        kind=kind,
    )
    return NetFacts(netdevs=(dev,), addresses=())


def host(cores: int = 8, *, shares_machine: bool = False) -> HostFacts:
    return HostFacts(
        hostname="n",
        fqdn="n",
        os_name="Linux",
        kernel="6",
        arch="x86_64",
        user="root",
        uid=0,
        cpu_count=cores,
        memory_total_bytes=1,
        memory_available_bytes=1,
        shares_machine=shares_machine,
    )


def cluster(one: Hardware, count: int) -> Mapping[str, Hardware]:
    return {f"n{i}": one for i in range(count)}


def expected(found: ExpectedRate | NoExpectedRate) -> ExpectedRate:
    assert isinstance(found, ExpectedRate), found
    return found


# (nodes, GPU, NICs, Gbit/s each, GB/s measured on healthy machines, where)
MEASURED = [
    (1, H100, 8, 400, 480, "nccl-tests #212, Voltage Park"),
    (1, H200, 8, 400, 475, "nccl-tests #272"),
    (1, H200, 8, 400, 480, "ml-engineering, NVLS"),
    (1, B200, 8, 400, 839, "ml-engineering, 8 GiB"),
    (1, A100, 16, 100, 230, "nccl-tests #175"),
    (1, A100, 16, 100, 235, "superbench-results"),
    (2, H100, 8, 400, 368, "nccl-tests #290, low end"),
    (2, H100, 8, 400, 384, "nccl-tests #290, high end"),
    (4, H100, 8, 400, 330.9, "Voltage Park"),
    (8, H100, 8, 400, 385, "coreweave/nccl-tests"),
    (4, B200, 8, 400, 380, "ml-engineering"),
]


@pytest.mark.parametrize(("nodes", "model", "nics", "rate", "measured", "where"), MEASURED)
def test_healthy_measurements_lie_between_floor_and_bound(
    nodes: int, model: str, nics: int, rate: float, measured: float, where: str
) -> None:
    found = expected(all_reduce(cluster(node(model, nics, rate), nodes)))
    assert found.floor_gbyte_s <= measured <= found.bound_gbyte_s, where
    # and the expectation is near what was measured, not merely below it
    assert 0.78 <= found.expected_gbyte_s / measured <= 1.09, where


# Floors that others ship for two nodes; the bound says which of them no machine can reach.
@pytest.mark.parametrize(
    ("model", "nics", "rate", "threshold", "reachable"),
    [
        pytest.param(A100, 16, 100, 185, True, id="OCI A100"),
        pytest.param(H100, 8, 400, 440, True, id="OCI H100"),
        pytest.param(H100, 4, 200, 60, True, id="CHS a3-high"),
        pytest.param(H100, 8, 200, 150, True, id="CHS a3-mega"),
        pytest.param(H200, 8, 400, 250, True, id="CHS a3-ultra"),
        pytest.param(H100, 8, 400, 800, False, id="AWS p5"),
        pytest.param(A100, 4, 100, 300, False, id="AWS p4d"),
        pytest.param(B200, 8, 400, 900, False, id="AWS p6-b200"),
    ],
)
def test_shipped_thresholds_of_two_nodes_are_sorted_by_the_bound(
    model: str, nics: int, rate: float, threshold: float, reachable: bool
) -> None:
    found = expected(all_reduce(cluster(node(model, nics, rate), 2)))
    assert (threshold <= found.bound_gbyte_s) is reachable


@pytest.mark.parametrize(
    ("model", "threshold"),
    [(H100, 460), (H200, 431), (A100, 228), (V100, 110)],
)
def test_azure_thresholds_of_one_node_lie_near_the_expectation(model: str, threshold: float) -> None:
    found = expected(all_reduce(cluster(node(model, 8, 400), 1)))
    assert found.floor_gbyte_s <= threshold <= found.bound_gbyte_s
    assert found.expected_gbyte_s == pytest.approx(threshold, rel=0.15)


@pytest.mark.parametrize(("rate", "measured"), [(100, 11), (100, 12), (200, 24), (400, 46), (400, 48)])
def test_one_gpu_and_nic_per_node_gives_what_maintainers_quote(rate: float, measured: float) -> None:
    one = node(H100, 1, rate, held=1)
    found = expected(pair(one, one))
    assert found.expected_gbyte_s == pytest.approx(measured, rel=0.1)
    assert measured <= found.bound_gbyte_s
    assert found == expected(all_reduce(cluster(one, 2)))


@pytest.mark.parametrize(("speed", "measured"), [(10_000, 1.1), (25_000, 2.8), (200, 0.0233), (50, 0.0058)])
def test_sockets_give_what_was_measured(speed: int, measured: float) -> None:
    one = hardware(net=netdev(speed), host=host(), ifname="eth0")
    found = expected(pair(one, one))
    assert found.expected_gbyte_s == pytest.approx(measured, rel=0.12)
    assert found.floor_gbyte_s <= measured <= found.bound_gbyte_s


def test_a_fast_link_is_limited_by_the_thread_that_feeds_it() -> None:
    one = hardware(net=netdev(100_000), host=host(), ifname="eth0")
    found = expected(pair(one, one))
    assert found.expected_gbyte_s == 2.5
    assert "thread" in found.limit.name
    assert not found.limit.physical
    assert found.bound_gbyte_s == 12.5


def test_the_slower_end_of_a_pair_decides() -> None:
    found = expected(pair(node(H100, 8, 400), node(H100, 8, 200)))
    assert found.expected_gbyte_s == pytest.approx(0.9 * 200)
    assert "200 Gbit/s" in found.limit.name


def test_the_limit_is_named() -> None:
    old = node(A100, 8, 400)  # NDR NICs behind PCIe 4
    assert "PCIe" in expected(pair(old, old)).limit.name
    assert "HCA ports" in expected(pair(node(H100, 8, 400), node(H100, 8, 400))).limit.name


def test_few_gpus_use_their_own_rails_only() -> None:
    half = node(H100, 8, 400, used=4)
    assert expected(pair(half, half)).bound_gbyte_s == 200.0


def test_a_rail_is_judged_by_its_own_nic() -> None:
    one = node(H100, 8, 400)
    assert expected(pair(one, one, "mlx5_3")).expected_gbyte_s == pytest.approx(45.0)
    assert isinstance(pair(one, one, "mlx5_9"), NoExpectedRate)


def test_the_job_s_own_hcas_count_and_a_slower_one_for_storage_does_not() -> None:
    storage = hcas(1, 100, name="mlx5_bond_")
    facts = RdmaFacts(hcas=hcas(8, 400) + storage + hcas(1, 400, state="DOWN", name="mlx5_x"))
    every = hardware(gpu=gpus(H100), rdma=facts, gpus=8)
    assert len(every.rails) == 8
    some = hardware(gpu=gpus(H100), rdma=facts, gpus=8, hcas=["mlx5_0", "mlx5_1:1"])
    assert set(some.rails) == {"mlx5_0", "mlx5_1"}


@pytest.mark.parametrize(
    ("one", "word"),
    [
        pytest.param(hardware(), "not known", id="nothing"),
        pytest.param(hardware(net=netdev(None), ifname="eth0"), "does not say", id="virtio"),
        pytest.param(hardware(net=netdev(-1), ifname="eth0"), "does not say", id="unknown speed"),
        pytest.param(hardware(net=netdev(10_000, "veth"), ifname="eth0"), "veth", id="veth"),
        pytest.param(hardware(net=netdev(1000), ifname="eth1"), "no interface eth1", id="other name"),
        pytest.param(
            hardware(net=netdev(1000), host=host(shares_machine=True), ifname="eth0"),
            "share one machine",
            id="lab",
        ),
        pytest.param(
            hardware(rdma=RdmaFacts(hcas=hcas(1, 100, name="rxe")), gpu=gpus(H100), gpus=8),
            "not known",
            id="soft RoCE",
        ),
    ],
)
def test_what_is_not_known_is_not_judged(one: Hardware, word: str) -> None:
    for found in (pair(one, one), all_reduce(cluster(one, 3))):
        assert isinstance(found, NoExpectedRate)
        assert word in found.reason


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(node("NVIDIA L40S", 4, 400), id="no NVLink"),
        pytest.param(node("NVIDIA H100 PCIe", 4, 400), id="bridges or not"),
        pytest.param(node("NVIDIA H200 NVL", 4, 400), id="bridges of some"),
        pytest.param(node("NVIDIA GB200", 4, 400), id="a rack of them"),
        pytest.param(node(A100, 4, 200, held=4, used=2), id="two of a mesh of four"),
    ],
)
def test_gpus_joined_in_an_unknown_way_are_not_judged(one: Hardware) -> None:
    assert isinstance(all_reduce(cluster(one, 1)), NoExpectedRate)
    assert isinstance(all_reduce(cluster(one, 2)), NoExpectedRate)


def test_no_node_is_no_expectation() -> None:
    assert isinstance(all_reduce({}), NoExpectedRate)


@given(
    model=st.sampled_from([A100, H100, H200, B200, V100, "NVIDIA L40S", ""]),
    held=st.integers(0, 16),
    used=st.none() | st.integers(1, 16),
    nics=st.integers(0, 18),
    rate=st.sampled_from([10.0, 25.0, 56.0, 100.0, 200.0, 400.0, 800.0]),
    speed=st.none() | st.integers(-1, 800_000),
    cores=st.integers(1, 256),
    nodes=st.integers(1, 64),
)
def test_no_expectation_exceeds_its_physical_bound(
    model: str,
    held: int,
    used: int | None,
    nics: int,
    rate: float,
    speed: int | None,
    cores: int,
    nodes: int,
) -> None:
    one = hardware(
        net=netdev(speed),
        rdma=RdmaFacts(hcas=hcas(nics, rate)),
        gpu=gpus(model, held),
        host=host(cores),
        ifname="eth0",
        gpus=None if used is None else min(used, held) or None,
    )
    for found in (pair(one, one), pair(one, one, "mlx5_0"), all_reduce(cluster(one, nodes))):
        if isinstance(found, NoExpectedRate):
            assert found.reason
            continue
        assert 0.0 < found.floor_gbyte_s <= found.expected_gbyte_s <= found.bound_gbyte_s
        assert found.limit in found.terms
        assert found.limit.source
        for term in found.terms:
            assert 0.0 < term.floor_share <= term.expected_share <= 1.0
            assert found.expected_gbyte_s <= term.gbyte_s


def links(up: int | None, **changes: Any) -> Hardware:
    devices = tuple(Gpu(index=i, name=H100, nvlinks=18, nvlinks_active=up, **changes) for i in range(8))
    return hardware(gpu=GpuFacts(nvml="ok", devices=devices), rdma=RdmaFacts(hcas=hcas(8, 400.0)), gpus=8)


def test_links_that_are_down_lower_what_is_expected_and_are_named() -> None:
    whole, fewer = all_reduce({"a": links(18)}), all_reduce({"a": links(9)})
    assert isinstance(whole, ExpectedRate)
    assert isinstance(fewer, ExpectedRate)
    assert fewer.expected_gbyte_s == pytest.approx(whole.expected_gbyte_s / 2)
    assert "9 of 18 links up" in fewer.limit.name
    assert all_reduce({"a": links(None)}) == whole  # by the data sheet
    none = all_reduce({"a": links(0)})
    assert isinstance(none, NoExpectedRate)
    assert "no NVLink up" in none.reason


def test_the_pcie_link_that_was_seen_counts() -> None:
    full = links(18, pcie_width=16, pcie_generation=5)
    half = links(18, pcie_width=8, pcie_generation=4)
    assert full.pcie_gbyte_s == pytest.approx(63.0, rel=0.01)
    both = all_reduce({"a": half, "b": half})
    assert isinstance(both, ExpectedRate)
    assert "PCIe of 8" in both.limit.name
    assert both.bound_gbyte_s == pytest.approx(8 * 8 * 1.969 * 15 / 16 * 2, rel=0.01)
    better = all_reduce({"a": full, "b": full})
    assert isinstance(better, ExpectedRate)
    assert "HCA" in better.limit.name
