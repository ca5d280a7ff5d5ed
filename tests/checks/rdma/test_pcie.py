from typing import Any

import pytest

from netdoctor.checks.rdma.pcie import rdma_pcie
from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin
from netdoctor.facts.rdma import Hca, PcieLink, RdmaFacts
from netdoctor.model import Finding, Status
from netdoctor.store import Store

from ..build import causes, said
from ..build_hw import hca, rdma


def link(width: int = 16, speed: float = 32.0, width_most: int = 16, speed_most: float = 32.0) -> PcieLink:
    return PcieLink(width=width, width_most=width_most, gtransfers_s=speed, gtransfers_s_most=speed_most)


def judged(*hcas: Hca) -> list[Finding]:
    return said(rdma_pcie(rdma(*hcas)))


def test_silent_at_the_most_that_slot_and_card_can_do() -> None:
    assert not judged()
    assert not judged(hca(pcie=link(8, 16.0, 8, 16.0)))


@pytest.mark.parametrize(
    ("trained", "summary"),
    [
        (link(width=8), "mlx5_1 runs at PCIe 32 GT/s x8, slot and card can do 32 GT/s x16"),
        (link(speed=2.5), "mlx5_1 runs at PCIe 2.5 GT/s x16, slot and card can do 32 GT/s x16"),
    ],
)
def test_less_than_that(trained: PcieLink, summary: str) -> None:
    findings = judged(hca("mlx5_0"), hca("mlx5_1", pcie=trained, pci_address="0000:82:00.0"))
    assert [(f.status, f.summary) for f in findings] == [(Status.WARN, summary)]
    assert causes(findings) == {"hca-pcie-narrow": {"n1"}}
    assert findings[0].cause
    assert findings[0].cause.fixes[0].commands[0].shell.startswith("lspci -vvs 0000:82:00.0 ")


@pytest.mark.parametrize("address", ["0000:82:00.0; id", "$(id)", "0000:82:00.0\n", "-vv"])
def test_no_words_of_a_node_stand_in_a_command(address: str) -> None:
    (finding,) = judged(hca("mlx5_1", pcie=link(8), pci_address=address))
    assert finding.cause
    assert all(not command.shell for fix in finding.cause.fixes for command in fix.commands)


def test_two_devices_of_one_card_are_told_once() -> None:
    card: dict[str, Any] = {"pcie": link(8), "pci_address": "0000:82:00.0"}
    assert len(judged(hca("mlx5_0", **card), hca("mlx5_1", **card))) == 1


def test_what_is_not_shown() -> None:
    (finding,) = judged(hca(pcie=None), hca("mlx5_1", pcie=link(width=0)))
    assert (finding.status, finding.summary) == (Status.SKIP, "the PCIe links of the HCAs are not shown here")
    assert [f.status for f in judged(hca(), hca("mlx5_1", pcie=link(width=0)))] == [Status.UNKNOWN]
    assert [f.summary for f in said(rdma_pcie(RdmaFacts()))] == ["no HCA on this node"]
    assert [f.summary for f in judged(hca("rxe0"))] == ["no HCA on this node"]


def sized(read_request: int, payload: int, payload_most: int = 512) -> Hca:
    usual = {"width": 16, "width_most": 16, "gtransfers_s": 32.0, "gtransfers_s_most": 32.0}
    one = PcieLink(read_request=read_request, payload=payload, payload_most=payload_most, **usual)  # type: ignore[arg-type]
    return hca("mlx5_1", pcie=one, pci_address="0000:82:00.0")


def test_data_in_small_pieces() -> None:
    for fine in (sized(4096, 512), sized(512, 256), sized(0, 0), sized(512, 128, 128)):
        assert not judged(fine)
    for small, *now in (
        (sized(256, 512), "max read request 256"), (sized(4096, 128), "max payload 128"),
        (sized(128, 128), "max read request 128", "max payload 128"),
    ):  # fmt: skip
        findings = judged(small)
        keys = {"rdma-read-request" if "read" in what else "hca-pcie-pieces": {"n1"} for what in now}
        assert ([f.observed for f in findings], causes(findings)) == (now, keys)
        assert findings[0].cause
        assert findings[0].cause.fixes[0].commands[0].shell.startswith("lspci -vvs 0000:82:00.0 ")
    assert {f.cause.key for f in judged(hca(pcie=link(8)), sized(256, 0)) if f.cause} == {
        "hca-pcie-narrow", "rdma-read-request",
    }  # fmt: skip


def test_a_small_read_request_on_one_node_is_one_cause() -> None:
    """What rdma.pcie says of the node, and rdma.parity of it among the others."""
    store = Store()
    for node, size in (("n1", 4096), ("n2", 4096), ("n3", 256)):
        store.put("rdma", node, rdma(sized(size, 512)))
    known = load_builtin()
    judgement = judge([known["rdma.parity"], known["rdma.pcie"]], ["n1", "n2", "n3"], store)
    assert [(g.key, set(g.culprits), len(g.members)) for g in diagnose(judgement)] == [
        ("rdma-read-request", {"n3"}, 2)
    ]
