"""RDMA writes between two nodes by perftest, where that is installed: one end serves, the other runs.

Programs, options and numbers are ours; of a node come the names of its own HCAs, and these to itself alone.
[linux-rdma/perftest src/perftest_parameters.c, tried with 4.5]
"""

import os
import re
import select
import shutil
import time

from .. import runtime
from ..system import private
from ..system.sockets import listeners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# Messages of the default size over four queue pairs fill a port of 400 Gbit/s; latency is that of two bytes.
PROGRAMS = {
    "bandwidth": ("ib_write_bw", ("-q", "4", "-s", "65536", "--report_gbits")),
    "latency": ("ib_write_lat", ("-s", "2", "-n", "1000")),
}
# Headers of the tables, and the column that counts: average, and typical.
COLUMNS = {"bandwidth": ("BW average[Gb/sec]", 3), "latency": ("t_typical[usec]", 4)}
MAX_RAILS = 32
MAX_SECONDS = 20
OUTPUT_CAP_BYTES = 64 * 1024
READY_S = 6.0
# Opening devices, registering memory, connecting; beside the seconds of the measurement itself.
START_S = 12.0
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}\Z")

_servers = []  # type: list[Any]


def command(args: "dict[str, Any]", rail: "dict[str, Any]", client: bool) -> "list[str]":
    """Return the command line of one end. Raises ValueError for anything that is not plainly what it is."""
    name, options = PROGRAMS[str(args.get("test"))]
    seconds, ib_port, tcp_port = (int(x) for x in (args["seconds"], rail["ib_port"], rail["tcp_port"]))
    device, address = str(rail["device"]), str(rail.get("address", ""))
    if _DEVICE.match(device) is None or (client and _ADDRESS.match(address) is None):
        raise ValueError("no such device or address")
    if not (0 < seconds <= MAX_SECONDS and 0 < ib_port < 256 and 1024 <= tcp_port < 65536):
        raise ValueError("a number that cannot be")
    program = shutil.which(name)
    if program is None:
        raise ValueError("%s is not installed" % name)
    argv = [program, "-F", "-d", device, "-i", str(ib_port), "-p", str(tcp_port)]
    argv += options
    if "-n" not in options:
        argv += ["-D", str(seconds)]
    return [*argv, address] if client else argv


def start(argv: "list[str]") -> "Any":
    names = ("PATH", "HOME", "LD_LIBRARY_PATH")
    process = runtime.start_child(argv, {n: os.environ[n] for n in names if n in os.environ})
    process.stdin.close()
    return process


def finish(process: "Any", until: float) -> "tuple[Optional[int], str]":
    """Return (exit status, what it said); None for a program that had to be ended."""
    output = b""
    still = {process.stdout.fileno(), process.stderr.fileno()}
    while still and time.monotonic() < until:
        for fd in select.select(list(still), [], [], 0.2)[0]:
            part = os.read(fd, 65536)
            if not part:
                still.discard(fd)
            output = (output + part)[:OUTPUT_CAP_BYTES]
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    code = process.poll()
    end(process)
    return code, output.decode("utf-8", "replace")


def end(process: "Any") -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, runtime.SIGKILL)
        except OSError:
            pass
    process.wait()
    runtime.forget_child(process.pid)
    for pipe in (process.stdout, process.stderr):
        pipe.close()  # a second time does no harm


def end_all(processes: "list[Any]", when: float) -> None:
    """End what still runs at a time; returns when nothing does."""
    while time.monotonic() < when and any(process.poll() is None for process in processes):
        time.sleep(0.2)
    for process in processes:
        if process.poll() is None:
            end(process)


def figure(text: str, test: str) -> "Optional[float]":
    """Return the figure that counts, None where there is none.

    | #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
    | 65536      1470080          0.00               385.37               0.735034
    """
    header, column = COLUMNS[test]
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if header in line:
            for row in lines[number + 1 : number + 4]:
                try:
                    values = [float(word) for word in row.split()]
                except ValueError:
                    continue
                if len(values) > column and 0 <= values[column] < 1e6:
                    return values[column]
    return None


def listening(port: int) -> bool:
    """Whether somebody listens on a TCP port, as the kernel says: to connect would be to be the client."""
    return any(one.port == port for one in listeners())


def rails(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    found = args.get("rails")
    if not isinstance(found, list) or len(found) > MAX_RAILS:
        raise runtime.Unavailable("failed", "verbs wants rails")
    return [one if isinstance(one, dict) else {} for one in found]


def start_all(args: "dict[str, Any]", client: bool) -> "tuple[list[Any], list[Any]]":
    """Start a program on each rail. Return (an answer for each, what runs: answer, process, port)."""
    answers, started = [], []
    for rail in rails(args):
        answer = {}  # type: dict[str, Any]
        answers.append(answer)
        try:
            argv = command(args, rail, client)
            port = int(rail["tcp_port"])
            if not client and listening(port):
                raise ValueError("port %d is taken" % port)
            started.append((answer, start(argv), port))
        except (KeyError, TypeError, ValueError, OSError) as e:
            answer["error"] = str(e)
    return answers, started


def serve(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Start a server on each rail, and wait until all of them listen."""
    answers, started = start_all(args, client=False)
    # Nobody may be left to say that it is over.
    ttl_s = float(args.get("ttl_s") or 0.0) or 3 * (START_S + MAX_SECONDS)
    processes = [process for _, process, _ in started]
    runtime.thread(lambda: end_all(processes, time.monotonic() + ttl_s))
    until = time.monotonic() + READY_S
    for answer, process, port in started:
        while process.poll() is None and not listening(port) and time.monotonic() < until:
            time.sleep(0.05)
        if process.poll() is None and listening(port):
            answer["ready"] = True
            _servers.append(process)
        else:
            answer.update(failure(*finish(process, time.monotonic() + 0.2)))
    return answers


def failure(code: "Optional[int]", text: str) -> "dict[str, Any]":
    """Return why there is no figure. dead: the HCAs gave up, and not a program or a setting."""
    message = private.masked(" ".join(text.split())[-300:]) or "it said nothing"
    why = "exit status %s: %s" % (code, message) if code is not None else "not done in time: " + message
    return {"error": why, "dead": "Failed status " in text or "Completion with error" in text}


def run(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Run a client on each rail, all of them at once."""
    answers, started = start_all(args, client=True)
    until = time.monotonic() + START_S + float(args["seconds"])
    for answer, process, _ in started:
        code, text = finish(process, until)
        value = figure(text, str(args["test"])) if code == 0 else None
        answer.update({"value": value} if value is not None else failure(code, text))
    return answers


def verbs(args: "dict[str, Any]") -> "dict[str, Any]":
    """role `look`: {"installed"}; `serve`, `run`: {"rails": [{"ready"} or {"value"} or {"error", "dead"}]};
    `stop`: ends what still serves."""
    role = args.get("role")
    if role == "look":
        return {"installed": all(shutil.which(name) for name, _ in PROGRAMS.values())}
    if role == "stop":
        while _servers:
            end(_servers.pop())
        return {}
    if role not in ("serve", "run") or args.get("test") not in PROGRAMS:
        raise runtime.Unavailable("failed", "verbs wants a role and a test")
    return {"rails": serve(args) if role == "serve" else run(args)}
