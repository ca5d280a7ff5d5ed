"""Process that makes the namespaces of a lab, started by `up` as ``python -m netdoctor.lab.boot``.

One single-threaded process forks every node, so the cost of starting Python is paid once. It
speaks lines of JSON: the plan comes on stdin, then ``linked`` and ``keep``; on stdout it says
which host pid the first process of each node has, and then who is ready. When stdin ends before
``keep`` (the user pressed Ctrl-C, `up` was killed), every node ends with it: the first process of
a node waits on a pipe that only this process holds open, and takes its namespaces along.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from netdoctor.lab import system

KEEP_RUNNING = """\
trap : TERM INT HUP
while :; do sleep 1000000 & wait; done
"""

# One level of these is rebuilt with bind mounts, because nothing can be added to a real sysfs.
REBUILT_SYS = ("", "class", "devices", "bus", "bus/pci", "bus/pci/devices", "bus/pci/drivers", "module")
HIDDEN_SYS = ("class/infiniband", "class/infiniband_verbs", "class/infiniband_mad", "class/dmi")
HIDDEN_MODULES = ("nvidia", "mlx", "ib_", "rdma_", "nvproxy", "gdrdrv")
HIDDEN_VENDORS = ("0x10de", "0x15b3")
_VIRTUAL = (
    "proc sysfs devtmpfs devpts tmpfs ramfs cgroup cgroup2 mqueue hugetlbfs debugfs tracefs "
    "securityfs pstore bpf configfs fusectl binfmt_misc autofs rpc_pipefs nsfs efivarfs squashfs"
)
VIRTUAL_FS = frozenset(_VIRTUAL.split())


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.exists():
        path.unlink()
    path.write_text(text)
    path.chmod(mode)


def other_filesystems() -> list[str]:
    """Directories under / that hold another real file system: an overlay of / does not show them."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _source, target, fstype = line.split()[:3]
        target = target.encode().decode("unicode_escape")
        if target != "/" and fstype not in VIRTUAL_FS and os.path.isdir(target):
            found.append(target)
    return sorted(set(found))


def mount_root(scratch: Path, hidden: list[str], shared: list[str]) -> Path:
    """An overlay of the machine's own root with everything written kept in memory."""
    others = other_filesystems()
    system.mount("netdoctor-lab", str(scratch), "tmpfs", 0, "mode=755")
    root = scratch / "root"
    for i, lower in enumerate(["/", *others]):
        upper, work = scratch / f"upper{i}", scratch / f"work{i}"
        upper.mkdir(mode=0o755)
        work.mkdir()
        root.mkdir(exist_ok=True)
        target = root / lower.lstrip("/")
        info = os.stat(lower)
        os.chown(upper, info.st_uid, info.st_gid)
        upper.chmod(stat.S_IMODE(info.st_mode))
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        try:
            system.mount("netdoctor-lab", str(target), "overlay", 0, options)
        except OSError:
            if lower == "/":
                raise
            if target.is_dir():  # a file system that overlay does not take: share it as it is
                system.bind(lower, str(target))
    # Homes of the machine's people are not the nodes' business: empty folders cover them.
    for i, path in enumerate(hidden):
        target = root / path.lstrip("/")
        if target.is_dir() and not target.is_symlink():
            cover = scratch / f"cover{i}"
            cover.mkdir()
            shutil.copystat(target, cover)
            system.bind(str(cover), str(target))
    for path in shared:
        target = root / path.lstrip("/")
        if os.path.isdir(path):
            target.mkdir(parents=True, exist_ok=True)
            system.bind(path, str(target))
    return root


