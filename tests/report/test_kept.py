"""Facts and pairs of many nodes: packed in the one file, read when somebody looks, and bounded."""

import base64
import dataclasses
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from netdoctor import factlines, store
from netdoctor.cli import run
from netdoctor.errors import InputError
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Job
from netdoctor.report import kept
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.kept import Live, pair_checks, pairs_of
from netdoctor.report.model import PairRecord, PathRecord, Report
from netdoctor.report.redact import redact
from netdoctor.report.save import load, save
from netdoctor.report.schema import report_schema
from netdoctor.store import Store
from netdoctor.transport.frames import decode_result
from netdoctor.tui import square
from tests import clusters
from tests.report.build import sample_report

NODES = 6


def plain(report: Report) -> Any:
    """The facts as JSON has them."""
    return json.loads(json.dumps(kept.as_facts(report.facts).plain()))


def launched() -> Report:
    """A report with the facts of a launch scan, and some pairs."""
    found = Store()
    for node, answer in clusters.replies(NODES, "firewall"):
        for group, raw in decode_result(answer).items():
            found.put(group, node, store.decode(group, raw))
    found.put("limits", clusters.name(2), Missing(Why.LOST, "the link \x1b[31m went"))
    found.put("ports", clusters.name(3), Missing(Why.STOPPED, "stopped"))
    clusters.measure(found, NODES)
    found.cluster |= {"job": Job(master_node="gpu00000"), "loss": Missing(Why.NOT_COLLECTED, "not asked")}
    names = [clusters.name(i) for i in range(NODES)]
    way = PathRecord(path="rail0", status="fail", class_="refused", ports=(29500,))
    pairs = tuple(
        PairRecord(
            check=check, from_=a, to=b, status="fail" if b == names[1] else "pass", class_="open",
            ports=(1, 2), value=None if check == "net.ports" else 1.5, unit="%", path="rail0",
            paths=(way, way),
        )
        for check in ("net.ports", "net.loss")
        for a in names
        for b in names
        if a != b
    )  # fmt: skip
    return dataclasses.replace(sample_report("not_ready"), facts=Live(found), pairs=pairs)


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every report counts as one of many nodes, and a few rows as many."""
    monkeypatch.setattr("netdoctor.report.save.PLAIN_NODES", 0)
    monkeypatch.setattr(kept, "ROWS", 7)


@pytest.mark.usefixtures("packs")
def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    report = launched()
    path = tmp_path / "r.json"
    save(report, path)
    again = load(path)
    assert kept.as_facts(again.facts).store() == kept.as_facts(report.facts).store()
    assert plain(again) == plain(report)
    assert kept.as_facts(again.facts).nodes() == kept.as_facts(report.facts).nodes()
    assert kept.as_facts(again.facts).cluster_fact("job") == Job(master_node="gpu00000")
    assert kept.as_facts(again.facts).cluster_fact("loss") == Missing(Why.NOT_COLLECTED, "not asked")
    assert kept.as_facts(again.facts).cluster_fact("tcp_rates") == store.NOT_COLLECTED
    assert tuple(again.pairs) == report.pairs
    assert len(again.pairs) == len(report.pairs)
    assert again.pairs[3:5] == report.pairs[3:5]
    assert pair_checks(again) == pair_checks(report) == ["net.ports", "net.loss"]
    assert pairs_of(again, "net.loss") == pairs_of(report, "net.loss")
    assert pairs_of(again, "bw.tcp") == ()
    assert again.results == report.results
    save(again, tmp_path / "s.json")
    assert plain(load(tmp_path / "s.json")) == plain(report)
    same = dataclasses.replace(report, run=again.run)
    assert json.loads(dumps(again, "all")) == json.loads(dumps(same, "all"))
    assert json.loads(dumps(redact(again), "all")) == json.loads(dumps(redact(same), "all"))


@pytest.mark.usefixtures("packs")
def test_the_file_fits_the_schema_and_other_tools_read_it(tmp_path: Path) -> None:
    report = launched()
    save(report, tmp_path / "r.json")
    raw = json.loads((tmp_path / "r.json").read_bytes())
    jsonschema_rs.Draft202012Validator(report_schema()).validate(raw)
    assert raw["facts"] == {}
    assert {pair["status"] for pair in raw["pairs"]} == {"fail"}
    lines = io.BufferedReader(io.BytesIO(base64.b64decode(raw["packed"]["facts"])))  # type: ignore[arg-type]
    read = [line for _, line in factlines.read(lines, "f")]
    assert [line.node for line in read] == [clusters.name(i) for i in range(NODES)]
    assert {line.taken for line in read} == {report.run.finished}


def test_few_nodes_stay_as_they_were(tmp_path: Path) -> None:
    report = launched()
    save(report, tmp_path / "r.json")
    raw = json.loads((tmp_path / "r.json").read_bytes())
    assert "packed" not in raw
    assert raw["facts"] == plain(report)
    again = load(tmp_path / "r.json")
    assert kept.as_facts(again.facts).store() == kept.as_facts(report.facts).store()
    assert kept.as_facts(again.facts).cluster_fact("job") == Job(master_node="gpu00000")
    assert again.pairs == report.pairs


ANEW = """
import dataclasses, json, pathlib, sys
from netdoctor.report import kept, save
one, other = map(pathlib.Path, sys.argv[1:3])
report = save.load(one)
made = kept.as_facts(report.facts).store()
save.PLAIN_NODES = int(sys.argv[3])
save.save(dataclasses.replace(report, facts=kept.Live(made)), other)
json.dump([type(kept.as_facts(report.facts)).__name__, "netdoctor.checks" in sys.modules], sys.stdout)
"""


@pytest.mark.process
@pytest.mark.parametrize(("packed", "first"), [(0, "Written"), (10_000, "Squeezed")])
def test_a_process_that_has_imported_no_fact_loses_none(
    packed: int, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a plug-in that is not there, or of a later release."""
    report = launched()
    facts = plain(report)
    facts["node"]["later"] = {clusters.name(1): {"value": {"a": [1, None]}}, clusters.name(2): {"news": 1}}
    facts["cluster"]["later_matrix"] = {"value": {"rows": [{"x": 1.5}]}, "more": "é"}
    monkeypatch.setattr("netdoctor.report.save.PLAIN_NODES", 10_000 - packed)
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    save(dataclasses.replace(report, facts=facts), one)
    done = subprocess.run(
        [sys.executable, "-c", ANEW, str(one), str(other), str(packed)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [first, False]
    assert plain(load(other)) == facts


def test_what_would_be_too_large_to_be_read_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    report = launched()
    size = len(dumps(report, facts=True))
    monkeypatch.setattr("netdoctor.report.formats.json_.SIZE_MAX", size - 1)
    assert plain(loads(dumps(report, "all"))) == plain(report)


def squeezed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 1)).decode()


