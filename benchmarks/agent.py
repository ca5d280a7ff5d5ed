"""What the agent costs a node: CPU of one process over pipes, without SSH, beside the bare interpreter's.

    python benchmarks/agent.py [--python /usr/bin/python3] [--repeats 15]

Rows: the interpreter that does nothing; the agent until it has said hello; the same with the facts that a
scan of each profile asks for right after login. They take turns; CPU is user and system time of the process
and all that it started, median in ms, and as a multiple of the bare interpreter's.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable

from netdoctor.check import Profile
from netdoctor.engine.gathering import first_groups
from netdoctor.facts.base import FACT_TYPES
from netdoctor.facts.software import Job
from netdoctor.transport import bundle

MARKER = "b3nchm4rk"
FRAME = re.compile(rb"\x1e" + MARKER.encode() + rb" (\d+)\n")


def cpu_s(begin: Callable[[], None]) -> float:
    """CPU seconds of what `begin` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bare(python: str) -> None:
    subprocess.run([python, "-E", "-s", "-c", "pass"], check=True)


def agent(python: str, groups: dict[str, dict[str, object]]) -> None:
    """Start an agent, wait for its hello and one answer, end it."""
    with subprocess.Popen(
        bundle.argv(python, MARKER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(bundle.build_bundle(marker=MARKER, deadline_s=60.0, collectors={}))
        request = {"id": 1, "op": "facts", "args": {"groups": groups}}
        process.stdin.write(bundle.request_frame(request) if groups else b"")
        process.stdin.flush()
        said = b""
        while sum(b'"need"' not in said[m.end() :][:40] for m in FRAME.finditer(said)) < 1 + bool(groups):
            part = os.read(process.stdout.fileno(), 1 << 20)
            if not part:
                raise SystemExit(f"{python}: the agent ended early")
            if b'{"need"' in part:  # pynvml, where there is a driver: not what this measures
                process.stdin.write(bundle.request_frame({"provide": "pynvml", "error": "not here"}))
                process.stdin.flush()
            said += part
        process.stdin.close()
        process.wait()


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    everything = {info.group for info in FACT_TYPES.values() if info.origin == "agent"}

    def asked(profile: Profile) -> dict[str, dict[str, object]]:
        return {group: dict(args) for group, args in first_groups(everything, [], Job(), profile).items()}

    rows: dict[str, Callable[[], None]] = {
        "interpreter, nothing": lambda: bare(options.python),
        "agent, hello": lambda: agent(options.python, {}),
        "agent, facts of quick": lambda: agent(options.python, asked(Profile.QUICK)),
        "agent, facts of launch": lambda: agent(options.python, asked(Profile.LAUNCH)),
    }
    spent: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(options.repeats):
        for name, begin in rows.items():
            spent[name].append(cpu_s(begin))
    least = statistics.median(spent["interpreter, nothing"])
    print(f"{options.python}, {options.repeats} repeats\n{'':28}  CPU ms   times")
    for name, each in spent.items():
        median = statistics.median(each)
        print(f"{name:28}  {1000 * median:6.0f}  {median / max(least, 0.001):6.1f}")


if __name__ == "__main__":
    main()
