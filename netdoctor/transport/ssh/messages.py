"""What the main process and its worker processes tell each other, and how it is framed.

Both directions: four bytes of length (big endian), then JSON, which has no line breaks. The bundle for the
agents follows `Start` as raw bytes, and the result of a node stands in the line after its `Answer`.
"""

from collections.abc import Hashable
from typing import Any

import msgspec

from netdoctor.facts.host import Session

HEAD_BYTES = 4
MAX_MESSAGE_BYTES = 256 << 20
LOOKUP_THREADS = 64  # of each worker


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One SSH server and how to log in to it, resolved: no aliases, no patterns, no tokens left."""

    name: str  # as the user wrote it
    host: str
    port: int
    user: str
    known_as: str  # what known_hosts is asked for
    keys: tuple[str, ...] = ()  # files to offer, in order
    certificates: tuple[str, ...] = ()
    keys_named: bool = False  # someone chose them
    keys_only: bool = False  # no others from the agent
    agent: str | None = None  # path of its socket
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    hash_known_hosts: bool = False
    strict: str = "yes"  # unknown host keys are refused; "accept": accepted; "record": that, and written
    family: str = "any"
    bind: str | None = None
    connect_timeout_s: float | None = None
    proxy: tuple[str, ...] = ()  # argument list of a ProxyCommand
    jump: "tuple[Endpoint, ...]" = ()  # the hops, nearest first

    @property
    def door(self) -> Hashable:
        """What it shares with others on the way in: jump hosts, a ProxyCommand's program (most are ``ssh`` to
        one host), or else an address."""
        return self.jump or self.proxy[:1] or (self.host, self.port)


class NodePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of this worker. first: index into `Start.requests`."""

    endpoint: Endpoint
    python: str
    first: int


class WireRequest(msgspec.Struct, frozen=True):
    """A request as the worker sends it on."""

    op: str
    args: msgspec.Raw
    timeout_s: float


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first message to a worker. anchor_s: wall clock less monotonic clock, taken once per run."""

    nodes: list[NodePlan]
    requests: list[WireRequest]
    keep_open: bool
    marker: str
    anchor_s: float
    parallel: int
    login_timeout_s: float
    node_budget_s: float
    clock_parallel: int = 16
    per_endpoint: int = 8


class Call(msgspec.Struct, frozen=True, tag="call"):
    """One request per node; `to` maps a node's place in `Start.nodes` to a place in `requests`."""

    number: int
    to: dict[int, int]
    requests: list[WireRequest]


ToWorker = Start | Call


class Ended(msgspec.Struct, frozen=True, tag="session"):
    """A login ended, well or badly."""

    node: int
    session: Session


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, tag="answer"):
    """A node has answered, or why not. The result comes behind it as the agent sent it, untrusted, unread."""

    node: int
    call: int
    why: str | None = None
    detail: str = ""


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Something to tell the user once, such as a line of known_hosts that cannot be read."""

    text: str


FromWorker = Ended | Answer | Note


def framed(message: Any, result: bytes = b"") -> bytes:
    """Return a message with its length in front, and what follows an `Answer` behind it."""
    body = msgspec.json.encode(message)
    if result:
        body += b"\n" + result
    return len(body).to_bytes(HEAD_BYTES, "big") + body


class Splitter:
    """Cuts a byte stream into messages. Raises ValueError when a length is absurd."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes."""
        self._buffer += data
        found = []
        start = 0
        while len(self._buffer) - start >= HEAD_BYTES:
            length = int.from_bytes(self._buffer[start : start + HEAD_BYTES], "big")
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = start + HEAD_BYTES + length
            if len(self._buffer) < end:
                break
            found.append(bytes(memoryview(self._buffer)[start + HEAD_BYTES : end]))
            start = end
        if start:
            del self._buffer[:start]
        return found
