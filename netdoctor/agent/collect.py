"""The `facts` operation: run collectors, each behind its own wall and time bound."""

import os
import sys
import time

from . import files, main, runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GROUP_TIMEOUT_S = 10.0
# Without persistence mode NVML wakes each GPU up, seconds apiece.
LONGER = {"gpu": 20.0}
MAX_GROUPS = 64
# How long a group has the agent for itself. Most only compute, and threads that do so at once take a node a
# fifth more than one after the other; behind one that waits, another thread goes on with the rest. While a
# busy node gives it no processor, a group does not wait: another thread would get none, either.
TURN_S = 0.05


def module_of(group: str) -> "Any":
    """Return what collects a group: facts_GROUP, or a module made of a plug-in's text. Raises Unavailable."""
    if group in main.collectors:
        from . import dists

        dists.own_path(whole=True)
        module = type(sys)("ndagent_collector_" + group)
        code = compile(main.collectors[group], "<collector " + group + ">", "exec")
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)
        return module
    return runtime.module("facts_" + group, "the agent has no collector for " + repr(group)[:80])


def queued_s(thread: str) -> float:
    """Return how long a thread has waited for a processor so far; 0 where the kernel does not say.

    thread: its folder in /proc, whose schedstat says ``12345 678 90``: ran and waited, in ns, and how often.
    """
    try:
        return int((files.attribute(thread + "/schedstat") or "").split()[1]) * 1e-9
    except (IndexError, ValueError):
        return 0.0


class _Job(runtime.Work):
    def __init__(self, group: str, args: "dict[str, Any]") -> None:
        runtime.Work.__init__(self)
        self.group = group
        self.args = args
        self.outcome = None  # type: Any
        self.elapsed_ms = 0.0
        self.started = time.monotonic()
        self._thread = None  # type: Any  # /proc/PID/task/TID, once it runs
        self._queued_s = 0.0

    def turn_left_s(self) -> float:
        """Return how much there is of the turn."""
        if self._thread is None:  # there is a thread for it, which is yet to run
            return TURN_S
        return TURN_S - (time.monotonic() - self.started) + queued_s(self._thread) - self._queued_s

    def run(self) -> None:
        try:
            thread = "/proc/" + os.readlink("/proc/thread-self")
        except OSError:
            thread = ""
        self._queued_s = queued_s(thread)
        self.started = time.monotonic()
        self._thread = thread
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


def _run(jobs: "list[_Job]") -> None:
    """Have all run, by as few threads as it takes. Raises RuntimeError where none can be started."""
    left = iter(jobs)

    def work() -> None:
        for job in left:
            job.do(job.run)

    runtime.thread(work)
    for job in jobs[:-1]:
        left_s = TURN_S
        while left_s > 0 and not runtime.join_until(job, time.monotonic() + left_s):
            left_s = job.turn_left_s()
        if left_s <= 0:
            runtime.thread(work)


def facts(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return {group: {"value": …} or {"missing": {"why", "detail"}}, "timings_ms": {group: ms}}.

    args: {"groups": {name: args}, "timeout_s": bound for each group}. A group that is late is abandoned.
    """
    groups = args.get("groups")
    if not isinstance(groups, dict):
        raise runtime.Unavailable("failed", "facts wants groups")
    asked = args.get("timeout_s")
    jobs = [
        _Job(str(name), group_args if isinstance(group_args, dict) else {})
        for name, group_args in list(groups.items())[:MAX_GROUPS]
    ]
    _run(jobs)
    reply = {}  # type: dict[str, Any]
    timings = {}  # type: dict[str, float]
    for job in jobs:
        timeout_s = float(asked or LONGER.get(job.group, GROUP_TIMEOUT_S))
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
