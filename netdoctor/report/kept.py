"""What is large in a report, its facts and pairs: kept as it came, and made when somebody looks into it.

A saved report of many nodes has both compressed, in fields of its own of the one file (`Packed`).
"""

import base64
import dataclasses
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints, overload

import msgspec

from netdoctor import store
from netdoctor.errors import InputError
from netdoctor.factlines import NAME_MAX, Line, decode, encode, is_time, is_too_large, raw_lines
from netdoctor.facts.base import Missing, Why
from netdoctor.jsontext import encode_line
from netdoctor.report.model import PairRecord, PathRecord, Report
from netdoctor.store import Store, Unread
from netdoctor.text import clean

# Rows of a list in one line: what is read is held a line at a time.
ROWS = 4096
LINE_MAX = 256 << 20
FORMAT = "gzip+base64"
_NO_TIME = "1970-01-01T00:00:00Z"
_TOO_LARGE = Missing(Why.UNPARSABLE, "more facts than a report keeps of a node")


class Packed(msgspec.Struct, kw_only=True):
    """facts: of all nodes as `netdoctor.factlines` has them; cluster, by group, and pairs, by check: lines of
    JSON. All of them gzip in base64."""

    format: str = FORMAT
    facts: str = ""
    cluster: dict[str, str] = {}
    pairs: dict[str, str] | None = None


def pack(lines: Iterable[bytes]) -> str:
    """Return lines compressed, as text."""
    squeeze = zlib.compressobj(level=4, wbits=31)
    return base64.b64encode(b"".join([*map(squeeze.compress, lines), squeeze.flush()])).decode()


def unpack(text: str, what: str) -> Iterator[tuple[str, bytes]]:
    """Yield (``what:number``, line) of each. Raises InputError."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"{what}: damaged, it is not base64") from None
    yield from raw_lines(io.BufferedReader(io.BytesIO(data)), what, LINE_MAX)


# Facts


class Facts(Mapping[str, Any], ABC):
    """A mapping as of `store.dump`, made each time that somebody looks into it. Raises InputError then."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """All of it, as plain data."""

    def for_json(self) -> dict[str, Any]:
        """As `plain`; dataclasses may be in it."""
        return self.plain()

    def store(self) -> Store:
        """The facts decoded, for the caller to change."""
        return store.load(self.plain())

    def cluster_fact(self, group: str) -> Any:
        """The run's fact, as of `Store.whole`."""
        return store.load({"cluster": {group: self.plain().get("cluster", {}).get(group)}}).cluster_fact(
            group
        )

    def nodes(self) -> frozenset[str]:
        """The nodes that were contacted."""
        return frozenset(self.store().node.get("node", {}))

    def packed(self, version: str, collected_at: str) -> Packed:
        """The facts for a file. version, collected_at: of lines that do not say it."""
        return _packed(self.for_json(), version, collected_at)

    def __getitem__(self, key: str) -> Any:
        return self.plain()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return len(self.plain())

    def __bool__(self) -> bool:
        return True


class Plain(Facts):
    """Those of a mapping that is one already."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def plain(self) -> dict[str, Any]:
        return dict(self._facts)

    def __bool__(self) -> bool:
        return bool(self._facts)


class Live(Facts):
    """Those of a scan that has just been judged."""

    def __init__(self, facts: Store) -> None:
        self._store = facts

    def plain(self) -> dict[str, Any]:
        return store.dump(self._store)

    def store(self) -> Store:
        return Store(
            node={group: dict(nodes) for group, nodes in self._store.node.items()},
            cluster=dict(self._store.cluster),
        )

    def cluster_fact(self, group: str) -> Any:
        return self._store.cluster_fact(group)

    def nodes(self) -> frozenset[str]:
        return frozenset(self._store.node.get("node", {}))

    def for_json(self) -> dict[str, Any]:
        facts = self._store
        return {
            "node": {g: {n: _wrapped(v) for n, v in nodes.items()} for g, nodes in facts.node.items()},
            "cluster": {g: _wrapped(v) for g, v in facts.cluster.items()},
        }


def _wrapped(fact: Any) -> Any:
    if isinstance(fact, Unread):
        return fact.raw
    return {"missing": fact} if isinstance(fact, Missing) else {"value": fact}


class Written(Facts):
    """Those that stand in a report as JSON."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name

    def plain(self) -> dict[str, Any]:
        return dict(_decoded(self._data, dict[str, Any], self._name))


