"""Facts about logins from node to node, and about what nodes reach outside of the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshLogin:
    """One login from `src` to `dst`, by the node's own ssh, of the user that netdoctor logs in as.

    host: the name that ssh was given. tried: False where no time was left. code: exit status of ssh, which is
    that of ``true`` where it got through; None where it did not end in time. said: what it wrote to stderr.
    port, user: of a login that failed, as ssh works them out.
    """

    src: str
    dst: str
    host: str
    tried: bool = True
    code: int | None = None
    said: str = ""
    elapsed_ms: float = 0.0
    port: int | None = None
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshNode:
    """client: whether the node has an ssh. public_keys: of its user, host_keys: its own (``ssh-ed25519
    AAAA…``), both without comments."""

    client: bool = True
    public_keys: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()


@fact("mesh", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Logins between nodes, of `possible` directed pairs. failed_nodes: whose part did not run, and why."""

    logins: tuple[MeshLogin, ...] = ()
    nodes: Mapping[str, MeshNode] = field(default_factory=dict)
    possible: int = 0
    failed_nodes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far `node` got on the way to a URL.

    stage: where it ended: ``dns``, ``connect``, ``proxy``, ``tls``, ``http``; ``untried``; empty where HTTP
    answered, with `status`. proxy: host and port of the one that its environment names. address: the last
    that was dialled.
    """

    node: str
    url: str
    stage: str = ""
    status: int | None = None
    detail: str = ""
    proxy: str = ""
    address: str = ""
    elapsed_ms: float = 0.0


@fact("reach", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What nodes reach of the URLs that somebody named. failed_nodes: who did not say, and why."""

    rows: tuple[Reached, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)
