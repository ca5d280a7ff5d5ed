"""The file that brings its own Python along: it runs where there is no Python, and no libc either."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netdoctor.lab import Lab, missing_requirements
from netdoctor.report.save import save
from tests.repo.wheels import ROOT, copy_sources, download, once
from tests.report.build import sample_report
from tests.tui.test_terminal import Terminal

pytestmark = pytest.mark.process

TOOLS = ("cat", "gzip", "ls", "mkdir", "mktemp", "mount", "mv", "rm", "sh", "tail", "tar")
SIZE_MOST = 80e6
HELP_MOST_S = 1.5


class Box:
    """A root folder that holds a static busybox and netdoctor, and what runs in it."""

    def __init__(self, root: Path, busybox: str, onefile: Path) -> None:
        self.root = root
        for folder in ("bin", "dev", "etc", "proc", "root", "tmp", "srv"):
            (root / folder).mkdir(parents=True)
        shutil.copy(busybox, root / "bin")
        for tool in TOOLS:
            (root / "bin" / tool).symlink_to("busybox")
        shutil.copy(onefile, root / "bin" / "netdoctor")
        (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        for name, minor in (("null", 3), ("urandom", 9)):
            os.mknod(root / "dev" / name, 0o20666, os.makedev(1, minor))
            (root / "dev" / name).chmod(0o666)

    def argv(self, *command: str) -> list[str]:
        """In a PID namespace of its own: what is left of it ends with it."""
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root}/proc"]
        # A module system's variables are for another Python.
        env = ["HOME=/root", "PATH=/bin", "TERM=xterm-256color", "PYTHONHOME=/none", "PYTHONPATH=/none"]
        chroot = shutil.which("chroot") or "chroot"
        return [*unshare, "env", "-i", *env, chroot, str(self.root), *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*command), capture_output=True, text=True, timeout=120)

    def unpacked(self) -> list[str]:
        return os.listdir(self.root / "root/.cache/netdoctor")


def make_onefile(folder: Path) -> None:
    wheels = download(sys.executable, folder / "wheels")
    sources = copy_sources(folder / "netdoctor-sources")
    for argv in (
        ["sh", ROOT / "scripts" / "docker-install.sh", "build", sources, wheels],
        [sys.executable, ROOT / "scripts" / "onefile.py", wheels, folder / "netdoctor"],
    ):
        done = subprocess.run(
            argv, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def onefile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make onefile` makes, once for all workers of this run."""
    return once(tmp_path_factory, "onefile", make_onefile) / "netdoctor"


@pytest.fixture
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Box:
    if missing := missing_requirements():
        pytest.skip("no namespaces on this machine: " + "; ".join(missing))
    busybox = shutil.which("busybox")
    if not busybox or subprocess.run(["ldd", busybox], capture_output=True).returncode == 0:
        pytest.skip("no busybox that needs no libc: apt-get install busybox-static")
    return Box(tmp_path / "box", busybox, request.getfixturevalue("onefile"))


def test_starts_without_python_or_libc_and_unpacks_itself_once(box: Box) -> None:
    assert (box.root / "bin/netdoctor").stat().st_size < SIZE_MOST
    assert box.run("ls", "/lib", "/bin/python3").returncode != 0
    assert box.run("netdoctor", "--version").stdout.startswith("netdoctor ")
    first = box.unpacked()
    began = time.monotonic()
    done = box.run("netdoctor", "--help")
    assert time.monotonic() - began < HELP_MOST_S
    assert "usage: netdoctor" in done.stdout
    assert (done.returncode, done.stderr, box.unpacked()) == (0, "", first)


def test_two_first_starts_at_once_leave_one_copy(box: Box) -> None:
    argv = box.argv("netdoctor", "--version")
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert [(error, code) for _, error, code in ended] == [(b"", 0)] * 2
    assert len(box.unpacked()) == 1


def test_says_what_to_do_where_its_cache_runs_no_programs(box: Box) -> None:
    mount = "mount -t tmpfs -o noexec none /tmp && XDG_CACHE_HOME=/tmp netdoctor --version"
    done = box.run("sh", "-c", f"{mount}; code=$?; ls /tmp/netdoctor; exit $code")
    assert (done.returncode, done.stdout) == (2, "")
    assert "let XDG_CACHE_HOME name a folder where programs run" in done.stderr


@pytest.mark.pty
def test_draws_the_tui(box: Box) -> None:
    save(sample_report(), box.root / "srv" / "report.json")
    argv = box.argv("netdoctor", "tui", "/srv/report.json")
    with contextlib.closing(Terminal(argv, box.root)) as terminal:
        terminal.wait_for("NOT READY")
        terminal.keys("q")
        assert terminal.end() == 1
        terminal.assert_restored()


@pytest.mark.lab
def test_scans_nodes_over_ssh_and_judges_them(box: Box, lab4: Lab) -> None:
    work = box.root / "srv"
    lab4.write_hosts(work)
    config = work / "ssh_config"
    config.write_text(config.read_text().replace(str(work), "/srv"))
    lab4.break_("node1", "own-name-loopback")
    scan = ["netdoctor", "scan", "--ssh-config", "/srv/ssh_config", "/srv/hosts.txt", "--node", "node[0-1]"]
    done = box.run(*scan, "--only", "gloo.ifname")
    assert done.returncode == 1, done.stderr
    assert "\n[1] FAIL  " in done.stdout
    report = json.loads((box.root / ".netdoctor" / "last.json").read_text())
    assert report["matrix"]["nodes"] == ["node0", "node1"]
    assert [cause["nodes"] for cause in report["causes"]] == ["node1"]
