import subprocess
from pathlib import Path

import pytest

from netdoctor.checks.gpu.visible import RELOAD, gpu_visible
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status
from netdoctor.rules.cuda import visible

from ..build import cause, causes, host, node, said, session
from ..build_hw import gpu, gpus, no_gpus, pci


def test_silent_when_all_are_there() -> None:
    assert not said(gpu_visible(node(), gpus(), host()))
    assert not said(gpu_visible(node(gpus=8), gpus(), None))


def test_skips_without_gpus() -> None:
    (finding,) = said(gpu_visible(node(slots=8), no_gpus(), host()))
    assert (finding.status, finding.target) == (Status.SKIP, "n1")


def dark(nvml: str, code: int, message: str = "", **changes: object) -> GpuFacts:
    return gpus(nvml=nvml, nvml_code=code, nvml_message=message, devices=(), **changes)


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        pytest.param(dark("mismatch", 18, "Driver/library version mismatch"), "driver-mismatch", id="18"),
        pytest.param(dark("no_driver", 9), "driver-not-loaded", id="9"),
        pytest.param(dark("no_library", 12), "nvml-library-missing", id="12"),
        pytest.param(dark("no_permission", 4), "gpu-permission", id="4"),
        pytest.param(dark("error", 15, "GPU is lost"), "gpu-lost", id="15"),
        pytest.param(dark("error", 999, "Unknown Error"), "gpu-blocked-by-system", id="999"),
        pytest.param(gpus(devices=tuple(gpu(i) for i in range(7))), "gpu-hidden", id="one fewer"),
        pytest.param(
            gpus(devices=(*(gpu(i) for i in range(7)), gpu(7, error="GPU is lost"))), "gpu-lost", id="lost"
        ),
        pytest.param(
            gpus(devices=(*(gpu(i) for i in range(7)), gpu(7, error="Unknown Error"))),
            "gpu-error",
            id="error",
        ),
        pytest.param(
            gpus(
                devices=tuple(gpu(i) for i in range(7)), pci=(*(pci(i) for i in range(7)), pci(7, "vfio-pci"))
            ),
            "gpu-unbound",
            id="vfio",
        ),
        pytest.param(
            gpus(devices=tuple(gpu(i) for i in range(7)), forbidden=("/dev/nvidia7",)),
            "gpu-permission",
            id="one forbidden",
        ),
        pytest.param(dark("ok", 0, device_nodes=()), "gpu-device-node-missing", id="no device node"),
        pytest.param(
            gpus(
                devices=tuple(gpu(i) for i in range(7)),
                device_nodes=tuple(f"/dev/nvidia{i}" for i in range(7)),
            ),
            "gpu-device-node-missing",
            id="device node",
        ),
        pytest.param(
            dark("no_driver", 9, pci=(pci(0, "vfio-pci"), pci(1, "vfio-pci"))), "gpu-vfio", id="all vfio"
        ),
    ],
)
def test_classes(facts: GpuFacts, key: str) -> None:
    findings = said(gpu_visible(node(), facts, host()))
    assert causes(findings) == {key: {"n1"}}
    assert {f.status for f in findings} == {Status.FAIL}


def test_a_mismatch_is_reloaded_or_restarted() -> None:
    facts = dark("mismatch", 18, kernel_driver="550.54.14", library_driver="570.86.15")
    (finding,) = gpu_visible(node(), facts, host())
    assert finding.observed == "module 550.54.14, library 570.86.15"
    reload, restart = cause([finding], "driver-mismatch").fixes
    assert reload.loses
    assert restart.reboot
    (finding,) = gpu_visible(node(), dark("mismatch", 18, kernel_driver=None, library_driver=None), host())
    assert finding.observed == "module unknown, library another version"


