"""JSON: there and back, limits, damaged and foreign files, the schema."""

import contextlib
import dataclasses
import json
import math
import random
import time
import tracemalloc
from pathlib import Path

import jsonschema_rs
import pytest

from netdoctor.report.formats.json_ import DEPTH_MAX, ReportError, dumps, loads
from netdoctor.report.formats.jsonl import render as jsonl
from netdoctor.report.model import MeasureRecord, PairRecord, PathRecord, Result
from netdoctor.report.save import load
from netdoctor.report.schema import report_schema
from netdoctor.report.summary import LETTERS
from tests.hostile import HOSTILE_BYTES
from tests.report import schema_source
from tests.report.build import sample_report, with_evidence

STATES = ("ready", "not_ready", "undecided")


@pytest.mark.parametrize("state", STATES)
def test_comes_back_equal(state: str) -> None:
    report = with_evidence(sample_report(state))
    assert loads(dumps(report, facts=True)) == report
    assert loads(dumps(report, facts=True, pretty=True)) == report
    large = dataclasses.replace(report, launch={"tokens": 2**53})  # of so many digits that each is looked at
    assert loads(dumps(large, facts=True)) == large


def test_names_are_those_of_the_contract() -> None:
    data = json.loads(dumps(sample_report("not_ready")))
    assert data["verdict"]["counts"] == {
        "pass": 140, "warn": 1, "fail": 2, "blocked": 16, "skip": 1, "unknown": 0,
    }  # fmt: skip
    assert {"from", "to", "class"} <= set(data["pairs"][0])
    assert next(iter(data)) == "schema"


def test_problems_leaves_plain_passes_out_and_all_has_every_one() -> None:
    report = sample_report("not_ready")
    plain = Result(check="ssh.login", target="gpu-a01", status="pass", summary="")
    told = Result(check="time.skew", target="gpu-a01", status="pass", summary="offset 0.1 ms", observed="0.1")
    report = dataclasses.replace(report, results=(*report.results, plain, told))
    few = json.loads(dumps(report))["results"]
    every = json.loads(dumps(report, "all"))["results"]
    assert len(few) == 20 + 1
    assert len(every) == 160
    assert len({(result["check"], result["target"]) for result in every}) == 160


def test_facts_travel_only_when_asked() -> None:
    report = dataclasses.replace(sample_report("ready"), facts={"node": {"host": {}}})
    assert loads(dumps(report)).facts == {}
    assert loads(dumps(report, "all")).facts == report.facts
    assert loads(dumps(report, facts=True)).facts == report.facts


def test_numbers_too_large_to_be_read_are_written_as_the_largest() -> None:
    """A node's memlock of 2^63-1, a /tmp of 12 PB: the report that holds them can still be read."""
    facts = {"node": {"limits": {"n1": {"value": {"memlock": 2**63 - 1, "tmp": [12 * 10**15, -(2**64)]}}}}}
    report = dataclasses.replace(sample_report("ready"), facts=facts)
    kept = loads(dumps(report, facts=True)).facts["node"]["limits"]["n1"]["value"]
    assert kept == {"memlock": 2**53, "tmp": [2**53, -(2**53)]}


def test_numbers_that_are_none() -> None:
    report = dataclasses.replace(
        sample_report("ready"),
        measures=(
            MeasureRecord(name="a", target="n", value=math.nan, unit="s"),
            MeasureRecord(name="b", target="n", value=1.0, unit="s", error=math.inf),
        ),
        pairs=(PairRecord(check="c", from_="a", to="b", status="fail", class_="x", value=-math.inf),),
        launch={"x": [math.nan]},
    )
    again = loads(dumps(report))
    assert again.measures == (MeasureRecord(name="b", target="n", value=1.0, unit="s"),)
    assert again.pairs[0].value is None
    assert again.launch == {"x": [None]}


def test_paths_are_said_of_pairs_that_have_several() -> None:
    one = PairRecord(check="net.ports", from_="a", to="b", status="fail", class_="filtered", ports=(29500,))
    ways = tuple(PathRecord(path=path, status="fail", class_="filtered") for path in ("eth0", "eth1"))
    two = dataclasses.replace(one, path="eth1", paths=ways)
    report = dataclasses.replace(sample_report("ready"), pairs=(one, two))
    alone, several = json.loads(dumps(report))["pairs"]
    assert not {"path", "paths"} & set(alone)
    assert several["path"] == "eth1"
    assert [(way["path"], way["class"]) for way in several["paths"]] == [
        ("eth0", "filtered"),
        ("eth1", "filtered"),
    ]
    jsonschema_rs.Draft202012Validator(report_schema()).validate(json.loads(dumps(report)))
    assert loads(dumps(report)).pairs == (one, two)


