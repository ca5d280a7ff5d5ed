"""Debian's Slurm on lab nodes: one slurmctld, a slurmd and a munged on each, and netdoctor for their scripts.

Everything is made inside the nodes, by whose processes and files it goes when the lab does.
"""

import importlib.metadata
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.lab import node as nodes
from tests.conftest import Maker
from tests.scan.harness import REPO, until

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
# As a site has it that counts CPUs; nothing of cgroups, which lab nodes have none of.
CONF = """\
ClusterName=lab
SlurmctldHost={first}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=10 State=UP
"""
MUNGE = (
    "install -d -m 755 -o root /run/munge /var/log/munge /var/lib/munge && chown root: /etc/munge && munged"
)
# What netdoctor imports for a scan, with what that imports in turn.
NEEDED = (
    *("fabric", "paramiko", "gevent", "ClusterShell", "msgspec", "psutil", "nvidia-ml-py", "PyYAML"),
    "ahocorasick-rs",
)
WRAPPER = """\
#!/bin/sh
PYTHONPATH={site} exec {python} -m netdoctor "$@"
"""


@dataclass(frozen=True)
class Slurm:
    """A lab with Slurm on it. Its first node has the controller, and is where people submit."""

    lab: Lab
    site: Path
    gpus: int = 0  # of each node, which device cgroups hand out

    @property
    def first(self) -> str:
        return self.lab.nodes[0]

    def run(self, *argv: str, node: str = "", check: bool = True, timeout: float = 60) -> str:
        """What a command prints on the first node, or on another one."""
        done = self.lab.run(
            node or self.first,
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}"
        return str(done.stdout)

    def write(self, files: Mapping[str, str | bytes | None], mode: int = 0o755, *on: str) -> None:
        for node in on or self.lab.nodes:
            nodes.write(self.lab.state, node, files, mode)

    def state(self, node: str) -> str:
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%t").strip()

    def submit(self, text: str, *options: str) -> str:
        """Hand a batch file in; returns the number of the job."""
        self.write({"/job.sbatch": text}, 0o755, self.first)
        return self.run("sbatch", "--parsable", "--output=/job-%j.out", *options, "/job.sbatch").strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", "-o", number)))

    def ended(self, number: str, timeout: float = 120) -> tuple[str, str]:
        """(exit code as Slurm has it, what the job wrote), when it is over."""
        over = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
        until(lambda: self.job(number)["JobState"] in over, f"job {number} is over", timeout)
        about = self.job(number)
        return about["ExitCode"], self.run("cat", f"/job-{number}.out", node=about["BatchHost"], check=False)

    def configure(self, *lines: str) -> None:
        """slurm.conf with these lines, read again by all."""
        rows = [f"NodeName={n} NodeAddr={self.lab.address(n)} CPUs=4 State=UNKNOWN" for n in self.lab.nodes]
        conf = CONF.format(
            first=self.first,
            address=self.lab.address(self.first),
            nodes="\n".join(rows),
            names=",".join(self.lab.nodes),
        )
        cgroup = "CgroupPlugin=cgroup/v1\n"
        if self.gpus:
            gres = f" CPUs=4 Gres=gpu:{self.gpus} "
            conf = conf.replace("task/none", "task/cgroup").replace(" CPUs=4 ", gres) + "GresTypes=gpu\n"
            cgroup += "CgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\n"
            gres = f"Name=gpu File=/dev/nvidia[0-{self.gpus - 1}]\n"
            self.write({"/etc/slurm/gres.conf": gres}, 0o644)
        text = "".join([conf, *(f"{line}\n" for line in lines)])
        self.write({"/etc/slurm/slurm.conf": text, "/etc/slurm/cgroup.conf": cgroup}, 0o644)

    def reconfigure(self, *lines: str) -> None:
        self.configure(*lines)
        self.run("scontrol", "reconfigure")

    def start(self) -> None:
        key = secrets.token_bytes(128)
        for node in self.lab.nodes:
            self.write({"/etc/munge/munge.key": key}, 0o600, node)
            self.run("sh", "-c", MUNGE, node=node)
            self.run("mkdir", "-p", "/var/spool/slurmctld", "/var/spool/slurmd", node=node)
        self.run("slurmctld")
        for node in self.lab.nodes:
            self.run("slurmd", "-N", node, node=node)
        until(
            lambda: all(self.state(node) == "idle" for node in self.lab.nodes), "Slurm's nodes are idle", 30
        )

    def install(self) -> None:
        """netdoctor as a command of every node."""
        python = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        self.write({"/usr/local/bin/netdoctor": WRAPPER.format(site=self.site, python=python)})

    def calm(self) -> None:
        """As it was in the beginning: no job, report, prolog or health check, healthy nodes that are idle."""
        self.run("scancel", "--user=root")
        for node in self.lab.nodes:
            self.run("rm", "-rf", "/.netdoctor", node=node)
        self.reconfigure()
        self.lab.heal()
        self.install()
        until(lambda: not any(map(self._checks, self.lab.nodes)), "a health check that has begun is over")
        until(self._resumed, "all nodes are idle again")

    def _checks(self, node: str) -> bool:
        """Whether a health check runs there, which may still drain the node."""
        return bool(self.run("pgrep", "-f", "netdoctor-health", node=node, check=False))

    def _resumed(self) -> bool:
        states = {node: self.state(node) for node in self.lab.nodes}
        for node in (node for node, state in states.items() if state.startswith("drain")):
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        return set(states.values()) == {"idle"}


