"""`netdoctor hosts`, as typed: lists shown and converted, and those of the good and bad nodes of a report."""

import argparse
import json
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.cli import tui
from netdoctor.inventory import load
from netdoctor.model import Finding, fail, unknown
from netdoctor.report import LAST
from netdoctor.report.redact import redact
from netdoctor.report.save import save
from netdoctor.scanning import ScanRequest
from tests.core.fake import hint, saying
from tests.scanning.ground import Ground

HOSTS = "".join(f"n{i} slots=8 port=2222\n" for i in range(1, 7))
Said = tuple[int, str, str]


class Typed:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Said:
        code = cli.run(["hosts", *words])
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(capsys)


def test_lists_are_shown_and_converted(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inv.ini").write_text("[gpu]\nn[1:2] ansible_port=2222\nn3 ansible_host=10.0.0.3\n[web]\nw1\n")
    code, out, _ = typed("show", "inv.ini")
    assert code == 0
    assert out.splitlines() == [
        "inv.ini: Ansible inventory, 4 hosts",
        "",
        "rank  host  address   port  groups  from",
        "0     n1              2222  gpu     inv.ini:2",
        "1     n2              2222  gpu     inv.ini:2",
        "2     n3    10.0.0.3        gpu     inv.ini:3",
        "3     w1                    web     inv.ini:5",
    ]
    code, out, _ = typed("show", "inv.ini", "-n", "@gpu!n1", "-o", "json")
    shown = json.loads(out)
    assert [host["id"] for host in shown["hosts"]] == ["n2", "n3"]
    assert (shown["schema"], shown["fold"], shown["format"]) == ("netdoctor.hosts/1", "n[2-3]", "ansible")
    Path("shown.json").write_text(out)
    assert [(t.id, t.host, t.groups) for t in load(["shown.json"]).targets] == [
        ("n2", "n2", ("gpu",)),
        ("n3", "10.0.0.3", ("gpu",)),
    ]
    code, out, err = typed("convert", "inv.ini", "-n", "@gpu", "--to", "deepspeed", "--slots", "8")
    assert (code, out) == (0, "n1 slots=8\nn2 slots=8\n10.0.0.3 slots=8\n")
    assert "lost in a DeepSpeed hostfile: port of n1, n2; say Port in ssh config\n" in err
    for words, part in (
        (("convert", "inv.ini", "--to", "deepspeed"), "no slots, which a DeepSpeed hostfile needs"),
        (("show",), "no hosts: name a file, hosts, --from-env or --from-ssh-config"),
        (("show", "gone.txt"), "gone.txt: no such file"),
        (("show", "inv.ini", "-n", "@x"), "the list has no such group"),
    ):
        code, out, err = typed(*words)
        assert (code, out) == (2, ""), words
        assert part in err


def test_the_job_and_the_ssh_config_name_hosts(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config").write_text("Host gpu-1 gpu-2 login\n")
    Path("nodes").write_text("b\nb\na\n")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setenv("PBS_NODEFILE", "nodes")
    code, out, _ = typed("convert", "--from-env", "--to", "lsf")
    assert (code, out) == (0, "b 2 a 1\n")
    code, out, _ = typed("convert", "--from-ssh-config", "gpu-*", "--ssh-config", "config", "--to", "slurm")
    assert (code, out) == (0, "gpu-[1-2]\n")


def report_of(ground: Ground, *findings: Finding, **options: object) -> None:
    """A saved last report of six nodes."""
    Path("hosts.txt").write_text(HOSTS)
    ground.checks.append(saying("net.x", *findings))
    save(ground.scan(ScanRequest(hosts=("hosts.txt",), **options)), LAST)  # type: ignore[arg-type]


def bad(node: str) -> Finding:
    return fail(node, "bad", cause=hint("k", node))


def test_the_good_and_the_bad_of_a_report(ground: Ground, typed: Typed) -> None:
    report_of(ground, bad("n3"))
    code, out, err = typed("good", "--last", "--to", "deepspeed")
    assert (code, out) == (0, "".join(f"n{i} slots=8\n" for i in (1, 2, 4, 5, 6)))
    assert "5 good, 1 bad" in err
    assert "lost in a DeepSpeed hostfile: port of n1" in err
    assert typed("bad", "--to", "slurm")[:2] == (0, "n3\n")
    # by a report that is named, and for a list of one's own, whose slots and order stay
    assert typed("bad", str(LAST), "--to", "pdsh")[:2] == (0, "n3\n")
    Path("mine").write_text("n6 slots=4\nn1 slots=2\nn2 slots=2\nn4 slots=2\nn3 slots=2\n")
    assert typed("good", "mine", "--to", "mpich")[1] == "n6:4\nn1:2\nn2:2\nn4:2\n"
    # whom the report does not know is in neither list
    Path("mine").write_text("n1\nn2\nn4\nn5\nx9\n")
    code, out, err = typed("good", "mine")
    assert (code, out) == (0, "n1\nn2\nn4\nn5\n")
    assert "not tested, so not good: x9" in err
    assert typed("bad", "mine")[:2] == (0, "")


def test_more_than_a_fifth_needs_a_word(ground: Ground, typed: Typed) -> None:
    report_of(ground, bad("n3"), unknown("n5", "lost"))
    code, out, err = typed("good")
    assert (code, out) == (1, "")
    assert "undecided, so not good: n5" in err
    assert "refused: 2 of 6 hosts would be left out, more than a fifth; --yes-exclude" in err
    code, out, _ = typed("good", "--yes-exclude", "--to", "slurm")
    assert (code, out) == (0, "n[1-2],n4,n6\n")
    code, out, err = typed("bad", "--to", "slurm")
    assert (code, out) == (0, "n3\n")
    assert "undecided, so not bad: n5" in err


def test_no_good_host_is_no_list(ground: Ground, typed: Typed) -> None:
    report_of(ground, *(bad(f"n{i}") for i in range(1, 7)))
    for words in (("good",), ("good", "--yes-exclude")):
        code, out, err = typed(*words)
        assert (code, out) == (1, "")
        assert "refused: no host is good" in err
    assert typed("bad")[:2] == (1, "")
    assert typed("bad", "--yes-exclude", "--to", "slurm")[:2] == (0, "n[1-6]\n")


def test_reports_that_say_nothing_of_nodes(ground: Ground, typed: Typed) -> None:
    report_of(ground, bad("n3"), node="n[1-2]")
    code, out, err = typed("good")
    assert (code, out) == (2, "")
    assert "no node is known to be usable" in err
    report_of(ground, bad("n3"))
    from netdoctor.report.save import load as load_report

    save(redact(load_report(LAST)), Path("redacted.json"))
    code, out, err = typed("bad", "redacted.json")
    assert (code, out) == (2, "")
    assert "a redacted report names no node" in err
    LAST.unlink()
    assert typed("good")[0] == 2


def test_the_screens_tell_a_list_from_a_report(tmp_path: Path) -> None:
    for text, report in (
        ('{"_meta": {"hostvars": {}}}', False),
        ('{"apiVersion": "v1", "kind": "List"}', False),
        ('{"schema": "netdoctor.hosts/1"}', False),
        ('{"schema": "netdoctor.report/1", "hosts": 1}', True),
        ('{"damaged', True),
    ):
        path = tmp_path / "x.json"
        path.write_text(text)
        args = argparse.Namespace(last=False, hosts=[str(path)])
        assert tui._saved(args) == (path if report else None), text