def test_unknown_fields_are_ignored() -> None:
    data = json.loads(dumps(sample_report("not_ready")))
    data["new"] = {"deep": [1]}
    data["causes"][0]["new"] = 1
    data["verdict"]["counts"]["new"] = 1
    assert loads(json.dumps(data).encode()) == loads(dumps(sample_report("not_ready")))


def test_fields_that_came_later_may_be_missing() -> None:
    data = json.loads(dumps(sample_report("not_ready")))
    for cause in data["causes"]:
        del cause["why"]
    del data["families"], data["notes"], data["run"]["saved_to"]
    assert loads(json.dumps(data).encode()).families == ()
    jsonschema_rs.Draft202012Validator(report_schema()).validate(data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            lambda d: d.update(schema="netdoctor.report/2"), "install a newer netdoctor", id="newer"
        ),
        pytest.param(lambda d: d.update(schema="netdoctor.report/0"), "an older netdoctor", id="older"),
        pytest.param(lambda d: d.update(schema="sarif/2"), "not a netdoctor report", id="foreign"),
        pytest.param(lambda d: d.update(schema=7), "no field 'schema'", id="schema is a number"),
        pytest.param(lambda d: d.pop("verdict"), "verdict", id="no verdict"),
        pytest.param(lambda d: d["verdict"].update(counts=[]), "verdict", id="counts are a list"),
        pytest.param(lambda d: d.update(pairs=[1]), "pairs", id="pair is a number"),
        pytest.param(lambda d: d["targets"][0].update(port="22"), r"targets\[0\].port", id="wrong type"),
        pytest.param(lambda d: d["matrix"]["cells"].pop(), "39 rows", id="row missing"),
        pytest.param(lambda d: d["matrix"]["cells"].insert(0, "..."), "41 rows", id="row too many"),
        pytest.param(lambda d: d["matrix"]["cells"].__setitem__(0, "..."), "3 letters", id="short row"),
        pytest.param(lambda d: d["matrix"]["cells"].__setitem__(0, "..z."), "unknown letter", id="letter"),
        pytest.param(lambda d: d["verdict"].update(state="ready"), "its verdict is another", id="green"),
        pytest.param(lambda d: d["verdict"].update(state="partial_pass"), "verdict", id="a green part"),
        pytest.param(lambda d: d.update(healthy_nodes=d["matrix"]["nodes"]), "verdict", id="green nodes"),
    ],
)
def test_damaged_reports_are_refused_in_one_line(change, said: str) -> None:  # type: ignore[no-untyped-def]
    data = json.loads(dumps(sample_report("not_ready")))
    change(data)
    with pytest.raises(ReportError, match=said) as caught:
        loads(json.dumps(data).encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"  \n", "empty", id="blank"),
        pytest.param(b"null", "no field 'schema'", id="null"),
        pytest.param(b"[1]", "no field 'schema'", id="list"),
        pytest.param(b'{"schema": NaN}', "NaN is not a number", id="nan"),
        pytest.param(b'{"a": 1e999}', "out of range", id="infinite"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "out of range", id="huge integer"),
        pytest.param(b"[" * 1_000_000, f"more than {DEPTH_MAX} deep", id="deep"),
        pytest.param(b'{"a":' * 100_000, f"more than {DEPTH_MAX} deep", id="deep objects"),
        pytest.param(b'"' + b'\\"' * 500_000, "not JSON", id="open string"),
        pytest.param(b"\xff\xfe{", "not UTF-8", id="utf-16"),
    ],
)
def test_no_report_at_all(data: bytes, said: str) -> None:
    started = time.process_time()
    with pytest.raises(ReportError, match=said):
        loads(data)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", HOSTILE_BYTES)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(ReportError):
        loads(HOSTILE_BYTES[name])


