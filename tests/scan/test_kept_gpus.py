"""A real device cgroup keeps a GPU of a lab node from its logins."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.lab.hardware import NVML_FILE
from tests.scan.harness import changed, scan

# NVIDIA's own number of a character device: the lab's stand-ins have that of /dev/null.
MAJOR, GPU = 195, "/dev/nvidia1"


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Path]:
    """A cgroup of version 1 that forbids the second GPU."""
    root = tmp_path / "devices"
    root.mkdir()
    done = subprocess.run(["mount", "-t", "cgroup", "-o", "devices", "none", root], capture_output=True)
    if done.returncode:
        pytest.skip("no device cgroups of version 1 on this machine")
    group = root / f"netdoctor-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "devices.deny").write_text(f"c {MAJOR}:1 rwm")
        yield group
        for pid in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        group.rmdir()
    finally:
        subprocess.run(["umount", root], check=True)


def test_a_gpu_that_logins_may_not_see(hw_lab: Lab, folder: Path, devices: Path) -> None:
    do = f"rm {GPU}; mknod -m 666 {GPU} c {MAJOR} 1; sed -i s/^count=2/count=1/ {NVML_FILE}"
    undo = f"rm {GPU}; mknod -m 666 {GPU} c 1 3; sed -i s/^count=1/count=2/ {NVML_FILE}"
    with changed(hw_lab, "node2", do, undo):
        for pid in hw_lab.pids("node2"):
            (devices / "cgroup.procs").write_text(str(pid))
        found = scan(hw_lab, folder, "--only", "gpu.visible", "--only", "gpu.count")
    assert found.state == "undecided", found.summary()
    assert found.keys == ["gpu-kept-from-login"], found.summary()
    assert f"a device cgroup blocks {GPU}" in " ".join(found.cause("gpu-kept-from-login")["seen"])
    cells = {check: [found.cell(check, n) for n in hw_lab.nodes] for check in ("gpu.visible", "gpu.count")}
    assert cells == {"gpu.visible": [".", ".", "?", "."], "gpu.count": [".", ".", "-", "."]}


def test_a_gpu_that_its_mode_closes_to_the_login_user(hw_lab: Lab, folder: Path) -> None:
    """As NVML 580.159 does on an H100: such a GPU is not counted, and nothing else is said of it."""
    with changed(hw_lab, "node2", f"chmod 600 {GPU}", f"chmod 666 {GPU}"):
        found = scan(hw_lab, folder, "--only", "gpu.visible", "--ssh-user", "trainer")
        as_root = scan(hw_lab, folder, "--only", "gpu.visible")
        cause = found.cause("gpu-permission")
        (fix,) = [one for one in cause["fixes"] if "chmod" in one["commands"][0]["shell"]]
        on_node = fix["commands"][0]["inner"]  # the lab has no sudo
        hw_lab.run("node2", ["sh", "-c", on_node.removeprefix("sudo ")], check=True)
        healed = scan(hw_lab, folder, "--only", "gpu.visible", "--ssh-user", "trainer")
    assert (found.keys, cause["node_list"]) == (["gpu-permission"], ["node2"]), found.summary()
    assert f"{GPU} may not be opened by this user" in " ".join(cause["seen"])
    assert (as_root.keys, healed.keys) == ([], [])
