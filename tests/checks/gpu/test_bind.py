"""The fix for GPUs that another driver holds, on the lab's tree under the kernel's rules for drivers."""

import os
import subprocess
from pathlib import Path

import pytest

from netdoctor.agent.facts import gpu as facts_gpu
from netdoctor.checks.gpu.visible import gpu_visible
from netdoctor.facts.gpu import PciGpu
from netdoctor.lab import hardware
from netdoctor.lab.state import State
from netdoctor.model import Finding, Kind
from tests.agent import trees

from ..build import host, node, said
from ..build_hw import gpu, gpus


class Kernel:
    """What writes to the control files of a PCI bus do. Each is a pipe, read after every command."""

    def __init__(self, root: Path, driver: str) -> None:
        self.root, self.loaded = root, driver != "nouveau"
        tree = hardware.healthy(
            State(id="x", nodes=["n1"], subnet="10.0.0", ssh_port=1, user="u", gpus=2), "n1"
        )
        links = {path: to for path, to in tree.links.items() if "/drivers/" not in path}
        override = "vfio-pci\n" if driver == "vfio-pci" else "(null)\n"
        for i in range(2):
            folder = f"/sys/devices/{hardware.GPU_ROOT.format(i=i)}/{hardware.gpu_bus(i)}"
            links[f"{folder}/driver"] = f"../../../../bus/pci/drivers/{driver}"
            tree.files[f"{folder}/driver_override"] = override
        trees.make(root, {**tree.files, **{f"{path} -> {to}": "" for path, to in links.items()}})
        self.pipes = {}
        for place in ("drivers_probe", f"drivers/{driver}/unbind", "drivers/nvidia/bind"):
            path = root / "sys/bus/pci" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(path)
            self.pipes[path.name] = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def bound(self) -> list[PciGpu]:
        return [PciGpu(**row) for row in facts_gpu.pci_gpus(str(self.root))[0]]

    def run(self, shell: str) -> None:
        """Do one command of the fix, and what the kernel does then."""
        if shell == "modprobe nvidia":
            # nvidia_init_module: "No NVIDIA GPU found", when another driver has all of them.
            assert self.loaded or None in {one.driver for one in self.bound()}
            self.loaded = True
            return
        done = subprocess.run(
            ["sh", "-c", shell.replace("/sys/", f"{self.root}/sys/").replace("/etc/", f"{self.root}/etc/")],
            timeout=20, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0 or shell.startswith("grep"), done.stderr
        for what, fd in self.pipes.items():
            for address in self.read(fd).split():
                device = self.root / "sys/bus/pci/devices" / address
                driver = device / "driver"
                if what == "unbind":
                    driver.unlink()
                elif not driver.is_symlink() and self.loaded:
                    wanted = (device / "driver_override").read_text().strip()
                    assert wanted in ("nvidia", "(null)", ""), f"bind of {address}: no such device"
                    driver.symlink_to("../../../../bus/pci/drivers/nvidia")

    def read(self, fd: int) -> str:
        try:
            return os.read(fd, 4096).decode()
        except BlockingIOError:
            return ""


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau"])
@pytest.mark.parametrize("loaded", [True, False], ids=["NVML answers", "no driver"])
def test_the_fix_for_a_gpu_that_another_driver_holds_hands_it_over(
    tmp_path: Path, driver: str, loaded: bool
) -> None:
    kernel = Kernel(tmp_path, driver)

    def judged() -> list[Finding]:
        boards = tuple(kernel.bound())
        if all(board.driver == "nvidia" for board in boards):
            return said(gpu_visible(node(), gpus(pci=boards, devices=(gpu(0), gpu(1))), host()))
        dark = {} if loaded else {"nvml": "no_driver", "nvml_code": 9}
        return said(gpu_visible(node(), gpus(pci=boards, devices=(), **dark), host()))

    (finding,) = judged()
    assert finding.cause is not None
    claimed, fix = finding.cause.fixes
    assert (claimed.kind, fix.root) == (Kind.LOOK, True)
    for command in fix.commands:
        kernel.run(command.shell)
    assert [board.driver for board in kernel.bound()] == ["nvidia", "nvidia"]
    assert not judged()
