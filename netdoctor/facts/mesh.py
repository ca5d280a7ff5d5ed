"""Facts about logins from node to node, and about what nodes reach outside of the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshLogin:
    """One login from `src` to `dst`, by the node's own ssh, of the user that netdoctor logs in as."""

    src: str
    dst: str
    host: str  # the name that ssh was given
    tried: bool = True  # False where no time was left
    # Exit status of ssh, which is that of ``true`` where it got through; None where it did not end in time.
    code: int | None = None
    said: str = ""  # what it wrote to stderr
    elapsed_ms: float = 0.0
    port: int | None = None  # port, user: of a login that failed, as ssh works them out
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshNode:
    """What a node has for logging in, and for being logged in to."""

    client: bool = True  # whether the node has an ssh
    public_keys: tuple[str, ...] = ()  # of its user
    host_keys: tuple[str, ...] = ()  # its own (``ssh-ed25519 AAAA…``), both without comments


@fact("mesh", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Logins between nodes, of `possible` directed pairs."""

    logins: tuple[MeshLogin, ...] = ()
    nodes: Mapping[str, MeshNode] = field(default_factory=dict)
    possible: int = 0
    failed_nodes: Mapping[str, str] = field(default_factory=dict)  # whose part did not run, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far `node` got on the way to a URL."""

    node: str
    url: str
    # Where it ended: ``dns``, ``connect``, ``proxy``, ``tls``, ``http``; ``untried``; empty where HTTP
    # answered, with `status`.
    stage: str = ""
    status: int | None = None
    detail: str = ""
    proxy: str = ""  # host and port of the one that its environment names
    address: str = ""  # the last that was dialled
    elapsed_ms: float = 0.0


@fact("reach", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What nodes reach of the URLs that somebody named."""

    rows: tuple[Reached, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)  # who did not say, and why
