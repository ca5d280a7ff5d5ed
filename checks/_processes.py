"""Processes that are in the way: who they are, and commands that end them."""

from netdoctor.checks._words import is_host_name


def ending(pid: int, name: str | None) -> str:
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
