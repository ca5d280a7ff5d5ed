"""How much work something is, counted and not timed: the same on a busy machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(work: Callable[[], object]) -> int:
    """How many functions `work` calls, Python's own and built-in ones."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def steps(work: Callable[[], object]) -> int:
    """How many byte codes of netdoctor's own `work` executes, so that loops count. A hundred times slower."""
    count = 0

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return step

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("netdoctor."):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
