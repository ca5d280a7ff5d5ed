"""Tasks that call: who is let in, what is made of the others, and where the secret is left."""

import contextlib
import json
import os
import random
import signal
import socket
import string
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor import __version__, cli
from netdoctor.agent import dial_back
from netdoctor.errors import InputError
from netdoctor.facts.base import Why
from netdoctor.facts.host import MEET, Login
from netdoctor.inventory import Target
from netdoctor.inventory.task import Task
from netdoctor.report.save import write_whole
from netdoctor.runner import ScanRunner
from netdoctor.scanning import ScanRequest, assemble, prepare
from netdoctor.scanning import meeting as rooms
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
from netdoctor.transport.tasks import attending, calls, meeting
from netdoctor.transport.tasks.meet import MeetOptions, MeetTransport
from netdoctor.tui import runner as runs
from netdoctor.tui.events import Began, Ended, Failed
from netdoctor.tui.state import fold, opened
from tests.counting import steps
from tests.strangers import strangers
from tests.transport.conftest import free_port

SECRET = "tulip-4-Zephyr-97"
KEY, OTHER = (meeting.secret({meeting.SECRET: SECRET + more}, None) or "" for more in ("", "?"))
HERE = "127.0.0.1"


def called(port: int, claim: str, key: str = KEY) -> dial_back.Stream:
    """A peer that knows the secret, and is no agent."""
    tried: dict[str, str] = {}
    one = dial_back.connect([[HERE, port]], claim, key, 10.0, tried)
    assert one is not None, tried
    return one


def at(port: int, tasks: int, wait_s: float = 60.0) -> MeetOptions:
    place = meeting.Rendezvous(host=HERE, port=port)
    return MeetOptions(rendezvous=place, key=KEY, tasks=tasks, wait_s=wait_s, invite=rooms.invite)


def spoken(one: dial_back.Stream) -> None:
    """Be an agent on a connection that was let in, until it ends: each request has an empty answer."""

    def say(body: bytes) -> None:
        one.write(b"\x1e%s %d\n%s\n" % (meeting.marker(KEY).encode(), len(body), body))

    with one.connection:
        say(b'{"hello": {"python": "3.11.7"}}')
        while head := one.read(9):
            asked = json.loads(one.read(int(head, 16)))
            say(b'{"id": %d, "ok": true, "result": {}}' % asked["id"])


def attended(node: str, port: int, rank: int | None = None, key: str = KEY, within_s: float = 30.0) -> str:
    request = ScanRequest(timeout=within_s, environ=dict(os.environ))
    return rooms.attend(
        node, Task(rank=rank), rendezvous=meeting.Rendezvous(host=HERE, port=port), key=key, request=request
    )


@pytest.mark.process
def test_who_shows_the_secret_is_asked_and_all_others_cost_nothing() -> None:
    port, said = free_port(), {}
    transport = MeetTransport(Limits(node_budget_s=30), at(port, tasks=3))

    def tasks() -> None:
        while not attending.answers([(HERE, port)], 1.0):
            pass
        strangers = [socket.create_connection((HERE, port)) for _ in range(300)]
        for one in strangers[::2]:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 40)
        said["n9"] = attended("n9", port, key=OTHER, within_s=0.1)
        with called(port, f"1/{__version__}/n1").connection:
            for claim, why in (
                ("0/0.0.9/n0", "both have to be one"),
                (f"7/{__version__}/n1", "a second time"),
                (f"8/{__version__}/-ox", "not a name"),
            ):
                with pytest.raises(dial_back.NotLetIn, match=why):
                    called(port, claim)
            with pytest.raises(AssertionError, match="closed"):
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
    elsewhere = f"{HERE} port {port}: somebody else answers there, or has another secret"
    assert said == {"n9": in_vain(elsewhere), "n2": ""}
    twice, nameless, wrong = transport.notes
    assert twice.startswith("n1: it called a second time")
    assert nameless.startswith("a task: what it calls its node is not a name")
    assert wrong.startswith(f"who called from {HERE} did not show the secret")
    # A task calls once: nobody can be started again from here.
    gone = list(transport.start(inventory.targets, first, keep_open=False, collectors={}))
    assert {one.session.outcome for one in gone if isinstance(one, SessionEvent)} == {Login.LOST}
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HERE, port))


