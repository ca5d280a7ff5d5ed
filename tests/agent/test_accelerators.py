"""GPUs of AMD, accelerators of others, and the GPUs that torch has code for, as sysfs and files show them."""

import os
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor.agent.facts import accelerators as facts_accelerators
from netdoctor.agent.facts import gpu as facts_gpu
from netdoctor.agent.facts import software as facts_software
from netdoctor.agent.system.amd_boards import gfx, properties
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu, AmdSensor

from . import trees

KFD = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"
ROCM = {
    "/opt/rocm/.info/version": "6.3.1-48\n",
    "/opt/rocm/lib/librccl.so.1.0.60301": "",
    "/opt/rocm/lib/librccl.so.1 -> librccl.so.1.0.60301": "",
    "/sys/module/amdgpu/version": "6.10.5\n",
}


def function(address: str, kind: str, vendor: str, device: str, **more: str) -> dict[str, str]:
    said = {"class": kind, "vendor": vendor, "device": device, **more}
    return {f"{PCI}/{address}/{key}": f"{value}\n" for key, value in said.items()}


def node(number: int, **values: int) -> dict[str, str]:
    return {f"{KFD}/{number}/properties": "".join(f"{name} {value}\n" for name, value in values.items())}


def read(tmp_path: Path, *parts: dict[str, str]) -> AcceleratorFacts:
    content: dict[str, Any] = {key: value for part in parts for key, value in part.items()}
    found = facts_accelerators.collect({}, trees.make(tmp_path, content))
    return msgspec.convert(found, type=AcceleratorFacts)


CPU = node(0, cpu_cores_count=96, simd_count=0)
MI300X = function("0000:05:00.0", "0x120000", "0x1002", "0x74a1", mem_info_vram_total="206141652992")
MI210 = function("0000:06:00.0", "0x038000", "0x1002", "0x740f")
GPU = node(2, cpu_cores_count=0, simd_count=1216, gfx_target_version=90402, device_id=29857)


def test_a_board_with_its_driver_and_software(tmp_path: Path) -> None:
    found = read(
        tmp_path, CPU, GPU, MI300X, ROCM, {f"{PCI}/0000:05:00.0/driver -> ../../drivers/amdgpu": ""},
        {"/dev/kfd": ""},
    )  # fmt: skip
    (board,) = found.amd
    assert (board.address, board.driver, board.vram_bytes) == ("0000:05:00.0", "amdgpu", 206141652992)
    assert (found.kfd, found.amdgpu) == (("gfx942",), "6.10.5")
    assert (found.rocm, found.rccl) == ("6.3.1-48", "1.0.60301")
    assert found.may_compute is True


DEVICE = f"{PCI}/0000:05:00.0"
AMDGPU = {f"{DEVICE}/driver -> ../../drivers/amdgpu": ""}
HEALTH = {
    "product_name": "AMD Instinct MI300X OAM\n",
    "gpu_busy_percent": "3\n",
    "mem_info_vram_used": "300000000\n",
    "current_link_width": "16\n",
    "current_link_speed": "32.0 GT/s PCIe\n",
    "max_link_speed": "32.0 GT/s PCIe\n",
    "pcie_replay_count": "4\n",
    "power_dpm_force_performance_level": "perf_determinism\n",
    "pp_dpm_sclk": "0: 132Mhz\n1: 144Mhz *\n2: 2100Mhz\n",
    "ras/umc_err_count": "ue: 1\nce: 40\nde: 2\n",
    "ras/gfx_err_count": "ue: 0\nce: 0\n",
    "ras/aca_sdma": "ue: 0\nce: 3\n",
    "ras/mmhub_err_count": "what\n",
    "ras/gpu_vram_bad_pages": "0x01 : 0x1000 : R\n0x02 : 0x1000 : R\n0x03 : 0x1000 : P\n0x4 : 0x1 : X\n",
    "hwmon/hwmon3/temp1_input": "35000\n",
    "hwmon/hwmon3/temp2_input": "41000\n",
    "hwmon/hwmon3/temp2_crit": "100000\n",
    "hwmon/hwmon3/temp2_label": "junction\n",
    "hwmon/hwmon3/power1_cap": "550000000\n",
    "hwmon/hwmon3/power1_cap_default": "750000000\n",
}


