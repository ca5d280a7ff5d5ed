"""A task of a job goes where its nodes are judged, and is asked there as over any engine.

In a folder that all see who judges leaves a file, of mode 0600, with its addresses and a secret of this run.
"""

import contextlib
import importlib.metadata
import ipaddress
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from netdoctor.engine import registry
from netdoctor.errors import InputError
from netdoctor.files import Opened, open_shared
from netdoctor.inventory.names import host_fault, printable
from netdoctor.inventory.task import Task
from netdoctor.options import ScanRequest
from netdoctor.report.save import write_into
from netdoctor.text import clean
from netdoctor.transport import bundle
from netdoctor.transport.tasks import attending, meeting
from netdoctor.transport.tasks.meeting import PLACES_MAX, SECRET, Rendezvous

NAME = "netdoctor.meet"
SCHEMA = "netdoctor.meet/1"
FILE_MAX = 1 << 16
# A task stays as long as it is asked things, and no longer than this.
STAY_S = 1800.0
DIAL_S = 10.0
TRY_S = 0.5
HELD_S = 1.0
# The port of the variable by which a task tells its agent how it is called.
CALLED = "NETDOCTOR_MEET_CLAIM"

Spot = tuple[str, int]


class _Invitation(Struct, rename={"endpoints": "places"}):
    schema: str
    endpoints: Annotated[list[tuple[str, Annotated[int, Meta(ge=1, le=65535)]]], Meta(max_length=PLACES_MAX)]
    secret: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


@dataclass(frozen=True, slots=True)
class Standing:
    """The file of one scan in a folder."""

    folder: Path
    content: bytes

    def check(self) -> None:
        """Raises InputError where another scan has put its file there: of two that begin at the same moment
        neither sees the other."""
        path = self.folder / NAME
        with contextlib.suppress(OSError):  # gone for a moment, or for good: who has called is here
            if _read(path)[0] != self.content:
                raise InputError(
                    f"--meet {self.folder}: another netdoctor scan has taken the folder meanwhile, and "
                    "the tasks go there; take another folder"
                )

    def withdraw(self) -> None:
        """Take it away, if it is not somebody else's by now."""
        with contextlib.suppress(OSError):
            if _read(self.folder / NAME)[0] == self.content:
                (self.folder / NAME).unlink()


def invite(folder: Path, spots: Sequence[Spot], key: str) -> Standing:
    """Leave the file for the tasks. Raises InputError.

    Another scan that waits there keeps its tasks: they would be counted among those of this one.
    """
    standing = Standing(folder, msgspec.json.encode(_Invitation(SCHEMA, list(spots), key)))
    path = folder / NAME
    before = None
    with contextlib.suppress(InputError):  # what is no such file is replaced
        before = invited(folder)
    if before is not None and attending.waits(*before, HELD_S):
        address, port = before[0][0]
        raise InputError(
            f"--meet {folder}: another netdoctor scan waits there for its tasks, at {address} port {port}; "
            f"take another folder, or remove {path}"
        )
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_into(folder, NAME, standing.content)
        mode = _read(path)[1].mode
        if mode & 0o077:
            raise InputError(
                f"--meet {folder}: files there are open to others (mode {mode:o}), and a secret would be; "
                f"take HOST:PORT and {SECRET}"
            )
    except BaseException as error:  # a signal, too: nobody else knows yet what is to be taken away
        standing.withdraw()
        if isinstance(error, OSError):
            raise InputError(f"--meet {folder}: {error.strerror or error}") from None
        raise
    return standing


def invited(folder: Path) -> tuple[list[Spot], str] | None:
    """(addresses and ports, key) of who judges; None as long as nobody has left a file. Raises InputError.

    Whoever may write there could let tasks do what it likes: the file has to be our own user's.
    """
    path = folder / NAME
    try:
        data, opened = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"--meet {path}: {error.strerror or error}") from None
    if opened.owner:
        raise InputError(f"--meet {path}: it belongs to {opened.owner}; nothing is done by it")
    if opened.mode & 0o022:
        raise InputError(f"--meet {path}: others may write to it (mode {opened.mode:o})")
    try:
        found = msgspec.json.decode(data, type=_Invitation)
        if found.schema != SCHEMA:
            raise ValueError(f"its schema is {found.schema[:40]!a}, expected {SCHEMA}")
        return [(str(ipaddress.ip_address(host)), port) for host, port in found.endpoints], found.secret
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"--meet {path}: {clean(str(error), 120)}") from None


