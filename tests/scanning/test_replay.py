"""What a report keeps of how it was made, and what is asked for when that is asked for again."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from netdoctor import store
from netdoctor.checks.ssh.login import OUTCOMES, one_login
from netdoctor.errors import InputError
from netdoctor.facts.host import Login, Node, Session
from netdoctor.inventory import Target
from netdoctor.options import OPTIONS, Selection
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.model import Report
from netdoctor.scanning import ScanRequest, kept_request
from netdoctor.scanning.record import facts_of, keep_request
from netdoctor.store import Store
from tests.report.build import sample_report

# Each as the command line would have it; none is what it is when nothing is said.
SAID: dict[str, Any] = {
    "ssh_config": Path("/etc/a"),
    "ssh_user": "ml",
    "ssh_port": 2222,
    "ssh_key": Path("/k/id"),
    "known_hosts": Path("/k/known"),
    "jump": "me@gate:22",
    "python": "/opt/bin/python3",
    "profile": "full",
    "only": ("net.*", "bw.pair"),
    "skip": ("net.loss",),
    "node": "n[1-2]",
    "env_file": Path("/j/train.env"),
    "master_port": 29400,
    "packages": "torch,vllm",
    "path": ("/srv/train.py", "~/data"),
    "launcher": "mpirun",
    "backend": "gloo",
    "baseline": Path("/b/r.json"),
    "parallel": 8,
    "timeout": 12.5,
    "deadline": 600.0,
    "budget": 40.0,
    "strict": True,
    "require": ("sw", "bw"),
    "fail_on": "never",
    "local": True,
    "via": "slurm",
    "partition": "train,debug",
    "ray_address": "10.0.0.1:6379",
    "ray_python": "/opt/ray/bin/python",
    "also": ("ssh.mesh",),
    "reach": ("https://hub.example.org/models",),
    "write_test": ("/scratch",),
    "rate_test": "/scratch",
    "groups": "tp=2,pp=2",
    "requirements": Path("/j/requirements.txt"),
    "image": "nvcr.io/nvidia/pytorch:25.03",
    "suppress": Path(__file__),  # one that has gone is not asked for again
    "expect": Path("/c/expect.toml"),
    "facts": ("/shared/facts",),
    "facts_age": 7200.0,
    "facts_nodes": 4,
    "facts_job": "slurm 12",
    "meet": "29900",
    "tasks": 4,
    "secret_file": Path("/k/secret"),
}
TARGETS = (Target(id="n1", host="n1", user="ml", port=2201), Target(id="n2", host="10.0.0.2"))


def made_by(request: ScanRequest, **options: Any) -> Report:
    """The report of a request as it is read from a file; options that it holds beside, or instead."""
    kept = keep_request(request, TARGETS)
    kept["options"] = {**kept["options"], **options}
    report = sample_report()
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, replay=kept))
    return loads(dumps(report, facts=True))


def old_report(**options: Any) -> Report:
    """A report of before selections, bounds and strictness were kept."""
    new = ("only", "skip", "node", "deadline", "strict", "fail_on")
    report = made_by(ScanRequest(**options))
    kept = {k: v for k, v in report.run.replay["options"].items() if k not in new}
    run = dataclasses.replace(report.run, replay={**report.run.replay, "options": kept})
    return dataclasses.replace(report, run=run)


def test_every_option_is_kept_or_says_why_not() -> None:
    assert SAID.keys() == {name for name, option in OPTIONS.items() if not option.not_kept}


@pytest.mark.parametrize("name", SAID)
def test_what_was_said_is_asked_for_again(name: str) -> None:
    again = kept_request(made_by(ScanRequest(**{name: SAID[name]})), {})
    assert getattr(again, name) == SAID[name]
    assert again.targets == TARGETS
    others = {field: getattr(again, field) for field in SAID if field != name}
    assert others == {field: getattr(ScanRequest(), field) for field in others}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_now_wins_also_when_it_is_the_default(name: str) -> None:
    default = getattr(ScanRequest(), name)
    again = kept_request(made_by(ScanRequest(**SAID)), {name: default})
    assert getattr(again, name) == default


def test_nobody_is_trusted_and_no_code_is_loaded_by_what_a_report_says() -> None:
    odd = made_by(ScanRequest(), checks_dir=["/evil"], accept_new=True, save="/etc/passwd", hosts=["x"])
    again = kept_request(odd, {})
    fresh = ScanRequest()
    assert (again.checks_dir, again.accept_new, again.save) == ((), False, fresh.save)
    assert again.hosts == ()


def test_paths_are_kept_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    report = made_by(ScanRequest(env_file=Path("train.env")))
    monkeypatch.chdir("/")
    assert kept_request(report, {}).env_file == tmp_path / "train.env"


# Selections


def test_a_narrowed_run_narrows_no_other() -> None:
    """A verify command is such a run; what --last asks for after it is what it asked for before."""
    first = ScanRequest(only=("net.*",), skip=("net.loss",), node="n1")
    verify = kept_request(made_by(first), {"only": ("host.shm",), "node": "n2"})
    assert (verify.only, verify.skip, verify.node) == (("host.shm",), (), "n2")
    after = kept_request(made_by(verify), {})
    assert (after.only, after.skip, after.node) == (("net.*",), ("net.loss",), "n1")


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ({}, Selection(("net.*",), ("net.loss",), "n1")),
        ({"only": ("net.loss",)}, Selection(("net.loss",), (), "n1")),
        ({"skip": ("net.mtu",)}, Selection(("net.*",), ("net.mtu",), "n1")),
        ({"node": "n2"}, Selection(("net.*",), ("net.loss",), "n2")),
        ({"only": ("net.loss",), "skip": ("net.mtu",)}, Selection(("net.loss",), ("net.mtu",), "n1")),
    ],
)
def test_each_part_of_a_selection_is_replaced_by_itself(given: dict[str, Any], then: Selection) -> None:
    """But for --skip of then: who names a check asks for it."""
    again = kept_request(made_by(ScanRequest(only=("net.*",), skip=("net.loss",), node="n1")), given)
    assert Selection(again.only, again.skip, again.node) == then
    assert again.default_selection == Selection(("net.*",), ("net.loss",), "n1")


def test_bounds_said_now_stay() -> None:
    again = kept_request(made_by(ScanRequest(timeout=30.0)), {"timeout": 120.0, "only": ("ssh.login",)})
    assert kept_request(made_by(again), {}).timeout == 120.0


# Reports of others, and of old


def test_an_old_report_is_taken_as_it_was() -> None:
    again = kept_request(old_report(profile="full", ssh_user="ml"), {})
    assert (again.profile, again.ssh_user) == ("full", "ml")
    assert Selection(again.only, again.skip, again.node) == Selection()
    assert (again.strict, again.deadline) == (False, None)
    warned = old_report()
    verdict = dataclasses.replace(warned.verdict, fail_on="warn")
    assert kept_request(dataclasses.replace(warned, verdict=verdict), {}).fail_on == "warn"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("only", ["net.*", 7]), ("only", "net.*"), ("skip", {"a": 1}), ("skip", ["x"] * 2000),
        ("node", ["n1"]), ("deadline", -1), ("deadline", "soon"), ("deadline", True), ("timeout", 0),
        ("timeout", 1e9), ("require", "sw"), ("require", [1]), ("launcher", "make"), ("backend", "mpi"),
        ("budget", []), ("strict", "no"), ("strict", 1), ("fail_on", "often"), ("profile", "huge"),
        ("parallel", 0), ("parallel", 1.5), ("ssh_port", 65536), ("master_port", 0), ("ssh_config", "a\0b"),
        ("python", "python; touch x"), ("jump", "-oX"), ("ssh_user", "-oX"), ("local", "yes"), ("via", "rsh"),
        ("partition", "-x"), ("partition", "a b"),
        ("ray_python", "python; touch x"),
        ("path", ["x"]), ("path", ["/a\n"]), ("path", "/a"),
        ("packages", 1), ("jump", "gate;touch x"), ("jump", "gate, -oX"), ("jump", "$(x)"),
    ],
)  # fmt: skip
def test_what_no_command_line_could_say_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"r\.json: its option.*{name}"):
        kept_request(made_by(ScanRequest(), **{name: value}), {}, Path("r.json"))


# Each field of a login that ends in a command, and what a stranger's report may say there.
HOSTILE_LOGIN: dict[str, Any] = {
    "user": "-oProxyCommand=PWN", "address": "n1;PWN", "known_as": "fe80::1%'$(touch${IFS}PWN)'",
    "via": "-oProxyCommand=PWN@gate", "port": 70000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_LOGIN)
@pytest.mark.parametrize("outcome", [one for one in Login if one in OUTCOMES.outcome])
def test_what_a_report_says_of_a_login_becomes_no_command(name: str, outcome: Login) -> None:
    said = Session(outcome=outcome, address="10.0.0.1", user="ml", known_as="[10.0.0.1]:22")
    node = Node(id="n1", host="n1", order=0)
    poisoned = Store(
        node={
            "session": {"n1": dataclasses.replace(said, **{name: HOSTILE_LOGIN[name]})},
            "node": {"n1": node},
        }
    )
    report = dataclasses.replace(sample_report(), facts=store.dump(poisoned))
    session = facts_of(loads(dumps(report, facts=True))).get("session", "n1")
    for finding in one_login(node, session):
        assert finding.cause is not None
        for shell in (command.shell for fix in finding.cause.fixes for command in fix.commands):
            assert "PWN" not in shell
            assert "70000" not in shell


def test_a_node_that_no_hosts_file_could_list_is_left_out() -> None:
    nodes = {name: Node(id="-oPWN", host="-oPWN", order=0) for name in ("n1", "[fe80::1]:22", "-oPWN", "a b")}
    report = dataclasses.replace(sample_report(), facts=store.dump(Store(node={"node": nodes})))
    found = facts_of(report).node["node"]
    assert {name: (node.id, node.host) for name, node in found.items()} == {
        "n1": ("n1", "n1"),
        "[fe80::1]:22": ("[fe80::1]:22", "fe80::1"),
    }


def test_a_login_as_scans_write_it_is_taken_as_it_is() -> None:
    said = Session(
        outcome=Login.HOST_KEY_UNKNOWN,
        address="fe80::1%eth0",
        user="ml",
        port=2222,
        known_as="[gate.x]:2222",
        via="gate",
    )
    report = dataclasses.replace(sample_report(), facts=store.dump(Store(node={"session": {"n1": said}})))
    assert facts_of(report).get("session", "n1") == said
