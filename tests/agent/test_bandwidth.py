"""Streams, packet counting and ranks of real agents on loopback; these ranks run plain Python, not torch."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent.operations.spawn import environment
from netdoctor.agent.operations.stream import summary
from tests.agent import harness

TOKEN = "0123456789abcdef"
HERE = "127.0.0.1"


@pytest.fixture
def agent() -> Iterator[harness.AgentProcess]:
    with harness.agent() as running:
        yield running


@pytest.fixture
def other() -> Iterator[harness.AgentProcess]:
    with harness.agent() as running:
        yield running


# --- streams --------------------------------------------------------------------------------------


def serve(agent: harness.AgentProcess, **args: Any) -> int:
    reply = agent.request("stream_serve", {"address": HERE, "token": TOKEN, "ttl_s": 30.0, **args})
    assert reply["error"] is None
    return int(reply["port"])


def stream(src: harness.AgentProcess, dst: harness.AgentProcess, port: int, **args: Any) -> tuple[Any, Any]:
    common = {"token": TOKEN, "session": "s1"}
    asked = {"address": HERE, "port": port, "streams": 2, "seconds": 0.6, "omit_s": 0.1, **common, **args}
    number = src.start("stream_send", asked)
    got = dst.request("stream_receive", {**common, "wait_s": 10.0})
    sent = src.finish(number)
    assert sent["ok"], sent
    return sent["result"], got


def test_both_ends_of_a_stream_agree(agent: harness.AgentProcess, other: harness.AgentProcess) -> None:
    sent, got = stream(agent, other, serve(other))
    assert sent["error"] is None
    assert got["error"] is None
    assert 0.4 < got["seconds"] < 1.6  # of 0.6 that were asked for, on a machine that may be busy
    assert 0 < got["bytes"] <= sent["bytes"]
    assert sent["segments"] > 0
    assert sent["retransmits"] >= 0
    assert 0 <= sent["busy"] <= 1.05
    assert len(got["rates"]) >= 3


def test_a_stream_needs_the_token(agent: harness.AgentProcess, other: harness.AgentProcess) -> None:
    port = serve(other)
    asked = {"address": HERE, "port": port, "token": "another-token", "session": "s1", "seconds": 0.2}
    reply = agent.finish(agent.start("stream_send", asked))
    assert not reply["ok"] or reply["result"]["error"]
    assert other.request("stream_receive", {"token": TOKEN, "session": "s1", "wait_s": 0.2})["error"]


@pytest.mark.parametrize(("streams", "word"), [(1, "did not end in time"), (2, "1 of 2 streams arrived")])
def test_what_kept_a_stream_from_being_counted(agent: harness.AgentProcess, streams: int, word: str) -> None:
    port = serve(agent)
    with socket.create_connection((HERE, port), 5) as one:
        one.sendall(f"{TOKEN} s1 {streams} 20 0\n".encode())
        got = agent.request("stream_receive", {"token": TOKEN, "session": "s1", "wait_s": 1.0})
    assert word in got["error"]


def test_a_stranger_is_sent_away(agent: harness.AgentProcess) -> None:
    with socket.create_connection((HERE, serve(agent)), timeout=5) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert s.recv(100) == b""


def test_never_on_the_wildcard_address(agent: harness.AgentProcess) -> None:
    reply = agent.request("stream_serve", {"address": "0.0.0.0", "token": TOKEN})
    assert "wildcard" in reply["error"]


def test_unlisten_closes_receivers(agent: harness.AgentProcess) -> None:
    port = serve(agent)
    assert agent.request("unlisten", {"token": TOKEN})["closed"] == 1
    with pytest.raises(OSError):  # noqa: PT011  refused, or reset when it comes in between
        socket.create_connection((HERE, port), timeout=1).recv(1)


def test_nobody_there_is_said(agent: harness.AgentProcess) -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
    reply = agent.request(
        "stream_send", {"address": HERE, "port": port, "token": TOKEN, "session": "s1", "seconds": 0.2}
    )
    assert reply["error"] == "ECONNREFUSED"


def test_rates_leave_the_start_out() -> None:
    samples = [(10.0, 0), (10.1, 500), (10.2, 600), (10.3, 700), (10.4, 800)]
    found = summary(samples, 10.0, 0.1)
    assert found["bytes"] == 300
    assert found["seconds"] == pytest.approx(0.3)
    assert [round(rate) for rate in found["rates"]] == [1000, 1000, 1000]
    assert summary([], None, 0.1)["bytes"] == 0


# --- packet loss ----------------------------------------------------------------------------------


def test_every_packet_is_counted(agent: harness.AgentProcess, other: harness.AgentProcess) -> None:
    echo = other.request("udp_echo", {"address": HERE, "token": TOKEN, "ttl_s": 20.0})
    targets = [{"dst": "b", "address": HERE, "port": echo["port"]}]
    (row,) = agent.request("udp_loss", {"targets": targets, "token": TOKEN, "packets": 50, "seconds": 0.2})
    assert (row["sent"], row["arrived"], row["answered"]) == (50, 50, 50)


def test_nobody_answers(agent: harness.AgentProcess) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((HERE, 0))
        targets = [{"dst": "b", "address": HERE, "port": silent.getsockname()[1]}]
        (row,) = agent.request("udp_loss", {"targets": targets, "token": TOKEN, "packets": 5, "seconds": 0.1})
    assert (row["sent"], row["arrived"], row["answered"]) == (5, 0, 0)


# --- ranks ----------------------------------------------------------------------------------------

TALKER = """
import json, os, resource, sys
def say(**what):
    print(json.dumps(what), flush=True)
