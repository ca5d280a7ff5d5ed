"""Members of a gang that hear how it ends: all the same, or a refusal; and who keeps a start from all."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.errors import InputError
from netdoctor.options import ScanRequest
from netdoctor.scanning import gang
from netdoctor.scanning.gang import Member, Verdict
from netdoctor.transport.tasks import meeting
from tests.transport.conftest import free_port

SECRET = "tulip-4-Zephyr-97"
KEY = meeting.secret({meeting.SECRET: SECRET}, None) or ""
HERE = "127.0.0.1"
READY = Verdict(0, "READY", (), {"NETDOCTOR_GATE_NNODES": "3"})


def members(count: int, key: str = KEY) -> list[Member]:
    place = meeting.Rendezvous(host=HERE, port=free_port())
    return [Member(rank=n, count=count, name=f"gpu{n}", rendezvous=place, key=key) for n in range(count)]


def names(some: list[Member]) -> list[str]:
    return [member.name for member in some]


def heard(some: list[Member], within_s: float = 10.0) -> tuple[dict[int, Verdict | None], Callable[[], None]]:
    """What each member hears, once the returned function has waited for all."""
    found: dict[int, Verdict | None] = {}

    def one(member: Member) -> None:
        found[member.rank] = gang.hear(member, member.name, within_s)

    threads = [threading.Thread(target=one, args=(member,)) for member in some]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join(30)

    return found, join


def test_all_hear_the_same() -> None:
    every = members(9)
    found, join = heard(every[1:])
    assert gang.tell(every[0], READY, names(every)) == READY
    join()
    assert found == dict.fromkeys(range(1, 9), READY)


def test_one_that_does_not_come_keeps_all_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "TOGETHER_S", 1.0)
    every = members(4)
    found, join = heard([every[1], every[3]])
    final = gang.tell(every[0], READY, names(every))
    join()
    assert (final.code, final.why) == (3, "member2 left before all could start")
    assert found == {1: final, 3: final}


def test_one_that_leaves_before_the_others_come_keeps_all_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang, "TOGETHER_S", 2.0)
    every = members(3)
    final: list[Verdict] = []
    thread = threading.Thread(target=lambda: final.append(gang.tell(every[0], READY, names(every))))
    thread.start()
    streams = []
    real = gang.dial_back.connect

    def leaves(*args: Any) -> None:
        streams.append(real(*args))
        if streams[-1] is not None:
            streams[-1].connection.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang.dial_back, "connect", leaves)
        while not any(streams):
            gang._hear_once(every[2], every[2].name, [[HERE, every[2].rendezvous.port]], 5.0)
    found, join = heard([every[1]])
    join()
    thread.join(30)
    assert final[0].why == "member2 left before all could start"
    assert found == {1: final[0]}


def test_one_that_was_not_asked_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod in the place of one that was asked, on another node, when all was fine with the first."""
    monkeypatch.setattr(gang, "TOGETHER_S", 1.0)
    every = members(3)
    for name in ("gpu9", gang.NOT_ASKED):
        found, join = heard([every[1], replace(every[2], name=name)], 0.7)
        final = gang.tell(every[0], READY, names(every))
        join()
        assert final.why == "member2 left before all could start"
        assert found[1] == final
        assert found[2] in (None, final)


def test_nobody_waits_for_who_never_called_where_nothing_starts() -> None:
    every = members(4)
    refusal = Verdict(1, "NOT READY", ("FAIL gpu.ecc …",))
    nodes = ["gpu0", "gpu1", "member2", "gpu3", "member9"]
    assert every[0].absent(nodes) == {"2"}
    found, join = heard([every[1], every[3]])
    assert gang.tell(every[0], refusal, nodes) == refusal
    join()
    assert found == {1: refusal, 3: refusal}
    alone = replace(every[0], count=1)
    assert gang.tell(alone, READY, names(every[:1])) == READY


