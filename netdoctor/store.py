"""What a scan knows: facts by group and node, decoded at the edge, each missing one with its reason."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from netdoctor import facts
from netdoctor.facts.base import FACT_TYPES, FactInfo, Missing, Why
from netdoctor.jsontext import depth, has_more
from netdoctor.text import clean

T = TypeVar("T")

# Of one list in a node's own facts: judging takes time by rows. The longest there is has the addresses of a
# Kubernetes node with thousands of services (kube-ipvs0). An agent tells by itself when it has more.
ROWS_AT_MOST = 4096
DEPTH_AT_MOST = 64
SHORT_BYTES = 512
# What nodes say alike is kept once: the texts of a few groups, of some kinds of nodes.
ALIKE_BYTES, ALIKE = 8192, 512
# What has a node's own name, addresses or GUIDs in it, and so is like no other's.
DISTINCT = frozenset({"host", "net", "rdma", "resolve"})
NOT_COLLECTED = Missing(Why.NOT_COLLECTED, "not collected in this scan")


@dataclass(frozen=True, slots=True)
class Unread(Missing):
    """A fact of a group that nobody here knows, of a plug-in or a later release: plain data, as it came."""

    raw: Any = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Store:
    """node[group][node id] and cluster[group] hold a fact or a Missing.

    node[group] of a cluster-wide fact holds a Missing for nodes that dropped out while it was measured.
    """

    node: dict[str, dict[str, Any]] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)

    def put(self, group: str, node: str, value: Any) -> None:
        self.node.setdefault(group, {})[node] = value

    def get(self, group: str, node: str) -> Any:
        return self.node.get(group, {}).get(node, NOT_COLLECTED)

    def get_or_none(self, group: str, node: str) -> Any:
        """The node's fact, None where it is missing."""
        found = self.get(group, node)
        return None if isinstance(found, Missing) else found

    def present(self, group: str, nodes: Iterable[str]) -> dict[str, Any]:
        """The nodes that have this fact, in the order given."""
        known = self.node.get(group, {})
        return {n: known[n] for n in nodes if n in known and not isinstance(known[n], Missing)}

    def cluster_fact(self, group: str) -> Any:
        return self.cluster.get(group, NOT_COLLECTED)

    def part(self, group: str, node: str) -> Any:
        """The run's fact as far as this node goes: Missing where the node took no part in it."""
        whole = self.cluster_fact(group)
        own = self.node.get(group, {}).get(node)
        return own if isinstance(own, Missing) and not isinstance(whole, Missing) else whole


def group_type(group: str) -> type | None:
    """The fact type registered for a group, also where nobody has imported its module so far."""
    known = _TYPES.get(group)
    if known is None or known not in FACT_TYPES:  # not imported yet, or of a plug-in, that came or went
        if not any(info.group == group for info in FACT_TYPES.values()):
            _import_all()
        _TYPES.clear()
        _TYPES.update({info.group: cls for cls, info in reversed(FACT_TYPES.items())})
    return _TYPES.get(group)


_TYPES: dict[str, type] = {}


@cache
def _import_all() -> None:
    """Let every fact of ours be registered."""
    for module in pkgutil.iter_modules(facts.__path__):
        importlib.import_module(f"{facts.__name__}.{module.name}")


class Said(msgspec.Struct, Generic[T]):
    """One group of an agent's reply, where it has a value."""

    value: T | msgspec.UnsetType = msgspec.UNSET


@lru_cache(maxsize=128)
def _reader(cls: type) -> Callable[[bytes], Said[Any]]:
    return msgspec.json.Decoder(Said[cls]).decode  # type: ignore[valid-type]


def _made(cls: type, text: bytes) -> Any:
    return _whole(_reader(cls)(text).value)


def _whole(value: Any) -> Any:
    """The fact as it is. Raises ValueError where it lacks what every machine has: nothing that a check could
    find in it speaks for the node."""
    lacks = getattr(value, "lacks", None)  # of our own types alone
    if lacks is not None and (what := lacks()):
        raise ValueError(f"the answer does not say {what}")
    return value


# One object for equal texts: most of a healthy cluster's nodes have the same limits, packages and settings.
_alike = lru_cache(maxsize=ALIKE)(_made)


def decode(group: str, raw: Any) -> Any:
    """A fact from an agent's reply ``{"value": …}`` or ``{"missing": {"why", "detail"}}``; never raises.

    What does not fit the type is Missing(UNPARSABLE): a node's text is data, validated here once. So is what
    has more rows than any machine: cut short it would be another fact. raw: plain data, or the JSON of it.
    """
    return decoder(group)(raw)


def decoder(group: str) -> Callable[[Any], Any]:
    """`decode` of one group, for many nodes."""
    cls = group_type(group)
    if cls is None or not _is_ours(FACT_TYPES[cls]):
        return lambda raw: _from_plain(group, cls, raw)
    made = _made if group in DISTINCT else _alike

    def fact(raw: Any) -> Any:
        if not isinstance(raw, msgspec.Raw):
            return _from_plain(group, cls, raw)
        text = bytes(raw)
        if len(text) <= SHORT_BYTES and text.startswith(b'{"missing"') and (reason := _reason(text)):
            return reason
        try:
            # Straight to the fact: plain data in between takes longer than both.
            if not has_more(text, ROWS_AT_MOST - 1):
                value = (made if len(text) <= ALIKE_BYTES else _made)(cls, text)
                if value is not msgspec.UNSET:
                    return value
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            return _unfit(group, error)
        return _from_plain(group, cls, raw)

    return fact


