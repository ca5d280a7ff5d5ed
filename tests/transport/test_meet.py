"""Tasks that call: who is let in, what is made of the others, and where the secret is left."""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from netdoctor import __version__, cli
from netdoctor.agent import dial_back
from netdoctor.errors import InputError
from netdoctor.facts.base import Why
from netdoctor.facts.host import MEET, Login
from netdoctor.inventory.task import Task
from netdoctor.scanning import meeting as rooms
from netdoctor.transport import attending, meeting
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
from netdoctor.transport.meet import MeetOptions, MeetTransport
from tests.transport.conftest import free_port

KEY, OTHER = (meeting.secret({meeting.SECRET: word * 16}, None) or "" for word in "xy")
HERE = "127.0.0.1"


def called(port: int, claim: str) -> socket.socket:
    """A peer that knows the secret, and is no agent."""
    one = socket.create_connection((HERE, port))
    dial_back._introduce(one, claim, KEY, time.monotonic() + 10)
    return one


def attended(node: str, port: int, rank: int | None = None, key: str = KEY, within_s: float = 30.0) -> str:
    return rooms.attend(
        node, Task(rank=rank), place=meeting.Place(host=HERE, port=port), key=key, python=None,
        checks_dir=(), timeout_s=within_s, environ=dict(os.environ),
    )  # fmt: skip


@pytest.mark.process
def test_who_shows_the_secret_is_asked_and_all_others_cost_nothing() -> None:
    port, said = free_port(), {}
    options = MeetOptions(
        place=meeting.Place(host=HERE, port=port), key=KEY, tasks=3, wait_s=60, invite=rooms.invite
    )
    transport = MeetTransport(Limits(node_budget_s=30), options)

    def tasks() -> None:
        while not attending.answers([(HERE, port)], 1.0):
            pass
        strangers = [socket.create_connection((HERE, port)) for _ in range(300)]
        for one in strangers[::2]:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 40)
        said["n9"] = attended("n9", port, key=OTHER, within_s=0.1)
        with called(port, "0/0.0.9/n0"), called(port, f"1/{__version__}/n1"):
            called(port, f"7/{__version__}/n1").close()
            called(port, f"8/{__version__}/-ox").close()
            with pytest.raises(dial_back.Refused, match="closed"):
                called(port, "9/x/$(reboot)")
        said["n2"] = attended("n2", port, rank=2)
        for one in strangers:
            one.close()

    thread = threading.Thread(target=tasks)
    thread.start()
    inventory = transport.inventory()
    assert [target.id for target in inventory.targets] == ["n0", "n1", "n2"]
    request = Request(op="facts", args={"groups": {"host": {}}}, timeout_s=20)
    first = dict.fromkeys(("n0", "n1", "n2"), request)
    events = list(transport.start(inventory.targets, first, keep_open=True, collectors={}))
    sessions = {one.node: one.session for one in events if isinstance(one, SessionEvent)}
    assert [(sessions[node].outcome, sessions[node].transport) for node in first] == [
        (Login.LOST, MEET), (Login.LOST, MEET), (Login.OK, MEET),
    ]  # fmt: skip
    assert sessions["n0"].detail == f"its netdoctor is 0.0.9, this is {__version__}; both have to be one"
    assert sessions["n1"].detail == "its task ended before it was asked anything"
    assert sessions["n2"].address == HERE
    (reply,) = [one for one in events if isinstance(one, Reply)]
    assert reply.result["host"]["value"]["hostname"]
    (again,) = transport.call({"n2": Request(op="clock", args={"exchanges": 2})})
    assert len(again.result["samples"]) == 2
    transport.close()
    thread.join(30)
    assert said == {"n9": f"{HERE} port {port}: somebody else answers there", "n2": ""}
    assert "n1 calls a second time" in transport.notes[0]
    assert len(transport.notes) == 2
    # A task calls once: nobody can be started again from here.
    gone = list(transport.start(inventory.targets, first, keep_open=False, collectors={}))
    assert {one.session.outcome for one in gone if isinstance(one, SessionEvent)} == {Login.LOST}
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HERE, port))


@pytest.mark.process
def test_who_does_not_call_is_named_and_a_task_that_nobody_takes_says_so(tmp_path: Path) -> None:
    port = free_port()
    options = MeetOptions(
        place=meeting.Place(folder=tmp_path / "meet"), key=None, tasks=2, wait_s=0.1, invite=rooms.invite
    )
    transport = MeetTransport(Limits(), options)
    inventory = transport.inventory()
    assert [target.id for target in inventory.targets] == ["absent1", "absent2"]
    assert os.listdir(tmp_path / "meet") == []
    first = dict.fromkeys(("absent1", "absent2"), Request(op="facts", args={"groups": {}}))
    events = list(transport.start(inventory.targets, first, keep_open=False, collectors={}))
    details = {one.session.detail for one in events if isinstance(one, SessionEvent)}
    assert len(details) == 1
    assert details.pop().startswith("of 2 tasks 0 called port ")
    assert attended("n1", port, within_s=0.1) == f"nothing answers at {HERE} port {port}"
    (lost,) = transport.call({"absent1": Request(op="clock")})
    assert lost.missing is not None
    assert lost.missing.why is Why.LOST


