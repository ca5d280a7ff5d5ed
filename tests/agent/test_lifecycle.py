"""An agent outlives nobody, whatever ends it, and what comes in cannot confuse it."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent import runtime, wire
from netdoctor.agent.operations import facts as collect
from netdoctor.transport import bundle
from tests.agent import harness
from tests.agent.test_bootstrap import SUPPORTED, python_or_skip

TOKEN = "0123456789abcdef"

# A collector that leaves a child which ignores everything but SIGKILL, and hangs.
STUBBORN = """
import sys
import threading
from ndagent import runtime
def collect(args):
    child = "import signal,time,os;signal.signal(15,1);signal.signal(1,1);"
    child += "open(%r,'w').write(str(os.getpid()));time.sleep(60)" % args["pid_file"]
    runtime.run_tool([sys.executable, "-c", child], 60)
    return {}
"""

# The same on a machine so busy that the child runs before whoever started it goes on.
STARTING = STUBBORN.replace(
    "def collect(args):",
    """
import os
import subprocess
import time
class Late(subprocess.Popen):
    def __init__(self, argv, **more):
        super().__init__(argv, **more)
        while not os.path.exists(pid_file):
            time.sleep(0.01)
        time.sleep(0.5)
def collect(args):
    global pid_file
    pid_file = args["pid_file"]
    subprocess.Popen = Late
