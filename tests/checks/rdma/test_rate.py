import pytest

from netdoctor.checks.rdma.rate import rdma_rate
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Status

from ..build import causes, net, netdev
from ..build_hw import hca, port, rdma, roce_port


def cluster(*rates: float) -> dict[str, RdmaFacts]:
    return {
        f"n{i}": rdma(hca("mlx5_0", ports=(port(rate_gbit_s=rate, rate_text=f"{rate:g} Gb/sec (4X NDR)"),)))
        for i, rate in enumerate(rates)
    }


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        pytest.param((400, 400, 400), set(), id="equal"),
        pytest.param((400, 200, 400), {"n1"}, id="one slow port"),
        pytest.param((200, 400), {"n0"}, id="two nodes tie"),
        pytest.param((400, 800, 400), set(), id="one fast port"),
        pytest.param((400,), set(), id="one node"),
    ],
)
def test_names_the_slow_nodes(rates: tuple[float, ...], slow: set[str]) -> None:
    assert {finding.target for finding in rdma_rate(cluster(*rates), None)} == slow


def test_the_port_of_the_switch_of_a_slow_one() -> None:
    cabled = CabledPort(port="mlx5_0:1", switch="0x1", switch_name="leaf-1", at="7", by="smpquery")
    ends = {"n1": CablingFacts(ports=(cabled,))}
    (finding,) = rdma_rate(cluster(400, 200, 400), None, None, ends)
    assert finding.evidence[-1].output == "leaf-1 port 7"


def test_skips() -> None:
    assert [f.status for f in rdma_rate({"n1": RdmaFacts()}, None)] == [Status.SKIP]
    down = rdma(hca("mlx5_0", ports=(port(state="DOWN"),)))
    assert [f.status for f in rdma_rate({"n1": down}, None)] == [Status.SKIP]
    soft = rdma(hca("rxe0", ports=(port("rxe0", rate_gbit_s=2.5),)))
    assert [f.status for f in rdma_rate({"n1": soft}, None)] == [Status.SKIP]


def test_a_storage_card_is_compared_with_its_like() -> None:
    one = rdma(hca("mlx5_0"), hca("mlx5_9", board_id="S", ports=(port("mlx5_9", rate_gbit_s=100.0),)))
    assert not list(rdma_rate({"n1": one, "n2": one, "n3": one}, None))


def test_a_port_under_another_name_is_compared_by_card() -> None:
    odd = rdma(hca("mlx5_7", ports=(port("mlx5_7", rate_gbit_s=200.0, rate_text="200 Gb/sec (4X HDR)"),)))
    assert causes(rdma_rate({**cluster(400, 400), "n9": odd}, None)) == {"hca-rate-low": {"n9"}}


def test_two_generations_are_a_warning_and_a_slow_port_of_the_older_one_is_named() -> None:
    def older(rate: float) -> RdmaFacts:
        text = f"{rate:g} Gb/sec (4X HDR)"
        return rdma(
            hca("mlx5_0", hca_type="MT4123", board_id="B", ports=(port(rate_gbit_s=rate, rate_text=text),))
        )

    mixed = {**cluster(400, 400, 400), "n8": older(200.0), "n9": older(200.0)}
    found = list(rdma_rate(mixed, None))
    assert {f.status for f in found} == {Status.WARN}
    assert causes(found) == {"hca-rate-kind": {"n8", "n9"}}
    assert "of this MT4123 runs at 200 Gb/sec (4X HDR), as all of its kind" in found[0].summary
    assert causes(rdma_rate({**mixed, "n9": older(100.0)}, None)) == {"hca-rate-low": {"n8", "n9"}}
    # Another vendor's variant of the same card is the same kind.
    variant = hca("mlx5_0", board_id="B", ports=(port(rate_gbit_s=200.0),))
    assert causes(rdma_rate({**cluster(400, 400), "n9": rdma(variant)}, None)) == {"hca-rate-low": {"n9"}}


@pytest.mark.parametrize(
    ("of", "below"),
    [
        pytest.param("", {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}, id="every card"),
        pytest.param("MT4123", {"mlx5_1:1"}, id="a kind"),
        pytest.param("MT4131", set(), id="a kind that is not there"),
    ],
)
def test_what_the_user_expects_is_held_against_cards_of_that_kind(of: str, below: set[str]) -> None:
    kinds = ("MT4129", "MT4123", None)
    cards = [
        hca(f"mlx5_{i}", hca_type=kind, board_id=f"B{i}", ports=(port(f"mlx5_{i}", rate_gbit_s=100.0),))
        for i, kind in enumerate(kinds)
    ]
    expect = Expectations(wishes=(Expectation(key="rdma.rate", any_of=("200",), place="e.toml:3", of=of),))
    found = list(rdma_rate({"n1": rdma(*cards)}, None, expect))
    assert {f.summary for f in found} == {
        f"rate of {name} 100 Gbit/s here, e.toml:3 expects 200" for name in below
    }


def test_lost_lanes_are_named() -> None:
    narrow = rdma(hca("mlx5_0", ports=(port(rate_gbit_s=200.0, rate_text="200 Gb/sec (2X NDR)"),)))
    findings = list(rdma_rate({**cluster(400, 400), "n9": narrow}, None))
    assert causes(findings) == {"hca-rate-lanes": {"n9"}}
    assert "2 of 4 lanes" in findings[0].summary


@pytest.mark.parametrize("text", ["10 Gb/sec (4X SDR)", "10 Gb/sec (4X)"])
def test_sdr_may_be_a_kernel_that_does_not_know(text: str) -> None:
    old = rdma(hca("mlx5_0", ports=(roce_port(rate_gbit_s=10.0, rate_text=text),)))
    nets = {"n9": net(netdevs=(netdev("eth1", speed_mbit_s=400_000),))}
    findings = list(rdma_rate({**cluster(400, 400), "n9": old}, nets))
    assert causes(findings) == {"hca-rate-not-known": {"n9"}}
    assert findings[0].status is Status.WARN
    assert "400 Gbit/s" in findings[0].summary


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"rate_gbit_s": None, "rate_text": ""}, id="no rate"),
        pytest.param({"state": ""}, id="active or not"),
    ],
)
def test_a_port_that_prints_nothing_is_unknown_and_not_left_out(changes: dict[str, object]) -> None:
    silent = rdma(hca("mlx5_0"), hca("mlx5_1", ports=(port("mlx5_1", **changes),)))
    findings = list(rdma_rate({"n1": rdma(), "n2": silent, "n3": rdma()}, None))
    assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN}
    assert "mlx5_1:1" in findings[0].summary
    alone = rdma(hca("mlx5_1", ports=(port("mlx5_1", **changes),)))
    assert [f.status for f in rdma_rate({"n2": alone}, None)] == [Status.UNKNOWN]


def test_a_node_without_a_rate_passes_nothing() -> None:
    findings = list(rdma_rate({**cluster(400, 400), "n8": RdmaFacts()}, None))
    assert {f.target: f.status for f in findings} == {"n8": Status.SKIP}
