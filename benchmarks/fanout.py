"""How fast netdoctor reaches many nodes, beside clush, ansible and plain Fabric, on loopback SSH servers.

    python benchmarks/fanout.py                              16, 64 and 256 nodes, 3 repeats
    python benchmarks/fanout.py --nodes 256 --repeats 5 --skip ansible
    python benchmarks/fanout.py --cheap 1000                 1,000 cheap ones, 3 % faulty, 256 descriptors

Tools take turns within each repeat; medians are printed. What is not installed is said to be absent.
README.md beside this file says what is compared and why.
"""

import argparse
import base64
import contextlib
import getpass
import importlib.metadata
import importlib.util
import json
import marshal
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from endpoints import CannotStart, Endpoints

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from netdoctor.check import Profile  # noqa: E402
from netdoctor.engine.gathering import first_groups  # noqa: E402
from netdoctor.facts.base import FACT_TYPES  # noqa: E402
from netdoctor.facts.software import Job  # noqa: E402
from netdoctor.transport import bundle  # noqa: E402
from tests import cheap  # noqa: E402

MIB = 1024 * 1024
MARKER = "b3nchm4rk"
# What a shell that nobody has set up gives a program on many systems is 1024; some give less.
DESCRIPTORS = 256
# Linux caps one argument at 128 KiB (MAX_ARG_STRLEN); Fabric's command has to carry the whole request.
LONGEST_ARGUMENT_BYTES = 128 * 1024 - 1
KEX = "-o KexAlgorithms=curve25519-sha256"

# Added to the agent that the other tools run: they close stdin after the last request, where netdoctor keeps
# it open, and the agent ends with its stdin. So it answers before it looks at the end of the file.
ANSWER_FIRST = """

import _thread

_answered = []
_all = _thread.allocate_lock()
_all.acquire()
_channel_send = Channel.send
_real_read_frame = read_frame


def _send(self, message):
    _channel_send(self, message)
    if "ok" in message:
        _answered.append(True)
        if len(_answered) == {requests}:
            _all.release()


def read_frame(stream):
    request = _real_read_frame(stream)
    if request is None:
        _all.acquire(True, 60)
    return request


Channel.send = _send
"""


class SshFiles(Protocol):
    """Where a client finds its settings."""

    @property
    def ssh_config(self) -> Path: ...

    @property
    def known_hosts(self) -> Path: ...


class Servers(Protocol):
    """Endpoints of either kind, while they run."""

    addresses: list[str]

    def cpu_s(self) -> float:
        """What they have used so far."""
        ...

    def settle(self) -> bool:
        """Wait until nothing of the run before is left."""
        ...


@dataclass(frozen=True)
class Request:
    """What netdoctor sends to one node: the command, and the bytes on its stdin."""

    command: str
    stdin: bytes
    answers: Callable[[str], int]


@dataclass(frozen=True)
class Tool:
    """A way to ask every node.

    timed, proving: last words of the command, in timed runs and in the warm-up; with proving, answers are
        counted in the warm-up only.
    answers: counts the nodes that answered, in what it printed.
    """

    name: str
    label: str
    command: list[str]
    stdin: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0,)
    timed: tuple[str, ...] = ()
    proving: tuple[str, ...] = ()
    answers: Callable[[str], int] | None = None