def test_the_file_in_the_folder_is_our_own_or_nothing_is_done_by_it(tmp_path: Path) -> None:
    folder, spots = tmp_path / "meet", [("10.0.0.1", 4000), ("fd00::1", 4001)]
    assert rooms.invited(folder) is None
    withdraw = rooms.invite(folder, spots, KEY)
    path = folder / rooms.NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert rooms.invited(folder) == (spots, KEY)
    good = path.read_bytes()
    other = {b"meet/1": b"meet/2", b"4000": b"70000", b"10.0.0.1": b"$(a)", KEY.encode(): b"00"}
    for bad in (b"", b"{}", good[:-9], b"[" * 9000, *(good.replace(old, new) for old, new in other.items())):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=str(path)):
            rooms.invited(folder)
    path.write_bytes(good)
    path.chmod(0o620)
    with pytest.raises(InputError, match="others may write to it"):
        rooms.invited(folder)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 4242, 4242)
        with pytest.raises(InputError, match="it belongs to uid 4242"):
            rooms.invited(folder)
        os.chown(path, 0, 0)
    # Of two that judge in one folder the later one is met, and the earlier one takes nothing of it away.
    later = rooms.invite(folder, spots[:1], OTHER)
    withdraw()
    assert rooms.invited(folder) == (spots[:1], OTHER)
    later()
    assert os.listdir(folder) == []
    path.symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="symbolic"):
        rooms.invited(folder)


def test_places_secrets_and_names() -> None:
    table: dict[str, Any] = {
        "29900": meeting.Place(port=29900),
        "head:29900": meeting.Place(host="head", port=29900),
        "[fd00::1]:80": meeting.Place(host="fd00::1", port=80),
        "/shared/meet": meeting.Place(folder=Path("/shared/meet")),
        "meet": meeting.Place(folder=Path("meet")),
        "./a:80": meeting.Place(folder=Path("./a:80")),
    }
    assert {text: meeting.place(text) for text in table} == table
    for wrong in ("", "0", "70000", "-oProxyCommand=x:80", "a b:80", "$(x):80"):
        with pytest.raises(InputError, match="--meet"):
            meeting.place(wrong)
    assert meeting.secret({}, None) is None
    for short in ("x", "x" * 15, " " * 20 + "x"):
        with pytest.raises(InputError, match="16 characters"):
            meeting.secret({meeting.SECRET: short}, None)
    assert KEY != OTHER
    assert meeting.claimed(meeting.claim(3, "gpu03.a")) == (3, __version__, "gpu03.a")
    assert meeting.claimed(meeting.claim(None, "fe80::1%eth0")) == (None, __version__, "fe80::1%eth0")
    for text in ("n1", "1/0.1.0/-x", "x/0.1.0/n1", "1/0.1.0/a/b", "1/0.1.0/", "9999999999/1/n1"):
        assert meeting.claimed(text) == (None, "", ""), text


def test_mistakes_are_told_before_anybody_is_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(meeting.SECRET, raising=False)
    (tmp_path / "short").write_text("abc\n")
    for line, said in {
        "facts --meet 29900": "asks for the secret",
        "facts --meet head:29900": "asks for the secret",
        "facts --meet head:29900 --secret-file short": "16 characters",
        "facts --meet head:29900 --secret-file none": "No such file",
        "facts --meet meet --name=-x": "--name says what this node is called",
        "scan --meet 29900 --tasks 2": "asks for a secret",
        "scan --meet meet": "say how many tasks there are",
        "scan --tasks 2": "--tasks goes with --meet",
        "scan --meet meet --tasks 0": "say how many tasks there are",
        "scan --meet meet --tasks 2 --via slurm": "leave --via",
        "scan --meet meet --tasks 2 --local": "leave --via",
        "scan --meet meet --tasks 2 --plan": "--plan contacts nobody",
        "gate --meet meet --tasks 2 --exclude-bad -- true": "tasks call once",
    }.items():
        assert cli.run(line.split()) == 2, line
        out, err = capsys.readouterr()
        assert not out, line
        assert said in err, line
    assert not (tmp_path / "meet").exists()