@pytest.mark.parametrize("busy", ["", "nvidia_uvm"], ids=["idle", "in use"])
def test_a_reload_starts_again_what_it_stopped(tmp_path: Path, busy: str) -> None:
    for module in ("nvidia", "nvidia_uvm", "nvidia_peermem"):
        (tmp_path / module).mkdir()
    running = "nvidia-fabricmanager"
    fakes = (
        f'systemctl() {{ case "$*" in "-q is-active {running}") ;; -q*) return 1;; *) echo "$@";; esac; }}; '
        f'modprobe() {{ echo modprobe "$@"; case "$*" in *"{busy or "none"}"*) return 1;; esac; }}; '
    )
    shell = RELOAD.commands[0].shell.replace("/sys/module", str(tmp_path)).replace("nvidia-smi -L", "true")
    done = subprocess.run(["sh", "-c", fakes + shell], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (
        [
            f"stop {running}",
            "modprobe -r nvidia_peermem nvidia_uvm nvidia",
            "modprobe -a nvidia nvidia_peermem nvidia_uvm nvidia",
            f"start {running}",
        ],
        "",
        0,
    )


def test_a_container_gets_a_flag() -> None:
    facts = gpus(devices=tuple(gpu(i) for i in range(4)))
    findings = said(gpu_visible(node(), facts, host(container="docker")))
    fix = cause(findings, "gpu-hidden-in-container").fixes[0]
    assert "--gpus all" in fix.commands[0].shell


def test_a_container_without_gpus_may_be_meant_so() -> None:
    facts = dark("no_library", 12, device_nodes=())
    findings = said(gpu_visible(node(), facts, host(container="docker")))
    assert causes(findings) == {"gpu-not-in-container": {"n1"}}
    assert findings[0].status is Status.WARN
    no_driver = dark("no_driver", 9, device_nodes=(), pci=(pci(0, None),))
    assert causes(said(gpu_visible(node(), no_driver, host(container="docker")))) == {
        "driver-not-loaded": {"n1"}
    }
    listed = said(gpu_visible(node(gpus=8), facts, host(container="docker")))
    assert causes(listed) == {"nvml-library-missing": {"n1"}}


def test_a_variable_that_hides_gpus_is_a_warning() -> None:
    findings = said(gpu_visible(node(), gpus(cuda_visible_devices="0,1"), host()))
    assert [f.status for f in findings] == [Status.WARN]
    assert causes(findings) == {"gpu-hidden-by-variable": {"n1"}}
    assert not said(gpu_visible(node(), gpus(cuda_visible_devices="7,6,5,4,3,2,1,0"), host()))
    # What starts from this shell sees none: torchrun there has no GPU. (Seen on an H100.)
    for transport, status in (("local", Status.FAIL), ("ssh", Status.WARN)):
        facts = gpus(cuda_visible_devices="9")
        (hidden,) = said(gpu_visible(node(), facts, host(), session=session(transport=transport)))
        assert hidden.status is status


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("0", 1),
        ("0,1", 2),
        ("0,-1,1", 1),
        ("0,9,1", 1),
        ("GPU-a,GPU-b", 2),
        ("NoDevFiles", 0),
        ("0,0", 1),
    ],
)
def test_visible_devices_as_cuda_reads_them(text: str, count: int) -> None:
    assert len(visible(text, 8)) == count


def test_listed_gpus_that_are_not_on_the_bus_fail() -> None:
    assert causes(said(gpu_visible(node(gpus=8), no_gpus(), host()))) == {"gpu-absent": {"n1"}}


def test_another_error_is_unknown() -> None:
    (finding,) = gpu_visible(node(), dark("error", 10, "Timeout"), host())
    assert finding.status is Status.UNKNOWN


def test_without_a_readable_pci_bus_nothing_says_that_all_are_visible() -> None:
    (finding,) = gpu_visible(node(), gpus(pci=()), host())
    assert finding.status is Status.UNKNOWN
    assert not list(gpu_visible(node(gpus=8), gpus(pci=()), host()))
