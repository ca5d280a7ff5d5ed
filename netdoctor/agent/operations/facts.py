"""The `facts` operation: run collectors, each behind its own wall and time bound."""

import os
import sys
import time

from .. import main, runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional  # noqa: F401

GROUP_TIMEOUT_S = 10.0
# Without persistence mode NVML wakes each GPU up, seconds apiece.
LONGER = {"gpu": 20.0, "bmc": 40.0}
MAX_GROUPS = 64
# How long a group has the agent for itself. Most only compute, and threads that do so at once take a node a
# fifth more than one after the other; behind one that waits, another thread goes on with the rest.
TURN_S = 0.05
# How often it is looked at whether one that takes longer waits, or only has no processor on a busy node:
# another thread would be given none, either.
LOOK_S = 0.02


def module_of(group: str) -> "Any":
    """Return what collects a group: facts/GROUP.py, or a plug-in's text as a module. Raises Unavailable."""
    if group in main.collectors:
        from ..system import site_path

        site_path.own_path({}, run_site=True)
        module = type(sys)("ndagent_collector_" + group)
        code = compile(main.collectors[group], "<collector " + group + ">", "exec")
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)
        return module
    return runtime.module("facts." + group, "the agent has no collector for " + repr(group)[:80])


class _Job(runtime.Work):
    def __init__(self, group: str, args: "dict[str, Any]") -> None:
        runtime.Work.__init__(self)
        self.group = group
        self.args = args
        self.outcome = None  # type: Any
        self.elapsed_ms = 0.0
        self.started = time.monotonic()
        self.thread = None  # type: Any  # /proc/PID/task/TID, once it runs

    def run(self) -> None:
        self.started = time.monotonic()
        try:
            value = module_of(self.group).collect(self.args)
            if not isinstance(value, dict):
                raise runtime.Unavailable("failed", "the collector returned no object")
            outcome = {"value": value}
        except BaseException as e:
            why, detail = runtime.explain(e)
            outcome = {"missing": {"why": why, "detail": detail}}
        self.elapsed_ms = (time.monotonic() - self.started) * 1000
        self.outcome = outcome


def standing(thread: str) -> "tuple[bool, float]":
    """Return whether a thread has something to compute, and how long it has computed so far, s.

    thread: its folder in /proc. False and 0 where the kernel does not say.
    """
    # 123 (python3) R 1 …; fields 14 and 15 count ticks. Running, or waiting for a processor, is R.
    fields = (files.attribute(thread + "/stat") or "").rpartition(") ")[2].split()
    try:
        return fields[0] == "R", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return False, 0.0


def _is_late(job: _Job) -> bool:
    """Wait for a group's turn, and return whether it was over before the group was done."""
    wait_s, most_s = TURN_S, None  # type: float, Optional[float]
    while not runtime.join_until(job, time.monotonic() + wait_s):
        wait_s = LOOK_S
        if job.thread is not None:  # else the thread is yet to run
            computes, used_s = standing(job.thread)
            most_s = used_s + TURN_S if most_s is None else most_s
            if not computes or used_s >= most_s:
                return True
    return False


def _run(jobs: "list[_Job]") -> None:
    """Have all run, by as few threads as it takes. Raises RuntimeError where none can be started."""
    left = iter(jobs)

    def work() -> None:
        try:
            thread = "/proc/" + os.readlink("/proc/thread-self")
        except OSError:
            thread = ""
        for job in left:
            job.thread = thread
            job.do(job.run)

    runtime.thread(work)
    for job in jobs[:-1]:
        if _is_late(job):
            runtime.thread(work)


def facts(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return {group: {"value": …} or {"missing": {"why", "detail"}}, "timings_ms": {group: ms}}.

    args: {"groups": {name: args}, "timeout_s": bound for each group}. A group that is late is abandoned.
    """
    groups = args.get("groups")
    if not isinstance(groups, dict):
        raise runtime.Unavailable("failed", "facts wants groups")
    requested_s = args.get("timeout_s")
    jobs = [
        _Job(str(name), group_args if isinstance(group_args, dict) else {})
        for name, group_args in list(groups.items())[:MAX_GROUPS]
    ]
    _run(jobs)
    reply = {}  # type: dict[str, Any]
    timings = {}  # type: dict[str, float]
    for job in jobs:
        timeout_s = float(requested_s or LONGER.get(job.group, GROUP_TIMEOUT_S))
        ended = runtime.join_until(job, job.started + timeout_s)
        outcome = job.outcome
        if not ended or outcome is None:
            detail = "no answer within %g s" % timeout_s
            outcome = {"missing": {"why": "timed_out", "detail": detail}}
            timings[job.group] = round((time.monotonic() - job.started) * 1000, 3)
        else:
            timings[job.group] = round(job.elapsed_ms, 3)
        reply[job.group] = outcome
    reply["timings_ms"] = timings
    return reply