LINE = b'{"schema":"netdoctor.facts/1","node":"n","version":"","taken":"2026-01-01T00:00:00Z","facts":{}}\n'
BOMB = b" " * (2 << 20)
ROWS = b'{"value":{}}\n{"field":"env","rows":[1]}'
CUT = squeezed(b"[" * 9000)[:40]
DAMAGES: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "not base64": ("facts", lambda p: p.update(facts="\x1b]0;x\x07"), "not base64"),
    "cut off": ("facts", lambda p: p.update(facts=p["facts"][: len(p["facts"]) // 8 * 4]), "cut off"),
    "no gzip": ("facts", lambda p: p.update(facts=base64.b64encode(b"\x1f\x8bxx" * 9).decode()), "damaged"),
    "no facts": ("facts", lambda p: p.update(facts=squeezed(LINE + b"{}\n")), ":2: not a line of facts"),
    "deep facts": ("facts", lambda p: p.update(facts=squeezed(b"[" * 9000)), "64 deep"),
    "rows of another": ("job", lambda p: p["cluster"].update(job=squeezed(ROWS)), "damaged"),
    "no rows": ("job", lambda p: p["cluster"].update(job=squeezed(b"{}\n[]\n")), "damaged"),
    "deep rows": ("job", lambda p: p["cluster"].update(job=squeezed(b"[" * 90_000)), "damaged"),
    "no pairs": ("pairs", lambda p: p["pairs"].update({"net.ports": squeezed(b"[{}]")}), "damaged"),
    "pairs cut off": ("pairs", lambda p: p["pairs"].update({"net.ports": CUT}), "cut off"),
    "a bomb": ("pairs", lambda p: p["pairs"].update({"net.ports": squeezed(BOMB)}), "more than 1 MiB"),
}  # fmt: skip


LOOKS: dict[str, Callable[[Report], object]] = {
    "facts": lambda report: kept.as_facts(report.facts).store(),
    "job": lambda report: kept.as_facts(report.facts).cluster_fact("job"),
    "pairs": lambda report: pairs_of(report, "net.ports"),
}


@pytest.mark.usefixtures("packs")
def test_what_is_damaged_is_told_when_it_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LINE_MAX", 1 << 20)
    path = tmp_path / "r.json"
    save(launched(), path)
    data = path.read_bytes()
    for name, (where, damage, why) in DAMAGES.items():
        raw = json.loads(data)
        damage(raw["packed"])
        path.write_text(json.dumps(raw))
        report = load(path)
        with pytest.raises(InputError, match=why) as caught:
            LOOKS[where](report)
        assert str(caught.value).startswith(f"{path}, its "), name
        if where == "pairs":
            shown = square.page(report, "net.ports", 80).lines
            assert why in " ".join(one.text for one in shown), name
        if name == "rows of another":
            continue  # JSON all the same
        assert run(["report", "convert", str(path), "-o", "json", "--json-detail", "all"]) == 2, name
        told = capsys.readouterr()
        assert not told.out, name
        assert len(told.err.splitlines()) == 1, name
    for packed, why in (({"format": "zip"}, "install a newer"), ({"facts": 1}, "damaged"), ([], "damaged")):
        path.write_text(json.dumps(json.loads(data) | {"packed": packed}))
        with pytest.raises(InputError, match=why):
            load(path)


def test_facts_of_the_wrong_types_are_missing_and_not_an_error() -> None:
    nodes = {"limits": {"n": {"value": 3}}, "x": {"n": {}}}
    odd = {"node": nodes, "cluster": {"job": {"value": {"env": 1}}, "y": {}}}
    for report in (
        loads(dumps(dataclasses.replace(sample_report("ready"), facts=odd), facts=True)),
        loads(dumps(dataclasses.replace(sample_report("ready"), facts=odd), facts=True, packed=True)),
    ):
        found = kept.as_facts(report.facts).store()
        assert found.get("limits", "n").why is Why.UNPARSABLE
        assert found.cluster_fact("job").why is Why.UNPARSABLE
        assert report.facts == odd
