import subprocess
from pathlib import Path

import pytest

from netdoctor.checks._shared.install import install_driver
from netdoctor.checks.gpu.driver import gpu_driver
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status

from ..build import causes, found
from ..build_hw import all_gpus, gpus, no_gpus


def driver(version: str, **changes: object) -> GpuFacts:
    return gpus(driver_version=version, kernel_driver=version, library_driver=version, **changes)


def test_says_the_version_when_equal() -> None:
    assert {f.observed for f in gpu_driver(all_gpus(3))} == {"570.86.15"}


def test_skips_without_gpus() -> None:
    (finding,) = gpu_driver({"n1": no_gpus()})
    assert finding.status is Status.SKIP
    assert found(gpu_driver({"n1": gpus(), "n2": no_gpus()}))["n2"].status is Status.SKIP


def test_another_branch_is_a_warning_with_a_fix() -> None:
    findings = list(gpu_driver(all_gpus(3, n1=driver("550.54.14"))))
    assert causes(findings) == {"driver-branch": {"n1"}}
    assert found(findings)["n1"].status is Status.WARN


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "apt-get install --yes nvidia-driver-570-server"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf module install -y nvidia-driver:570-dkms"),
        ('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n', ""),
    ],
    ids=["Ubuntu", "RHEL's family", "another"],
)
def test_a_driver_comes_from_the_node_s_own_distribution(tmp_path: Path, release: str, says: str) -> None:
    (tmp_path / "os-release").write_text(release)
    shell = install_driver(570).commands[0].shell.replace("/etc/os-release", str(tmp_path / "os-release"))
    fakes = 'apt-get() { echo apt-get "$@"; }; dnf() { echo dnf "$@"; }; '
    done = subprocess.run(["bash", "-c", fakes + shell], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode == 0) == (says, bool(says))
    assert says or done.stderr == "branch 570 as Debian GNU/Linux 12 installs it\n"


def test_within_a_branch_it_is_named_too() -> None:
    assert causes(gpu_driver(all_gpus(3, n2=driver("570.124.06")))) == {"driver-version": {"n2"}}


def test_another_branch_somewhere_does_not_hide_another_version() -> None:
    nodes = all_gpus(5, n2=driver("570.124.06"), n3=driver("550.54.14"))
    assert causes(gpu_driver(nodes)) == {"driver-version": {"n2"}, "driver-branch": {"n3"}}


def test_a_tie_blames_both() -> None:
    assert causes(gpu_driver(all_gpus(2, n2=driver("550.54.14")))) == {"driver-branch": {"n1", "n2"}}


def test_an_upgrade_that_waits_for_a_restart() -> None:
    facts = gpus(library_driver="575.51.03")
    assert causes(gpu_driver({"n1": facts})) == {"driver-upgrade-pending": {"n1"}}


def test_an_unread_version_is_not_green() -> None:
    unread = gpus(driver_version=None, kernel_driver=None)
    for facts in ({"n2": unread}, {"n1": gpus(), "n2": unread}):
        assert found(gpu_driver(facts))["n2"].status is Status.UNKNOWN