def listening(port: int) -> None:
    while not attending.answers([(HERE, port)], 1.0):
        time.sleep(0.01)


def begun(node: str, port: int) -> threading.Thread:
    """A task that calls as soon as somebody listens."""

    def task() -> None:
        listening(port)
        attended(node, port)

    thread = threading.Thread(target=task)
    thread.start()
    return thread


FACTS = Request(op="facts", args={"groups": {}}, timeout_s=20)


def in_vain(why: str) -> str:
    return f"nobody took this task within 0.1 s: {why}"


def answers(transport: MeetTransport, nodes: Sequence[str]) -> list[SessionEvent | Reply]:
    targets = [Target(id=node, host=node) for node in nodes]
    return list(transport.start(targets, dict.fromkeys(nodes, FACTS), keep_open=True, collectors={}))


@pytest.mark.process
def test_one_task_more_than_was_said_is_told_why_and_changes_nothing() -> None:
    port = free_port()
    transport, late = MeetTransport(Limits(node_budget_s=30), at(port, tasks=2)), []

    def tasks() -> None:
        listening(port)
        called(port, f"0/{__version__}/n0").connection.close()
        time.sleep(0.2)  # that it is gone is seen; its node began again, and nothing of it is lost
        some = [called(port, f"{rank}/{__version__}/n{rank}") for rank in (0, 1)]
        for one in some:
            threading.Thread(target=spoken, args=(one,)).start()
        late.append(attended("n2", port))

    thread = threading.Thread(target=tasks)
    thread.start()
    assert [target.id for target in transport.inventory().targets] == ["n0", "n1"]
    events = answers(transport, ["n0", "n1"])
    assert [one.result for one in events if isinstance(one, Reply)] == [{}, {}]
    while thread.is_alive():
        assert [one.result for one in transport.call({"n0": FACTS})] == [{}]
    assert late[0].startswith(f"not let in: {HERE} port {port}: it called late, or beside as many")
    assert [note.partition(":")[0] for note in transport.notes] == ["n2"]
    transport.close()


@pytest.mark.process
def test_listed_nodes_are_found_by_name_or_address_and_others_stay_outside() -> None:
    port, late = free_port(), []
    transport = MeetTransport(Limits(node_budget_s=30), at(port, tasks=0))

    def tasks() -> None:
        listening(port)
        some = [called(port, f"-/{__version__}/{node}") for node in ("n1.cluster", "gpu5")]
        for one in some:
            threading.Thread(target=spoken, args=(one,)).start()
        late.append(attended("n7", port))

    thread = threading.Thread(target=tasks)
    thread.start()
    events = answers(transport, [HERE, "n1"])
    assert {one.node: one.session.outcome for one in events if isinstance(one, SessionEvent)} == {
        HERE: Login.OK, "n1": Login.OK,
    }  # fmt: skip
    while thread.is_alive():
        list(transport.call({"n1": FACTS}))
    assert late[0].startswith("not let in")
    transport.close()


@pytest.mark.process
def test_a_node_whose_name_stands_for_something_else_is_told_apart() -> None:
    port = free_port()
    transport = MeetTransport(Limits(node_budget_s=30), at(port, tasks=1))

    def task() -> None:
        listening(port)
        with contextlib.suppress(ConnectionResetError):  # it is never asked anything
            spoken(called(port, f"0/{__version__}/control"))

    thread = threading.Thread(target=task)
    thread.start()
    (target,) = transport.inventory().targets
    assert (target.id, target.host) == ("control:22", "control")
    transport.close()
    thread.join()


@pytest.mark.process
def test_a_task_that_was_never_asked_anything_says_so() -> None:
    port, said = free_port(), []
    transport = MeetTransport(Limits(), at(port, tasks=2, wait_s=3.0))

    def task() -> None:
        listening(port)
        said.append(attended("n0", port, within_s=0.1))

    thread = threading.Thread(target=task)
    thread.start()
    transport.inventory()
    transport.close()
    thread.join(30)
    assert said == [in_vain("netdoctor scan --meet ended before it asked anything")]