""".strip(),
)


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Say whether a process ends in time; a zombie has ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.02)
    return False


def wait_for(path: Path) -> int:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"no {path}")


@pytest.mark.parametrize("end", ["eof", "deadline", "TERM", "HUP", "reader gone"])
@pytest.mark.parametrize("version", ["3.6", "3.11", "3.13"])
def test_every_end_leaves_nothing(end: str, version: str, tmp_path: Path) -> None:
    python = python_or_skip(version)
    deadline = 2.0 if end == "deadline" else 60.0
    with harness.agent(python, deadline_s=deadline, collectors={"stubborn": STUBBORN}) as agent:
        (row,) = agent.request(
            "listen",
            {
                "listeners": [{"address": "127.0.0.1", "port": 0, "purpose": "x"}],
                "token": TOKEN,
                "ttl_s": 60,
            },
        )
        pid_file = tmp_path / "pid"
        agent.start("facts", {"groups": {"stubborn": {"pid_file": str(pid_file)}}})
        child = wait_for(pid_file)
        assert agent.process.stdin
        assert agent.process.stdout
        if end == "eof":
            agent.process.stdin.close()
        elif end == "reader gone":
            agent.process.stdout.close()
            agent.start("ping")
        elif end != "deadline":
            agent.process.send_signal(getattr(signal, f"SIG{end}"))
        assert agent.process.wait(5) is not None
        assert gone(child)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", row["port"]), 1)


@pytest.mark.parametrize("version", ["3.6", "3.13"])
def test_a_child_that_is_just_being_started_ends_with_the_agent(version: str, tmp_path: Path) -> None:
    with harness.agent(python_or_skip(version), collectors={"starting": STARTING}) as agent:
        pid_file = tmp_path / "pid"
        agent.start("facts", {"groups": {"starting": {"pid_file": str(pid_file)}}})
        child = wait_for(pid_file)
        agent.process.send_signal(signal.SIGHUP)
        assert agent.process.wait(5) == 128 + signal.SIGHUP
        assert gone(child)


def test_deadline_holds_when_nobody_reads_the_reply() -> None:
    # A frozen control host: the pipe is full and the agent blocks in write().
    flood = "def collect(args): return {'x': 'y' * 4000000}"
    with harness.agent(deadline_s=1.5, collectors={"flood": flood}) as agent:
        agent.start("facts", {"groups": {"flood": {}}})
        assert agent.process.wait(6) is not None


def test_deadline_holds_against_code_that_keeps_the_interpreter() -> None:
    # One C call that never lets another Python thread run; only the kernel's timer is left.
    hog = "import re\ndef collect(args): re.match('(a+)+$', 'a' * 60 + 'b'); return {}"
    with harness.agent(deadline_s=1.0, collectors={"hog": hog}) as agent:
        agent.start("facts", {"groups": {"hog": {}}})
        assert agent.process.wait(8) is not None


def test_stray_output_does_not_touch_frames() -> None:
    noisy = (
        "import os, sys\n"
        "def collect(args):\n"
        "    print('\\x1et35tm4rk3r 5\\n12345'); sys.stdout.flush(); os.write(1, b'stray'); return {}"
    )
    with harness.agent(collectors={"noisy": noisy}) as agent:
        assert agent.facts(noisy={})["noisy"] == {"value": {}}
        agent.request("ping")
        assert agent.noise == b""
        assert "stray" in agent.stderr()


@pytest.mark.parametrize(
    ("source", "why", "detail"),
    [
        ("raise ValueError('no good')", "failed", "ValueError: no good"),
        ("def collect(args): 1/0", "failed", "ZeroDivisionError: division by zero"),
        ("def collect(args): raise SystemExit(3)", "failed", "SystemExit: 3"),
        ("def collect(args): raise PermissionError(13, 'x')", "no_permission", "PermissionError"),
        ("def collect(args): return 5", "failed", "no object"),
        ("def def", "failed", "SyntaxError"),
        ("def collect(args):\n import time; time.sleep(9)", "timed_out", "within 1 s"),
        ("x = 1", "failed", "collect"),
    ],
)  # fmt: skip
def test_broken_collector_costs_its_own_group(source: str, why: str, detail: str) -> None:
    with harness.agent(collectors={"mine": source}) as agent:
        reply = agent.request("facts", {"groups": {"mine": {}, "env": {}}, "timeout_s": 1})
    missing = reply["mine"]["missing"]
    assert missing["why"] == why
    assert detail in missing["detail"]
    assert "Traceback" not in missing["detail"]
    assert "value" in reply["env"]
    assert set(reply["timings_ms"]) == {"mine", "env"}


def test_groups_that_wait_hold_up_no_other_and_the_rest_share_threads() -> None:
    tells = "from _thread import get_ident\ndef collect(args): return {'thread': get_ident()}"
    waits = tells.replace("return", "__import__('time').sleep(0.5); return")
    hangs = tells.replace("return", "__import__('time').sleep(9); return")
    names = [f"quick{i}" for i in range(20)]
    sources = {**dict.fromkeys(names, tells), **dict.fromkeys(["wait0", "wait1"], waits), "hang": hangs}
    order = ["hang", "wait0", *names[:10], "wait1", *names[10:]]
    with harness.agent(collectors=sources) as agent:
        began = time.monotonic()
        reply = agent.request("facts", {"groups": {name: {} for name in order}, "timeout_s": 1})
        took = time.monotonic() - began
    assert "within 1 s" in reply.pop("hang")["missing"]["detail"]
    timings = reply.pop("timings_ms")
    assert list(timings) == order
    threads = {name: one["value"]["thread"] for name, one in reply.items()}
    assert len(set(threads.values())) < len(threads)
    assert threads["wait0"] != threads["quick0"]
    assert took < 5  # that which hangs takes nine


@pytest.mark.parametrize(
    ("said", "looks"),
    [
        ([(True, 1.0)] * 10 + [(False, 1.0)], 11),  # given no processor, then it waits for something else
        ([(True, 1.0 + i / 100) for i in range(20)], 6),  # computes all the time
        ([(False, 0.0)], 1),  # waits, or the kernel does not say
    ],
)
def test_a_group_without_a_processor_keeps_the_agent(
    said: list[tuple[bool, float]], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy node, on which everything takes long, starts a thread for each group on top."""
    started: list[object] = []
    left = iter(said)
    waits = []

    def wait(job: runtime.Work, end: float) -> bool:
        waits.append(end)
        mine.thread = "/proc/1/task/2" if len(waits) > 5 else None
        return False

    mine, last = collect._Job("mine", {}), collect._Job("last", {})
    monkeypatch.setattr(runtime, "thread", started.append)
    monkeypatch.setattr(collect, "standing", lambda thread: next(left))
    monkeypatch.setattr(runtime, "join_until", wait)
    collect._run([mine, last])
    assert len(started) == 2
    assert len(waits) == 5 + looks


