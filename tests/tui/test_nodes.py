"""The hardware of a node: only what the report's facts say, and what they do not say is unknown."""

import dataclasses
import time

import pytest

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.report.kept import Squeezed, as_facts
from netdoctor.report.model import Report
from netdoctor.store import Store, dump
from netdoctor.tui import nodes
from netdoctor.tui.state import Known
from tests.tui.harness import application, drive, rich_report, with_hardware


def hardware(report: Report, name: str = "gpu-a01", width: int = 96) -> list[str]:
    return [one.text.rstrip() for one in nodes.hardware(Known(report), name, width)]


def of(gpu: object, rdma: object) -> Report:
    facts = Store()
    facts.put("gpu", "gpu-a01", gpu)
    facts.put("rdma", "gpu-a01", rdma)
    return dataclasses.replace(rich_report(), facts=as_facts(dump(facts)))


@pytest.mark.parametrize("packed", [False, True])
def test_gpus_that_are_alike_share_a_row_and_ports_have_one_each(packed: bool) -> None:
    report = with_hardware(rich_report(), packed=packed)
    first, second = hardware(report), hardware(report, "gpu-a02", 120)
    assert first[0].split()[:4] == ["GPUs", "8", "driver", "570.86.15"]
    assert first[1].split()[0] == "0-7"
    for found in ("H100", "PCIe 5 x16", "40-47 C", "ECC 0 errors", "GiB"):
        assert found in first[1]
    assert [text.split()[0] for text in second[1:3]] == ["0-2,4-7", "3"]
    assert "PCIe 5 x8 of x16" in second[2]
    assert "91 C" in second[2]
    assert "ECC 2 errors" in second[2]
    ports = [text for text in second if "mlx5_" in text]
    assert all(
        found in ports[0] for found in ("mlx5_0:1", "ACTIVE", "400 Gbit/s", "InfiniBand", "ib0", "GID")
    )
    assert all(
        found in ports[1] for found in ("mlx5_1:1", "DOWN", "rate unknown", "Ethernet", "eth1", "GID 3")
    )


def test_what_nobody_said_is_unknown() -> None:
    report = of(
        GpuFacts(nvml="ok", devices=(Gpu(index=0), Gpu(index=1, error="GPU is lost"))),
        RdmaFacts(hcas=(Hca(name="rxe0", ports=(HcaPort(
            name="rxe0:1", number=1, state="", phys_state="", link_layer="", rate_gbit_s=None),)),)),
    )  # fmt: skip
    text = "\n".join(hardware(report))
    for found in (
        "driver unknown", "CUDA unknown", "model unknown", "memory unknown", "PCIe unknown", "C unknown",
        "ECC unknown", "GPU is lost", "state unknown", "rate unknown", "layer unknown", "no interface",
        "GID unknown",
    ):  # fmt: skip
        assert found in text
    assert "0 errors" not in text


def test_a_node_that_was_not_asked_and_a_report_without_facts_say_so() -> None:
    assert hardware(rich_report()) == [" hardware  unknown: this report has no facts of it"]
    assert hardware(with_hardware(rich_report()), "elsewhere") == [
        " hardware  unknown: this report has no facts of it"
    ]
    refused = of(Missing(Why.TIMED_OUT, "no answer in 10 s"), RdmaFacts())
    assert hardware(refused) == [" GPUs      unknown: no answer in 10 s", " HCAs      none"]
    empty = of(GpuFacts(nvml="no_library"), RdmaFacts(unbound_pci=("0000:19:00.0",)))
    assert hardware(empty) == [
        " GPUs      no NVIDIA GPU on the PCI bus",
        " HCAs      none   1 card without an RDMA device",
    ]


def test_damaged_facts_are_said_and_do_not_end_the_screens() -> None:
    kept = as_facts(with_hardware(rich_report()).facts).packed("0.1.0", "2026-01-02T14:03:20.000Z")
    kept.facts = kept.facts[: len(kept.facts) // 2]
    report = dataclasses.replace(rich_report(), facts=Squeezed(kept, "report.json"))
    assert "unknown: its facts" in hardware(report)[0]
    assert any("unknown: its facts" in line for line in drive(application(report), (100, 30), "2", "4"))


@pytest.mark.parametrize("facts", [{"node": [1]}, {"node": {"gpu": 3, "rdma": ["gpu-a01"]}}, {"other": {}}])
def test_facts_of_another_shape_are_unknown(facts: dict[str, object]) -> None:
    report = dataclasses.replace(rich_report(), facts=facts)
    assert hardware(report) == [" hardware  unknown: this report has no facts of it"]


def test_texts_of_a_node_steer_no_terminal_and_no_row_is_cut() -> None:
    report = of(
        GpuFacts(nvml="ok", devices=(Gpu(index=0, name="H100\x1b[2J\u202e", error="x" * 300),)),
        RdmaFacts(hcas=tuple(Hca(name=f"mlx5_{n}\n", netdevs=("ib0\x07",) * 3) for n in range(60))),
    )
    for width in (60, 78, 120):
        lines = nodes.hardware(Known(report), "gpu-a01", width)
        assert all(len(one.text) <= width for one in lines)
        assert not any(ord(char) < 32 for one in lines for char in one.text)
        assert "and 10 more" in lines[-1].text
    narrow = hardware(with_hardware(rich_report()), width=60)
    assert not any(".." in text.replace("...", "") for text in narrow)
    assert "GID" in " ".join(narrow)


def test_one_node_among_a_thousand_is_found_without_reading_all() -> None:
    report = with_hardware(rich_report(1000), packed=True)
    known = Known(report)
    began = time.process_time()
    lines = nodes.hardware(known, report.matrix.nodes[998], 96)
    assert "H100" in lines[1].text
    assert time.process_time() - began < 0.5


def test_the_screen_of_a_node_has_its_hardware() -> None:
    text = "\n".join(drive(application(with_hardware(rich_report())), (80, 24), "2", "4"))
    assert "GPUs" in text
    assert "mlx5_1:1" in text