@pytest.mark.process
def test_a_silent_stranger_at_another_address_holds_up_no_task() -> None:
    port, silent = free_port(), socket.create_server((HERE, 0))
    listener = calls.Listener(1, [HERE], range(port, port + 1), KEY)
    places = [[HERE, silent.getsockname()[1]], [HERE, port]]
    tried: dict[str, str] = {}
    found: list[dial_back.Stream | None] = []
    thread = threading.Thread(target=lambda: found.append(dial_back.connect(places, "n0", KEY, 60.0, tried)))
    began = time.monotonic()
    thread.start()
    while thread.is_alive():
        list(listener.events(0.1))
    assert time.monotonic() - began < 30
    (one,) = found
    assert one is not None
    assert one.connection.getpeername()[1] == port
    one.connection.close()
    silent.close()
    listener.close()


@pytest.mark.thorough
def test_work_grows_with_the_tasks_and_no_faster() -> None:
    """Let in, seated, asked and answered; one of ten calls twice, one of ten is gone again."""

    def work(count: int) -> int:
        port = free_port()
        transport = MeetTransport(Limits(node_budget_s=120), at(port, count))

        def task(rank: int) -> None:
            one = called(port, f"{rank}/{__version__}/n{rank}")
            if rank % 10 == 3:
                with pytest.raises(dial_back.NotLetIn):
                    called(port, f"{rank + count}/{__version__}/n{rank}")
            if rank % 10 == 7:
                one.connection.close()
            else:
                spoken(one)

        def tasks() -> None:
            listening(port)
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(task, range(count)))

        thread = threading.Thread(target=tasks)
        thread.start()

        def judged() -> None:
            nodes = [target.id for target in transport.inventory().targets]
            replies = [one for one in answers(transport, nodes) if isinstance(one, Reply)]
            assert sum(one.result == {} for one in replies) == count * 9 // 10
            transport.close()

        counted = steps(judged)
        thread.join(30)
        return counted

    work(10)
    few, many = work(30), work(240)
    # What is done once weighs less with more tasks: below 1 unless something looks at tasks for each task.
    assert many / 240 < 1.01 * few / 30, f"30 tasks {few} steps, 240 tasks {many}"


@pytest.mark.process
def test_who_does_not_call_is_named_and_a_task_that_nobody_takes_says_so(tmp_path: Path) -> None:
    port = free_port()
    options = MeetOptions(
        rendezvous=meeting.Rendezvous(folder=tmp_path / "meet"),
        key=None,
        tasks=2,
        wait_s=0.1,
        invite=rooms.invite,
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
    assert attended("n1", port, within_s=0.1) == in_vain(f"nothing answers at {HERE} port {port}")
    (lost,) = transport.call({"absent1": Request(op="clock")})
    assert lost.missing is not None
    assert lost.missing.why is Why.LOST


def test_the_file_in_the_folder_is_our_own_or_nothing_is_done_by_it(tmp_path: Path) -> None:
    folder, spots = tmp_path / "meet", [(HERE, 1), ("fd00::1", 4001)]
    assert rooms.invited(folder) is None
    first = rooms.invite(folder, spots, KEY)
    path = folder / rooms.NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert rooms.invited(folder) == (spots, KEY)
    good = path.read_bytes()
    other = {b"meet/1": b"meet/2", b"4001": b"70000", HERE.encode(): b"$(a)", KEY.encode(): b"00"}
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
    # Where somebody waits nobody else does.
    listener = calls.Listener(1, [HERE], None, KEY)
    ours = [(str(host), int(port)) for host, port in listener.endpoints]
    rooms.invite(folder, ours, KEY)
    thread = threading.Thread(target=lambda: [list(listener.events(0.1)) for _ in range(10)])
    thread.start()
    with pytest.raises(InputError, match="another netdoctor scan waits there"):
        rooms.invite(folder, spots[:1], OTHER)
    thread.join()
    assert not listener.others
    assert rooms.invited(folder) == (ours, KEY)
    listener.close()
    path.write_bytes(good)
    # One that was killed is followed by a later one, of which it takes nothing away.
    later = rooms.invite(folder, spots[:1], OTHER)
    first.withdraw()
    assert rooms.invited(folder) == (spots[:1], OTHER)
    with pytest.raises(InputError, match="another netdoctor scan has taken the folder meanwhile"):
        first.check()
    later.check()
    later.withdraw()
    later.check()
    assert os.listdir(folder) == []
    path.symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="symbolic"):
        rooms.invited(folder)