def _from_plain(group: str, cls: type | None, raw: Any) -> Any:
    """The same by way of plain data, for what is not as usual."""
    if isinstance(raw, msgspec.Raw):
        text = bytes(raw)
        if depth(text, DEPTH_AT_MOST) > DEPTH_AT_MOST:
            return Missing(Why.UNPARSABLE, f"{group}: nested more than {DEPTH_AT_MOST} levels deep")
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            return _unfit(group, error)
    if not isinstance(raw, dict):
        return Missing(Why.UNPARSABLE, f"{group}: the node's answer is no object")
    if "value" in raw:
        if cls is None:
            return Missing(Why.UNPARSABLE, f"{group}: no such fact")
        info = FACT_TYPES[cls]
        # A plug-in knows what its own fact may hold.
        if _is_ours(info) and (rows := _rows_at_most(raw["value"])) > ROWS_AT_MOST:
            return Missing(Why.UNPARSABLE, f"{group}: {rows} rows, at most {ROWS_AT_MOST} are judged")
        try:
            value: Any = msgspec.convert(raw["value"], type=cls)
            return _whole(value) if _is_ours(info) else value
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            return Missing(Why.UNPARSABLE, f"{group}: {error}")
    return _missing(raw) or Missing(Why.UNPARSABLE, f"{group}: neither a value nor a reason")


def _unfit(group: str, error: Exception) -> Missing:
    where = str(error).replace("`$.value", "`$").removesuffix(" - at `$`")
    return Missing(Why.UNPARSABLE, f"{group}: {where}")


def _missing(raw: Mapping[str, Any]) -> Missing | None:
    missing = raw.get("missing")
    if not isinstance(missing, dict):
        return None
    why = missing.get("why")
    known = why if isinstance(why, str) and why in set(Why) else Why.FAILED
    return Missing(Why(known), str(missing.get("detail", ""))[:400])


@lru_cache(maxsize=1024)
def _reason(text: bytes) -> Missing | None:
    """The reason in a short text, of which thousands of nodes have the same; None where there is none."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if "value" in raw else _missing(raw)


def _is_ours(info: FactInfo) -> bool:
    return info.origin == "agent" and info.collector is None


def _rows_at_most(value: Any) -> int:
    """As _most_rows(), or more cheaply a number below ROWS_AT_MOST that it does not exceed."""
    try:
        few = msgspec.json.encode(value).count(b",") + 1
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return _most_rows(value)  # no JSON, such as a number beyond 64 bits: the type says no
    return few if few < ROWS_AT_MOST else _most_rows(value)


def _most_rows(value: Any) -> int:
    """How many rows the longest list or object anywhere in plain data has."""
    longest, left = 0, [value] if type(value) in _ROWS else []
    for one in left:
        longest = max(longest, len(one))
        inside = one.values() if type(one) is dict else one
        left += [row for row in inside if type(row) in _ROWS]
    return longest


_ROWS = (dict, list)


def dump(store: Store) -> dict[str, Any]:
    """Plain data for the report's `facts`, the inverse of `load`."""

    def one(value: Any) -> Any:
        if isinstance(value, Unread):
            return value.raw
        if isinstance(value, Missing):
            return {"missing": {"why": value.why.value, "detail": value.detail}}
        return {"value": msgspec.to_builtins(value)}

    return {
        "node": {g: {n: one(v) for n, v in nodes.items()} for g, nodes in store.node.items()},
        "cluster": {g: one(v) for g, v in store.cluster.items()},
    }


def load(data: Mapping[str, Any]) -> Store:
    """A Store from a report's `facts`."""
    store = Store()
    nodes = data.get("node")
    for group, by_node in nodes.items() if isinstance(nodes, dict) else ():
        if isinstance(by_node, dict):
            for node, raw in by_node.items():
                store.put(group, node, from_saved(group, raw))
    whole = data.get("cluster")
    for group, raw in whole.items() if isinstance(whole, dict) else ():
        store.cluster[group] = from_saved(group, raw)
    return store


def from_saved(group: str, raw: Any) -> Any:
    """As decode(), of what was saved: plain data, of which a group that nobody here knows stays as it is."""
    if group_type(group) is None:
        return Unread(Why.NOT_COLLECTED, f"{clean(group, 60)}: nobody knows this fact here", raw)
    return decode(group, raw)


def merge(old: Store, new: Store) -> Store:
    """What is known after some of it was measured again: the newer facts, where there are any.

    What the later scan did not ask, or did not get to, does not replace what the earlier one found.
    """
    merged = Store(node={g: dict(nodes) for g, nodes in old.node.items()}, cluster=dict(old.cluster))
    for group, value in new.cluster.items():
        if group == "job" or not _is_gap(value) or group not in merged.cluster:
            if group != "job" and not isinstance(value, Missing):
                merged.node.pop(group, None)  # who dropped out of the earlier measurement
            merged.cluster[group] = _joined(merged.cluster.get(group), value) if group == "job" else value
    for group, nodes in new.node.items():
        known = merged.node.setdefault(group, {})
        for node, value in nodes.items():
            if node not in known or not _is_gap(value):
                known[node] = value
    return merged


def _is_gap(value: Any) -> bool:
    return isinstance(value, Missing) and value.why in (Why.NOT_COLLECTED, Why.STOPPED)


def _joined(old: Any, new: Any) -> Any:
    """The later job, which knows the addresses of the nodes that were asked again, and those of the rest."""
    if isinstance(old, Missing) or isinstance(new, Missing) or old is None:
        return new
    return replace(new, data_addresses={**old.data_addresses, **new.data_addresses})
