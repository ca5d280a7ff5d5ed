"""A process of our own inside a node: something that listens, holds an interface, counts, or just exists.

Started from outside as ``python -m netdoctor.lab.guest``. It loads all it needs, joins the
node's namespaces and forks there, so it works on a node that has no Python at all, and wherever
the lab's own interpreter lives. Prints the host pid of the process it left behind.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from netdoctor.lab import processes, requirements, system
from netdoctor.lab.processes import Process
from netdoctor.lab.system import LabError


def start(request: dict[str, Any], in_node: int | None) -> Process:
    """Leave a guest behind in the node whose first process is `in_node` (None: right here)."""
    source = str(requirements.package_folder().parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "netdoctor.lab.guest"],
        input=json.dumps({**request, "in_node": in_node}).encode(),
        capture_output=True,
        env={**system.NODE_ENV, "PYTHONPATH": source},
        check=False,
        timeout=30,
    )
    lines = done.stdout.decode(errors="replace").splitlines()
    answer = json.loads(lines[-1]) if lines else {"error": done.stderr.decode(errors="replace")}
    if "error" in answer:
        raise LabError(answer["error"].strip().splitlines()[-1])
    process = processes.identify(int(answer["pid"]))
    if process is None:
        raise LabError(f"the process {request['name']} ended at once")
    return process


def _enter(pid: int) -> None:
    kinds = ("ipc", "uts", "net", "pid", "mnt")
    for fd in [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]:
        system.setns(fd)
        os.close(fd)


def _title(words: str) -> None:
    """Show `words` as this process's command line, over the memory that holds the real one."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    raw = words.replace(" ", "\0").encode()[: end - begin - 1]
    ctypes.memmove(begin, raw.ljust(end - begin, b"\0"), end - begin)


def _listener(request: dict[str, Any]) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((request.get("address", "0.0.0.0"), request["port"]))
        listener.listen(64)
    except OSError as error:
        raise OSError(f"port {request['port']}: {error.strerror}") from error
    return listener


def _hold(request: dict[str, Any]) -> socket.socket:
    """A connection to the server that never gets past hello."""
    while True:
        connection = socket.create_connection((request["address"], request["port"]), 5)
        connection.settimeout(None)
        if connection.recv(4) == b"SSH-":
            return connection
        connection.close()
        time.sleep(0.05)


def _serve(listener: socket.socket, banner: bytes) -> None:
    """Say `banner` to every client, and end the connection; with none, keep clients waiting."""
    waiting: list[socket.socket] = []
    while True:
        client, _ = listener.accept()
        if banner:
            try:
                client.sendall(banner)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(1)
                client.recv(4096)
            except OSError:
                pass
            client.close()
        else:
            waiting = [*waiting[-64:], client]


def _tun(name: str) -> int:
    """A tunnel interface is up only while a process holds it."""
    tunsetiff, iff_tun, iff_no_pi = 0x400454CA, 0x0001, 0x1000
    os.makedirs("/dev/net", exist_ok=True)
    if not os.path.exists("/dev/net/tun"):
        os.mknod("/dev/net/tun", 0o20666, os.makedev(10, 200))
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, tunsetiff, struct.pack("16sH22x", name.encode(), iff_tun | iff_no_pi))
    return fd


def _count(path: str, per_s: float) -> None:
    """Let a counter in a file grow at an even pace."""
    with open(path, "r+b", buffering=0) as file:
        begun, first = time.monotonic(), int(file.read())
        while True:
            time.sleep(0.1)
            now = first + int((time.monotonic() - begun) * per_s)
            os.pwrite(file.fileno(), b"%d\n" % now, 0)


def _flap(interface: str, every_s: float) -> None:
    """Take an interface down for a moment, again and again."""
    siocgifflags, siocsifflags, iff_up = 0x8913, 0x8914, 0x1
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, siocgifflags, struct.pack("16sH22x", name, 0))
        flags = struct.unpack("16sH22x", answer)[1]
        while True:
            for value in (flags & ~iff_up, flags | iff_up):
                fcntl.ioctl(asking, siocsifflags, struct.pack("16sH22x", name, value))
                time.sleep(0.02)
            time.sleep(every_s)


def _silent_mount(path: str) -> int:
    """A FUSE mount that answers nothing, held open: whoever looks into it waits; once this ends, an error."""
    if not os.path.exists("/dev/fuse"):
        os.mknod("/dev/fuse", 0o20666, os.makedev(10, 229))
    fd = os.open("/dev/fuse", os.O_RDWR)
    os.makedirs(path, exist_ok=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"storage:/export", path.encode(), b"fuse", 0, options.encode()):
        raise LabError(f"{path}: {os.strerror(ctypes.get_errno())}")
    return fd


def _live(request: dict[str, Any], user: pwd.struct_passwd | None, ready: int) -> None:
    kind = request["kind"]
    listener = _listener(request) if kind == "listen" else None
    login = _hold(request) if kind == "hold" else None
    tun = _tun(request["interface"]) if kind == "tun" else None
    if kind == "mount":
        _silent_mount(request["path"])
    if user is not None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    system.set_process_name(request["name"])
    _title(request.get("title") or request["name"])
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.write(ready, b"ok")
    os.close(ready)
    if listener is not None:
        _serve(listener, request.get("banner", "").encode())
    if kind == "count":
        _count(request["path"], request["per_s"])
    if kind == "flap":
        _flap(request["interface"], request["every_s"])
    while True:
        if tun is not None:
            os.read(tun, 65536)
        elif login is not None:
            # A server gives up on a client that never logs in; begin again.
            while login.recv(4096):
                pass
            login.close()
            login = _hold(request)
        else:
            signal.pause()


def main() -> int:
    request = json.loads(sys.stdin.read())
    user = pwd.getpwnam(request["user"]) if request.get("user") else None
    if request["in_node"] is not None:
        _enter(request["in_node"])
    receive, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(receive)
            os.setsid()
            os.chdir("/")
            _live(request, user, ready)
        except BaseException as error:  # the reason must reach the command that asked
            os.write(ready, str(error).encode()[:4000])
        finally:
            os._exit(1)
    os.close(ready)
    answer = os.read(receive, 4096)
    print(json.dumps({"pid": pid} if answer == b"ok" else {"error": answer.decode(errors="replace")}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