@pytest.mark.parametrize("hops", [1, 2])
def test_a_link_in_the_folder_is_replaced_and_not_followed(hops: int, tmp_path: Path) -> None:
    """Whoever can write there knows the name beforehand; the secret is for nobody's file but its own."""
    folder, victim = tmp_path / "meet", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    (tmp_path / "hop").symlink_to(victim)
    path = folder / rooms.NAME
    path.symlink_to(victim if hops == 1 else tmp_path / "hop")
    standing = rooms.invite(folder, [(HERE, 1)], KEY)
    assert victim.read_text() == "mine"
    assert not path.is_symlink()
    path.unlink()
    victim.write_bytes(standing.content)
    path.symlink_to(victim)
    standing.withdraw()
    assert path.is_symlink()


@pytest.mark.parametrize("trouble", [SystemExit(143), OSError("full"), None])
def test_what_ends_a_scan_as_it_leaves_its_file_takes_the_file_away(
    trouble: BaseException | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(folder: Path, name: str, data: bytes) -> None:
        path = folder / name
        write_whole(path, data)
        if trouble is not None:
            raise trouble
        path.chmod(0o644)  # as some shared folders have it

    monkeypatch.setattr(rooms, "write_into", ended)
    with pytest.raises((SystemExit, InputError)):
        rooms.invite(tmp_path, [(HERE, 1)], KEY)
    assert os.listdir(tmp_path) == []


@pytest.mark.process
def test_of_two_scans_that_begin_at_one_moment_in_a_folder_one_goes_on(tmp_path: Path) -> None:
    """Neither had seen the other's file; whose tasks come would be a matter of luck."""
    place = meeting.Rendezvous(folder=tmp_path)
    options = MeetOptions(rendezvous=place, key=None, tasks=1, wait_s=20.0, invite=blindly)
    scans = [MeetTransport(Limits(), options) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(scan.inventory) for scan in scans]
        lost = next(one for one in as_completed(waiting, timeout=15) if one.exception() is not None)
        assert "another netdoctor scan has taken the folder meanwhile" in str(lost.exception())
        request = ScanRequest(timeout=0.0, environ=dict(os.environ))
        why = rooms.attend("n1", Task(rank=0), rendezvous=place, key=None, request=request)
        assert why.startswith("nobody took this task")
        for scan in scans:
            scan.interrupt(KeyboardInterrupt())
    assert os.listdir(tmp_path) == []


def blindly(folder: Path, spots: Sequence[tuple[str, int]], key: str) -> rooms.Standing:
    """As an invitation by somebody who has looked whether one is there a moment before."""
    content = msgspec.json.encode({"schema": rooms.SCHEMA, "places": list(spots), "secret": key})
    write_whole(folder / rooms.NAME, content)
    return rooms.Standing(folder, content)


@pytest.mark.process
def test_the_time_for_the_whole_run_bounds_the_wait_for_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(meeting.SECRET, SECRET)
    line = f"scan --meet {HERE}:{free_port()} --tasks 2 --deadline 0.3 --timeout 500 --no-save -o short"
    assert cli.run(line.split()) == 3
    assert "waits at most 0.3 s for 2 tasks" in capsys.readouterr().err


@pytest.mark.process
def test_the_screens_say_whom_they_wait_for_and_the_wait_can_be_stopped() -> None:
    environ = {meeting.SECRET: SECRET}
    place = f"{HERE}:{free_port()}"
    request = ScanRequest(via=MEET, meet=place, tasks=2, timeout=0.1, only=("meet.task",), environ=environ)
    request = replace(request, save=None)
    plan = prepare(request)
    report = assemble(plan, plan.scan().run(plan.transport), 1.0)
    runner = ScanRunner(replace(request, timeout=600), {"environ": environ, "timeout": 600, "save": None})
    runner.begin(runs.Request(), report)
    finish = time.monotonic() + 30
    while not (began := [one for one in runner.events.copy() if isinstance(one, Began)]):
        assert time.monotonic() < finish
    assert f"for 2 tasks of the job: netdoctor facts --meet {place}" in began[0].text
    state = fold(opened(report), [began[0]])
    assert (state.scanning, state.message) == (True, began[0].text)
    while not (ended := [one for one in runner.events.copy() if isinstance(one, Failed)]):
        runner.stop()
        time.sleep(0.05)
        assert time.monotonic() < finish, runner.events
    assert ended[0].text == "stopped: nobody was asked anything"
    runner.close()


def test_places_secrets_and_names() -> None:
    table: dict[str, Any] = {
        "29900": meeting.Rendezvous(port=29900),
        "head:29900": meeting.Rendezvous(host="head", port=29900),
        "[fd00::1]:80": meeting.Rendezvous(host="fd00::1", port=80),
        "/shared/meet": meeting.Rendezvous(folder=Path("/shared/meet")),
        "meet": meeting.Rendezvous(folder=Path("meet")),
        "./a:80": meeting.Rendezvous(folder=Path("./a:80")),
    }
    assert {text: meeting.parse_rendezvous(text) for text in table} == table
    for wrong in ("", "0", "70000", "-oProxyCommand=x:80", "a b:80", "$(x):80"):
        with pytest.raises(InputError, match="--meet"):
            meeting.parse_rendezvous(wrong)
    assert meeting.secret({}, None) is None
    for short in ("x", "x" * 15, " " * 20 + "x"):
        with pytest.raises(InputError, match="16 characters"):
            meeting.secret({meeting.SECRET: short}, None)
    assert KEY != OTHER
    assert meeting.read_claim(meeting.claim(3, "gpu03.a")) == (3, __version__, "gpu03.a")
    assert meeting.read_claim(meeting.claim(None, "fe80::1%eth0")) == (None, __version__, "fe80::1%eth0")
    for text in ("n1", "1/0.1.0/-x", "x/0.1.0/n1", "1/0.1.0/a/b", "1/0.1.0/", "9999999999/1/n1"):
        assert meeting.read_claim(text) == (None, "", ""), text


def test_a_secret_that_is_soon_guessed_is_refused() -> None:
    """Whoever may connect gets an HMAC of it, to try guesses at."""
    weak = {
        "fewer than 6": ("x" * 16, "abababababababab", "1110001011101000"),
        "repeats itself": ("passwordpassword", "Kq7#bM2:Kq7#bM2:", "0123456701234567"),
        "common words": (
            "netdoctor-secret-1", "0123456789abcdef", "MyCluster2024!!!", "qwertyuiopasdfghjkl",
            "correct horse battery staple", "training-gpu-cluster-2026",
        ),
    }  # fmt: skip
    for why, texts in weak.items():
        for text in texts:
            with pytest.raises(InputError, match=f"{why}.*openssl rand -hex 16"):
                meeting.secret({meeting.SECRET: text}, None)
    dice = random.Random(1)
    for size, letters in (
        (32, "0123456789abcdef"),
        (16, string.ascii_lowercase),
        (24, string.printable[:62]),
    ):
        for _ in range(500):
            assert meeting.secret({meeting.SECRET: "".join(dice.choices(letters, k=size))}, None)


def test_a_secret_that_others_know_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, link = tmp_path / "secret", tmp_path / "link"
    file.write_text(f"{SECRET}\n")
    link.symlink_to(file)
    file.chmod(0o600)
    assert meeting.secret({}, file) == meeting.secret({}, link) == KEY
    for mode in (0o644, 0o640, 0o622):
        file.chmod(mode)
        assert cli.run(["facts", "--meet", f"{HERE}:1", "--secret-file", str(file)]) == 2
        err = capsys.readouterr().err
        assert (
            f"--secret-file {file}: others may read it or write to it (mode {mode:o}): chmod 600 {file}"
            in err
        )
        assert SECRET not in err
    file.chmod(0o600)
    for theirs in (file, link):
        with strangers(monkeypatch, theirs), pytest.raises(InputError, match="belongs to uid 4321"):
            meeting.secret({}, link)


def test_mistakes_are_told_before_anybody_is_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(meeting.SECRET, raising=False)
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "short").chmod(0o600)
    for line, said in {
        "facts --meet 29900": "asks for the secret",
        "facts --meet head:29900": "asks for the secret",
        "facts --meet head:29900 --secret-file short": "16 characters",
        "facts --meet head:29900 --secret-file none": "No such file",
        "facts --meet meet --name=-x": "--name says what this node is called",
        "scan --meet 29900 --tasks 2": "asks for a secret",
        "scan --meet meet": "say how many tasks there are",
        "scan --tasks 2": "--tasks goes with --meet",
        "scan --meet meet --tasks 0": "'0' is not a number of nodes; write 1 to 100000",
        "scan --meet meet --tasks 2 --via slurm": "leave --via",
        "scan --meet meet --tasks 2 --local": "leave --via",
        "scan --meet meet --tasks 2 --plan": "--plan contacts nobody",
        "gate --meet meet --tasks 2 --exclude-bad -- true": "tasks connect only once",
    }.items():
        assert cli.run(line.split()) == 2, line
        out, err = capsys.readouterr()
        assert not out, line
        assert said in err, line
        assert "waits at most" not in err, line
    assert not (tmp_path / "meet").exists()


