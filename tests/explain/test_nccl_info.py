"""What NCCL_DEBUG=INFO says of a job, in the words of releases 2.7 to 2.30."""

from pathlib import Path

import pytest

from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import NcclInfo
from netdoctor.explain.nccl_lines import NcclReader, transport
from netdoctor.explain.rendering import text, to_json

# A rank's lines as printed, most of them left out; names of hosts and addresses replaced.
LOGS = Path(__file__).with_name("nccl")
SOCKETS_2_7 = (LOGS / "nccl_2.7.8_sockets.txt").read_text("utf-8")
PLUGIN_2_12 = (LOGS / "nccl_2.12.9_ibext.txt").read_text("utf-8")
OFI_2_23 = (LOGS / "nccl_2.23.4_efa.txt").read_text("utf-8")
NEW_2_28 = (LOGS / "nccl_2.28.9_roce_nvls.txt").read_text("utf-8")


def info(**files: str) -> NcclInfo:
    found = explain_text(files).nccl
    assert found is not None
    return found


def test_reads_what_each_release_prints_and_finds_nothing_odd_in_it() -> None:
    sockets, plugin, ofi, new = (info(log=one) for one in (SOCKETS_2_7, PLUGIN_2_12, OFI_2_23, NEW_2_28))
    assert [next(iter(one.networks)) for one in (sockets, plugin, ofi, new)] == [
        "Socket", "IBext", "AWS Libfabric", "IB",
    ]  # fmt: skip
    assert [next(iter(one.versions)) for one in (sockets, plugin, ofi, new)] == [
        "2.7.8 (CUDA 10.2)", "2.12.9 (CUDA 11.6)", "2.23.4 (CUDA 12.4)", "2.28.9 (CUDA 13.0)",
    ]  # fmt: skip
    assert [dict(one.transports) for one in (sockets, plugin, ofi, new)] == [
        {"NET/Socket": 1},
        {"NET/IBext/GDRDMA": 1, "P2P/IPC": 1},
        {"NET/AWS Libfabric/GDRDMA": 1, "P2P/CUMEM": 1},
        {"NET/IB/GDRDMA": 1},
    ]
    assert [(one.ranks, one.ranks_done, one.world) for one in (sockets, plugin, ofi, new)] == [
        (1, 1, 2), (1, 1, 16), (1, 1, 16), (1, 1, 8),
    ]  # fmt: skip
    assert list(plugin.hcas) == ["mlx5_0:1/IB/SHARP mlx5_1:1/IB/SHARP"]
    assert list(ofi.plugins) == [
        "aws-ofi-nccl 1.12.1-aws", "libfabric provider efa (found 4 nics)", "tuner nccl_ofi_tuner",
    ]  # fmt: skip
    assert ofi.environment["NCCL_PROTO"] == {"simple": 1}
    assert list(ofi.drivers) == ["12.2"]
    assert list(new.channels) == ["16 collective, 16 NVLS, 16 point to point"]
    assert new.nvls is True
    assert [one.gdr for one in (sockets, plugin, ofi, new)] == ["", "on", "on", "on"]
    assert [one.unexpected for one in (sockets, plugin, ofi, new)] == [()] * 4


def other(log: str, *changes: tuple[str, str]) -> str:
    """The same from a second host, changed."""
    for old, new in (("h1:9:", "h2:7:"), ("10.0.0.5", "10.0.0.6"), *changes):
        assert old in log, old
        log = log.replace(old, new)
    return log


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ((), []),
        ((("2.28.9+", "2.27.5+"),), ["h2: NCCL is 2.27.5, elsewhere it is 2.28.9"]),
        ((("cudaDriverVersion 13000", "cudaDriverVersion 12080"),), ["CUDA driver is 12.8"]),
        ((("GDRDMA(PCI)/", ""),), ["h2: data go through host memory", "while h1 uses it"]),
        ((("16 coll channels", "8 coll channels"),), ["number of channels is 8, elsewhere it is 16"]),
        (((" [1]mlx5_1:1/RoCE", ""),), ["h2: the number of HCAs is 1, elsewhere it is 2"]),
        ((("Using eth0:", "Using docker0:"),), ["bootstrap is over docker0"]),
        ((("- Init COMPLETE", "- Init soon"),), ["h2: setting up a communicator began and did not end"]),
        (
            (("plugin IB to", "plugin Socket to"), ("NET/IB/0(0)/GDRDMA(PCI)/Shared", "NET/Socket/0")),
            ["network in use is", "h2: TCP sockets are in use although NCCL found mlx5_0:1/RoCE"],
        ),
        (
            (("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE", "NET/IB : No device found."),),
            ["h2: no HCA was found, while h1 has some"],
        ),
    ],
)  # fmt: skip
def test_says_what_differs_between_hosts(changes: tuple[tuple[str, str], ...], odd: list[str]) -> None:
    found = info(a=NEW_2_28, b=other(NEW_2_28, *changes)).unexpected
    assert bool(found) == bool(odd), found
    assert all(any(one in said for said in found) for one in odd), found


@pytest.mark.parametrize("line", ["Using network Socket", "Bootstrap : Using eth0:10.0.0.5<0>"])
def test_one_line_of_a_network_is_enough_to_be_told(line: str) -> None:
    told = info(log=f"h1:9:9 [0] NCCL INFO {line}\n")
    assert [*told.networks, *told.bootstrap] in (["Socket"], ["eth0"])


