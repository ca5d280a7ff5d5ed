"""Processes that are in the way: who they are, and commands that end them."""

from collections.abc import Sequence

from netdoctor.checks._shared.text import MIB, is_host_name
from netdoctor.facts.gpu import GpuProcess
from netdoctor.model import Fix, look, run


def end_command(pid: int, name: str | None) -> str:
    """A command that ends a process while the number is still its own; empty where its name tells too little.

    Pasted later, the number may be another process's.
    """
    known = pid > 1 and name is not None and is_host_name(name)
    return f'[ "$(ps -o comm= -p {pid})" = {name} ] && kill {pid}' if known else ""


def running_for(seconds: float) -> str:
    """``running for 3 h``."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"running for {seconds / size:.0f} {unit}"
    return f"running for {seconds:.0f} s"


def process_text(process: GpuProcess) -> str:
    """``python3 (pid 4711, alice, 2048 MiB, running for 3 h)``."""
    memory = f", {process.memory_bytes // MIB} MiB" if process.memory_bytes else ""
    age = f", {running_for(process.age_s)}" if process.age_s is not None else ""
    left = ", left over by a session" if process.left_over else ""
    who = f"pid {process.pid}, {process.user or 'user unknown'}"
    return f"{process.name or 'process'} ({who}{memory}{age}{left})"


def end_processes(busy: Sequence[GpuProcess]) -> tuple[Fix, Fix]:
    """See who they are, and end them."""
    pids = " ".join(str(process.pid) for process in busy[:20])
    ends = [end_command(process.pid, process.name) for process in busy[:20]]
    return (
        look("see what they are", f"ps -o pid,user,etime,args -p {pids}"),
        run(
            "end them, but only if no job needs them",
            *ends,
            root=True,
            risk="high",
            loses="what they compute",
        ),
    )