@dataclass
class Figures:
    """What the repeats of one tool gave."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    server_cpu_s: list[float] = field(default_factory=list)
    memory_bytes: int | None = None
    trouble: str | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 64, 256], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument(
        "--skip", nargs="*", default=[], metavar="TOOL", help="netdoctor, clush, ansible, fabric, asyncssh"
    )
    parser.add_argument(
        "--cheap", type=int, nargs="+", metavar="N",
        help="so many endpoints that cost this machine little, 3 %% of them faulty, instead of real ones",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="for one run of one tool")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, not only the medians")
    options = parser.parse_args()
    counts = options.cheap or options.nodes
    most = cheap.NODES_MAX if options.cheap else 4096
    if min(counts) < 1 or max(counts) > most or options.repeats < 1:
        parser.error(f"1 to {most} nodes, at least 1 repeat")
    signal.signal(signal.SIGTERM, _terminate)
    os.environ.pop("SSH_AUTH_SOCK", None)  # no tool is helped or held up by an agent's keys

    print(machine())
    print(versions())
    everything: dict[int, dict[str, Figures]] = {}
    try:
        for count in counts:
            with tempfile.TemporaryDirectory(prefix="fanout-") as name:
                one = compare_cheap if options.cheap else compare
                everything[count] = one(Path(name), count, options)
            print(table(count, options.repeats, everything[count]), flush=True)
    except (CannotStart, cheap.CannotServe) as error:
        print(f"fanout.py: {error}", file=sys.stderr)
        return 2
    print(summary(everything, CHEAP_AIMS if options.cheap else AIMS))
    if options.json:
        raw = {count: {label: vars(f) for label, f in rows.items()} for count, rows in everything.items()}
        options.json.write_text(json.dumps(raw, indent=1) + "\n")
    return 1 if any(f.trouble for rows in everything.values() for f in rows.values() if f.wall_s) else 0


def compare(folder: Path, count: int, options: argparse.Namespace) -> dict[str, Figures]:
    """Figures of every tool over `count` endpoints; one run each to warm up, which also measures memory."""
    with Endpoints(folder, count) as endpoints:
        say(f"{count} endpoints; recording what netdoctor asks for")
        request = record(folder, endpoints)
        return in_turns(folder, endpoints, all_tools(folder, endpoints, request), count, count, options)


def compare_cheap(folder: Path, count: int, options: argparse.Namespace) -> dict[str, Figures]:
    """Figures of every tool over `count` cheap endpoints, with the descriptors of a low soft limit."""
    with cheap.CheapEndpoints(folder, count, faulty=True) as endpoints:
        healthy = len(endpoints.of_kind("healthy"))
        tools = [
            replace(tool, command=["sh", "-c", f'ulimit -Sn {DESCRIPTORS}; exec "$@"', "sh", *tool.command])
            if tool.command
            else tool
            for tool in cheap_tools(folder, endpoints)
        ]
        return in_turns(folder, endpoints, tools, count, healthy, options)


def in_turns(
    folder: Path, endpoints: Servers, tools: Sequence[Tool], count: int, answering: int,
    options: argparse.Namespace,
) -> dict[str, Figures]:  # fmt: skip
    """Figures of those tools that are wanted. answering: how many of the `count` nodes should answer."""
    tools = [tool for tool in tools if tool.name not in options.skip]
    figures = {tool.label: Figures() for tool in tools}
    for tool in tools:
        if not tool.command:
            figures[tool.label].trouble = "absent"
    present = [tool for tool in tools if tool.command]
    for tool in present:
        say(f"{count} endpoints, warm-up and memory: {tool.label}")
        take(figures[tool.label], folder, endpoints, tool, "memory", answering, options.timeout)
    for repeat in range(options.repeats):
        # The order turns, so that no tool always follows the same other one.
        turn = repeat % len(present) if present else 0
        for tool in present[turn:] + present[:turn]:
            say(f"{count} endpoints, repeat {repeat + 1} of {options.repeats}: {tool.label}")
            take(figures[tool.label], folder, endpoints, tool, "time", answering, options.timeout)
    return figures


def take(
    figures: Figures, folder: Path, endpoints: Servers, tool: Tool, kind: str, answering: int,
    timeout_s: float,
) -> None:  # fmt: skip
    """Run a tool once and add what it cost."""
    endpoints.settle()
    served_s = endpoints.cpu_s()
    paths = {name: folder / f"run.{name}" for name in ("json", "out", "err")}
    command = [
        sys.executable, str(HERE / "measured.py"), str(paths["json"]), str(tool.stdin or os.devnull),
        str(paths["out"]), str(paths["err"]), kind, str(timeout_s),
        *tool.command, *(tool.proving if kind == "memory" else tool.timed),
    ]  # fmt: skip
    paths["json"].unlink(missing_ok=True)
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **tool.environment}) as running:
        try:
            running.wait()
        except BaseException:
            running.terminate()
            raise
    if not paths["json"].exists():
        figures.trouble = "could not be measured"
        return
    result: dict[str, Any] = json.loads(paths["json"].read_text())
    said = paths["err"].read_text(errors="replace").strip().splitlines()[-1:]
    if result["code"] is None:
        figures.trouble = f"not done after {timeout_s:g} s"
    elif result["code"] not in tool.codes:
        figures.trouble = f"exit code {result['code']}: {''.join(said)[:120]}"
    if tool.answers is not None and (kind == "memory" or not tool.proving):
        answered = tool.answers(paths["out"].read_text(errors="replace"))
        if answered != answering:
            figures.trouble = f"{answered} of {answering} nodes answered"
    if kind == "memory":
        figures.memory_bytes = result["memory_bytes"]
    else:
        figures.wall_s.append(result["wall_s"])
        figures.cpu_s.append(result["cpu_s"])
        endpoints.settle()  # a server's time counts once its sessions have ended
        figures.server_cpu_s.append(endpoints.cpu_s() - served_s)


# --- the tools --------------------------------------------------------------------------------------------


def netdoctor_scan(files: SshFiles, hosts: Path) -> list[str]:
    return [
        sys.executable, "-m", "netdoctor", "scan", str(hosts), "--ssh-config", str(files.ssh_config),
        "--known-hosts", str(files.known_hosts), "--profile", "quick", "--no-save",
        "--timeout", "300",  # all nodes together have no more cores than this machine
    ]  # fmt: skip


def record(folder: Path, endpoints: Endpoints) -> Request:
    """Scan once, with an interpreter on the first node that notes how it was called and what it was told.

    So the other tools carry exactly what netdoctor carries. Also makes sure that the scan reaches every node.
    """
    recorder = folder / "record"
    recorder.write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$@" >{folder}/argv\ntee {folder}/stdin | exec python3 "$@"\n'
    )
    recorder.chmod(0o755)
    first, *others = endpoints.addresses
    hosts = folder / "hosts.recorded"
    hosts.write_text("".join([f"{first} python={recorder}\n", *(f"{a}\n" for a in others)]))
    report_file = folder / "report.json"
    done = subprocess.run(
        [*netdoctor_scan(endpoints.client, hosts), "-o", f"json={report_file}"],
        check=False,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode not in (0, 1, 3) or not report_file.exists():
        raise CannotStart(f"netdoctor scan ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    report = json.loads(report_file.read_text())
    reached = count_reached(report_file.read_text())
    if reached != len(endpoints.addresses):
        said = [row["summary"] for row in report["results"] if row["check"] == "ssh.login"][:1]
        raise CannotStart(f"netdoctor reached {reached} of {len(endpoints.addresses)} endpoints: {said}")
    argv = (folder / "argv").read_bytes().decode().split("\0")[:-1]
    frames = list(split_frames((folder / "stdin").read_bytes()))
    packs = [frame for frame in frames if frame.startswith(b"\0")]
    told = [frame for frame in frames[1:] if frame not in packs]
    requests = [frame for frame in told if "provide" not in json.loads(frame)]
    packs[0] = answering_first(packs[0], len(requests))
    # What was handed over on demand goes first: nobody is there to ask.
    provided = [frame for frame in told if frame not in requests]
    ordered = [frames[0], *packs, *provided, *requests]
    stdin = b"".join(b"%08x\n" % len(frame) + frame for frame in ordered)
    asked = len(requests)
    return Request(
        command="exec " + shlex.join(["python3", *argv]),
        stdin=stdin,
        answers=lambda output: sum('"ok": true' in line for line in output.splitlines()) // asked,
    )


def answering_first(frame: bytes, requests: int) -> bytes:
    """The agent's modules in a frame, with ANSWER_FIRST in them: code where they are code."""
    head, _, packed = frame.partition(b"\n")  # a zero byte, and what the code is made for
    modules: dict[str, Any] = marshal.loads(zlib.decompress(packed))
    text = bundle.modules()["wire"] + ANSWER_FIRST.format(requests=requests)
    as_code = isinstance(modules["wire"], bytes)
    modules["wire"] = marshal.dumps(compile(text, "wire", "exec", optimize=2)) if as_code else text
    return head + b"\n" + zlib.compress(marshal.dumps(modules, 2), 9)