say(event="env", names=sorted(os.environ), nice=os.nice(0), data=resource.getrlimit(resource.RLIMIT_DATA)[0],
    group=os.getpgid(0) == os.getpid(), config=CONFIG, end="ready")
for line in sys.stdin:
    step = json.loads(line)
    say(event="result", step=step["step"], end=step["step"])
"""


def spawn(agent: harness.AgentProcess, code: str = TALKER, ranks: int = 1, **args: Any) -> list[int]:
    configs = [{"rank": i} for i in range(ranks)]
    reply = agent.request("spawn", {"session": "s", "code": code, "ranks": configs, "seconds": 30, **args})
    return [row["pid"] for row in reply["ranks"]]


def converse(agent: harness.AgentProcess, until: str, say: Any = None, wait_s: float = 10.0) -> Any:
    return agent.request("converse", {"session": "s", "until": until, "say": say, "wait_s": wait_s})


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_a_rank_is_as_a_job_would_be() -> None:
    secret = {"HF_TOKEN": "t", "NCCL_AUTH_TOKEN": "t", "PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO"}
    with harness.agent(env=secret) as agent:
        spawn(agent, env={"GLOO_SOCKET_IFNAME": "lo", "EVIL": "1", "WANDB_API_KEY": "k"})
        (rank,) = converse(agent, "ready")["ranks"]
    (said,) = (e for e in rank["events"] if e["event"] == "env")
    assert {"PATH", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME"} <= set(said["names"])
    assert not {"HF_TOKEN", "NCCL_AUTH_TOKEN", "EVIL", "WANDB_API_KEY"} & set(said["names"])
    assert said["nice"] == os.nice(0)
    assert said["data"] != 512 << 20
    assert said["group"]
    assert said["config"] == {"rank": 0}


def test_ranks_are_led_step_by_step(agent: harness.AgentProcess) -> None:
    spawn(agent, ranks=3)
    assert converse(agent, "ready")["done"]
    reply = converse(agent, "7", {"do": "x", "step": 7})
    assert reply["done"]
    assert all(any(e.get("step") == 7 for e in r["events"]) for r in reply["ranks"])


def test_a_killed_rank_is_told_at_once(agent: harness.AgentProcess) -> None:
    first, second = spawn(agent, ranks=2)
    converse(agent, "ready")
    os.kill(second, signal.SIGKILL)
    started = time.monotonic()
    rows = converse(agent, "never")["ranks"]
    assert time.monotonic() - started < 3
    assert [row["running"] for row in rows] == [True, False]
    assert rows[1]["code"] == -signal.SIGKILL
    assert agent.request("stop", {"session": "s"})["killed"] == 1
    assert gone(first)


def test_a_stopped_rank_is_seen_as_stopped_and_killed(agent: harness.AgentProcess) -> None:
    (pid,) = spawn(agent)
    converse(agent, "ready")
    os.kill(pid, signal.SIGSTOP)
    (row,) = converse(agent, "never", wait_s=0.3)["ranks"]
    assert row["state"] == "T"
    agent.request("stop", {"session": "s"})
    assert gone(pid)


CHILD = (
    TALKER.replace("import json,", "import subprocess, json,")
    .replace("def say", "kid = subprocess.Popen(['sleep', '60'])\ndef say")
    .replace("nice=os.nice(0)", "nice=kid.pid")
)


def test_what_a_rank_started_goes_with_it(agent: harness.AgentProcess) -> None:
    (pid,) = spawn(agent, CHILD)
    (row,) = converse(agent, "ready")["ranks"]
    kid = next(e["nice"] for e in row["events"] if e["event"] == "env")
    agent.request("stop", {})
    assert gone(pid)
    assert gone(kid)


@pytest.mark.parametrize("how", ["eof", "kill"])
def test_ranks_die_with_the_agent(how: str) -> None:
    with harness.agent() as agent:
        pids = spawn(agent, ranks=2)
        converse(agent, "ready")
        os.kill(pids[0], signal.SIGSTOP)
        if how == "kill":
            agent.process.kill()
        else:
            assert agent.process.stdin is not None
            agent.process.stdin.close()
        assert all(gone(pid) for pid in pids)


def test_a_rank_ends_by_its_own_timer(agent: harness.AgentProcess) -> None:
    (pid,) = spawn(agent, "import time\nwhile True: time.sleep(1)", seconds=1.0)
    assert gone(pid)


def test_noise_and_nonsense_of_a_rank_are_survived(agent: harness.AgentProcess) -> None:
    noise = "import sys\nprint('hello')\nprint('[1]')\nprint('{\"event\": 1')\n"
    code = noise + "sys.stderr.write('x' * 100000)\nsys.exit(3)"
    spawn(agent, code)
    (row,) = converse(agent, "never")["ranks"]
    assert row["code"] == 3
    assert row["events"] == []
    assert len(row["stderr"]) <= 8192


def test_relative_paths_of_the_session_stay_where_they_were() -> None:
    assert environment({}, {"PYTHONPATH": "/abs"})["PYTHONPATH"] == "/abs"
    assert "SECRET_TOKEN" not in environment({"NCCL_SECRET_X": "1"}, {"SECRET_TOKEN": "1"})