def _read(path: Path) -> tuple[bytes, Opened]:
    """What stands in the file of a folder, and whose it is. Raises OSError."""
    opened = open_shared(path, found=True)
    with opened.file as file:
        return file.read(FILE_MAX + 1), opened


def awaited(request: ScanRequest) -> str:
    """Whom a scan waits for, and what is to be typed there."""
    where = request.meet or ""
    if where.isdecimal():
        where = f"{platform.node()}:{where}"
    elif ":" not in where:  # tasks begin elsewhere
        where = os.path.abspath(where)
    tasks = f"{request.tasks} task{'s' * (request.tasks != 1)}" if request.tasks else "a task of each host"
    line = shlex.join(["netdoctor", "facts", "--meet", where])
    return f"waits at most {wait_s(request):g} s for {tasks} of the job: {clean(line, 400)}"


def wait_s(request: ScanRequest) -> float:
    """How long tasks are waited for: of the time for the whole run, which goes on meanwhile."""
    return min(request.timeout, request.deadline or math.inf)


def attend(node: str, task: Task, *, rendezvous: Rendezvous, key: str | None, request: ScanRequest) -> str:
    """Let this task be asked; returns when it is over, with '' or why it was not. Raises InputError."""
    call = caller(node, task, rendezvous=rendezvous, key=key, request=request)
    finish, why = time.monotonic() + request.timeout, ""
    while True:
        try:
            if not (why := call(finish - time.monotonic(), why)):
                return ""
        except attending.NotWanted as error:
            return str(error)
        if (left := finish - time.monotonic()) <= 0:
            return f"nobody took this task within {request.timeout:g} s: {why}"
        time.sleep(min(TRY_S, left))


def caller(
    node: str, task: Task, *, rendezvous: Rendezvous, key: str | None, request: ScanRequest
) -> Callable[[float, str], str]:
    """What calls once, within so many seconds, and returns '' when this task was asked all, or why not.

    The text is what was wrong before. It raises attending.NotWanted where calling again is of no use. Raises
    InputError itself.
    """
    if fault := host_fault(node):
        raise InputError(f"{printable(node)}: {fault.message}; --name says what this node is called")
    if key is None and rendezvous.folder is None:
        raise InputError(f"--meet HOST:PORT asks for the secret of who judges: {SECRET} or --secret-file")
    if rendezvous.folder is None and not rendezvous.host:
        raise InputError("--meet: a task has to know where: HOST:PORT, or a folder")
    interpreter = os.path.expanduser(request.python) if request.python else sys.executable
    inherited = {name: value for name, value in request.environ.items() if name != SECRET}
    inherited[CALLED] = meeting.claim(task.rank if task.rank is not None else task.node_rank, node)

    def call(left: float, before: str) -> str:
        spots, secret, why = _spots(rendezvous, key, before)
        if not (spots and attending.answers(spots, min(left, DIAL_S))):
            return why
        dial = {"places": spots, "secret": secret, "node_from": [CALLED], "within_s": min(left, DIAL_S)}
        dial["unasked"] = attending.UNASKED
        packed = bundle.build_bundle(
            marker=meeting.marker(secret),
            deadline_s=STAY_S,
            collectors=_collectors(request.checks_dir),
            dial=dial,
        )
        return attending.served(bundle.argv(interpreter, meeting.marker(secret)), packed, inherited)

    return call


def _collectors(checks_dir: tuple[Path, ...]) -> Mapping[str, str]:
    """What plug-ins collect on nodes. Raises InputError."""
    if not (checks_dir or importlib.metadata.entry_points(group=registry.ENTRY_POINTS)):
        return {}  # ours travel by themselves, and loading every check takes a second
    checks = registry.load(folders=checks_dir).checks.values()
    return registry.collectors({parameter.info.group for check in checks for parameter in check.needs})


def _spots(rendezvous: Rendezvous, key: str | None, before: str) -> tuple[list[Spot], str, str]:
    """(addresses and ports to call, the key there, what to say where nobody answers)."""
    if rendezvous.folder is None:
        spots = meeting.look_up(rendezvous.host, rendezvous.port)
        nobody = f"nothing answers at {rendezvous.host} port {rendezvous.port}"
        return spots, key or "", before or (nobody if spots else f"{rendezvous.host} has no address")
    found = invited(rendezvous.folder)
    if found is None:
        return (
            [],
            "",
            before or f"nobody has left {rendezvous.folder / NAME} for tasks: netdoctor scan --meet does",
        )
    endpoints = ", ".join(f"{address} port {port}" for address, port in found[0][:4])
    return found[0], found[1], before or f"nothing answers at {endpoints}"
