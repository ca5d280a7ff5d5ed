"""host.health from trees of /proc and /sys with real figures, and on a process that really hangs."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor.agent.facts import health as agent
from netdoctor.checks.host.health import host_health
from netdoctor.facts.health import HealthFacts, Stuck
from netdoctor.model import Status

# What follows in a stat of /proc: of the 37 fields from the state on the last is the CPU.
CPU = " ".join(["0"] * 30) + "\n"
# A server with two Xeons, one chip of each kind: Intel's coretemp and i350, an NVMe disk. Figures of
# https://github.com/prometheus/node_exporter/blob/master/collector/fixtures/sys.ttar
SERVER = {
    "sys/class/hwmon/hwmon0/name": "coretemp",
    "sys/class/hwmon/hwmon0/temp1_label": "Physical id 0",
    "sys/class/hwmon/hwmon0/temp1_input": "55000",
    "sys/class/hwmon/hwmon0/temp1_max": "84000",
    "sys/class/hwmon/hwmon0/temp1_crit": "100000",
    "sys/class/hwmon/hwmon0/temp1_crit_alarm": "0",
    "sys/class/hwmon/hwmon1/name": "i350bb",
    "sys/class/hwmon/hwmon1/temp1_label": "loc1",
    "sys/class/hwmon/hwmon1/temp1_input": "50000",
    "sys/class/hwmon/hwmon1/temp1_max": "120000",
    "sys/class/hwmon/hwmon3/name": "nvme",
    "sys/class/hwmon/hwmon3/temp1_label": "Composite",
    "sys/class/hwmon/hwmon3/temp1_input": "39850",
    "sys/class/hwmon/hwmon3/temp1_crit": "94850",
    "sys/class/nvme/nvme0/state": "live",
    "sys/block/md0/md/degraded": "0",
    "sys/block/sda/size": "1",
    "sys/fs/ext4/sda1/errors_count": "0",
    "sys/fs/ext4/features/lazy_itable_init": "supported",
    "sys/devices/system/edac/mc/mc0/ce_count": "0",
    "sys/devices/system/edac/mc/mc0/ue_count": "0",
    "sys/devices/system/edac/mc/mc0/seconds_since_reset": "864000",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_label": "CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count": "0",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count": "0",
    "proc/interrupts": "           CPU0       CPU1\n MCE:          0          0   Machine check exceptions\n",
    "proc/sys/kernel/pid_max": "4194304",
    "proc/self/sched": "se.exec_start                                :     900000000.5\n",
    "proc/7/stat": "7 (kworker/0:1) D 2 0 0 0 -1 69238880 " + CPU,
    "proc/7/sched": "se.exec_start                                :     100000000.5\n",
    "proc/9/stat": "9 (python) D 1 9 9 0 -1 4194304 " + CPU,
    "proc/9/sched": "se.exec_start                                :     899999000.5\n",
}
DIMM = "sys/devices/system/edac/mc/mc0/dimm0/dimm_"


HANGING = {"proc/9/sched": "se.exec_start : 899400000.5\n"}


def collect(root: Path, **changes: str) -> HealthFacts:
    for name, text in {**SERVER, **changes}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if "\n" in text or not text else text + "\n")
    return msgspec.convert(agent.collect({}, root=str(root)), type=HealthFacts)


def keys(facts: HealthFacts) -> dict[str, str]:
    """The summary of each cause."""
    found = list(host_health(facts))
    assert found
    return {one.cause.key: one.summary for one in found if one.cause} | (
        {} if any(one.cause for one in found) else {"": found[0].status}
    )


def test_a_healthy_server_and_a_virtual_machine_are_silent(tmp_path: Path) -> None:
    assert keys(collect(tmp_path)) == {"": Status.PASS}
    (tmp_path / "vm/proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "vm/proc/sys/kernel/pid_max").write_text("32768\n")
    facts = msgspec.convert(agent.collect({}, root=str(tmp_path / "vm")), type=HealthFacts)
    assert keys(facts) == {"": Status.PASS}
    assert facts.machine_checks is None


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({DIMM + "ue_count": "5"}, "memory-errors", "DIMM#0: 5 errors that could not be corrected"),
        ({DIMM + "ce_count": "200"}, "memory-corrected", "200 corrected errors, 20 a day"),
        (
            {"proc/interrupts": " MCE:  0  2  1   Machine check exceptions\n"},
            "machine-check",
            "2 CPUs took a machine-check exception",
        ),
        ({"sys/fs/ext4/sda1/errors_count": "3"}, "disk-errors", "sda1: ext4 counts 3 errors"),
        ({"sys/block/md0/md/degraded": "1"}, "disk-errors", "md0: the array runs without 1 of its disks"),
        ({"sys/class/nvme/nvme0/state": "dead"}, "disk-errors", "nvme0: the controller is dead"),
        (
            {"sys/class/hwmon/hwmon0/temp1_crit_alarm": "1"},
            "chip-hot",
            "coretemp Physical id 0 is or was at its critical 100 °C, now 55 °C",
        ),
        (
            {"sys/class/hwmon/hwmon3/temp1_input": "95850"},
            "chip-hot",
            "nvme Composite is or was at its critical 95 °C, now 96 °C",
        ),
        (
            {
                "proc/9/sched": "se.exec_start : 899400000.5\n",
                "proc/9/wchan": "down_write",
                "proc/9/comm": "python",
            },
            "process-stuck",
            "python (process 9) for 10 min in down_write",
        ),
        (
            {
                "proc/9/stat": "9 (python) Z 1 9 9 0 -1 4194304 " + CPU,
                "proc/9/task/11/stat": "11 (python) D 1 9 9 0 -1 4194304 " + CPU,
                "proc/9/task/11/sched": "se.exec_start : 899400000.5\n",
            },
            "process-stuck",
            "for 10 min",
        ),
        (
            {"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": ""},
            "driver-files-empty",
            "without a byte: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        ),
        (
            {
                "proc/sys/kernel/pid_max": "10",
                "proc/9/stat": "9 (python) Z 1 9 9 0 -1 4194304 " + CPU,
            },
            "zombies",
            "1 processes have ended",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) and " " not in one else "",
)  # fmt: skip
def test_each_fault_is_named(tmp_path: Path, changes: dict[str, str], key: str, message: str) -> None:
    found = keys(collect(tmp_path, **changes))
    assert list(found) == [key]
    assert message in found[key]


@pytest.mark.parametrize(
    "changes",
    [
        {DIMM + "ce_count": "90"},  # 9 a day
        {DIMM + "ce_count": "10", "sys/devices/system/edac/mc/mc0/seconds_since_reset": "60"},
        {"sys/class/hwmon/hwmon3/temp1_crit": "0"},  # a driver that knows no limit
        {"sys/class/hwmon/hwmon3/temp1_crit": "65261850"},
        {**HANGING, "proc/9/cgroup": "7:freezer:/docker/0a1b\n"},  # its state cannot be seen
        {
            **HANGING,
            "proc/9/cgroup": "7:freezer:/docker/0a1b\n",
            "sys/fs/cgroup/freezer/docker/0a1b/freezer.state": "FROZEN",
        },
        {"proc/9/sched": "no such thing\n"},  # a kernel without CONFIG_SCHED_DEBUG
        {"proc/9/sched": "se.exec_start : nonsense\n"},
        {"proc/9/stat": "9 (python\n"},
        {"usr/lib/x86_64-linux-gnu/libcuda.so.1": "ELF"},
        {"usr/lib/x86_64-linux-gnu/libcuda.so.440.33.01": ""},  # left over, and loaded by nobody
    ],
)
def test_what_is_no_fault_is_none(tmp_path: Path, changes: dict[str, str]) -> None:
    assert keys(collect(tmp_path, **changes)) == {"": Status.PASS}


# The parent of a vfork waits uninterruptibly until its child ends.
HANGS = """
import ctypes, os, time
print(os.getpid(), flush=True)
if ctypes.PyDLL(None).vfork() == 0:
    time.sleep(60)