def test_another_secret_hears_nothing_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    every = members(2)
    other = replace(every[1], key=meeting.secret({meeting.SECRET: SECRET + "?"}, None) or "")
    first = replace(every[1], key=KEY)
    found, join = heard([first])
    strange, gone = heard([other], 1.0)
    assert gang.tell(every[0], READY, names(every)) == READY
    join()
    gone()
    assert (found, strange) == ({1: READY}, {1: None})


def test_a_long_verdict_is_cut_and_what_is_no_verdict_is_none() -> None:
    every = members(2)
    long = Verdict(1, "x" * 9999, ("\x1b[31m" + "y" * 9999,) * 500, {"NETDOCTOR_GATE_NODES": "n," * 99_999})
    found, join = heard([every[1]])
    final = gang.tell(every[0], long, names(every))
    join()
    assert found == {1: final}
    assert (len(final.why), len(final.lines), final.variables) == (gang.LINE_MAX, gang.LINES_MAX, {})
    assert all(line.isprintable() and len(line) <= gang.LINE_MAX for line in final.lines)


def test_a_port_that_is_taken_starts_nobody() -> None:
    every = members(2)
    with socket.create_server((HERE, every[0].rendezvous.port)):
        with pytest.raises(InputError, match="cannot listen on port"):
            gang.tell(every[0], READY, names(every))
        assert gang.hear(every[1], every[1].name, 0.5) is None


def test_who_calls_and_hears_no_verdict_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "LATE_S", 0.3)
    (_, one) = members(2)
    found = gang.take_part(one, ScanRequest(timeout=0.5, environ={}))
    assert (found.code, found.why) == (
        3, f"member 0 does not judge at {HERE} port {one.rendezvous.port}: "
        f"nothing answers at {HERE} port {one.rendezvous.port}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gang", "h:1"], "no launcher says which node this is; --rank N does, from 0"),
        (["--gang", "h:1", "--rank", "1"], "no launcher says how many nodes there are; --tasks N does"),
        (["--gang", "h:1", "--rank", "8", "--tasks", "8"], "of 8 nodes the last has number 7"),
        (["--gang", "h:1", "--rank", "0", "--tasks", "8"], "asks for a secret that all nodes have"),
        (["--gang", "29600", "--rank", "0", "--tasks", "8"], "write HOST:PORT, of the first node"),
        (["--gang", "/shared", "--rank", "0", "--tasks", "8"], "write HOST:PORT, of the first node"),
        (["--gang", "h:1", "--rank", "x", "--tasks", "8"], "'x' is not the number of a node"),
        (["--gang", "h:1", "gpu01"], "judges the nodes that call; leave the hosts out, and say --tasks N"),
        (["--gang", "h:1", "--local"], "judges the nodes that call; leave --local out"),
        (["--gang", "h:1", "--max-age", "10m"], "judges the nodes that call; leave --max-age out"),
        (["--rank", "1", "gpu01"], "--rank goes with --gang"),
    ],
)
def test_bad_lines(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(meeting.SECRET, raising=False)
    assert cli.run(["gate", *words, "--", "true"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.process
def test_two_members_of_one_node_start_together() -> None:
    """Two real processes with one name and one address: both are asked, and start with the same words."""
    place = f"{HERE}:{free_port()}"
    environ = {**os.environ, meeting.SECRET: SECRET, "NODE_NAME": "gpu7"}
    line = [sys.executable, "-m", "netdoctor", "gate", "--gang", place, "--tasks", "2", "--no-save"]
    line += ["--only", "host.nofile", "--fail-on", "never", "--timeout", "40"]
    members = [
        subprocess.Popen(
            [*line, "--rank", str(rank), "--", "sh", "-c", "echo $NETDOCTOR_GATE_NODES"],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ends = [member.communicate(timeout=90) for member in members]
    finally:
        for member in members:
            member.kill()
    assert [member.returncode for member in members] == [0, 0], ends
    assert ends[0][0] == ends[1][0]
    assert ends[0][0].strip() in ("gpu7,gpu7-1", "gpu7-0,gpu7")
