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
# Equal answers of nodes become one object: of texts up to so many bytes, so many at a time.
SHARED_BYTES, SHARED = 8192, 512
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
        fact, of_node = self.cluster_fact(group), self.get(group, node)
        dropped_out = isinstance(of_node, Missing) and of_node is not NOT_COLLECTED
        return of_node if dropped_out and not isinstance(fact, Missing) else fact


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


class Answer(msgspec.Struct, Generic[T]):
    """One group of an agent's reply."""

    value: T | msgspec.UnsetType = msgspec.UNSET
    missing: Any = None


@lru_cache(maxsize=128)
def _reader(cls: type) -> Callable[[bytes], Answer[Any]]:
    return msgspec.json.Decoder(Answer[cls]).decode  # type: ignore[valid-type]


def _read(cls: type, text: bytes) -> Any:
    """The fact, or why it is missing; None where there is neither. Raises ValueError, or as msgspec does."""
    answer = _reader(cls)(text)
    return _reason(answer.missing) if answer.value is msgspec.UNSET else _complete(answer.value)


def _complete(value: Any) -> Any:
    """The fact as it is. Raises ValueError where it lacks what every machine has: nothing that a check could
    find in it speaks for the node."""
    missing_field = getattr(value, "missing_field", None)  # of our own types alone
    if missing_field is not None and (what := missing_field()):
        raise ValueError(f"the answer does not say {what}")
    return value


# Most of a healthy cluster's nodes have the same limits, packages and settings.
_read_shared = lru_cache(maxsize=SHARED)(_read)


def decode(group: str, raw: Any) -> Any:
    """A fact from an agent's reply ``{"value": …}`` or ``{"missing": {"why", "detail"}}``; never raises.

    What does not fit the type is Missing(UNPARSABLE): a node's text is data, validated here once. So is what
    has more rows than any machine: cut short it would be another fact. raw: plain data, or the JSON of it.
    """
    return decoder(group)(raw)


def decoder(group: str) -> Callable[[Any], Any]:
    """`decode` of one group, for many nodes."""
    cls = group_type(group)
    ours = cls is not None and _is_ours(FACT_TYPES[cls])

    def fact(raw: Any) -> Any:
        try:
            if isinstance(raw, msgspec.Raw):
                text = bytes(raw)
                # Straight to the fact: plain data in between takes longer than both.
                if cls is not None and ours and not has_more(text, ROWS_AT_MOST - 1):
                    read = _read_shared if len(text) <= SHARED_BYTES else _read
                    if (found := read(cls, text)) is not None:
                        return found
                if depth(text, DEPTH_AT_MOST) > DEPTH_AT_MOST:
                    return Missing(Why.UNPARSABLE, f"{group}: nested more than {DEPTH_AT_MOST} levels deep")
                raw = msgspec.json.decode(text)
            return _from_plain(group, cls, raw)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            where = str(error).replace("`$.value", "`$").removesuffix(" - at `$`")
            return Missing(Why.UNPARSABLE, f"{group}: {where}")

    return fact


def _from_plain(group: str, cls: type | None, raw: Any) -> Any:
    if not isinstance(raw, dict):
        return Missing(Why.UNPARSABLE, f"{group}: the node's answer is not an object")
    if "value" not in raw:
        reason = _reason(raw.get("missing"))
        return reason or Missing(Why.UNPARSABLE, f"{group}: neither a value nor a reason")
    if cls is None:
        return Missing(Why.UNPARSABLE, f"{group}: no such fact")
    if not _is_ours(FACT_TYPES[cls]):  # a plug-in knows what its own fact may hold
        return msgspec.convert(raw["value"], type=cls)
    if (rows := _most_rows(raw["value"])) > ROWS_AT_MOST:
        return Missing(Why.UNPARSABLE, f"{group}: {rows} rows, at most {ROWS_AT_MOST} are judged")
    return _complete(msgspec.convert(raw["value"], type=cls))


def _reason(missing: Any) -> Missing | None:
    """Why there is no fact, by an agent's own words; None where they are no reason."""
    if not isinstance(missing, dict):
        return None
    why = missing.get("why")
    known = why if isinstance(why, str) and why in set(Why) else Why.FAILED
    return Missing(Why(known), str(missing.get("detail", ""))[:400])


def _is_ours(info: FactInfo) -> bool:
    return info.origin == "agent" and info.collector is None


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
    cluster = data.get("cluster")
    for group, raw in cluster.items() if isinstance(cluster, dict) else ():
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
