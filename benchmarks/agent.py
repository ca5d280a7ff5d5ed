"""What the agent costs a node: CPU and memory of one process over pipes, without SSH, and of the interpreter.

    python benchmarks/agent.py [--python /usr/bin/python3] [--repeats 15]

Rows: the interpreter that does nothing, with `site` and as agents start it, without; one that imports what
most programs do; the agent until its modules are loaded; the same with each group of passive facts alone;
with the facts that a scan of each profile asks for right after login; and with text sent instead of code, as
to a Python of another release.

They take turns. CPU is user and system time of the process and all that it started: the least and the median
in ms, and the least as a multiple of the first row's. Memory is the most that was resident, median in MiB.
"""

import argparse
import importlib
import os
import pkgutil
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdoctor import facts
from netdoctor.check import Profile
from netdoctor.engine.gathering import first_groups
from netdoctor.facts.base import FACT_TYPES
from netdoctor.facts.software import Job
from netdoctor.transport import bundle

MARKER = "b3nchm4rk"
FRAME = re.compile(rb"\x1e" + MARKER.encode() + rb" (\d+)\n")

NEED = re.compile(rb'"need": "([^"]+)"')


@dataclass
class Row:
    """A program, and what it has spent so far, by repeat."""

    begin: Callable[[], "Spent"]
    cpu_s: list[float] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Spent:
    cpu_s: float
    resident_bytes: int


def ended(process: subprocess.Popen[bytes]) -> Spent:
    """End a process that reads its stdin; what it and its children have spent."""
    # Of itself alone: ru_maxrss would begin with what this process had when it forked.
    said = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    resident = int(said.partition("VmHWM:")[2].split()[0]) << 10
    assert process.stdin is not None
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Spent(usage.ru_utime + usage.ru_stime, resident)


def bare(python: str, imports: str, flags: Sequence[str] = ("-E", "-s")) -> Spent:
    code = f"import os{imports}; os.write(1, b'.'); os.read(0, 1)"
    argv = [python, *flags, "-c", code]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    spent = ended(process)
    process.stdout.close()
    return spent


def agent(python: str, groups: Mapping[str, Any], as_text: bool = False) -> Spent:
    """Start an agent, have it answer once, end it. as_text: whatever code there is for it."""
    process = subprocess.Popen(
        bundle.argv(python, MARKER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(bundle.build_bundle(marker=MARKER, deadline_s=60.0, collectors={}))
    request = {"id": 1, "op": "facts" if groups else "ping", "args": {"groups": groups}}
    process.stdin.write(bundle.request_frame(request))
    process.stdin.flush()
    said = b""
    while not any(said[m.end() :].startswith(b'{"id": 1, "ok"') for m in FRAME.finditer(said)):
        part = os.read(process.stdout.fileno(), 1 << 20)
        if not part:
            raise SystemExit(f"{python}: the agent ended early")
        for words in NEED.findall(part):
            kind, *rest = words.decode().split()
            refused = bundle.request_frame({"provide": kind, "error": "not here"})  # pynvml is not measured
            tag, *name = [*rest, ""] if not as_text else ["", *rest[1:]]
            process.stdin.write(bundle.pack(tag, *name[:1]) if kind == "agent" else refused)
            process.stdin.flush()
        said += part
    spent = ended(process)
    process.stdout.close()
    return spent


def rows(python: str) -> dict[str, Row]:
    """All that is measured, by name."""
    for module in pkgutil.iter_modules(facts.__path__, facts.__name__ + "."):
        importlib.import_module(module.name)
    everything = {info.group for info in FACT_TYPES.values() if info.origin == "agent"}

    def asked(profile: Profile) -> dict[str, dict[str, Any]]:
        return {group: dict(args) for group, args in first_groups(everything, [], Job(), profile).items()}

    def run(groups: Mapping[str, Any], as_text: bool = False) -> Row:
        return Row(lambda: agent(python, groups, as_text))

    found = {
        "python3 -E -s, nothing": Row(lambda: bare(python, "")),
        f"python3 {' '.join(bundle.FLAGS)}, nothing": Row(lambda: bare(python, "", bundle.FLAGS)),
        "python3 -E -s, json, socket": Row(lambda: bare(python, ", json, socket")),
        "agent": run({}),
    }
    found |= {f"agent, {group}": run({group: args}) for group, args in asked(Profile.QUICK).items()}
    destinations = {f"node{number}": f"192.0.2.{number}" for number in range(1, 65)}
    found["agent, routes to 64"] = run({"routes": {"destinations": destinations}})
    for profile in (Profile.QUICK, Profile.LAUNCH):
        found[f"agent, facts of {profile.value}"] = run(asked(profile))
    found["as text, facts of quick"] = run(asked(Profile.QUICK), as_text=True)
    return found


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    table = rows(options.python)
    for _ in range(options.repeats):
        for row in table.values():
            spent = row.begin()
            row.cpu_s.append(spent.cpu_s)
            row.resident_bytes.append(spent.resident_bytes)
    least = min(next(iter(table.values())).cpu_s)
    load = os.getloadavg()[0]
    print(f"{options.python}, {options.repeats} repeats, load {load:.1f}")
    print(f"{'':28} {'CPU ms':>7} {'median':>7} {'times':>6} {'MiB':>5}")
    for name, row in table.items():
        cpu = f"{1000 * min(row.cpu_s):7.1f} {1000 * statistics.median(row.cpu_s):7.1f}"
        times = min(row.cpu_s) / max(least, 1e-4)
        print(f"{name:28} {cpu} {times:6.1f} {statistics.median(row.resident_bytes) / (1 << 20):5.0f}")


if __name__ == "__main__":
    main()
