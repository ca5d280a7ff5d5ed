"""Faults of a node's limits, interpreter and environment: each is one cause, and its fix heals it."""

import json
import resource
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.lab import node as nodes
from tests.agent.harness import interpreters
from tests.checks.host import controller
from tests.checks.host.controller import Controller
from tests.conftest import Maker
from tests.scan.faults import LOGIN, Case, case, found, hold, put, together, write_job
from tests.scan.harness import PART, apply_fix, changed, scan, verify

ALL = ("node0", "node1", "node2", "node3")
# All of these are seen by passive questions.
QUICK = ("--profile", "quick")
# Nodes without a GPU: unless somebody says otherwise the job is gloo's, which needs less of a node.
NCCL = (*QUICK, "--backend", "nccl")
# What a lab on this machine may raise an open-files limit to.
MOST_FILES = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)


# --- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    together([
        case("node2 nofile", "nofile-low", "host.nofile", said="256 files", fix="pgrep -o -x sshd"),
        case(
            f"node2 nofile soft=256 hard={MOST_FILES}", "nofile-low", "host.nofile",
            said="256 files", id="node2 nofile, soft only",
        ),
        case(
            "node2 small-shm", "shm-small", "host.shm", said="64 MiB free of 64 MiB",
            fix="remount",
        ),
        case("node2 small-shm size=512m", "shm-small", "host.shm", status="warn"),
        case(
            "node2 shm-left", "shm-left-over", "host.shm", status="warn", look=True,
            said="200 MiB of /dev/shm are files that no process uses",
        ),
        case(
            ("node1 small-shm", "node2 small-shm"), "shm-small", "host.shm", nodes=("node1", "node2"),
        ),
        case("node2 full-disk", "tmp-full", "host.disk", said="free of 8 MiB", look=True),
        case(
            "node2 sysctl", "tuning-sysctl", "host.tuning", status="warn",
            said="net.ipv4.tcp_rmem 4096 8192 16384, on most nodes", fix="sysctl -w",
        ),
        case(
            "node2 mount-silent", "mount-hangs-mnt-data", "host.mounts", status="warn",
            said="no answer within 4 s", fix="/mnt/data /proc/self/mountinfo",
        ),
        case(
            "node2 mount-silent server=gone", "mount-broken-mnt-data", "host.mounts", status="warn",
            said="has ended", fix="/mnt/data /proc/self/mountinfo",
        ),
    ]),
)  # fmt: skip
def test_limits(lab4: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    if MOST_FILES < 4096 and any("nofile" in one.key for one in cases):
        pytest.skip(f"this machine lets nobody open more than {MOST_FILES} files")
    hold(lab4, tmp_path, *cases, args=NCCL)


COPIES = """
mkdir -p /srv/code /srv/full /srv/many
echo 'print(1)' > /srv/code/train.py; echo weights > /srv/model.bin; echo 'lr: 1' > /srv/conf.yaml
"""
SPOILT = {
    "node1": "echo 'print(2)' > /srv/code/train.py; rm /srv/conf.yaml",
    "node2": "echo weighty > /srv/model.bin; mount -t tmpfs -o size=2g,nr_inodes=8 many /srv/many;"
    " touch /srv/many/1 /srv/many/2 /srv/many/3 /srv/many/4 /srv/many/5 /srv/many/6 /srv/many/7",
}


def test_paths_of_the_job(lab4: Lab, tmp_path: Path) -> None:
    """Copies that differ or are missing, no space, no inodes, and a mount that hangs."""
    for node in lab4.nodes:
        lab4.run(node, ["sh", "-c", COPIES + SPOILT.get(node, "")])
    lab4.run("node0", ["sh", "-c", "mount -t tmpfs -o ro,size=1m full /srv/full"])
    put(lab4, ("node3 full-disk path=/srv/full", "node3 mount-silent path=/srv/code"))
    words = ("code", "model.bin", "conf.yaml", "full", "many")
    paths = [word for name in words for word in ("--path", f"/srv/{name}")]
    try:
        scanned = scan(lab4, tmp_path, *QUICK, *paths, "--path", "~")
    finally:
        lab4.heal()
        for node in lab4.nodes:
            end = "umount -l /srv/full /srv/many 2>/dev/null; rm -rf /srv/*"
            lab4.run(node, ["sh", "-c", end], capture_output=True)
    assert found(scanned) == {
        "path-entries-srv-code": ("node1",),
        "path-missing-srv-conf-yaml-2a394f51": ("node1",),
        "path-file-srv-model-bin-77a3ccbd": ("node2",),
        "inodes-out-srv-many": ("node2",),
        "path-entries-srv-many": ("node2",),
        "mount-hangs-srv-code": ("node3",),
        "disk-full-srv-full": ("node3",),
    }, scanned.summary()
    assert (scanned.state, scanned.code) == ("not_ready", 1)
    # So long as one path of a node hangs, what else is said of its paths stands under that.
    hidden = {one["check"] for one in scanned.cause("mount-hangs-srv-code")["explains"]}
    assert hidden == {"path.same"}, scanned.summary()
    (shared,) = [row["summary"] for row in scanned.report["results"] if row["check"] == "fs.shared"]
    assert "/srv/model.bin is local: each of 4 nodes has its own" in shared


SHARE_FAULTS = {
    "node1": "mount -t tmpfs other {share}",
    "node2": "mount --bind {share} {share} && mount -o remount,ro,bind {share}",
    "node3": "mkdir /srv/out && mount -t tmpfs -o size=4k x /srv/out && head -c 4096 /dev/zero >/srv/out/x",
}


@pytest.fixture
def share() -> Iterator[Path]:
    """A folder that nodes of a lab may be given: their /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="nd", dir="/var/tmp") as folder:
        yield Path(folder)


def test_folders_that_are_not_shared(make_lab: Maker, tmp_path: Path, share: Path) -> None:
    """A node with a folder of its own, one that may only read, and one whose disk is full."""
    lab = make_lab(4, share=[str(share)])
    options = ("--only", "fs.write", "--write-test", str(share))
    scanned = scan(lab, tmp_path, *options)
    assert (scanned.code, scanned.keys) == (0, []), scanned.summary()
    for node, shell in SHARE_FAULTS.items():
        lab.run(node, ["sh", "-c", shell.format(share=share)], check=True)
    scanned = scan(lab, tmp_path, *options, "--write-test", "/srv/out")
    keys = {key.partition("-var-tmp-")[0]: key for key in scanned.keys}
    assert {key: found(scanned)[whole] for key, whole in keys.items()} == {
        "share-apart": ("node1",),
        "share-read-only": ("node2",),
        "share-full-srv-out": ("node3",),
        "share-missing-srv-out": ("node0", "node1", "node2"),
    }, scanned.summary()
    apply_fix(scanned, scanned.cause("share-full-srv-out"))
    for node in ("node1", "node2"):
        lab.run(node, ["umount", str(share)], check=True)
    verify(scanned, scanned.cause(keys["share-read-only"]))
    part = json.loads((tmp_path / PART).read_text("utf-8"))
    assert {cause["key"] for cause in part["causes"]} == {"share-missing-srv-out"}
    for node in lab.nodes:
        look = ["sh", "-c", f"ls -A {share} /srv/out"]
        assert b"netdoctor" not in lab.run(node, look, capture_output=True).stdout


PTH = "$(python3 -c 'import site; print(site.getsitepackages()[0])')/a.pth"


@pytest.mark.parametrize("profile", [pytest.param("quick", marks=pytest.mark.weekly), "launch"])
def test_pythons_that_do_not_start(lab4: Lab, folder: Path, profile: str) -> None:
    """One that a file of site-packages ends, and one that waits there: all else is judged as ever."""
    ends = f"echo \"import os; print('no licence', flush=True); os._exit(7)\" > {PTH}"
    waits = f"echo 'import time; time.sleep(1000)' > {PTH}"
    off = "rm $(python3 -S -c 'import site; print(site.getsitepackages()[0])')/a.pth"
    with changed(lab4, "node1", ends, off), changed(lab4, "node2", waits, off):
        scanned = scan(lab4, folder, "-p", profile)
        assert found(scanned) == {"python-start": ("node1", "node2")}, scanned.summary()
        assert (scanned.state, scanned.code) == ("not_ready", 1)
        text = " ".join(scanned.text.split())
        assert "ended with exit code 7: no licence" in text
        assert "did not end in 7 s" in text
        assert "not installed" not in text
        assert [scanned.cell("sw.start", f"node{i}") for i in range(4)] == [".", "X", "X", "."]
        assert [scanned.cell("sw.torch", f"node{i}") for i in (1, 2)] == ["b", "b"]
        assert scanned.cell("host.shm", "node1") == "."
        apply_fix(scanned, scanned.cause("python-start"))
    done = verify(scanned, scanned.cause("python-start"))
    assert done.returncode == 0, done.stdout + done.stderr


BASHRC = """[ -z "$PS1" ] && return
echo "modules of node2"
export CUDA_HOME=/opt/cuda LD_LIBRARY_PATH=/opt/cuda/lib64
"""


def test_what_stands_below_the_guard_of_bashrc_is_not_there_for_pdsh(lab4: Lab, tmp_path: Path) -> None:
    files = {"~/.bashrc": BASHRC, "~/.bash_profile": ". ~/.bashrc\n", "~/.hushlogin": ""}
    shell = "".join(f"cat >{name} <<'END'\n{text}END\n" for name, text in files.items())
    lab4.run("node2", ["sh", "-c", f"mkdir -p ~/kept; mv ~/.bash* ~/kept; {shell}"], check=False)
    try:
        scanned = scan(lab4, tmp_path, "--only", "env.login", "--launcher", "pdsh")
        told = scan(lab4, tmp_path, "--only", "env.login", "--launcher", "torchrun")
    finally:
        back = "rm -f ~/.bashrc ~/.bash_profile ~/.hushlogin; mv ~/kept/.bash* ~/; rmdir ~/kept"
        lab4.run("node2", ["sh", "-c", back], check=False)
    assert found(scanned) == {"env-login-only": ("node2",)}, scanned.summary()
    assert "above line 1 of ~/.bashrc" in scanned.text
    assert "CUDA_HOME: /opt/cuda" in scanned.text
    assert (told.code, told.keys) == (0, []), told.summary()


def test_login_shells_that_never_end_or_take_another_python(lab4: Lab, folder: Path) -> None:
    named = ("--only", "env.shell")
    healthy = scan(lab4, folder, *named)
    assert (healthy.code, healthy.keys) == (0, []), healthy.summary()
    assert [healthy.cell("env.shell", node) for node in lab4.nodes] == ["."] * 4
    waits = "echo 'exec sleep 1000' > /etc/profile.d/zz-wait.sh"
    other = "mkdir /opt/x && ln -s $(command -v python3) /opt/x/python3; echo 'PATH=/opt/x:$PATH; "
    other += "export LD_LIBRARY_PATH=/opt/cuda/lib64' >/etc/profile.d/zz-other.sh"
    with (
        changed(lab4, "node1", waits, "rm /etc/profile.d/zz-wait.sh"),
        changed(lab4, "node2", other, "rm -r /opt/x /etc/profile.d/zz-other.sh"),
    ):
        scanned = scan(lab4, folder, *named)
        assert found(scanned) == {
            "env-shell-no-end": ("node1",),
            "env-shell-differs": ("node2",),
        }, scanned.summary()
        assert (scanned.state, scanned.code) == ("not_ready", 1)
        text = " ".join(scanned.text.split())
        assert "bash -l -c runs no command: no answer in 10 s" in text
        assert "bash -l -c has other values of LD_LIBRARY_PATH and python3 than sh -c" in text
        apply_fix(scanned, scanned.cause("env-shell-no-end"))
    assert verify(scanned, scanned.cause("env-shell-no-end")).returncode == 0


MEMLOCK = [
    case("node2 memlock", "memlock-low", "host.memlock", said="64 KiB", fix="zz-netdoctor-memlock.conf"),
    case(
        ("node1 memlock", "node3 memlock soft=1m"), "memlock-low", "host.memlock", nodes=("node1", "node3"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("one", MEMLOCK)
def test_memlock_is_those_nodes_own_fault(hw_lab: Lab, tmp_path: Path, one: Case) -> None:
    hold(hw_lab, tmp_path, one, args=QUICK)


def test_memlock_does_not_matter_without_hcas(lab4: Lab, tmp_path: Path) -> None:
    put(lab4, ("node2 memlock",))
    scanned = scan(lab4, tmp_path, *QUICK)
    assert (scanned.code, scanned.report["causes"]) == (0, []), scanned.summary()
    assert scanned.cell("host.memlock", "node2") == "-"


def test_no_fix_of_a_node_is_one_for_containers(lab4: Lab, tmp_path: Path) -> None:
    put(lab4, ("node1 nofile", "node2 small-shm"))
    scanned = scan(lab4, tmp_path, *QUICK)
    assert found(scanned) == {"nofile-low": ("node1",), "shm-small": ("node2",)}, scanned.summary()
    assert "docker" not in scanned.text
    # gloo starts all the same, and the findings say what would not.
    assert (scanned.state, scanned.code) == ("ready", 0), scanned.summary()
    assert all("NCCL" in " ".join(cause["seen"]) for cause in scanned.report["causes"])


# --- interpreters -------------------------------------------------------------------------------------


def test_interpreters(lab4: Lab, tmp_path: Path) -> None:
    aside = "/usr/local/lib/netdoctor-lab-aside/no-python/usr/bin/python3"
    put(lab4, ("node1 old-python version=3.5.3", "node2 old-python version=2.7.18", "node3 no-python"))
    scanned = scan(lab4, tmp_path, *QUICK)
    assert scanned.code == 1
    assert found(scanned) == {
        "ssh-old-python": ("node1", "node2"),
        "ssh-interpreter": ("node3",),
    }, scanned.summary()
    for key, *words in (("ssh-old-python", "3.5.3", "2.7.18"), ("ssh-interpreter", "python3")):
        cause = scanned.cause(key)
        assert all(word in " ".join(cause["seen"]) for word in words), cause["seen"]
        assert "python=" in " ".join(f["text"] for f in cause["fixes"])
        assert len(cause["explains"]) > 20
    # The interpreters that they have beside.
    named = tmp_path / "with-python.txt"
    named.write_text(
        f"node0\nnode1 python=/usr/bin/python3\nnode2 python=/usr/bin/python3\nnode3 python={aside}\n"
    )
    healed = scan(lab4, tmp_path, *QUICK, hosts=str(named))
    assert (healed.code, found(healed)) == (0, {}), healed.summary()


def test_a_real_interpreter_that_is_too_old(lab4: Lab, tmp_path: Path) -> None:
    old = interpreters().get("2.7")
    if old is None:
        pytest.skip("no Python 2.7 on this machine")
    put(lab4, (f"node2 old-python path={old}",))
    scanned = scan(lab4, tmp_path, *QUICK)
    assert found(scanned) == {"ssh-old-python": ("node2",)}, scanned.summary()


def test_another_supported_interpreter_is_a_warning(lab4: Lab, tmp_path: Path) -> None:
    other = interpreters().get("3.10") or interpreters().get("3.12")
    if other is None:
        pytest.skip("no Python 3.10 or 3.12 on this machine")
    one = Case(
        faults=(f"node2 old-python path={other}",), key="python-version", check="sw.python",
        status="warn", said="on most nodes",
    )  # fmt: skip
    hold(lab4, tmp_path, one, args=QUICK)


# --- the environment ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    together([
        case(
            "node2 if-rename", "nccl-ifname-nomatch", "nccl.ifname", job={"NCCL_SOCKET_IFNAME": "eth0"},
            said="no interface eth0, which NCCL_SOCKET_IFNAME asks for",
            id="NCCL_SOCKET_IFNAME=eth0 in the job, and node2 calls it ens10f0np0",
        ),
        case(
            "node2 env NCCL_SOCKET_IFNAME=ens9", "nccl-ifname-nomatch", "nccl.ifname",
            said="ens9 (login session) matches no interface",
        ),
        case(
            "node2 nccl-conf NCCL_SOCKET_IFNAME=ens9", "nccl-ifname-nomatch", "nccl.ifname",
            said="/etc/nccl.conf",
        ),
        case(
            "node2 env NCCL_SOCKET_IFNAME=lo", "nccl-ifname-loopback", "nccl.ifname",
            said="loopback",
        ),
        case(
            (), "nccl-ifname-nomatch", "nccl.ifname", nodes=ALL, job={"NCCL_SOCKET_IFNAME": "ib0"},
            said="job.env:1", id="NCCL_SOCKET_IFNAME=ib0 in the job",
        ),
        case(
            "node2 env GLOO_SOCKET_IFNAME=eth", "gloo-ifname-nomatch", "gloo.ifname",
            said="gloo takes exact names only", fix="export GLOO_SOCKET_IFNAME=eth0",
        ),
        case(
            (), "gloo-ifname-nomatch", "gloo.ifname", nodes=ALL, job={"GLOO_SOCKET_IFNAME": "=eth0"},
            said="gloo takes exact names only", id="GLOO_SOCKET_IFNAME==eth0 in the job",
        ),
    ]),
)  # fmt: skip
def test_interfaces_that_the_environment_asks_for(lab4: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(lab4, tmp_path, *cases, args=QUICK)


@pytest.mark.parametrize(
    "cases",
    together([
        case(
            "node2 env NCCL_IB_DISABLE=1", "nccl-env-differs-nccl-ib-disable", "nccl.env",
            status="warn", said="of no effect without HCAs",
        ),
        case(
            "node2 env NCCL_IB_DISABLE=true", "nccl-env-number-nccl-ib-disable", "nccl.env",
            status="warn", said="means 0",
        ),
        case(
            "node2 env NCCL_SOCKET_FAMILY=af_inet", "nccl-env-word-nccl-socket-family", "nccl.env",
            status="warn", said="with that case", excuse=LOGIN,
        ),
        case(
            "node2 env NCCL_P2P_LEVEL=nvl", "nccl-env-word-nccl-p2p-level", "nccl.env", status="warn",
            said="with that case", excuse=LOGIN,
        ),
        case(
            "node2 nccl-conf NCCL_BUFFSIZE=8388608", "nccl-env-differs-nccl-buffsize", "nccl.env",
            said="ranks must agree",
        ),
        case(
            "node2 nccl-conf NCCL_PROTO=simple", "nccl-env-differs-nccl-proto", "nccl.env",
            said="ranks must agree",
        ),
        case(
            "node2 env NCCL_DEBUG=INFO", "nccl-env-debug-nccl-debug", "nccl.env", status="warn",
        ),
        case(
            "node2 env RANK=3 WORLD_SIZE=8 LOCAL_RANK=1", "env-stale-rank", "nccl.env", status="warn",
            said="left over in the login session", fix="RANK|LOCAL_RANK", excuse=LOGIN,
        ),
        case(
            "node2 env CUDA_LAUNCH_BLOCKING=1", "env-left-cuda-launch-blocking", "env.drift", status="warn",
            said="makes every kernel wait", fix="CUDA_LAUNCH_BLOCKING", excuse=LOGIN,
        ),
        case(
            "node2 env LD_LIBRARY_PATH=/opt/nccl/lib", "env-differs-ld-library-path", "env.drift",
            status="warn", said="LD_LIBRARY_PATH is /opt/nccl/lib", excuse=LOGIN,
        ),
        case(
            "node2 env TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True", "env-stale-rank",
            "nccl.env", status="warn", said="wait for an agent", excuse=LOGIN,
        ),
    ]),
)  # fmt: skip
def test_variables(lab4: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(lab4, tmp_path, *cases, args=QUICK)


def test_a_forced_algorithm_and_a_node_that_differs(lab4: Lab, tmp_path: Path) -> None:
    put(lab4, tuple(f"node{i} env NCCL_ALGO={'Tree' if i == 2 else 'Ring'}" for i in range(4)))
    scanned = scan(lab4, tmp_path, *QUICK)
    assert scanned.code == 1
    assert found(scanned) == {
        "nccl-env-differs-nccl-algo": ("node2",),
        "nccl-env-forced-nccl-algo": ("node0", "node1", "node3"),
    }, scanned.summary()


def test_pdsh_that_would_not_use_ssh(lab4: Lab, tmp_path: Path) -> None:
    """The real pdsh of this machine, whose default is the distribution's choice."""
    if shutil.which("pdsh") is None:
        pytest.skip("no pdsh on this machine")
    said = subprocess.run(["pdsh", "-V"], capture_output=True, text=True, check=True).stdout
    put(lab4, ("node2 env PDSH_RCMD_TYPE=ssh", "node3 env PDSH_RCMD_TYPE=rsh"))
    scanned = scan(lab4, tmp_path, "--only", "sw.launcher", "--launcher", "pdsh")
    usual = () if "default: ssh" in said else ("node0", "node1")
    assert found(scanned) == {"pdsh-other-rcmd": (*usual, "node3")}, scanned.summary()


def test_variables_of_the_env_file_hold_for_all_nodes(lab4: Lab, tmp_path: Path) -> None:
    write_job(tmp_path, {"NCCL_ALGO": "Ring", "NCCL_IB_TIMEOUT": "022"})
    scanned = scan(lab4, tmp_path, *QUICK, "--env-file", "job.env")
    assert scanned.code == 0
    assert found(scanned) == {
        "nccl-env-forced-nccl-algo": ALL,
        "nccl-env-number-nccl-ib-timeout": ALL,
    }, scanned.summary()
    assert "job.env:2" in scanned.text


# --- two faults at once -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (
            ("node0 env RANK=3", "node1 no-python", "node2 nofile", "node3 small-shm"),
            {
                "env-stale-rank": ("node0",),
                "ssh-interpreter": ("node1",),
                "nofile-low": ("node2",),
                "shm-small": ("node3",),
            },
        ),
        (
            ("node0 nofile", "node1 nofile", "node2 old-python"),
            {"nofile-low": ("node0", "node1"), "ssh-old-python": ("node2",)},
        ),
    ],
    ids=lambda value: " + ".join(value) if isinstance(value, tuple) else "",
)
def test_faults_on_different_nodes_are_causes_of_their_own(
    lab4: Lab, tmp_path: Path, faults: tuple[str, ...], expected: dict[str, tuple[str, ...]]
) -> None:
    put(lab4, faults)
    scanned = scan(lab4, tmp_path, *NCCL)
    assert scanned.code == 1
    assert found(scanned) == expected, scanned.summary()
    assert all(cause["fixes"] for cause in scanned.report["causes"])


