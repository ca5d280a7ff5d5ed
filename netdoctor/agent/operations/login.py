"""Logins from this node to others, by its own ssh and the user's own settings, as launchers do them."""

import os
import time

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TARGETS = 4096
MAX_PARALLEL = 16
SAID_CAP = 600
# Every login is one of its own, changes nothing here, asks nobody, and ends with the agent.
OPTIONS = (
    "BatchMode=yes", "ConnectTimeout=5", "ConnectionAttempts=1", "ControlPath=none", "ControlMaster=no",
    "ClearAllForwardings=yes", "PermitLocalCommand=no", "UpdateHostKeys=no", "LogLevel=ERROR",
)  # fmt: skip
# What a server with many logins at once says (MaxStartups): it is asked again.
_BUSY = ("kex_exchange_identification", "Connection closed by", "Connection reset by")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%-")


def public_keys(folder: str, suffix: str = ".pub") -> "list[str]":
    """Return type and key of the public keys in a folder, without their comments."""
    found = []
    for name in files.names(folder):
        if name.endswith(suffix):
            words = (files.text_or_none(folder + "/" + name, 16384) or "").split()
            if len(words) > 1 and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
                found.append(" ".join(words[:2]))
    return found[:16]


def settings(ssh: str, host: str) -> "dict[str, Any]":
    """Return the port and the user of a login, as ssh works them out; nothing is sent."""
    try:
        text = runtime.run_tool([ssh, "-G", host], 5.0).out
    except OSError:
        return {}
    pairs = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    port = pairs.get("port", "")
    return {"port": int(port) if port.isdigit() else None, "user": pairs.get("user", "")[:64]}


def _log_in(ssh: str, row: "dict[str, Any]", end: float) -> None:
    argv = [ssh, "-x", "-a"] + [word for option in OPTIONS for word in ("-o", option)]
    for wait_s in (0.0, 0.7, 1.9):
        left = end - time.monotonic() - wait_s
        if left <= 0:
            return
        time.sleep(wait_s)
        started = time.monotonic()
        try:
            done = runtime.run_tool([*argv, str(row["host"]), "true"], min(12.0, left))
        except OSError as e:
            row.update(code=-1, said=str(e)[:SAID_CAP], tried=True)
            return
        late = done.code is None and end - time.monotonic() <= 0.1
        row.update(
            code=done.code,
            said=done.err.strip()[:SAID_CAP],
            tried=not late,
            elapsed_ms=(time.monotonic() - started) * 1000,
        )
        if done.code != 255 or not any(word in done.err for word in _BUSY):
            break
    if row["code"]:
        row.update(settings(ssh, str(row["host"])))


def login(args: "dict[str, Any]") -> "dict[str, Any]":
    """Log in to every target and run `true` there; rows in the order of the targets.

    args: {"targets": [{"dst", "host": as a launcher would say it}], "parallel", "seconds": for all of it}.
    Result: {"client": whether there is an ssh, "public_keys": the user's, "host_keys": this node's, "rows":
    [{"dst", "host", "tried", "code": of ssh, None where it was late, "said": on stderr, "elapsed_ms", and of
    those that failed "port" and "user"}]}.
    """
    # As a launcher would run it: the first on PATH.
    ssh = runtime.find_tool("ssh", os.environ.get("PATH", "")) or runtime.find_tool("ssh")
    rows = []  # type: list[dict[str, Any]]
    for target in list(args.get("targets") or [])[:MAX_TARGETS]:
        host = str(target.get("host", ""))
        row = {"dst": str(target.get("dst", "")), "host": host, "tried": False, "code": None, "said": ""}
        rows.append(row)
        if not host or host.startswith("-") or set(host) - _PLAIN:
            row["said"] = "no name of a host"
    left = [row for row in rows if ssh is not None and not row["said"]][::-1]
    end = time.monotonic() + min(max(float(args.get("seconds") or 30.0), 1.0), 600.0)

    def work() -> None:
        while left and time.monotonic() < end:
            try:
                row = left.pop()
            except IndexError:  # another thread was faster
                return
            _log_in(str(ssh), row, end)

    count = min(max(int(args.get("parallel") or 4), 1), MAX_PARALLEL, max(len(left), 1))
    for one in [runtime.thread(work) for _ in range(count)]:
        runtime.join_until(one, end + 2.0)
    return {
        "client": ssh is not None,
        "public_keys": public_keys(os.path.expanduser("~/.ssh")),
        "host_keys": public_keys("/etc/ssh", "_key.pub"),
        "rows": rows,
    }