def count_reached(report: str) -> int:
    """How many nodes a netdoctor report has facts of; 0 when it is no report."""
    try:
        return sum(target["reached"] for target in json.loads(report)["targets"])
    except (ValueError, KeyError, TypeError):
        return 0


def split_frames(data: bytes) -> Iterator[bytes]:
    """Bodies of the frames in what an agent reads: eight hex digits, a newline, the body."""
    while data:
        size = int(data[:8], 16)
        yield data[9 : 9 + size]
        data = data[9 + size :]


def all_tools(folder: Path, endpoints: Endpoints, request: Request) -> list[Tool]:
    """Every contender; one that is not installed has no command."""
    count = len(endpoints.addresses)
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{a}\n" for a in endpoints.addresses))
    stdin = folder / "request"
    stdin.write_bytes(request.stdin)
    config = endpoints.client.ssh_config
    netdoctor = Tool(
        "netdoctor",
        "netdoctor scan, judged and rendered",
        netdoctor_scan(endpoints.client, hosts),
        codes=(0, 1, 3),
        timed=("-o", "none"),
        proving=("-o", "json"),
        answers=count_reached,
    )
    clush = find("clush")
    words = [] if clush is None else [clush, "-w", ",".join(endpoints.addresses)]
    return [
        netdoctor,
        Tool(
            "clush",
            "clush, same agent and facts",
            words and [*words, "-o", f"-F {config}", request.command],
            stdin=stdin,
            answers=request.answers,
        ),
        Tool(
            "clush",
            "clush, the same with curve25519",
            words and [*words, "-o", f"-F {config} {KEX}", request.command],
            stdin=stdin,
            answers=request.answers,
        ),
        fabric(folder, hosts, config, request),
        ansible(folder, endpoints, count),
    ]