@pytest.mark.process
def test_who_waits_says_for_whom_and_leaves_nothing_when_it_is_ended(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "netdoctor", "scan", "--meet", "meet", "--tasks", "2"]
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        while not (tmp_path / "meet" / rooms.NAME).exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.stderr is not None
        with process.stderr:
            said = process.stderr.read()
        assert process.wait(30) == 128 + number, said
        assert said == (
            "netdoctor: waits at most 30 s for 2 tasks of the job: "
            f"netdoctor facts --meet {tmp_path / 'meet'}\n"
        )
        assert os.listdir(tmp_path / "meet") == []


@pytest.mark.process
def test_what_a_report_says_to_type_looks_at_whoever_calls_then(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(meeting.SECRET, SECRET)
    port = free_port()
    thread = begun("n0", port)
    scan = ["scan", "--meet", f"{HERE}:{port}", "--tasks", "2", "--timeout", "5", "--only", "meet.task"]
    assert cli.run([*scan, "-o", "json"]) == 3
    thread.join(30)
    report = json.loads(capsys.readouterr().out)
    assert report["matrix"]["nodes"] == ["n0", "absent1"]
    (cause,) = report["causes"]
    assert cause["verify"]["shell"] == "netdoctor scan --last --only meet.task"
    assert cli.run(["scan", "--last", "--only", "meet.task", "--timeout", "0.5", "-o", "json"]) == 3
    out, err = capsys.readouterr()
    assert f"for 2 tasks of the job: netdoctor facts --meet {HERE}:{port}" in err
    assert json.loads(out)["matrix"]["nodes"] == ["absent1", "absent2"]


@pytest.mark.process
def test_the_screens_show_who_has_called() -> None:
    """Tasks call once: what was waited for before the screens is not waited for again."""
    port = free_port()
    thread = begun("n0", port)
    request = ScanRequest(
        via=MEET, meet=f"{HERE}:{port}", tasks=1, only=("meet.task",), save=None,
        environ={meeting.SECRET: SECRET},
    )  # fmt: skip
    runner = ScanRunner(request, {}, None, prepare(request))
    runner.begin(runs.Request(), None)
    thread.join(30)
    finish = time.monotonic() + 30
    while not (ended := [one for one in runner.events.copy() if isinstance(one, Ended)]):
        assert time.monotonic() < finish, runner.events
        time.sleep(0.05)
    assert ended[0].report.matrix.nodes == ("n0",)
    assert ended[0].report.verdict.state == "partial_pass"