def _decoded(data: msgspec.Raw | bytes, kind: Any, name: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{name}: damaged ({clean(str(error), 120)})") from None


class Squeezed(Facts):
    """Those of a report that has them packed."""

    def __init__(self, packed: Packed, name: str) -> None:
        self._packed, self._name = packed, name

    def plain(self) -> dict[str, Any]:
        node: dict[str, dict[str, Any]] = {}
        for line in self._lines():
            for group, raw in line.facts.items():
                node.setdefault(group, {})[line.node] = raw
        return {"node": node, "cluster": {group: self._rows(group, None) for group in self._packed.cluster}}

    def store(self) -> Store:
        decoded = Store()
        for line in self._lines(unread=True):
            for group, raw in line.facts.items():
                known = store.group_type(group) is not None
                fact = raw if known else _decoded(raw, Any, self._name)
                decoded.put(group, line.node, store.from_saved(group, fact))
        for group in self._packed.cluster:
            known = store.group_type(group) is not None
            decoded.cluster[group] = (
                self.cluster_fact(group) if known else store.from_saved(group, self._rows(group, None))
            )
        return decoded

    def cluster_fact(self, group: str) -> Any:
        cls = store.group_type(group)
        if group not in self._packed.cluster or cls is None:
            return store.NOT_COLLECTED
        return self._rows(group, cls)

    def nodes(self) -> frozenset[str]:
        return frozenset(line.node for line in self._lines(unread=True) if "node" in line.facts)

    def packed(self, version: str, collected_at: str) -> Packed:
        return self._packed

    def _lines(self, unread: bool = False) -> Iterator[Line]:
        for position, data in unpack(self._packed.facts, f"{self._name}, its facts"):
            yield decode(data, position, unread)

    def _rows(self, group: str, cls: type | None) -> Any:
        """The run's fact: plain, or of this type."""
        what = f"{self._name}, its facts {group}"
        first: Any = None
        more: dict[str, list[Any]] = {}
        hints = get_type_hints(cls) if cls is not None else {}
        for position, data in unpack(self._packed.cluster[group], what):
            if first is None:
                raw = _decoded(data, Any, position)
                first = raw if cls is None else store.decode(group, raw)
            else:
                rows = _decoded(data, _Rows, position)
                kind = hints.get(rows.field, list[Any])
                more.setdefault(rows.field, []).extend(_decoded(rows.rows, kind, position))
        if cls is None and isinstance(first, dict) and isinstance(first.get("value"), dict):
            return {**first, "value": {**first["value"], **more}}
        if cls is not None and isinstance(first, cls) and more.keys() <= hints.keys():
            return dataclasses.replace(first, **{name: tuple(rows) for name, rows in more.items()})  # type: ignore[type-var]
        return first


class _Rows(msgspec.Struct):
    field: str
    rows: msgspec.Raw


def as_facts(facts: Mapping[str, Any]) -> Facts:
    """The facts of a report, whatever they are kept as."""
    return facts if isinstance(facts, Facts) else Plain(facts)


def _packed(facts: Mapping[str, Any], version: str, collected_at: str) -> Packed:
    return Packed(
        facts=pack(
            _node_lines(facts.get("node") or {}, version, collected_at if is_time(collected_at) else _NO_TIME)
        ),
        cluster={group: pack(_cluster_lines(raw)) for group, raw in (facts.get("cluster") or {}).items()},
    )


def _node_lines(groups: Mapping[str, Mapping[str, Any]], version: str, collected_at: str) -> Iterator[bytes]:
    for node in dict.fromkeys(node for nodes in groups.values() for node in nodes):
        if 0 < len(node) <= NAME_MAX:
            facts = {group: nodes[node] for group, nodes in groups.items() if node in nodes}
            line = encode(Line(node=node, version=version, taken=collected_at, facts=facts))
            if is_too_large(line):
                facts = dict.fromkeys(facts, _wrapped(_TOO_LARGE))
                line = encode(Line(node=node, version=version, taken=collected_at, facts=facts))
            yield line


def _cluster_lines(raw: Any) -> Iterator[bytes]:
    """A fact, then what its long lists hold."""
    found = raw.get("value") if isinstance(raw, dict) else None
    if dataclasses.is_dataclass(found):
        found = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    value: dict[str, Any] = found if isinstance(found, dict) else {}
    long = {name: rows for name, rows in value.items() if isinstance(rows, list | tuple) and len(rows) > ROWS}
    yield encode_line({**raw, "value": {**value, **dict.fromkeys(long, ())}} if long else raw)
    for name, rows in long.items():
        for start in range(0, len(rows), ROWS):
            yield encode_line({"field": name, "rows": rows[start : start + ROWS]})


# Pairs


def mirror(cls: type, **other: Any) -> type[msgspec.Struct]:
    """The struct of a dataclass under its JSON names. other: types of fields that differ there."""
    hints = get_type_hints(cls, include_extras=True) | other
    known = {field.name: field for field in dataclasses.fields(cls)}
    fields: list[Any] = []
    for name, kind in hints.items():
        field = known.get(name)
        if kind is msgspec.Raw:
            fields.append((name, kind, msgspec.Raw()))
        elif field is None:
            fields.append((name, kind, None))
        elif field.default is not dataclasses.MISSING:
            fields.append((name, kind, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            fields.append((name, kind, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((name, kind))
    return msgspec.defstruct(f"Wire{cls.__name__}", fields, kw_only=True, rename=_JSON_NAMES)


_JSON_NAMES = {"pass_": "pass", "from_": "from", "class_": "class"}
_WirePath = mirror(PathRecord)
_WirePair = mirror(PairRecord, paths=tuple[_WirePath, ...])  # type: ignore[valid-type]
# Pairs under the names of the JSON format.
WirePairs: Any = list[_WirePair]  # type: ignore[valid-type]


def read_pairs(wire: Iterable[Any]) -> tuple[PairRecord, ...]:
    """The pairs of WirePairs."""
    return tuple(
        PairRecord(**{**msgspec.structs.asdict(one), "paths": tuple(map(_read_path, one.paths))})
        for one in wire
    )


def _read_path(wire: msgspec.Struct) -> PathRecord:
    return PathRecord(**msgspec.structs.asdict(wire))


def write_pairs(pairs: Iterable[PairRecord]) -> list[dict[str, Any]]:
    """Pairs under the names of the JSON format, without paths where there is but one."""
    return [
        {
            "check": one.check, "from": one.from_, "to": one.to, "status": one.status, "class": one.class_,
            "ports": one.ports, "value": one.value, "unit": one.unit,
            **({"path": one.path} if one.path else {}),
            **({"paths": [_path(path) for path in one.paths]} if one.paths else {}),
        }
        for one in pairs
    ]  # fmt: skip


def _path(one: PathRecord) -> dict[str, Any]:
    return {
        "path": one.path, "status": one.status, "class": one.class_, "ports": one.ports, "value": one.value
    }  # fmt: skip


def pack_pairs(report: Report) -> dict[str, str]:
    """The pairs by check, for a file."""
    if isinstance(report.pairs, Pairs):
        return dict(report.pairs.packed)
    by_check: dict[str, list[PairRecord]] = {}
    for pair in report.pairs:
        by_check.setdefault(pair.check, []).append(pair)
    return {
        check: pack(
            encode_line(write_pairs(rows[start : start + ROWS])) for start in range(0, len(rows), ROWS)
        )
        for check, rows in by_check.items()
    }


class Pairs(Sequence[PairRecord]):
    """The pairs of a report that has them packed, by check. Raises InputError when they are looked at."""

    def __init__(self, packed: Mapping[str, str], name: str) -> None:
        self.packed, self._name = packed, name
        self._decoded: dict[str, tuple[PairRecord, ...]] = {}

    def of_check(self, check: str) -> tuple[PairRecord, ...]:
        if check in self.packed and check not in self._decoded:
            lines = unpack(self.packed[check], f"{self._name}, its pairs of {clean(check, 60)}")
            rows = (_decoded(data, WirePairs, position) for position, data in lines)
            self._decoded[check] = tuple(pair for some in rows for pair in read_pairs(some))
        return self._decoded.get(check, ())

    @overload
    def __getitem__(self, index: int) -> PairRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PairRecord]: ...
    def __getitem__(self, index: int | slice) -> PairRecord | Sequence[PairRecord]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[PairRecord]:
        for check in self.packed:
            yield from self.of_check(check)

    def __len__(self) -> int:
        return sum(len(self.of_check(check)) for check in self.packed)

    def __bool__(self) -> bool:
        return bool(self.packed)


def pairs_of(report: Report, check: str) -> tuple[PairRecord, ...]:
    """The pairs of one check."""
    if isinstance(report.pairs, Pairs):
        return report.pairs.of_check(check)
    return tuple(pair for pair in report.pairs if pair.check == check)


def pair_checks(report: Report) -> list[str]:
    """The checks that have pairs, in order."""
    pairs = report.pairs
    return list(pairs.packed if isinstance(pairs, Pairs) else dict.fromkeys(pair.check for pair in pairs))