# --- the board's management controller, which ipmi_sim plays on the node: ipmitool asks it over loopback ---

PORT = 10623


def put_controller(lab: Lab, node: str, supply: set[int], folder: Path) -> None:
    """On a node whose second power supply asserts these states. Its device is a file that nothing reads."""
    one = Controller()
    one.fan("FAN1", 120, (1, 2, 3), (250, 240, 230))
    one.states("PS1 Status", controller.SUPPLY, controller.SPECIFIC, 10, {0})
    one.states("PS2 Status", controller.SUPPLY, controller.SPECIFIC, 10, supply)
    place = Path("/run/ipmi")
    argv = [word.replace(str(folder), str(place)) for word in one.write(folder, PORT)]
    files = {f"{place}/{name}": (folder / name).read_bytes() for name in ("emu", "lan")}
    nodes.write(lab.state, node, files, 0o644)
    ask = f'#!/bin/sh\nexec {shutil.which("ipmitool")} {shlex.join(controller.argv(PORT)[1:])} "$@"\n'
    nodes.write(lab.state, node, {"/usr/sbin/ipmitool": ask.encode()}, 0o755)
    start = f"touch /dev/ipmi0; setsid {shlex.join(argv)} >/dev/null 2>&1 </dev/null & echo $! >{place}/pid"
    lab.run(node, ["sh", "-c", start], check=True)
    until = time.monotonic() + 20
    while lab.run(node, ["ipmitool", "mc", "info"], capture_output=True).returncode:
        assert time.monotonic() < until, node


