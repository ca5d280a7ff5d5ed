"""What a login at a terminal, and a shell without one, get beside what the session has: asked of the shells.

The start-up files are the user's: they may print, wait, ask or fail. Nothing is read of what they print, they
have no terminal, a bounded time, and all that they start in the shell's own session ends with it.
"""

import os
import time

from .. import runtime
from ..facts import env as facts_env
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# Modules and conda take a second or two; a home on a busy file server more.
PATIENCE_S = 10.0
# Programs of which a job takes what PATH has first.
TOOLS = ("python3", "python", "torchrun", "mpirun", "deepspeed", "ray", "nvcc", "ninja")
# Without a prompt: what pdsh, mpirun and srun start a command by, what scripts are for bash, and those of a
# login (#!/bin/bash -l, sbatch --get-user-env).
WAYS = ("sh -c", "bash -c", "bash -l -c")
SHELLS = ("bash", "zsh", "ksh", "dash", "sh")
VARIABLES_AT_MOST = 400
GUARD_LINES_AT_MOST = 200

# Between marks that no start-up file prints; `command` goes past functions and aliases.
_MARK = "netdoctor-%s"
_ASK = (
    "command printf '\\0%(mark)s\\0'; /bin/cat /proc/self/environ; command printf '\\0%(mark)s\\0'; "
    "for t in %(tools)s; do command printf '%%s=%%s\\0' $t \"$(command -v $t)\"; done; "
    "command printf '%(mark)s'"
)


def own_shell() -> str:
    """Return the shell that a login starts."""
    import pwd

    try:
        found = pwd.getpwuid(os.getuid()).pw_shell
    except (KeyError, OSError):
        found = ""
    return found or os.environ.get("SHELL") or "/bin/sh"


def parse(out: str, mark: str) -> "Optional[tuple[dict[str, str], dict[str, str]]]":
    """Return what matters of the variables, and where programs are; None where the answer is not whole."""
    parts = out.split(mark)
    if len(parts) < 4:
        return None
    found = {}  # type: dict[str, str]
    for entry in parts[-3].split("\0"):
        name, equals, value = entry.partition("=")
        text = facts_env.reported_value(name, value) if equals else None
        if text is not None and len(found) < VARIABLES_AT_MOST:
            found[name] = text
    tools = {}
    for entry in parts[-2].split("\0"):
        name, _, path = entry.partition("=")
        # Of an alias or a function `command -v` gives the text.
        if name in TOOLS and path.startswith("/") and "\n" not in path:
            tools[name] = path[:1000]
    return dict(sorted(found.items())), tools


def _ask_shell(argv: "list[str]", mark: str) -> "tuple[Any, str]":
    """Return what `parse` makes of an answer, and why there is none."""
    ask = _ASK % {"mark": mark, "tools": " ".join(TOOLS)}
    try:
        # Modules and conda take a terminal without a name for none, and some ask tput.
        done = runtime.run_tool([*argv, ask], PATIENCE_S, dict(os.environ, TERM="dumb"))
    except OSError as e:
        return None, files.errno_name(e)
    found = parse(done.out, mark)
    if found:
        # Also where it was late: something that it started may keep the output open.
        return found, ""
    if done.code is None:
        return None, "no answer in %g s" % PATIENCE_S
    if len(done.out) >= runtime.OUTPUT_CAP_BYTES:
        return None, "its start-up files print more than %d KiB" % (runtime.OUTPUT_CAP_BYTES >> 10)
    return None, "it ended with status %d before it answered" % done.code


def guard(text: str) -> "Optional[int]":
    """Return the line of ~/.bashrc below which nothing counts without a prompt, counted from 1.

    ``[ -z "$PS1" ] && return``, ``case $- in``, ``[[ $- != *i* ]] && return``. [distributions' skeletons]
    """
    for number, line in enumerate(text.splitlines()[:GUARD_LINES_AT_MOST], start=1):
        code = line.strip()
        if code.startswith(("case $- in", 'case "$-" in')):
            return number
        asks = "$PS1" in code or "${PS1" in code or "$-" in code
        if asks and "return" in code and code.startswith(("[", "test ", "if ")):
            return number
    return None


def mark_of(args: "dict[str, Any]") -> str:
    """Return what answers stand between. Raises ValueError."""
    word = str(args.get("mark"))
    if not 16 <= len(word) <= 64 or set(word) - frozenset("0123456789abcdef"):
        raise ValueError("no mark")
    return _MARK % word


def job_shells(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return facts.launching.JobShells. args: {"mark": hex digits}. Raises ValueError."""
    mark = mark_of(args)
    rows = []
    for way in WAYS:
        name, _, options = way.partition(" ")
        path = runtime.find_tool(name)
        if path is None:
            continue
        began = time.monotonic()
        found, error = _ask_shell([path, *options.split()], mark)
        took = time.monotonic() - began
        row = {"way": way, "error": error, "late": took >= PATIENCE_S, "seconds": round(took, 3)}
        row["variables"], row["tools"] = found or ({}, {})
        rows.append(row)
    return {"shells": rows}


def shell_env(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return facts.launching.ShellFacts. args: {"mark": hex digits}. Raises ValueError."""
    mark = mark_of(args)
    shell = own_shell()
    result = {"shell": shell[:200], "error": "", "guard": None}  # type: dict[str, Any]
    result.update(variables={}, tools={}, own_tools={})
    if os.path.basename(shell) not in SHELLS:
        result["error"] = "%s is not asked" % os.path.basename(shell)[:40]
        return result
    home = os.environ.get("HOME") or "/"
    if os.path.basename(shell) == "bash":
        result["guard"] = guard(files.text_or_none(home + "/.bashrc", 65536) or "")
    plain, _ = _ask_shell(["/bin/sh", "-c"], mark)
    found, result["error"] = _ask_shell([shell, "-l", "-i", "-c"], mark)
    if plain:
        result["own_tools"] = plain[1]
    if found:
        result["variables"], result["tools"] = found
    return result