def test_health_of_a_board(tmp_path: Path) -> None:
    links = {f"{KFD}/2/io_links/{i}/properties": f"type {11 if i else 2}\n" for i in range(4)}
    user = {"/sys/class/kfd/kfd/proc/4711/vram_1": "0\n", "/proc/4711/comm": "python3\n"}
    inside = dict(user)
    user["/proc/2/comm"] = "kthreadd\n"
    health = {f"{DEVICE}/{key}": value for key, value in HEALTH.items()}
    gpu = node(2, simd_count=1216, gfx_target_version=90402, device_id=29857, location_id=0x500, domain=0)
    found = read(tmp_path, CPU, gpu, MI300X, AMDGPU, health, links, user)
    (board,) = found.amd
    assert board == AmdGpu(
        address="0000:05:00.0", device_id="0x74a1", driver="amdgpu", vram_bytes=206141652992,
        name="AMD Instinct MI300X OAM", busy_percent=3, vram_used_bytes=300000000, link_width=16,
        link_gt_s=32.0, link_most_gt_s=32.0, replays=4, level="perf_determinism", clock_most_mhz=2100,
        ras_blocks=("umc", "gfx", "sdma"), uncorrected={"umc": 1}, corrected={"umc": 40, "sdma": 3},
        bad_pages={"R": 2, "P": 1}, power_cap_w=550.0, power_default_w=750.0, xgmi_links=3,
        sensors=(AmdSensor(name="junction", temperature_c=41.0, critical_c=100.0),),
    )  # fmt: skip
    assert found.kfd_boards == ("0000:05",)
    assert [(one.pid, one.name) for one in found.processes or ()] == [(4711, "python3")]
    (stranger,) = read(tmp_path / "container", CPU, gpu, MI300X, AMDGPU, inside).processes or ()
    assert (stranger.pid, stranger.name) == (4711, None)
    off = {f"{DEVICE}/power/runtime_status": "suspended\n"}
    (asleep,) = read(tmp_path / "asleep", CPU, gpu, MI300X, AMDGPU, health, off).amd
    assert (asleep.asleep, asleep.busy_percent, asleep.level) == (True, None, "")


def test_a_board_without_a_driver_is_known_by_its_class_or_number(tmp_path: Path) -> None:
    found = read(tmp_path, CPU, MI300X, MI210)
    assert [board.driver for board in found.amd] == [None, None]
    assert (found.kfd, found.rocm, found.rccl, found.may_compute) == ((), None, None, None)


AN_APU = function("0000:e6:00.0", "0x030000", "0x1002", "0x164e", mem_info_vram_total="536870912")
AN_APUS_NODE = node(3, cpu_cores_count=0, simd_count=4, gfx_target_version=100306, device_id=0x164E)


def test_graphics_of_processors_and_bmcs_are_none(tmp_path: Path) -> None:
    bmcs = (
        function("0000:01:03.0", "0x030000", "0x1002", "0x515e"),  # ATI ES1000
        function("0000:03:00.0", "0x030000", "0x1a03", "0x2000"),  # ASPEED
        function("0000:00:02.0", "0x038000", "0x8086", "0x9a49"),  # a laptop's Iris Xe
    )
    assert read(tmp_path, AN_APU, AN_APUS_NODE, *bmcs) == AcceleratorFacts()
    # Beside a board its node does not count.
    assert read(tmp_path / "beside", AN_APU, AN_APUS_NODE, GPU, MI300X).kfd == ("gfx942",)


def test_a_workstations_board_counts_by_its_memory(tmp_path: Path) -> None:
    board = function("0000:03:00.0", "0x030000", "0x1002", "0x7448", mem_info_vram_total=f"{48 << 30}")
    assert len(read(tmp_path, board).amd) == 1


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        pytest.param(("0x120000", "0x1da3", "0x1060"), {"Intel Gaudi": 1}, id="Gaudi 3"),
        pytest.param(("0x088000", "0x1d0f", "0x7364"), {"AWS Neuron": 1}, id="Trainium"),
        pytest.param(("0x020000", "0x1d0f", "0xefa1"), {}, id="EFA"),
        pytest.param(("0x038000", "0x8086", "0x0bd5"), {"Intel GPU": 1}, id="Data Center GPU Max"),
        pytest.param(("0x120000", "0x8086", "0x7d1d"), {}, id="an NPU in a laptop"),
        pytest.param(("0x088000", "0x8086", "0x09a2"), {}, id="a processor's own"),
        pytest.param(("0x030200", "0x10de", "0x2330"), {}, id="NVIDIA"),
    ],
)
def test_accelerators_of_others(tmp_path: Path, parts: tuple[str, str, str], said: dict[str, int]) -> None:
    assert read(tmp_path, function("0000:10:00.0", *parts)) == AcceleratorFacts(others=said)