def test_a_small_file_takes_little_memory_to_read(tmp_path: Path) -> None:
    """Whatever the bound of a report is: netdoctor runs under limits of address space, too."""
    path = tmp_path / "report.json"
    path.write_text("{}")
    tracemalloc.start()
    with pytest.raises(ReportError):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_too_large_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdoctor.report.formats.json_.SIZE_MAX", 100)
    with pytest.raises(ReportError, match="100 are allowed"):
        loads(dumps(sample_report("ready")))


def test_cut_at_any_place_is_refused() -> None:
    data = dumps(with_evidence(sample_report("not_ready")))
    for end in {*range(1, 200), *random.Random(7).sample(range(len(data) - 1), 300)}:
        with pytest.raises(ReportError):
            loads(data[:end])


def test_mutated_bytes_are_a_report_or_the_one_error() -> None:
    data, source = dumps(sample_report("undecided")), random.Random(11)
    read = 0
    for _ in range(500):
        broken = bytearray(data)
        for _ in range(source.randint(1, 4)):
            broken[source.randrange(len(broken))] = source.randrange(256)
        with contextlib.suppress(ReportError):
            report = loads(bytes(broken))
            assert loads(dumps(report)).verdict == report.verdict
            read += 1
    assert 0 < read < 500, "a letter of a text changes nothing, most of the rest does"


@pytest.mark.thorough
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("detail", ["problems", "all"])
@pytest.mark.parametrize("nodes", [2, 70])
def test_reports_fit_the_schema(state: str, detail: str, nodes: int) -> None:
    data = json.loads(dumps(with_evidence(sample_report(state, nodes=nodes)), detail))
    jsonschema_rs.Draft202012Validator(report_schema()).validate(data)


def test_the_schema_is_strict_about_what_consumers_rely_on() -> None:
    validator = jsonschema_rs.Draft202012Validator(report_schema())
    good = json.loads(dumps(sample_report("not_ready")))
    for field in ("schema", "verdict", "targets", "matrix", "results", "causes", "healthy_nodes"):
        assert not validator.is_valid({key: value for key, value in good.items() if key != field})
    bad = json.loads(dumps(sample_report("not_ready")))
    bad["results"][0]["status"] = "green"
    assert not validator.is_valid(bad)


def test_the_schema_is_what_the_dataclasses_say(update_golden: bool) -> None:
    if update_golden:
        schema_source.PATH.write_text(schema_source.text())
    assert schema_source.PATH.read_text() == schema_source.text(), (
        "different; when meant so: pytest tests/report --update-golden"
    )
    jsonschema_rs.meta.validate(report_schema())


def test_one_node_s_checks_are_in_one_place() -> None:
    """Each node is in one group, and its statuses are the matrix's; what somebody wrote there is not read."""
    report = sample_report("not_ready")
    data = json.loads(dumps(report))
    found = {
        (node, check): status
        for group in data["alike"]
        for node in group["nodes"]
        for check, status in group["checks"].items()
    }
    assert sum(len(group["nodes"]) for group in data["alike"]) == len(report.matrix.nodes)
    assert found == {
        (node, check): LETTERS[letter]
        for check, cells in zip(report.matrix.checks, report.matrix.cells, strict=True)
        for node, letter in zip(report.matrix.nodes, cells, strict=True)
    }
    green = [{"nodes": [*report.matrix.nodes], "checks": dict.fromkeys(report.matrix.checks, "pass")}]
    assert loads(json.dumps({**data, "alike": green}).encode()) == report


def test_jsonl_tells_the_same_objects() -> None:
    report = sample_report("not_ready")
    events = [json.loads(line) for line in jsonl(report).splitlines()]
    data = json.loads(dumps(report))
    assert [e["event"] for e in events].count("result") == len(data["results"])
    assert events[-1]["verdict"] == data["verdict"]
    assert {k: v for k, v in events[-2].items() if k != "event"} == data["causes"][-1]


def test_a_green_report_of_a_thousand_nodes_is_small() -> None:
    # The matrix takes 41 kB, the names 12 kB in each of three lists, a target with address, port and user 82
    # bytes.
    report = sample_report("ready", nodes=1000)
    data = dumps(report)
    targets = len(json.dumps(json.loads(data)["targets"], separators=(",", ":")))
    assert len(data) - targets < 110_000
    assert len(data) < 190_000