def copied(folder: Path) -> None:
    """netdoctor and what it imports, where nodes can read it: this environment may lie below /tmp."""
    todo, seen = list(NEEDED), set[str]()
    while todo:
        name = todo.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of other Pythons
        needs = (text for text in found.requires or () if "extra ==" not in text)
        todo += [match[0] for text in needs if (match := re.match(r"[\w.-]+", text))]
        for file in found.files or ():
            if file.parts[0] != ".." and (file.suffix in (".py", ".pyc", ".so") or file.name == "METADATA"):
                place = folder / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(found.locate_file(file)), place)
    shutil.copytree(REPO / "netdoctor", folder / "netdoctor")


@pytest.fixture(scope="session")
def site() -> Iterator[Path]:
    """A folder of this machine that all nodes see, and that no other user writes to."""
    folder = Path(tempfile.mkdtemp(prefix="netdoctor-slurm-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        copied(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_lab(make_lab: Maker, site: Path) -> Iterator[Slurm]:
    yield from _slurm(make_lab, site, 3, share=[str(site)])


# A part of the machine's device cgroups as all that the node has, and GPUs whose numbers can be told apart:
# those of /dev/full and /dev/zero, which no step has to open. There, a node's cgroups go with these lines.
HELD = """\
mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/devices /run/machine
mount -t cgroup -o devices none /run/machine && mkdir -p /run/machine/{name}
mount --bind /run/machine/{name} /sys/fs/cgroup/devices && umount /run/machine || exit
rm /dev/nvidia[01] && mknod -m 666 /dev/nvidia0 c 1 7 && mknod -m 666 /dev/nvidia1 c 1 5
"""
LET_GO = """\
pkill -x slurmd; while pgrep -x 'slurmd|slurmstepd' > /run/left; do sleep 0.1; done
mount -t cgroup -o devices none /run/machine || exit 0
for try in 1 2 3 4 5; do
    find /run/machine/{name} -depth -type d -exec rmdir {{}} \\; 2> /run/left
    [ -d /run/machine/{name} ] || break
    sleep 0.2
done
[ ! -d /run/machine/{name} ]
"""


@pytest.fixture
def held(make_lab: Maker, site: Path) -> Iterator[Slurm]:
    """Two nodes, each with two pretended GPUs, of which Slurm lets a step open those that it gave it."""
    if not re.search(r" cgroup \S*\bdevices\b", Path("/proc/mounts").read_text("utf-8")):
        pytest.skip("no device cgroups of version 1 on this machine")
    name = f"netdoctor-held-{secrets.token_hex(4)}"
    made = _slurm(make_lab, site, 2, gpus=2, hcas=1, before=HELD, held=2, name=name)
    slurm = next(made)
    slurm.lab.install_torch("2.6.0+cu124", "12.4", "2.21.5")
    try:
        yield slurm
    finally:
        slurm.run("scancel", "--user=root")
        for node in slurm.lab.nodes:
            slurm.run("sh", "-c", LET_GO.format(name=f"{name}-{node}"), node=node)
        made.close()


@pytest.fixture(scope="session")
def via_lab(make_lab: Maker, site: Path) -> Iterator[Slurm]:
    yield from _slurm(make_lab, site, 4, gpus=2, hcas=1)


def _slurm(
    make_lab: Maker,
    site: Path,
    count: int,
    *,
    before: str = "",
    held: int = 0,
    name: str = "",
    **options: object,
) -> Generator[Slurm]:
    """before: what every node runs first, with a name for it; held: GPUs that Slurm hands out."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"no {', '.join(missing)} on this machine: apt-get install slurmctld slurmd slurm-client munge"
        )
    lab = make_lab(count, **options)
    slurm = Slurm(lab, site, held)
    try:
        for node in lab.nodes if before else ():
            slurm.run("sh", "-c", before.format(name=f"{name}-{node}"), node=node)
        slurm.install()
        slurm.configure()
        slurm.start()
        yield slurm
    finally:
        lab.down()


@pytest.fixture
def slurm(slurm_lab: Slurm) -> Iterator[Slurm]:
    """Slurm without jobs, on healthy nodes."""
    yield slurm_lab
    slurm_lab.calm()


@pytest.fixture
def via(via_lab: Slurm) -> Iterator[Slurm]:
    """The same on four nodes with two pretended GPUs, an HCA and a torch each."""
    via_lab.lab.install_torch("2.6.0+cu124", "12.4", "2.21.5")
    yield via_lab
    via_lab.calm()


__all__ = ["Slurm", "held", "site", "slurm", "slurm_lab", "via", "via_lab"]
