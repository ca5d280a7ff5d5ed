"""The report as JSON and back. What is read is a stranger's file: bounded, checked, never trusted."""

import codecs
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from netdoctor.errors import InputError
from netdoctor.jsontext import SAFE_INTEGER, depth, encode, has_long_number
from netdoctor.report import kept
from netdoctor.report.model import SCHEMA, Counts, Matrix, PairRecord, Report, Result, Verdict
from netdoctor.report.results import Index
from netdoctor.report.summary import LETTERS

SIZE_MAX = 512 << 20
# Up to here a damaged report is read twice, to say where it is damaged.
CAREFUL_MAX = 64 << 20
DEPTH_MAX = 64
NODES_MAX = 100_000
FAIL = "X"
GREEN = ("ready", "partial_pass")


class ReportError(InputError):
    """A file is no report that can be read; the message says why and what would help."""


def dumps(
    report: Report,
    detail: str = "problems",
    pretty: bool = False,
    facts: bool | None = None,
    packed: bool = False,
) -> bytes:
    """Return the report as UTF-8 JSON with a newline at the end.

    detail: ``problems`` leaves out passes that say no more than the matrix does; ``all`` has one result for
    every pass in it. facts: with the facts of all nodes, which is what judging again needs; by default only
    with ``all``. packed: facts and pairs compressed; also where it could not be read else.
    Numbers that JSON has not (NaN, infinity) become null, measures without a number go.
    """
    if not (detail == "all" if facts is None else facts):
        report = dataclasses.replace(report, facts={})
    found = kept.as_facts(report.facts)
    pairs = [pair for pair in report.pairs if pair.status != "pass"] if packed else report.pairs
    data = to_dict(dataclasses.replace(report, facts={}, pairs=pairs), detail)
    if packed:
        store = found.packed(report.tool.version, report.run.finished) if found else kept.Packed()
        store = msgspec.structs.replace(store, pairs=kept.pack_pairs(report))
        data["packed"] = msgspec.to_builtins(store)
    elif found:
        data["facts"] = found.for_json()
    text = encode(data, pretty) + b"\n"
    if len(text) > SIZE_MAX and not packed:
        return dumps(report, detail, pretty, facts=True, packed=True)
    return text


def to_dict(report: Report, detail: str = "problems") -> dict[str, Any]:
    """Return the report as plain data under the names of the JSON format."""
    results = tuple(_results(report, detail))
    measures = tuple(m for m in report.measures if math.isfinite(m.value))
    pairs = kept.write_pairs(report.pairs)
    facts = kept.as_facts(report.facts).plain()
    bare = dataclasses.replace(report, results=results, measures=measures, pairs=(), facts={})
    data = {**msgspec.to_builtins(bare), "pairs": pairs, "facts": facts}
    counts = data["verdict"]["counts"]
    data["verdict"]["counts"] = {"pass": counts.pop("pass_"), **counts}
    data["alike"] = equal_nodes(report.matrix)
    for target in data["targets"]:  # a thousand of these are most of a green report
        for name in _TARGET_OPTIONAL:
            if target[name] in (None, {}):
                del target[name]
    return data


def equal_nodes(matrix: Matrix) -> list[dict[str, Any]]:
    """Return the nodes on which every check has the same status, and those statuses by check.

    The matrix again, for whoever wants one node: its letters need no legend here. A thousand nodes are a few
    groups. Only written: what is read back is the matrix.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, column in zip(matrix.nodes, zip(*matrix.cells, strict=True), strict=bool(matrix.cells)):
        groups.setdefault(column, []).append(node)
    return [
        {"nodes": nodes, "checks": dict(zip(matrix.checks, map(LETTERS.__getitem__, column), strict=True))}
        for column, nodes in groups.items()
    ]


_TARGET_OPTIONAL = ("slots", "line", "login_ms", "facts")


def _results(report: Report, detail: str) -> Iterator[Result]:
    """Yield the results that this detail shows, each as it is or, for a bare pass, made from the matrix."""
    index = Index(report)
    for result in report.results:
        if detail == "all" or not index.is_plain_pass(result):
            yield result
    if detail == "all":
        for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True):
            for node, letter in zip(report.matrix.nodes, cells, strict=True):
                if letter == "." and (check, node) not in index.results:
                    yield Result(check=check, target=node, status="pass", summary="")


_Counts = kept.mirror(Counts)
_Verdict = kept.mirror(Verdict, counts=_Counts)
# Facts and pairs are made later, or never.
_Wire = kept.mirror(Report, verdict=_Verdict, facts=msgspec.Raw, pairs=msgspec.Raw, packed=kept.Packed | None)
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Wire)


def loads(data: bytes, name: str = "the report") -> Report:
    """Return the report in `data`. Raises ReportError with one line that says what is wrong.

    name: what its facts are called where they turn out to be damaged, which is when they are looked at.
    """
    if len(data) > SIZE_MAX:
        raise ReportError(f"the report has {len(data)} bytes, {SIZE_MAX} are allowed")
    if not data or data.isspace():
        raise ReportError("the report is empty")
    if len(data) > CAREFUL_MAX and data.count(b"[") + data.count(b"{") > len(data) // 12:
        # Each takes thirty times its two bytes when it is read.
        raise ReportError("the report has more lists than any")
    try:
        wire = _decoder.decode(data.removeprefix(codecs.BOM_UTF8))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if len(data) > CAREFUL_MAX:
            raise ReportError(f"the report is damaged: {error}") from None
        return from_dict(_parsed(data))
    facts = bytes(wire.facts or b"{}")
    if not facts.startswith(b"{"):
        raise ReportError("the report is damaged: facts are not an object")
    # In facts a number may be the largest that is written.
    if has_long_number(data.replace(facts, b"") if len(facts) > 2 else data):
        if len(data) > CAREFUL_MAX:
            raise ReportError("not a report: a number is out of range")
        return from_dict(_parsed(data))
    return _report(wire, kept.Written(facts, name) if facts[1:-1].strip() else {}, wire.pairs, name)


def _parsed(data: bytes) -> Any:
    """What JSON stands for, or what is wrong with it, by line and column. Takes time and memory."""
    if depth(data, DEPTH_MAX) > DEPTH_MAX:
        raise ReportError(f"the report is nested more than {DEPTH_MAX} deep")
    try:
        return json.loads(
            data.decode("utf-8-sig"), parse_constant=_no_number, parse_float=_float, parse_int=_integer
        )
    except UnicodeDecodeError as error:
        raise ReportError(f"the report is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        cut = "; the file seems cut off" if error.pos >= len(error.doc.rstrip()) - 1 else ""
        raise ReportError(
            f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}{cut}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not a report: {error}") from None


def from_dict(raw: Any) -> Report:
    """Return the report that plain data under the JSON names stands for. Raises ReportError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), str):
        raise ReportError("not a netdoctor report: no field 'schema'")
    _check_major(raw["schema"])
    raw = dict(raw)
    facts, pairs = raw.pop("facts", {}), raw.pop("pairs", [])
    if not isinstance(facts, dict):
        raise ReportError("the report is damaged: facts are not an object")
    try:
        wire = msgspec.convert(raw, type=_Wire)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:  # a surrogate as a field's name
        raise ReportError(f"the report is damaged: {error}") from None
    return _report(wire, facts, pairs, "the report")