def cheap_tools(folder: Path, endpoints: cheap.CheapEndpoints) -> list[Tool]:
    """netdoctor as a whole and its transport alone, an event loop that does the same, and clush."""
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{a}\n" for a in endpoints.addresses))
    groups = first_groups({info.group for info in FACT_TYPES.values()}, [], Job(), Profile.QUICK)
    asked = bundle.request_frame({"id": 1, "op": "facts", "args": {"groups": groups}})
    stdin = folder / "request"
    first = bundle.build_bundle(marker=MARKER, deadline_s=300.0, collectors={})
    stdin.write_bytes(first + bundle.pack(bundle.own_tag()) + asked)
    command = bundle.command("python3", MARKER)
    ports = folder / "ports"
    ports.write_text("".join(f"{n.address} {endpoints.ports[n.kind]}\n" for n in endpoints.nodes))
    files = [str(ports), str(endpoints.known_hosts)]

    def count_whole(output: str) -> int:
        return sum('"ok": true' in line and line.endswith("}}") for line in output.splitlines())

    def count_said(output: str) -> int:
        return int(output) if output.strip().isdigit() else 0

    clush = find("clush")
    wanted = ",".join(endpoints.addresses)
    loop = [sys.executable, str(HERE / "ssh_loop.py")]
    has_asyncssh = importlib.util.find_spec("asyncssh") is not None
    key, user = str(folder / "key"), getpass.getuser()
    return [
        Tool(
            "netdoctor", "netdoctor scan, judged and rendered", netdoctor_scan(endpoints, hosts),
            codes=(1,), timed=("-o", "none"), proving=("-o", "json"),
            answers=partial(count_judged, endpoints=endpoints),
        ),
        Tool(
            "netdoctor", "its transport alone, the same facts",
            [*loop, "netdoctor", *files, str(endpoints.ssh_config)], answers=count_said,
        ),
        Tool(
            "asyncssh", "one asyncssh event loop, the same facts",
            [*loop, "asyncssh", *files, key, user, command] if has_asyncssh else [], stdin=stdin,
            answers=count_said,
        ),
        # These servers know no post-quantum exchange: clush is as cheap here as with curve25519.
        Tool(
            "clush", "clush, same agent and facts",
            [] if clush is None else [clush, "-w", wanted, "-o", f"-F {endpoints.ssh_config}", command],
            stdin=stdin, answers=count_whole,
        ),
    ]  # fmt: skip


