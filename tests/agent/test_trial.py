"""A job's processes on one node, under every Python that nodes have: started, heard, and ended for good."""

import base64
import os
import time
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.agent import harness

PYTHONS = harness.interpreters()
PROGRAMS = resources.files("netdoctor.agent.programs")
STAND_IN = Path(__file__).parents[1] / "trial" / "stand_in"
# Tests of several workers run at the same time.
TOKEN = f"t0123456789abcdef{os.getpid()}"
PORT = str(20000 + os.getpid() % 10000)


@pytest.fixture(params=sorted((v for v in PYTHONS if v.startswith("3.")), key=lambda v: int(v[2:])))
def agent(request: pytest.FixtureRequest) -> Iterator[tuple[str, harness.AgentProcess]]:
    python = PYTHONS[request.param]
    with harness.agent(python) as running:
        yield python, running


def start(agent: harness.AgentProcess, *runs: list[str], **more: Any) -> Any:
    args = {
        "session": TOKEN,
        "runs": [{"argv": argv, "env": {"RANK": str(rank)}} for rank, argv in enumerate(runs)],
        "env": {"WORLD_SIZE": str(len(runs)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT},
        "cwd": "/",
        "keeper": PROGRAMS.joinpath("keeper.py").read_text("utf-8"),
        "probe": PROGRAMS.joinpath("probe.py").read_text("utf-8"),
        "grace_s": 0.5,
    }
    return agent.request("trial", {**args, **more})


def followed(agent: harness.AgentProcess, until: Any, within_s: float = 20.0) -> dict[str, Any]:
    """Everything that was heard until it holds."""
    found: dict[str, Any] = {"text": b"", "events": [], "runs": []}
    end = time.monotonic() + within_s
    while not until(found):
        assert time.monotonic() < end, found
        answer = agent.request("trial_poll", {"session": TOKEN, "wait_s": 0.5})
        for output in answer["outputs"]:
            found["text"] += zlib.decompress(base64.b64decode(output["data"])) if output["data"] else b""
        found["events"] += answer["events"]
        found["runs"] = answer["runs"]
    return found


def no_process() -> bool:
    mark = f"NETDOCTOR_TRY={TOKEN}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if mark in Path("/proc", name, "environ").read_bytes():
                    return False
            except OSError:
                continue
    return True


def is_alone() -> bool:
    return no_process() and not Path(f"/tmp/netdoctor-try-{TOKEN}").exists()


@pytest.mark.interpreters
def test_ranks_say_how_far_they_are_and_are_ended(agent: tuple[str, harness.AgentProcess]) -> None:
    python, running = agent
    job = [python, str(STAND_IN / "job.py"), "daemon", "1", "joined"]
    start(running, job, job)

    def is_stepping(found: dict[str, Any]) -> bool:
        return {e["rank"] for e in found["events"] if e["what"] == "step"} == {0, 1}

    found = followed(running, is_stepping)
    joined = [(e["rank"], e["world"], e["backend"]) for e in found["events"] if e["what"] == "joined"]
    assert sorted(joined) == [(0, 2, "gloo"), (1, 2, "gloo")]
    stacks = running.request("trial_stacks", {"session": TOKEN})["stacks"]
    assert len(stacks) == 2
    assert all("job.py" in one["text"] for one in stacks)
    answer = running.request("trial_end", {"session": TOKEN})
    assert answer["over"]
    assert answer["swept"]["left"] == []
    assert is_alone()


@pytest.mark.interpreters
def test_it_ends_with_its_agent(agent: tuple[str, harness.AgentProcess]) -> None:
    python, running = agent
    start(running, [python, str(STAND_IN / "job.py"), "deaf", "0", "start"])
    followed(running, lambda found: any(e["what"] == "step" for e in found["events"]))
    running.process.kill()
    end = time.monotonic() + 15
    while time.monotonic() < end and not is_alone():
        time.sleep(0.1)
    assert is_alone()


def test_what_cannot_be_started_says_why() -> None:
    with harness.agent() as running:
        (run,) = start(running, ["nosuch-command"])["runs"]
        assert (run["state"], run["errno"], run["what"]) == ("failed", 2, "command")
        running.request("trial_end", {"session": TOKEN})
    assert is_alone()


def test_what_is_said_at_once_is_not_lost() -> None:
    with harness.agent() as running:
        start(running, ["sh", "-c", "echo first"])
        time.sleep(0.5)
        found = followed(running, lambda found: found["text"])
        assert found["text"] == b"first\n"
        running.request("trial_end", {"session": TOKEN})


def test_a_flood_is_counted_and_not_kept() -> None:
    with harness.agent() as running:
        start(running, ["sh", "-c", "yes | head -c 50000000; echo end"])
        time.sleep(2)
        left_out = 0
        while True:
            answer = running.request("trial_poll", {"session": TOKEN, "wait_s": 0.2})
            left_out += answer["outputs"][0]["left_out"]
            if not answer["more"] and answer["runs"][0]["state"] == "ended":
                break
        assert left_out > 40_000_000
        running.request("trial_end", {"session": TOKEN})


def test_the_job_has_the_limits_and_umask_of_the_login() -> None:
    with harness.agent() as running:
        start(running, ["sh", "-c", "umask; ulimit -d; kill -PIPE $$"])
        found = followed(running, lambda found: found["text"] and found["runs"][0]["state"] == "ended")
        umask, data = found["text"].decode().split()
        own = os.umask(0o022)
        os.umask(own)
        assert int(umask, 8) == own
        assert data == "unlimited"
        assert found["runs"][0]["code"] == -13  # which Python ignores, and a job has to die of
        running.request("trial_end", {"session": TOKEN})
