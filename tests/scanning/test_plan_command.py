"""`netdoctor plan`, as typed: from reports in netdoctor's folder, from one that is named, from none."""

import dataclasses
import json
import os
import re
import time
from pathlib import Path

import pytest

from netdoctor import cli, store
from netdoctor.cli.launch_evidence import newest_evidence
from netdoctor.inventory import load
from netdoctor.model import fail
from netdoctor.report import LAST
from netdoctor.report.model import Report
from netdoctor.report.redact import redact
from netdoctor.report.save import save
from netdoctor.scanning import ScanRequest
from tests.core.fake import hint, saying
from tests.launch.build import evidence
from tests.scanning.ground import Ground

Said = tuple[int, str, str]


class Typed:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Said:
        code = cli.run(["plan", *words])
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(capsys)


def report(ground: Ground, count: int, hosts: str = "hosts.txt", **run: str) -> Report:
    """Of a scan of n1, n2… that knows their networks."""
    made = ground.scan(ScanRequest(hosts=(hosts,)))
    return dataclasses.replace(
        made, facts=store.dump(evidence(count).facts), run=dataclasses.replace(made.run, **run)
    )


def test_the_newest_report_of_the_hosts_is_used_and_said(ground: Ground, typed: Typed) -> None:
    Path("hosts.txt").write_text("n1\nn2\nn3\n")
    Path("two.txt").write_text("n2\nn1\n")
    assert "nothing is measured" in typed("hosts.txt")[1]
    save(report(ground, 3))
    code, out, _ = typed("hosts.txt", "--script", "train.py")
    assert code == 0
    assert re.search(
        r"^# 3 nodes x 8 GPUs = world size 24; hosts.txt \+ report of .* 0 s old: READY$", out, re.M
    )
    assert "export MASTER_ADDR=10.0.0.1 " in out
    # Some of its hosts, in another order.
    assert "export MASTER_ADDR=10.0.0.2 " in typed("two.txt")[1]
    assert json.loads(typed("--last", "-o", "json")[1])["world_size"] == 24
    # Hosts that it did not contact, or would reach in another way.
    for text in ("n1\nn4\n", "n1 port=2222\nn2\n"):
        Path("other.txt").write_text(text)
        assert "nothing is measured" in typed("other.txt")[1]
    # A newer report of other hosts: the older one is in the history.
    Path("four.txt").write_text("n7\n")
    save(report(ground, 1, "four.txt"))
    assert "export MASTER_ADDR=10.0.0.1 " in typed("hosts.txt")[1]


def test_reports_that_may_not_be_taken_at_their_word(ground: Ground, typed: Typed) -> None:
    Path("hosts.txt").write_text("n1\nn2\n")
    kept = save(report(ground, 2))
    save(redact(kept), Path("redacted.json"))
    code, out, err = typed("hosts.txt", "--report", "redacted.json")
    assert (code, out) == (2, "")
    assert "redacted" in err
    os.truncate(LAST, 100)
    for old in LAST.parent.glob("history/*"):
        old.unlink()
    code, out, _ = typed("hosts.txt")
    assert code == 0
    assert "nothing is measured" in out
    assert typed("--last")[0] == 2
    for facts in ({"node": []}, {"node": {"node": 7}}, {}):
        save(dataclasses.replace(kept, facts=facts))
        assert "nothing is measured" in typed("hosts.txt")[1]
    for when in ("0001-01-01T00:00:00", "yesterday", ""):
        save(dataclasses.replace(kept, run=dataclasses.replace(kept.run, finished=when)))
        code, _, err = typed("--last")
        assert code == 2
        assert "when it was made" in err
    save(dataclasses.replace(kept, run=dataclasses.replace(kept.run, foreign="uid 7")))
    assert "nothing is measured" in typed("hosts.txt")[1]


def test_an_old_report_that_is_not_ready(ground: Ground, typed: Typed) -> None:
    Path("hosts.txt").write_text("n1\nn2\n")
    ground.checks[1] = saying("net.one", fail("n2", "bad", cause=hint("bad", "n2")))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 5 * 86400))
    save(report(ground, 2, finished=stamp))
    _, out, _ = typed("hosts.txt")
    assert "5 days old: NOT READY: n2 is bad" in out.splitlines()[0]
    assert "scan again before a long job" in out
    _, out, _ = typed("hosts.txt", "--only-good", "--ranks")
    assert {line.split()[0] for line in out.splitlines()} == {"node", "n1"}


def test_bad_input_is_told_and_nothing_is_written(ground: Ground, typed: Typed) -> None:
    Path("hosts.txt").write_text("n1 slots=8\nn2 slots=8\n")
    for words, why in (
        ((), "no hosts"),
        (("--last", "hosts.txt"), "leave the host list out"),
        (("hosts.txt", "--script", "train.py 'x"), "no closing quotation"),
        (("hosts.txt", "--script", " "), "names no program"),
        (("hosts.txt", "--tp", "3"), "not a multiple"),
        (("hosts.txt", "--env", "RANK=1"), "the launcher sets it"),
        (("hosts.txt", "--only-good"), "needs a report"),
        (("hosts.txt", "--write", "hosts.txt"), "no folder"),
        (("nosuch.txt",), "nosuch.txt"),
    ):
        code, out, err = typed(*words)
        assert (code, out) == (2, ""), words
        assert why in err, words
        assert "Traceback" not in err
    for words in (
        ("hosts.txt", "--nproc", "x"),
        ("hosts.txt", "--env", "a b=c"),
        ("hosts.txt", "--port", "0"),
    ):
        assert typed(*words)[0] == 2
    assert {path.name for path in Path().iterdir()} == {"hosts.txt"}


def test_files_and_variables(ground: Ground, typed: Typed) -> None:
    Path("hosts.txt").write_text("n1\nn2\n")
    save(report(ground, 2))
    code, out, _ = typed("hosts.txt", "--write", "out", "--launcher", "mpirun")
    assert code == 0
    assert "out/run.sh" in out
    assert (
        "'10.0.0.0/24'" in Path("out/run.sh").read_text() or "10.0.0.0/24" in Path("out/run.sh").read_text()
    )
    lines = typed("hosts.txt", "-o", "dotenv", "--debug")[1].splitlines()
    pairs = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert pairs["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert pairs["NCCL_DEBUG"] == "INFO"
    assert all(line.startswith("#") or re.fullmatch(r"[A-Z_]+=\S+", line) for line in lines)
    found = newest_evidence(load(["hosts.txt"]).targets)
    assert found is not None
    assert found.state == "ready"