def count_judged(report: str, *, endpoints: cheap.CheapEndpoints) -> int:
    """How many healthy nodes a report has judged; 0 where it does not name each kind of faulty ones, and them
    alone."""
    try:
        found = json.loads(report)
        named = {cause["key"]: set(cause["node_list"]) for cause in found["causes"]}
        reached = {target["id"] for target in found["targets"] if target["reached"]}
    except (ValueError, KeyError, TypeError):
        return 0
    for kind, key in cheap.CAUSES.items():
        if set(endpoints.of_kind(kind)) != named.get(key, set()):
            say(f"{kind}: {sorted(named.get(key, ()))}")
            return 0
    return len(reached.intersection(endpoints.of_kind("healthy")))


def fabric(folder: Path, hosts: Path, config: Path, request: Request) -> Tool:
    """Plain Fabric feeds stdin one byte at a time, so the request travels in the command, as text."""
    encoded = base64.b64encode(request.stdin).decode()
    command = folder / "fabric_command"
    command.write_text(f"echo {encoded} | base64 -d | {request.command.removeprefix('exec ')}")
    program = [sys.executable, str(HERE / "fabric_group.py"), str(config), str(hosts), str(command)]
    short_enough = command.stat().st_size <= LONGEST_ARGUMENT_BYTES
    return Tool(
        "fabric",
        "fabric.ThreadingGroup, same agent and facts",
        program if short_enough and importlib.util.find_spec("fabric") else [],
        answers=request.answers,
    )


def ansible(folder: Path, endpoints: Endpoints, count: int) -> Tool:
    program = find("ansible")
    inventory = folder / "inventory"
    inventory.write_text(
        "".join(f"{a} ansible_python_interpreter=/usr/bin/python3\n" for a in endpoints.addresses)
    )
    # Sockets of ControlPersist want a short path; everything of this run stays in its folder.
    environment = {
        "ANSIBLE_HOME": str(folder / "a"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "a" / "local"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "a" / "remote"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "c"),
        "ANSIBLE_NOCOLOR": "1",
    }
    command = [] if program is None else [
        program, "all", "-i", str(inventory), "-m", "setup", "-f", str(count),
        "--ssh-common-args", f"-F {endpoints.client.ssh_config}",
    ]  # fmt: skip
    return Tool(
        "ansible",
        "ansible -m setup, its own facts, forks = nodes",
        command,
        environment=environment,
        answers=lambda output: output.count(" | SUCCESS => "),
    )


