"""The agent of a task that calls who judges, and whether anybody listens there."""

import contextlib
import json
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from netdoctor.agent import dial_back
from netdoctor.agent.dial_back import ALTERED, NOT_LET_IN, NOT_REACHED
from netdoctor.errors import InputError, TransportError
from netdoctor.text import clean

# The agent was let in, and the connection ended before it was asked anything.
UNASKED = 76


class NotWanted(TransportError):
    """This task is not wanted, or not to be had by this way, and never will be. The message says why."""


def answers(spots: Sequence[tuple[str, int]], within_s: float) -> bool:
    """Whether anything listens there: an agent costs more than asking."""
    pending: list[socket.socket] = []
    try:
        for address, port in spots:
            one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            one.setblocking(False)
            pending.append(one)
            one.connect_ex((address, port))
        finish, waiting = time.monotonic() + within_s, list(pending)
        while waiting and (left := finish - time.monotonic()) > 0:
            for one in select.select([], waiting, [], left)[1]:
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    return True
                waiting.remove(one)
        return False
    finally:
        for one in pending:
            one.close()


def waits(spots: Sequence[tuple[str, int]], secret: str, within_s: float) -> bool:
    """Whether somebody listens there who has this secret; it learns nothing of us."""
    tried: dict[str, str] = {}
    dialled = dial_back.first_proven(
        [list(s) for s in spots], "-", secret, time.monotonic() + within_s, tried
    )
    if dialled is not None:
        dialled.connection.close()
    return dialled is not None


def served(argv: Sequence[str], packed: bytes, environ: Mapping[str, str]) -> str:
    """Run the agent until who judges lets it go; '' or why it was not taken. Raises NotWanted, InputError."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=environ)  # noqa: S603  # the job's Python
    except OSError as error:
        raise InputError(f"--python {argv[0]}: {error.strerror or error}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(OSError), process.stdin as stdin:
            stdin.write(packed)
        output = process.stdout.read(4096)
        code = process.wait()
    finally:  # a launcher that ends this task ends its agent
        process.kill()
        process.wait()
    if code == 0:
        return ""
    if code == ALTERED:
        raise NotWanted(
            "what came over the connection is not what netdoctor scan --meet has sent: something on the way "
            "changes it; nothing of that was done, and the connection was ended"
        )
    if code == UNASKED:
        return "netdoctor scan --meet ended before it asked anything"
    if code not in (NOT_REACHED, NOT_LET_IN):
        return f"the agent ended with status {code}: {clean(output, 200)}"
    try:
        tried: dict[str, Any] = json.loads(output.partition(b"netdoctor-task ")[2])["tried"]
        why = "; ".join(f"{clean(where, 80)}: {clean(str(what), 200)}" for where, what in tried.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the agent was not taken: {clean(output, 200)}"
    if code == NOT_LET_IN:
        raise NotWanted(f"not let in: {why}")
    return why
