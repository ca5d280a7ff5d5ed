"""netdoctor's prediction of NCCL's interface, and its question on the nodes, against libnccl itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.oracle import nccl, spaces

CASES = 40
SEED = 20261


def test_agrees_with_libnccl_on_random_machines(libraries: list[nccl.Library]) -> None:
    tallies = nccl.run(libraries, SEED, CASES)
    assert tallies.keys() == {str(one) for one in libraries}
    for name, tally in tallies.items():
        assert not tally.differences, f"{name}: " + "\n".join(tally.differences[:3])
        assert tally.agree == CASES
        # The seed meets every rule that matters.
        assert {"NCCL_SOCKET_IFNAME", "NCCL_COMM_ID", "ib*"} <= tally.rules.keys()


def test_the_agent_asks_what_the_oracle_hears(libraries: list[nccl.Library]) -> None:
    """The address in the id, without a word of NCCL's, under the agent's memory limit."""
    one = libraries[-1]

    compared = 0
    for _, space, _, question in nccl.cases(SEED, 12):
        # What the agent's child inherits leaves out nothing that matters here.
        heard = space.run(lambda: nccl.ask(one.path), question.environ)
        answer = space.run(lambda: nccl.ask_as_the_agent(one.path), question.environ)
        assert answer["version"] == str(one)
        assert bool(answer["error"]) is (heard["said"] is None)
        assert "NCCL_COMM_ID" in question.environ or answer["error"] == (heard["error"] or None)
        if heard["said"] and not any(
            "NCCL_COMM_ID" in text for text in (*question.environ, *question.files.values())
        ):
            assert heard["said"].endswith(":" + answer["address"])
            compared += 1
    assert compared >= 3


def test_a_scan_says_what_nccl_itself_chose(libraries: list[nccl.Library]) -> None:
    one = libraries[-1]
    with spaces.space() as space:
        space.batch(
            ["link set lo up", "link add eth0 type veth peer name p0", "link set p0 up", "link set eth0 up",
             "addr add 10.1.0.9/24 dev eth0"]
        )  # fmt: skip

        def scan(profile: str) -> dict[str, Any]:
            root = Path(one.path).parents[3]
            argv = ["scan", "--local", "--only", "nccl.ifname", "--profile", profile, "-o", "json"]
            done = subprocess.run(
                [sys.executable, "-m", "netdoctor", *argv],
                env={**os.environ, "PYTHONPATH": f"{Path.cwd()}:{root}"},
                capture_output=True,
                text=True,
                cwd="/",
            )
            return dict(json.loads(done.stdout)) if done.stdout else {"stderr": done.stderr}

        home = str(Path(__file__).parents[2])

        def told(profile: str) -> str:
            os.chdir(home)
            report = scan(profile)
            return next(str(r["summary"]) for r in report["results"] if r["check"] == "nccl.ifname")

        environ = {"PATH": os.environ["PATH"], "HOME": "/root"}
        assert space.run(lambda: told("launch"), environ) == "NCCL itself chose eth0 (10.1.0.9)"
        assert "predicted" in space.run(lambda: told("quick"), environ)