def make_dev(root: Path) -> None:
    dev = root / "dev"
    system.mount("dev", str(dev), "tmpfs", system.MS_NOSUID, "mode=755")
    for name, major, minor in (
        ("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9),
        ("tty", 5, 0),
    ):  # fmt: skip
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        os.chmod(dev / name, 0o666)
    # The kernel's own log is the machine's: a node has a file, which says what the lab wants it to say.
    (dev / "kmsg").touch(mode=0o644)
    for folder in ("pts", "shm", "mqueue"):
        (dev / folder).mkdir()
    system.mount("devpts", str(dev / "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    system.mount("shm", str(dev / "shm"), "tmpfs", system.MS_NOSUID | system.MS_NODEV, "mode=1777")
    for name, target in (
        ("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"),
    ):  # fmt: skip
        os.symlink(target, dev / name)


def hidden_in_sys(real: Path, name: str) -> bool:
    """Real accelerators and adapters of the machine do not belong to its pretend nodes."""
    if name in HIDDEN_SYS:
        return True
    folder, _, leaf = name.rpartition("/")
    if folder == "module":
        return leaf.startswith(HIDDEN_MODULES)
    if folder == "bus/pci/devices":
        try:
            return (real / leaf / "vendor").read_text().strip() in HIDDEN_VENDORS
        except OSError:
            return False
    return False


def rebuild_sys(real: Path, sys_root: Path, relative: str) -> None:
    here = real / relative
    rebuilt = sys_root / relative
    rebuilt.mkdir(exist_ok=True)
    for entry in os.scandir(here):
        name = f"{relative}/{entry.name}".lstrip("/")
        if hidden_in_sys(here, name):
            continue
        target = rebuilt / entry.name
        if name in REBUILT_SYS:
            rebuild_sys(real, sys_root, name)
        elif entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            target.mkdir()
            system.bind(entry.path, str(target))
        elif entry.is_file():
            target.touch()
            system.bind(entry.path, str(target))


def make_sys(root: Path, scratch: Path) -> None:
    # Mounted here and not inherited: sysfs shows the network of whoever mounts it.
    real = scratch / "sysfs"
    real.mkdir()
    system.mount("sysfs", str(real), "sysfs")
    system.mount("sys", str(root / "sys"), "tmpfs", 0, "mode=755")
    rebuild_sys(real, root / "sys", "")


def make_node(node: dict[str, Any], scratch: Path) -> None:
    system.mount("none", "/", "", system.MS_REC | system.MS_PRIVATE)
    root = mount_root(scratch, node["hidden"], node["shared"])
    make_dev(root)
    system.mount("tmp", str(root / "tmp"), "tmpfs", system.MS_NOSUID, "mode=1777")
    system.mount("run", str(root / "run"), "tmpfs", system.MS_NOSUID, "mode=755")
    system.mount("proc", str(root / "proc"), "proc")
    make_sys(root, scratch)
    system.sethostname(node["name"])
    os.chdir(root)
    system.pivot_here()

    for path in node["remove"]:
        file = Path(path)
        if file.is_symlink() or file.is_file():
            file.unlink()
    for folder in ("/run/sshd", "/run/lock", "/var/log"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    if Path("/proc/driver").is_dir():
        system.mount("driver", "/proc/driver", "tmpfs", 0, "mode=555")
    proc_driver = Path("/proc/driver").is_dir()
    for path, mode, text in node["files"]:
        if proc_driver or not path.startswith("/proc/driver"):
            write(Path(path), text, mode)
    for path, source in node["copies"]:
        write(Path(path), "")
        Path(path).write_bytes(bytes.fromhex(source))
        Path(path).chmod(0o755)
    for path, target in node["links"]:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, path)
    for path in node["devices"]:
        # The numbers of /dev/null: a pretend device must never open a real one.
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.chmod(path, 0o666)
    for path, text in node["shadows"]:
        if os.path.exists(path):
            source = Path("/run/netdoctor-lab") / path.strip("/").replace("/", "-")
            write(source, text)
            system.bind(str(source), path)


def no_ipv6() -> None:
    for scope in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if path.exists():
            path.write_text("1")


def raise_limits() -> None:
    """Limits of a well kept node, as far as this machine lets anyone raise them."""
    infinity = resource.RLIM_INFINITY
    most_files = int(Path("/proc/sys/fs/nr_open").read_text())
    for limit, value in (
        (resource.RLIMIT_MEMLOCK, infinity),
        (resource.RLIMIT_NOFILE, min(1048576, most_files)),
        (resource.RLIMIT_NPROC, infinity),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_STACK, None),
    ):
        both = (8 << 20, infinity) if value is None else (value, value)
        highest = resource.getrlimit(limit)[1]
        for pair in (both, (highest, highest)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, pair)
                break
    with contextlib.suppress(OSError):
        os.nice(-os.nice(0))


def run_all(commands: list[list[str]], stdins: list[str]) -> None:
    for argv, stdin in zip(commands, stdins, strict=True):
        done = subprocess.run(
            argv, input=stdin.encode(), capture_output=True, env=system.NODE_ENV, check=False
        )
        if done.returncode != 0:
            raise OSError(f"{argv[0]}: {done.stderr.decode(errors='replace').strip()}")


class Forks:
    """The pipes between this process and the first processes of the nodes."""

    def __init__(self) -> None:
        self.flags = mmap.mmap(-1, 4096)
        self.gates = [os.pipe(), os.pipe()]
        self.status = os.pipe()
        self.buffer = b""

    def say(self, **message: object) -> None:
        # Shorter than PIPE_BUF, so that lines of many writers never mix.
        os.write(self.status[1], json.dumps(message).encode()[:3900] + b"\n")

    def hear(self) -> dict[str, Any]:
        while b"\n" not in self.buffer:
            data = os.read(self.status[0], 65536)
            if not data:
                raise OSError("a node ended without any message")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def open_gate(self, number: int) -> None:
        self.flags[number] = 1
        os.close(self.gates[number][1])

    def pass_gate(self, number: int) -> None:
        """In a node: wait for the gate; when the other side has died instead, die too."""
        os.read(self.gates[number][0], 1)
        if not self.flags[number]:
            os._exit(1)

    def child(self) -> None:
        for _read_end, write_end in self.gates:
            os.close(write_end)
        os.close(self.status[0])


def first_process(forks: Forks, plan: dict[str, Any], node: dict[str, Any]) -> None:
    """Becomes PID 1 of a node (or of the fabric); never returns."""
    name = node["name"]
    try:
        forks.child()
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(sig, signal.SIG_DFL)
        raise_limits()
        no_ipv6()
        if node["fabric"]:
            system.mount("none", "/", "", system.MS_REC | system.MS_PRIVATE)
        else:
            make_node(node, Path(plan["scratch"]))
        forks.pass_gate(0)
        run_all(node["commands"], node["stdins"])
        forks.say(ready=name)
        forks.pass_gate(1)
        os.chdir("/")
        argv = ["sh", "-c", KEEP_RUNNING, "netdoctor-lab", plan["id"], name, plan["folder"]]
        os.execve("/bin/sh", argv, dict(system.NODE_ENV))
    except BaseException as error:  # whatever it is, it must reach `up` and not the fork's parent
        forks.say(error=f"{name}: {error}", trace=traceback.format_exc()[-3000:])
    finally:
        os._exit(1)


def fork_node(forks: Forks, plan: dict[str, Any], node: dict[str, Any]) -> None:
    flags = system.CLONE_NEWNS | system.CLONE_NEWUTS | system.CLONE_NEWIPC
    flags |= system.CLONE_NEWPID | system.CLONE_NEWNET
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        system.unshare(flags)
        # The namespace of process ids holds children only: this fork makes its first process.
        pid = os.fork()
        if pid == 0:
            first_process(forks, plan, node)
        forks.say(node=node["name"], pid=pid)
    except BaseException as error:
        forks.say(error=f"{node['name']}: {error}")
    finally:
        os._exit(0)


def gather(forks: Forks, key: str, names: set[str]) -> dict[str, Any]:
    """One message with `key` from each of `names`; other messages are kept for later."""
    got: dict[str, Any] = {}
    later: list[dict[str, Any]] = []
    while names - got.keys():
        message = forks.hear()
        if "error" in message:
            raise system.LabError(message["error"])
        if key in message:
            got[message[key]] = message
        else:
            later.append(message)
    for message in later:
        forks.buffer += json.dumps(message).encode() + b"\n"
    return got


def tell(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # `up` decides; the end of stdin says so
    plan = json.loads(sys.stdin.readline())
    forks = Forks()
    names = {node["name"] for node in plan["nodes"]}
    try:
        for node in plan["nodes"]:
            fork_node(forks, plan, node)
        started = gather(forks, "node", names)
        tell(pids={name: message["pid"] for name, message in started.items()})
        if sys.stdin.readline() != "linked\n":
            return 1
        forks.open_gate(0)
        gather(forks, "ready", names)
        tell(ready=True)
        if sys.stdin.readline() != "keep\n":
            return 1
        forks.open_gate(1)
    except (OSError, system.LabError) as error:
        tell(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