def test_the_kernel_says_whether_a_thread_computes(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"7 (a ) R (b) R 1 7 7 0 -1 4194368 88 0 0 0 {ticks} {2 * ticks} 0 0 30 10 1 0 5"
    (tmp_path / "stat").write_text(stat)
    assert collect.standing(str(tmp_path)) == (True, 3.0)
    (tmp_path / "stat").write_text(stat.replace(") R 1", ") S 1"))
    assert collect.standing(str(tmp_path)) == (False, 3.0)
    assert collect.standing(str(tmp_path / "absent")) == (False, 0.0)
    assert collect.standing(f"/proc/{os.readlink('/proc/thread-self')}")[0]


def test_what_waits_for_the_control_host_goes_on_when_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without looking again and again: nodes wait for seconds where the control host is busy."""
    looked = []

    def came() -> bool:
        looked.append(runtime._provided.get("psutil") is not None)
        return looked[-1]

    def ask(message: dict[str, Any]) -> None:
        asked.append(message)
        for delay_s, name in ((0.1, "other"), (0.3, "psutil")):
            threading.Timer(delay_s, runtime.provide, [{"provide": name}]).start()

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(runtime, "_provided", {})
    monkeypatch.setattr(runtime._state, "ask", ask)
    monkeypatch.setattr(runtime.scope, "request", 7, raising=False)
    assert runtime._await("psutil", came, 10.0)
    assert asked == [{"id": 7, "need": "psutil"}]
    assert len(looked) <= 4
    assert not runtime._awaiting
    assert not runtime._await("x", lambda: False, 0.0)


def test_collector_may_say_why_it_has_nothing() -> None:
    source = "class No(Exception): why = 'not_applicable'\ndef collect(args): raise No('no such hardware')"
    with harness.agent(collectors={"mine": source}) as agent:
        missing = agent.facts(mine={})["mine"]["missing"]
    assert missing == {"why": "not_applicable", "detail": "No: no such hardware"}


def test_unknown_group_and_operation() -> None:
    with harness.agent() as agent:
        assert agent.facts(nope={})["nope"]["missing"]["why"] == "not_collected"
        reply = agent.finish(agent.start("rm -rf"))
        assert (reply["ok"], reply["why"]) == (False, "not_collected")


def test_ping_is_answered_while_work_runs() -> None:
    slow = "import time\ndef collect(args): time.sleep(2); return {}"
    with harness.agent(collectors={"slow": slow}) as agent:
        number = agent.start("facts", {"groups": {"slow": {}}})
        ping = agent.request("ping")
        assert number not in agent.replies, "answered before, and not after it"
        assert abs(ping["send_s"] - time.time()) < 5
        assert agent.finish(number)["ok"]


def test_reply_over_the_cap_is_an_error() -> None:
    flood = "def collect(args): return {'x': 'y' * (9 << 20)}"
    with harness.agent(collectors={"flood": flood}) as agent:
        reply = agent.finish(agent.start("facts", {"groups": {"flood": {}}}))
        assert reply["ok"] is False
        assert "over the limit" in reply["detail"]
        agent.request("ping")


def test_unjsonable_values_become_strict_json() -> None:
    odd = (
        "def collect(args): return {'nan': float('nan'), 'inf': [float('-inf')], 'lone': '\\udc80x',\n"
        "  3: b'\\xff', 'set': {1}, 'emoji': '\\U0001f600', 'obj': object}"
    )
    with harness.agent(collectors={"odd": odd}) as agent:
        value = agent.facts(odd={})["odd"]["value"]
    assert value["nan"] is None
    assert value["inf"] == [None]
    assert value["lone"] == "\ufffdx"
    assert value["3"] == "\ufffd"
    assert value["emoji"] == "\U0001f600"


def test_memory_cap_is_met_as_an_error() -> None:
    greedy = "def collect(args): x = bytearray(700 << 20); return {}"
    with harness.agent(collectors={"greedy": greedy}) as agent:
        assert "MemoryError" in agent.facts(greedy={})["greedy"]["missing"]["detail"]


def test_limits_are_those_of_the_session() -> None:
    import resource

    with harness.agent() as agent:
        value = agent.facts(limits={})["limits"]["value"]
        status = Path(f"/proc/{agent.process.pid}/limits").read_text()
        nice = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()[16]
    assert value["nofile_soft"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert re.search(r"^Max core file size +0 ", status, re.M)
    assert int(nice) >= 10


@pytest.mark.parametrize(
    "data",
    [
        b"zzzzzzzz\n{}",
        b"00000002 {}",
        b"ffffffff\n",
        b"00000003\n{x}",
        b"00000002\n[]",
        b"00000004\n\xff\xfe\xfd\xfc",
        b"0x000002\n{}",
    ],
)
def test_bad_frame_ends_the_agent_with_a_reason(data: bytes) -> None:
    with harness.agent() as agent:
        agent.send_raw(data)
        reply = agent.read()
        assert reply["ok"] is False
        assert agent.process.wait(5) in (65, 70)


@pytest.mark.parametrize(
    "request_", [{"op": 5}, {"op": None}, {}, {"op": "facts", "args": []}, {"op": "facts"}]
)
def test_odd_request_gets_an_error(request_: dict[str, object]) -> None:
    with harness.agent() as agent:
        agent.send_raw(bundle.request_frame({"id": 7, **request_}))
        assert agent.finish(7)["ok"] is False
        agent.request("ping")


def test_cut_and_mutated_input_never_hangs() -> None:
    packed = bundle.build_bundle(marker=harness.MARKER, deadline_s=10, collectors={})
    whole = packed + bundle.request_frame({"id": 1, "op": "ping"})
    dice = random.Random(2)
    for _ in range(12):
        data = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.5 else whole)
        if data and dice.random() < 0.7:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        done = subprocess.run(
            bundle.argv(sys.executable, harness.MARKER),
            input=bytes(data),
            capture_output=True,
            timeout=15,
            check=False,
        )
        assert done.returncode is not None


def test_clean_keeps_what_json_can_carry() -> None:
    value = {"a": [1, 2.5, None, True, "x"]}
    assert wire.clean(value) == value
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    assert wire.encode(nested)


def test_closed_stdin_ends_at_once() -> None:
    done = subprocess.run(
        bundle.argv(sys.executable, "m"), input=b"", capture_output=True, timeout=5,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.interpreters
@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("name", ["psutil", "pynvml"])
def test_library_from_control_host_works(version: str, name: str) -> None:
    source = (
        "from ndagent import runtime\n"
        "def collect(args):\n"
        "    m = runtime.library(args['name'])\n"
        "    if m is None: return {'got': None}\n"
        "    if args['name'] == 'psutil':\n"
        "        return {'got': m.__version__, 'pid': m.Process().pid, 'file': m.__file__}\n"
        "    try: m.nvmlInit()\n"
        "    except m.NVMLError as e: return {'got': str(e), 'file': m.__file__}\n"
    )
    python = python_or_skip(version)
    with harness.agent(python, collectors={"lib": source}, provide=True) as agent:
        value = agent.facts(lib={"name": name})["lib"]["value"]
        fds = {
            os.readlink(f"/proc/{agent.process.pid}/fd/{fd}")
            for fd in os.listdir(f"/proc/{agent.process.pid}/fd")
        }
    if agent.needs:
        assert value["file"].startswith("<provided>")
    assert value["got"]
    assert not [fd for fd in fds if "memfd" in fd]


def test_library_refused_falls_back(tmp_path: Path) -> None:
    source = "from ndagent import runtime\ndef collect(a): return {'got': runtime.library('psutil')}"
    with harness.agent(harness.empty_environment(tmp_path), collectors={"lib": source}) as agent:
        assert agent.facts(lib={})["lib"]["value"] == {"got": None}
        assert agent.needs == ["psutil"]
