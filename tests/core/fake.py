"""A cluster that lives in a dictionary: a transport for the engine, and checks made on the spot."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.check import Check, describe
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import HostFacts, Node, Session
from netdoctor.facts.software import Job
from netdoctor.inventory import Target
from netdoctor.model import CLUSTER, CONTROL, Cause, Finding, fail, unknown
from netdoctor.store import Store
from netdoctor.transport import fake
from tests.checks import build as healthy


def make(function: Callable[..., Iterable[Finding]], **options: Any) -> Check:
    """The Check that `function` is, without registering it; a built-in one unless `origin` says otherwise."""
    origin = options.pop("origin", "netdoctor.checks.test")
    defaults: dict[str, Any] = {
        "after": ("ssh.login",),
        "explains": (),
        "profile": "quick",
        "cost": "read-only",
        "required": True,
        "root": False,
        "source": None,
    }
    return replace(describe(function, **{**defaults, **options}), origin=origin)


def login() -> Check:
    """A check with the id ssh.login: a node without a good session fails it."""

    def ssh_login(node: Node, session: Session) -> Iterator[Finding]:
        """Somebody logs in."""
        if session.outcome == "control":
            yield unknown(node.id, "our own trouble", cause=hint("ssh-control", CONTROL))
        elif session.outcome != "ok":
            cause = hint(f"ssh-{session.outcome}", node.id, title="nobody can log in to {nodes}")
            yield fail(node.id, session.outcome, cause=cause)

    return make(ssh_login, after=())


def saying(check_id: str, *said: object, scope: str = "cluster", **options: Any) -> Check:
    """A check that yields `said`, whatever the facts. scope ``node``: what is said of that node only."""

    def cluster(hosts: Mapping[str, HostFacts]) -> Iterator[object]:
        """It is said to be fine."""
        yield from said

    def node(node: Node, host: HostFacts) -> Iterator[object]:
        """It is said to be fine."""
        here = (node.id, CLUSTER, CONTROL)
        yield from (one for one in said if not isinstance(one, Finding) or one.target in here)

    function: Any = cluster if scope == "cluster" else node
    function.__name__ = check_id.replace(".", "_").replace("-", "_")
    return make(function, **options)


def hint(key: str, *culprits: str, title: str = "{nodes} {is} bad", **details: Any) -> Cause:
    return Cause(key=key, title=title, culprits=culprits, **details)


def targets(count: int) -> list[Target]:
    return [Target(id=healthy.name(i), host=healthy.name(i), order=i - 1) for i in range(1, count + 1)]


def store_of(count: int, **groups: Mapping[str, Any]) -> Store:
    """A store in which every node was logged in to and says who it is, plus `groups` by node."""
    store = Store()
    for i in range(1, count + 1):
        store.put("node", healthy.name(i), healthy.node(i))
        store.put("session", healthy.name(i), healthy.session(i))
        store.put("host", healthy.name(i), healthy.host(i))
    store.cluster["job"] = Job(master_node="n1")
    for group, by_node in groups.items():
        for node, value in by_node.items():
            store.put(group, node, value)
    return store


def plain(fact: object) -> dict[str, Any]:
    """A fact as an agent sends it."""
    return {"value": msgspec.to_builtins(fact)}


class FakeTransport(fake.FakeTransport):
    """Nodes n1, n2… that are healthy machines without hardware where nothing else is said."""

    def session(self, target: Target) -> Session:
        return healthy.session(target.order + 1)

    def fact(self, target: Target, group: str) -> Any:
        known = {"host": healthy.host(target.order + 1), "limits": healthy.limits()}
        return known.get(group, Missing(Why.NOT_APPLICABLE, "not here"))


LOST = Missing(Why.LOST, "the connection was closed")