os._exit(0)
"""


@pytest.mark.process
def test_a_process_that_really_hangs_is_seen() -> None:
    hanging = subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert hanging.stdout is not None
        pid = int(hanging.stdout.readline())
        found: list[dict[str, Any]] = []
        end = time.monotonic() + 20
        while time.monotonic() < end and not any(one["seconds"] > 2 for one in found):
            time.sleep(0.5)
            found = [one for one in agent.processes("/")[0] if one["pid"] == pid]
        if Path("/proc/self/sched").exists():
            assert found
            assert 2 < found[0]["seconds"] < 25
    finally:
        children = Path(f"/proc/{hanging.pid}/task/{hanging.pid}/children").read_text().split()
        subprocess.run(["kill", "-KILL", *children, str(hanging.pid)], check=False)
        hanging.wait(20)


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.process
def test_a_process_that_is_frozen_does_not_hang() -> None:
    """As docker pause does it with cgroup v1, where it is shown as D."""
    if os.geteuid() or not (FREEZER / "cgroup.procs").exists():
        pytest.skip("it takes root and the freezer of cgroup v1")
    group = FREEZER / f"netdoctor-test-{os.getpid()}"
    sleeping = subprocess.Popen(["sleep", "60"])
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(sleeping.pid))
        (group / "freezer.state").write_text("FROZEN")
        end = time.monotonic() + 10
        while time.monotonic() < end and " D " not in Path(f"/proc/{sleeping.pid}/stat").read_text():
            time.sleep(0.05)
        assert " D " in Path(f"/proc/{sleeping.pid}/stat").read_text()
        assert sleeping.pid not in [one["pid"] for one in agent.processes("/")[0]]
    finally:
        (group / "freezer.state").write_text("THAWED")
        sleeping.kill()
        sleeping.wait(20)
        group.rmdir()


def test_the_first_two_minutes_are_no_finding() -> None:
    assert keys(HealthFacts(stuck=(Stuck(pid=7, name="python", seconds=119),))) == {"": Status.PASS}
    assert list(keys(HealthFacts(stuck=(Stuck(pid=7, name="python", seconds=121),)))) == ["process-stuck"]