def _report(wire: Any, facts: Mapping[str, Any], pairs: Any, name: str) -> Report:
    """The report, with facts and pairs where they are not packed."""
    _check_major(wire.schema)
    packed = wire.packed
    if packed is not None:
        if packed.format != kept.FORMAT:
            raise ReportError(f"its facts are packed as {packed.format[:40]!a}: install a newer netdoctor")
        facts = kept.Squeezed(packed, name)
    try:
        if packed is not None and packed.pairs is not None:
            directed: Sequence[PairRecord] = kept.Pairs(packed.pairs, name)
        elif isinstance(pairs, msgspec.Raw):
            directed = kept.read_pairs(msgspec.json.decode(pairs or b"[]", type=kept.WirePairs))
        else:
            directed = kept.read_pairs(msgspec.convert(pairs or [], type=kept.WirePairs))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ReportError(f"the report is damaged: pairs ({error})") from None
    fields = {field.name: getattr(wire, field.name) for field in dataclasses.fields(Report)}
    counts = Counts(**msgspec.structs.asdict(wire.verdict.counts))
    fields["verdict"] = Verdict(**{**msgspec.structs.asdict(wire.verdict), "counts": counts})
    report = Report(**{**fields, "facts": facts, "pairs": directed})
    _check_matrix(report)
    for value in (report.run.replay, report.launch, [target.facts for target in report.targets]):
        _check_free(value)
    return report


def _check_free(value: Any) -> None:
    """What may be anything is no deeper, and has no larger numbers, than is written again."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        for one in level:
            if isinstance(one, int) and abs(one) > SAFE_INTEGER:
                raise ReportError(f"not a report: the number {str(one)[:20]} is out of range")
    if level:
        raise ReportError(f"the report is nested more than {DEPTH_MAX} deep")


def _check_major(schema: str) -> None:
    name, _, major = schema.partition("/")
    known = SCHEMA.partition("/")[2]
    if name != SCHEMA.partition("/")[0] or not major.isdecimal():
        raise ReportError(f"not a netdoctor report: its schema is {schema[:60]!a}")
    if major != known:
        newer = len(major) > len(known) or (len(major) == len(known) and major > known)
        advice = "install a newer netdoctor to read it" if newer else "an older netdoctor reads it"
        raise ReportError(
            f"the report has format {major[:20]}, this netdoctor reads format {known}: {advice}"
        )


def _check_matrix(report: Report) -> None:
    matrix = report.matrix
    if len(matrix.nodes) > NODES_MAX:
        raise ReportError(f"the report has {len(matrix.nodes)} nodes, {NODES_MAX} are allowed")
    if len(matrix.cells) != len(matrix.checks):
        raise ReportError(
            f"the report is damaged: the matrix has {len(matrix.checks)} checks and {len(matrix.cells)} rows"
        )
    failed: set[str] = set()
    for check, cells in zip(matrix.checks, matrix.cells, strict=True):
        if len(cells) != len(matrix.nodes):
            raise ReportError(
                f"the report is damaged: the matrix row of {check[:60]!a} has {len(cells)} letters "
                f"for {len(matrix.nodes)} nodes"
            )
        if not set(cells) <= set(LETTERS):
            raise ReportError(f"the report is damaged: unknown letter in the matrix row of {check[:60]!a}")
        if FAIL in cells:
            failed.update(node for node, letter in zip(matrix.nodes, cells, strict=True) if letter == FAIL)
    # What is accepted is no fail there: whoever changed one of the two by hand has to change both.
    green = failed if report.verdict.state in GREEN else failed.intersection(report.healthy_nodes)
    if green:
        raise ReportError(f"the report is damaged: {min(green)[:60]!a} failed, its verdict is another one")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


def _integer(text: str) -> int:
    if len(text) > 17 or abs(value := int(text)) > SAFE_INTEGER:
        raise ValueError(f"the number {text[:20]} is out of range")
    return value