@pytest.fixture
def two_controllers(lab4: Lab, tmp_path: Path) -> Iterator[Lab]:
    if why := controller.missing():
        pytest.skip(f"no {why} (openipmi, ipmitool)")
    try:
        for node, supply in (("node1", {0}), ("node2", {0, 3})):
            put_controller(lab4, node, supply, tmp_path)
        yield lab4
    finally:
        for node in ("node1", "node2"):
            end = "kill $(cat /run/ipmi/pid); rm -rf /run/ipmi /dev/ipmi0 /usr/sbin/ipmitool"
            lab4.run(node, ["sh", "-c", end], check=True)


def test_a_supply_without_mains_is_named(two_controllers: Lab, folder: Path) -> None:
    scanned = scan(two_controllers, folder, "--profile", "full", "--only", "host.bmc")
    assert scanned.keys == ["bmc-power"], scanned.summary()
    assert scanned.cause("bmc-power")["nodes"] == "node2"
    assert "PS2 Status: Presence detected, Power Supply AC lost" in " ".join(scanned.text.split())
    assert [scanned.cell("host.bmc", node) for node in ("node0", "node1", "node2")] == ["-", ".", "!"]


# --- what the kernel says of its parts --------------------------------------------------------------------


def test_a_file_system_with_errors_and_a_library_without_a_byte_are_named(lab4: Lab, folder: Path) -> None:
    counted, library = "/sys/fs/ext4", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    if not Path(counted).is_dir():
        pytest.skip("this kernel has no ext4, over whose counters some could be put")
    put = f"mount -t tmpfs health {counted} && mkdir {counted}/vdz && echo 3 >{counted}/vdz/errors_count"
    lab4.run("node1", ["sh", "-c", put], check=True)
    lab4.run("node2", ["sh", "-c", f"mkdir -p {Path(library).parent} && : >{library}"], check=True)
    try:
        scanned = scan(lab4, folder, *QUICK, "--only", "host.health")
    finally:
        lab4.run("node1", ["umount", counted], check=True)
        lab4.run("node2", ["rm", library], check=True)
    assert sorted(scanned.keys) == ["disk-errors", "driver-files-empty"], scanned.summary()
    assert scanned.cause("disk-errors")["node_list"] == ["node1"]
    assert scanned.cause("driver-files-empty")["node_list"] == ["node2"]
    apply_fix(scanned, scanned.cause("disk-errors"))  # it looks
    assert [scanned.cell("host.health", node) for node in lab4.nodes] == [".", "!", "!", "."]
    assert scan(lab4, folder, *QUICK, "--only", "host.health").keys == []


# It waits uninterruptibly until its child, which has its memory, ends.
HANGS = """
import ctypes, os, time
if ctypes.PyDLL(None).vfork() == 0:
    time.sleep(600)
os._exit(0)
"""


@pytest.mark.weekly
def test_a_process_that_hangs_for_two_minutes_is_named(lab4: Lab, folder: Path) -> None:
    start = f"python3 -c {shlex.quote(HANGS)} >/dev/null 2>&1 & echo $!"
    pid = lab4.run("node2", ["sh", "-c", start], capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert scan(lab4, folder, *QUICK, "--only", "host.health").keys == []
        time.sleep(125)
        scanned = scan(lab4, folder, *QUICK, "--only", "host.health")
        apply_fix(scanned, scanned.cause("process-stuck"))
    finally:
        lab4.run("node2", ["sh", "-c", f"pkill -KILL -P {pid}; kill -KILL {pid}; true"], check=True)
    assert scanned.keys == ["process-stuck"], scanned.summary()
    assert scanned.cause("process-stuck")["node_list"] == ["node2"]
    assert f"(process {pid})" in scanned.text
