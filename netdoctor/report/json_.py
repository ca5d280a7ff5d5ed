"""The report as JSON and back. What is read is a stranger's file: bounded, checked, never trusted."""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from netdoctor.errors import InputError
from netdoctor.jsontext import SAFE_INTEGER, depth, encode
from netdoctor.report.model import SCHEMA, Matrix, Report, Result
from netdoctor.report.words import LETTERS, Index

SIZE_MAX = 64 * 1024 * 1024
DEPTH_MAX = 64
NODES_MAX = 100_000


class ReportError(InputError):
    """A file is no report that can be read; the message says why and what would help."""


def dumps(report: Report, detail: str = "problems", pretty: bool = False, facts: bool | None = None) -> bytes:
    """Return the report as UTF-8 JSON with a newline at the end.

    detail: ``problems`` leaves out passes that say no more than the matrix does; ``all`` has one result for
    every pass in it. facts: with the facts of all nodes, which is what judging again needs; by default only
    with ``all``. Numbers that JSON has not (NaN, infinity) become null, measures without a number go.
    """
    if not (detail == "all" if facts is None else facts):
        report = dataclasses.replace(report, facts={})
    return encode(to_dict(report, detail), pretty) + b"\n"


def to_dict(report: Report, detail: str = "problems") -> dict[str, Any]:
    """Return the report as plain data under the names of the JSON format."""
    results = tuple(_results(report, detail))
    measures = tuple(m for m in report.measures if math.isfinite(m.value))
    data = msgspec.to_builtins(dataclasses.replace(report, results=results, measures=measures))
    counts = data["verdict"]["counts"]
    data["verdict"]["counts"] = {"pass": counts.pop("pass_"), **counts}
    data["pairs"] = [_pair(pair) for pair in data["pairs"]]
    data["alike"] = alike(report.matrix)
    for target in data["targets"]:  # a thousand of these are most of a green report
        for name in _TARGET_OPTIONAL:
            if target[name] in (None, {}):
                del target[name]
    return dict(data)


def alike(matrix: Matrix) -> list[dict[str, Any]]:
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


def _pair(pair: dict[str, Any]) -> dict[str, Any]:
    """Return a pair under the names of the JSON format, without paths where there is but one."""
    paths = [rename(path, _PAIR) for path in pair.pop("paths")]
    named = {"path": path} if (path := pair.pop("path")) else {}
    return rename(pair, _PAIR) | named | ({"paths": paths} if paths else {})


def _pair_back(pair: dict[str, Any]) -> dict[str, Any]:
    paths = [rename(path, _PAIR_BACK) for path in pair.get("paths", [])]
    return rename(pair, _PAIR_BACK) | {"paths": paths}


_PAIR = {"from_": "from", "class_": "class"}
_TARGET_OPTIONAL = ("slots", "line", "login_ms", "facts")
_PAIR_BACK = {name: field for field, name in _PAIR.items()}


def rename(item: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return `item` with keys renamed, in the same order."""
    return {names.get(key, key): value for key, value in item.items()}


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


def loads(data: bytes) -> Report:
    """Return the report in `data`. Raises ReportError with one line that says what is wrong."""
    if len(data) > SIZE_MAX:
        raise ReportError(f"the report has {len(data)} bytes, {SIZE_MAX} are allowed")
    if not data.strip():
        raise ReportError("the report is empty")
    if depth(data, DEPTH_MAX) > DEPTH_MAX:
        raise ReportError(f"the report is nested more than {DEPTH_MAX} deep")
    try:
        raw = json.loads(
            data.decode("utf-8-sig"),
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_integer,
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
    return from_dict(raw)


def from_dict(raw: Any) -> Report:
    """Return the report that plain data under the JSON names stands for. Raises ReportError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), str):
        raise ReportError("not a netdoctor report: no field 'schema'")
    _check_major(raw["schema"])
    raw = dict(raw)
    try:
        counts = rename(raw["verdict"]["counts"], {"pass": "pass_"})
        raw["verdict"] = {**raw["verdict"], "counts": counts}
        raw["pairs"] = [_pair_back(pair) for pair in raw.get("pairs", [])]
    except (KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"the report is damaged: verdict or pairs ({error})") from None
    try:
        report = msgspec.convert(raw, type=Report)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:  # a surrogate as a field's name
        raise ReportError(f"the report is damaged: {error}") from None
    _check_matrix(report)
    return report


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
    for check, cells in zip(matrix.checks, matrix.cells, strict=True):
        if len(cells) != len(matrix.nodes):
            raise ReportError(
                f"the report is damaged: the matrix row of {check[:60]!a} has {len(cells)} letters "
                f"for {len(matrix.nodes)} nodes"
            )
        if not set(cells) <= set(LETTERS):
            raise ReportError(f"the report is damaged: unknown letter in the matrix row of {check[:60]!a}")


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