def test_a_bus_without_any_is_not_looked_through(tmp_path: Path) -> None:
    bus = "0000\t80862020\t0\t                0\n8500\t%s\t1a\t 0\tdriver\n"
    for ids, there in (
        ("10de2330", False),
        ("100274a1", True),
        ("80860bd5", True),
        ("1da31060", True),
        ("", False),
    ):
        found = read(tmp_path / (ids or "none"), MI300X, {"/proc/bus/pci/devices": bus % ids})
        assert bool(found.amd) is there, ids


def test_what_a_device_cgroup_forbids_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refusing(path: str, *rest: Any) -> int:
        if path.endswith("nodes/2/properties"):
            raise PermissionError(1, "Operation not permitted", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refusing)
    found = read(tmp_path, CPU, GPU, MI300X)
    assert (found.kfd, found.kfd_hidden) == ((), 1)


def test_names_and_garbage(tmp_path: Path) -> None:
    assert [gfx(one) for one in (90402, 90010, 110001, 100300)] == ["gfx942", "gfx90a", "gfx1101", "gfx1030"]
    assert properties("simd_count 4\nfoo\nbar x\n\n") == {"simd_count": 4}
    garbage = {f"{KFD}/x/properties": "simd_count many\n", f"{KFD}/9/properties": "\0" * 99}
    assert read(tmp_path, garbage, MI300X).kfd == ()
    assert read(tmp_path / "n", function("0000:10:00.0", "0x120000", "0x1002", "what")).kfd == ()


def library(rodata: bytes) -> bytes:
    """A 64-bit ELF file with a section of this content, and nothing else."""
    names = b"\0.rodata\0.shstrtab\0"
    table = 64 + len(rodata) + len(names)

    def row(name: int, place: int, length: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, place, length, 0, 0, 1, 0)

    rest = struct.pack("<HHIQQQIHHHHHH", *(0,) * 5, table, *(0,) * 4, 64, 3, 2)
    rows = bytes(64) + row(1, 64, len(rodata)) + row(9, 64 + len(rodata), len(names))
    return b"\x7fELF\x02\x01\x01" + bytes(9) + rest + rodata + names + rows


@pytest.mark.parametrize(
    ("content", "archs"),
    [
        # As in libtorch_python.so of 2.4.1+cu121, and of 2.9.1+cu128, where a compiler put text in front.
        (library(b"\0_get_sm_carveout\0sm_50 sm_60 sm_70\0inva"), "sm_50 sm_60 sm_70"),
        (library(b"string ipc_hsm_70 sm_100 compute_120\0\0\0"), "sm_70 sm_100 compute_120"),
        (library(b"\0sm_90a\0"), "sm_90a"),
        (library(b"sm_70 sm_75"), ""),
        (library(b"\0_set_sm_carveout\0sm_\0sm_70 rm -rf\0"), ""),
        (library(b"")[:70], ""),
        (b"\x7fELF\x02\x01" + b"\xff" * 200, ""),
        (b"no library", ""),
    ],
)
def test_the_gpus_that_torch_has_code_for(tmp_path: Path, content: bytes, archs: str) -> None:
    home = trees.make(tmp_path, {"/torch/lib/libtorch_python.so": content}) + "/torch"
    assert facts_software.archs(home) == archs.split()
    assert facts_software.archs(str(tmp_path / "none")) == []


def test_the_job_that_a_session_belongs_to() -> None:
    for text, job in (
        ("5:devices:/slurm/uid_1000/job_42/step_extern\n0::/\n", "42"),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "7"),
        ("0::/user.slice/user-1000.slice/session-3.scope", ""),
        ("0::/kubepods/job_9/x", ""),
        ("", ""),
    ):
        assert facts_gpu.job_of(text) == job


def test_device_nodes_that_their_mode_forbids_are_told_from_blocked_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.make(tmp_path, {"/dev/nvidia0": "", "/dev/nvidia1": ""})
    paths = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]
    (tmp_path / "dev/nvidia1").chmod(0o600)
    assert facts_gpu.closed_nodes(paths, root) == ([], [])  # root may, whatever the mode
    monkeypatch.setattr(facts_gpu.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(facts_gpu.os, "getgroups", list)
    (tmp_path / "dev/nvidia0").chmod(0o666)
    assert facts_gpu.closed_nodes(paths, root) == ([], ["/dev/nvidia1"])