GDR = "h1:9:9 [0] NCCL INFO GPU Direct RDMA {} for HCA 0 'mlx5_0'\n"


def test_gpudirect_that_is_off_is_told_also_where_no_link_is() -> None:
    assert info(log=SOCKETS_2_7 + GDR.format("Enabled")).unexpected == ()
    [told] = info(log=SOCKETS_2_7 + GDR.format("Disabled")).unexpected
    assert told.endswith(": GPUDirect RDMA is off")


def test_data_that_go_through_the_host_for_no_reason_given() -> None:
    through_host = NEW_2_28.replace("GDRDMA(PCI)/", "")
    for state in ("Enabled", "Disabled"):
        [told] = info(log=through_host + GDR.format(state)).unexpected
        assert told.endswith("data go through host memory, GPUDirect RDMA is off")


def test_a_job_on_one_host_may_meet_over_any_interface() -> None:
    here = NEW_2_28.replace("Using eth0:", "Using docker0:")
    assert list(info(log=here).bootstrap) == ["docker0"]
    assert info(log=here).unexpected == ()


def test_variables_that_differ_are_told_and_those_of_a_host_are_not() -> None:
    line = "h1:9:9 [1] NCCL INFO NCCL_{} set by environment to {}\n"
    ring, tree = (line.format("ALGO", v) + line.format("SOCKET_IFNAME", v) for v in ("Ring", "Tree"))
    found = info(a=NEW_2_28 + ring, b=other(NEW_2_28 + tree)).unexpected
    assert found == ("h2: NCCL_ALGO is Tree, elsewhere it is Ring",)


def test_is_shown_as_a_section_and_in_json() -> None:
    said = explain_text({"log": NEW_2_28})
    assert "What NCCL says of the job" in text(said, {})
    assert "NET/IB/GDRDMA 1" in text(said, {})
    assert to_json(said, {})["nccl"]["gpudirect_rdma"] == "on"
    assert to_json(explain_text({"log": "step 1 loss 2.0"}), {})["nccl"] is None


def test_nothing_of_a_log_passes_raw_or_without_bound() -> None:
    bad = NEW_2_28.replace("plugin IB to", "plugin \x1b[31mIB\x07::error to")
    out = text(explain_text({"log": bad}), {})
    assert not {"\x1b", "\x07"} & set(out)
    reader = NcclReader()
    reader.begin("log")
    reader.block(b"NCCL INFO Channel 0" * 100_000)
    reader.block(b"".join(b"h:1:1 [0] NCCL INFO NCCL_A%d set to 1\n" % number for number in range(1000)))
    assert len(reader.log.processes) <= 2
    assert max(len(one.environment) for one in reader.log.processes.values()) <= 200


def test_what_was_not_looked_at_is_told_and_nobody_is_called_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdoctor.explain.nccl_lines.LINES_MAX", 8)
    begun = info(log=NEW_2_28)
    assert (begun.ranks, begun.ranks_done) == (1, 0)
    assert begun.unexpected == ("NCCL says so much that only its first 8 lines were looked at",)


def test_more_processes_than_are_looked_at_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind them still is of those that are known, and the log stays one that was cut."""
    monkeypatch.setattr("netdoctor.explain.nccl_lines.PROCESSES_MAX", 1)
    reader = NcclReader()
    reader.begin("log")
    line = b"h:%d:1 [0] NCCL INFO comm 0x1 rank %d nranks 2 cudaDev 0 busId 1 - Init %b\n"
    reader.block(line % (1, 0, b"START") + line % (2, 1, b"START"))
    assert reader.log.cut
    reader.block(line % (1, 0, b"COMPLETE"))
    assert reader.log.cut
    assert [(rank.begun, rank.done) for rank in reader.log.ranks.values()] == [(set(), True)]


def test_transport_kinds() -> None:
    kinds = {
        "NET/IB/0(3)/GDRDMA/Shared": "NET/IB/GDRDMA",
        "P2P/CUMEM/read": "P2P/CUMEM",
        "P2P/direct pointer": "P2P/direct pointer",
        "P2P/indirect/3[3]/read": "P2P/indirect",
        "SHM/CE/direct": "SHM",
        "direct shared memory": "SHM",
    }
    assert {via: transport(via) for via in kinds} == kinds


def rails(*devices: int, network: str = "IB") -> list[str]:
    """What is odd where GPU 3 of each host sends over these devices."""
    line = "gpu{0}:100:200 [3] NCCL INFO Channel 00/0 : {0}[3] -> 9[3] [send] via NET/{1}/{2}/GDRDMA\n"
    return list(info(log="".join(line.format(i, network, one) for i, one in enumerate(devices))).unexpected)


def test_a_gpu_that_sends_over_another_rail_is_told() -> None:
    assert rails(3, 3, 2, 3) == ["gpu2: the network device of GPU 3 is 2, elsewhere it is 3"]
    assert rails(3, 3, 3, 3) == []
    assert rails(3, 2) == []  # nobody is the odd one
    assert rails(0, 1, 0, 1) == []
    assert rails(0, 0, 1, network="Socket") == []