def find(program: str) -> str | None:
    """A program beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / program
    return str(beside) if beside.exists() else shutil.which(program)


# --- what is printed --------------------------------------------------------------------------------------


def table(count: int, repeats: int, figures: Mapping[str, Figures]) -> str:
    """One row per tool; `times`: how many times netdoctor's figure; `node ms CPU`: what each node spent."""
    lines = [
        "",
        f"{count} nodes, median of {repeats}",
        f"{'':48}{'wall s':>8}{'times':>7}{'client CPU s':>14}{'ms/node':>9}{'times':>7}{'peak MB':>9}"
        f"{'node ms CPU':>13}",
    ]
    ours = next((f for label, f in figures.items() if label.startswith("netdoctor") and f.wall_s), None)
    for label, row in figures.items():
        if not row.wall_s:
            lines.append(f"{label:48}{row.trouble or 'not run'}")
            continue
        wall, cpu = statistics.median(row.wall_s), statistics.median(row.cpu_s)
        ratios = (
            (wall / statistics.median(ours.wall_s), cpu / statistics.median(ours.cpu_s))
            if ours
            else (0.0, 0.0)
        )
        memory = f"{row.memory_bytes / MIB:.0f}" if row.memory_bytes else "?"
        lines.append(
            f"{label:48}{wall:8.2f}{ratios[0]:7.1f}{cpu:14.2f}{1000 * cpu / count:9.1f}"
            f"{ratios[1]:7.1f}{memory:>9}"
            f"{1000 * statistics.median(row.server_cpu_s) / count:13.0f}"
        )
        if row.trouble:
            lines.append(f"    do not use this row: {row.trouble}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Aims:
    """What is aimed at: shares of other tools' figures, by the beginning of their rows; MB; CPU ms a node."""

    shares: tuple[tuple[str, str, float], ...]
    memory_mb: int
    cpu_ms: float | None = None


KEX_ROW = "clush, the same with curve25519"
AIMS = Aims((("clush, same agent", "wall", 0.5), ("ansible", "wall", 0.1), (KEX_ROW, "client CPU", 0.5)), 300)
CHEAP_AIMS = Aims((("one asyncssh", "client CPU", 1.25), ("clush, same agent", "client CPU", 0.5)), 400, 3.0)


def summary(everything: Mapping[int, Mapping[str, Figures]], aims: Aims) -> str:
    """What is aimed at, at the largest size, and how netdoctor grows."""
    largest = max(everything)
    rows = {label: f for label, f in everything[largest].items() if f.wall_s and not f.trouble}
    ours = next((f for label, f in rows.items() if label.startswith("netdoctor")), None)
    if ours is None:
        return "\nnetdoctor was not measured"
    wall, cpu = statistics.median(ours.wall_s), statistics.median(ours.cpu_s)
    lines = ["", f"netdoctor at {largest} nodes, as a share of another tool's figure (aim: at most)"]
    for start, what, aim in aims.shares:
        mine = wall if what == "wall" else cpu
        other = next((f for label, f in rows.items() if label.startswith(start)), None)
        name = start.removesuffix(", same agent").replace("the same with ", "")
        if other is None:
            lines.append(f"  {what} / {name}: not measured")
        else:
            theirs = statistics.median(other.wall_s if what == "wall" else other.cpu_s)
            lines.append(f"  {what} / {name}: {mine / theirs:.2f} ({aim})")
    if ours.memory_bytes:
        used = f"{ours.memory_bytes / MIB:.0f} MB ({aims.memory_mb})"
        lines.append(f"  peak memory of all its processes: {used}")
    if aims.cpu_ms is not None:
        lines.append(f"  client CPU: {1000 * cpu / largest:.1f} ms a node ({aims.cpu_ms:g})")
    growth = [
        f"{count}: {1000 * statistics.median(f.wall_s) / count:.1f} ms wall, "
        f"{1000 * statistics.median(f.cpu_s) / count:.1f} ms CPU"
        for count, rows_ in sorted(everything.items())
        for label, f in rows_.items()
        if label.startswith("netdoctor") and f.wall_s
    ]
    lines.append("  per node: " + "; ".join(growth))
    return "\n".join(lines)


def machine() -> str:
    """One line about what this runs on; endpoints and clients share it."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"machine: {cores} cores of {model}, Linux {platform.release()}, load {load:.1f} at the start"


def versions() -> str:
    """Versions of everything that takes part."""
    parts = [f"Python {platform.python_version()}"]
    for name in ("netdoctor", "fabric", "paramiko", "gevent"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    for words in (
        ["ssh", "-V"],
        [find("clush") or "clush", "--version"],
        [find("ansible") or "ansible", "--version"],
    ):
        parts.append(first_line(words))
    return "versions: " + ", ".join(parts)


def first_line(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            words, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except OSError:
        return f"{Path(words[0]).name} absent"
    return ((done.stdout or done.stderr).strip().splitlines() or ["?"])[0].split(",")[0]


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
