"""What Slurm's commands print, and what they are asked."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from netdoctor.facts.host import Login, Trouble
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
from netdoctor.transport.tasks import slurm
from netdoctor.transport.tasks import slurm_output as words
from netdoctor.transport.tasks.slurm_output import Row

# sinfo of 22.05.8, -N -o FORMAT; the reason of gpu3 has two lines and a bar, gpu4 is in two partitions.
SINFO = """\
gpu1|train*|10:00|idle|96|gpu:h100:8(S:0-1)|10.0.0.1|none
gpu2|train*|10:00|mixed-|96|gpu:4,nvme:2|gpu2|none
gpu3|train*|2-00:00:00|drained|96|(null)|gpu3|bad | dimm "B2"
second line
gpu4|debug|infinite|down*|64|(null)|gpu4|Not responding
gpu4|train*|12:00:00|down*|64|(null)|gpu4|Not responding
gpu5|train*|10:00|draining|64|(null)|gpu5|\x1b[31mred
|||
"""


def test_books() -> None:
    found = words.read_rows(SINFO)
    assert list(found) == ["gpu1", "gpu2", "gpu3", "gpu4", "gpu5"]
    assert found["gpu1"] == Row("idle", True, 96, 8, "10.0.0.1", "", 10)
    assert (found["gpu2"].state, found["gpu2"].gpus) == ("mixed", 4)
    assert found["gpu3"].text == 'drained: bad | dimm "B2"'
    assert found["gpu3"].minutes == 2 * 24 * 60
    assert (found["gpu4"].text, found["gpu4"].minutes) == ("down, not responding: Not responding", 720)
    assert "\x1b" not in found["gpu5"].reason
    assert words.read_rows("slurm_load_partitions: Unable to contact slurm controller\n") == {}


@pytest.mark.parametrize("ours", [True, False])
def test_where_a_task_may_start(ours: bool) -> None:
    found: dict[str, Row | None] = {**words.read_rows(SINFO), "gpu9": None}
    stands = {name: words.why_no_task(row, ours=ours) for name, row in found.items()}
    said = {name: why and why[0] for name, why in stands.items()}
    assert said == {
        "gpu1": None,
        "gpu2": None if ours else Login.BUSY,
        "gpu3": Login.DRAINED,
        "gpu4": Login.DOWN,
        "gpu5": None if ours else Login.DRAINED,  # a job that has it keeps it
        "gpu9": Login.NAME,
    }


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("salloc: Granted job allocation 42", ("granted", "42", (), ())),
        ("salloc: Pending job allocation 42", ("queued", "42", (), ())),
        ("srun: error: n2: task 1: Exited with exit code", ("exit", "Exited with exit code", ("n2",), (1,))),
        ("srun: error: n[1-2,4]: tasks 0-1,7: Killed", ("exit", "Killed", ("n1", "n2", "n4"), (0, 1, 7))),
        (
            "srun: error: Task launch for StepId=9.0 failed on node node3: Communication connection failure",
            ("launch", "Communication connection failure", ("node3",), ()),
        ),
        (
            "0: slurmstepd-n1: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-22T14:42 DUE TO TIME LIMIT ***",
            ("cancelled", "DUE TO TIME LIMIT", (), ()),
        ),
        ("2: slurmstepd-n3: error: execve(): /x", ("task", "slurmstepd-n3: error: execve(): /x", (), (2,))),
        (
            '1: netdoctor-task {"marker": "m", "node": "n2", "tried": {"10.0.0.1 port 40": "refused"}}',
            ("tried", "10.0.0.1 port 40: refused", ("n2",), ()),
        ),
        (
            "srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)",
            ("waits", "Requested nodes are busy", (), ()),
        ),
        (
            "srun: launching StepId=9.0 on host node2, 1 tasks: 2",
            ("launching", "9.0", ("node2",), (2,)),
        ),
        ("srun: launching 9.0 on host node2, 1 tasks: 2", ("launching", "9.0", ("node2",), (2,))),
        # What a task prints is never srun's own word.
        (
            "1: srun: launching StepId=8.0 on host n2, 1 tasks: 2",
            ("task", "srun: launching StepId=8.0 on host n2, 1 tasks: 2", (), (1,)),
        ),
        ("2: netdoctor-task on node2", ("runs", "", ("node2",), (2,))),
        ("2: netdoctor-task on node2;x", ("", "on node2;x", (), ())),
        ('1: netdoctor-task {"node": 7}', ("", '{"node": 7}', (), ())),
        (
            "salloc: error: Unable to allocate resources: Invalid partition",
            ("error", "Unable to allocate resources: Invalid partition", (), ()),
        ),
        ("srun: error: n[1-99999999]: tasks 0-9999999: Exit", ("exit", "Exit", (), tuple(range(100_001)))),
        ("", ("", "", (), ())),
    ],
)  # fmt: skip
def test_lines_of_srun(raw: str, line: tuple[str, str, tuple[str, ...], tuple[int, ...]]) -> None:
    assert words.line(raw) == words.Line(*line)


def test_what_is_asked_for_has_bounds_and_nothing_of_the_job_script() -> None:
    ask = words.Ask(nodes=("n1", "n2"), wait_s=30, minutes=5, partition="train", gpus=8)
    argv = ask.argv()
    assert {"--exclusive", "--nodelist=n[1-2]", "--time=5", "--immediate=30", "--gres=gpu:8"} <= set(argv)
    step = words.step(["n1", "n2"], ["python3"], "42", 96)
    assert {"--overlap", "--jobid=42", "--ntasks-per-node=1", "--cpus-per-task=96"} <= set(step)
    kept = words.environment({"SLURM_CONF": "/c", "SLURM_NTASKS": "64", "SRUN_DEBUG": "3", "HOME": "/h"})
    assert kept == {"SLURM_CONF": "/c", "HOME": "/h"}


def test_numbers_of_slurms() -> None:
    assert [words.cpus_of(text) for text in ("96(x3),48", "4", "", "many")] == [48, 4, 0, 0]
    assert [words.minutes(text) for text in ("1-02:03:04", "90:00", "infinite", "n/a")] == [
        1563,
        90,
        None,
        None,
    ]
    assert words.port_range("SrunPortRange           = 60001-60010\n") == range(60001, 60011)
    assert words.port_range("SrunPortRange           = 0-0\n") is None


def test_what_waits_its_turn_and_what_is_a_limit() -> None:
    turns = ("Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:n1", "None")
    assert all(map(words.in_turn, turns))
    assert not any(map(words.in_turn, ("PartitionNodeLimit", "PartitionDown", "QOSMaxGRESPerUser")))


# --- steps, with commands of Slurm's that are played ------------------------------------------------------

SINFO_ROWS = "".join(f"{n}|train*|infinite|allocated|4|(null)|127.0.0.1|none\n" for n in ("n1", "n2"))
COMMANDS = {
    "sinfo": f"#!/bin/sh\nprintf '%s' '{SINFO_ROWS}'\n",
    "scontrol": "#!/bin/sh\n",
    "scancel": "#!/bin/sh\n",
    # Plays one attempt after the other: what it prints, which nodes run the command that it was given.
    "srun": f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys, threading, time
folder = pathlib.Path(__file__).parent
attempts = json.loads((folder / "attempts").read_text())
done = sorted(folder.glob("argv.*"))
(folder / f"argv.{{len(done)}}").write_text(json.dumps(sys.argv))
plan = attempts[len(done)]
bundle = sys.stdin.buffer.read()
shell = sys.argv[sys.argv.index("/bin/sh") :]
def run(node, number):
    environ = {{**os.environ, "SLURMD_NODENAME": node}}
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as task:
        task.stdin.write(bundle)
        task.stdin.close()
        for line in task.stdout:
            os.write(1, b"%d: %b" % (number, line))
running = [threading.Thread(target=run, args=pair) for pair in plan.get("run", {{}}).items()]
for line in plan.get("before", []):
    print(line, file=sys.stderr, flush=True)
for one in running:
    one.start()
time.sleep(plan.get("pause_s", 0))
for line in plan.get("after", []):
    print(line, file=sys.stderr, flush=True)
for one in running:
    one.join()
time.sleep(plan.get("stays_s", 0))
sys.exit(plan.get("code", 0))
""",
}
LAUNCH = [
    "srun: launching StepId=1.0 on host n1, 1 tasks: 0",
    "srun: launching StepId=1.0 on host n2, 1 tasks: 1",
]
NOT_LAUNCHED = "srun: error: Task launch for StepId=1.0 failed on node n2: Connection refused"
CANCELLED = "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-22T14:42:07 DUE TO TIME LIMIT ***"
BUSY = "Requested nodes are busy"
WAITS = f"srun: Job 1 step creation temporarily disabled, retrying ({BUSY})"
RUNS = ["0: netdoctor-task on n1", "1: netdoctor-task on n2"]
FINE = ("ok", "agent", "")
TRIED = '1: netdoctor-task {"node": "n2", "tried": {"127.0.0.1 port 9": "refused"}}'
STEPS: dict[str, tuple[list[dict[str, Any]], Any, Any]] = {
    "both call": ([{"before": LAUNCH, "run": {"n1": 0, "n2": 1}}], FINE, FINE),
    "no interpreter on one": (
        [{"before": LAUNCH, "run": {"n1": 0}, "after": [RUNS[1], "1: sh: python9: not found",
          "srun: error: n2: task 1: Exited with exit code 127"]}],
        FINE, ("interpreter", "step", "sh: python9: not found"),
    ),
    "an old interpreter": (
        [{"before": LAUNCH, "run": {"n1": 0}, "after": ['1: {"hello": {"old_python": "2.7.18"',
          "srun: error: n2: task 1: Exited with exit code 1"]}],
        FINE, ("old_python", "step", "python3 is Python 2.7.18, 3.6 or newer is needed"),
    ),
    "a task that ends": (
        [{"before": LAUNCH, "run": {"n1": 0}, "after": ["srun: error: n2: task 1: Killed"]}],
        FINE, ("step", "step", "the task never called: Killed"),
    ),
    "one cannot be launched, and the rest is started again": (
        [{"before": [*LAUNCH, NOT_LAUNCHED]},
         {"before": LAUNCH[:1], "run": {"n1": 0}}],
        FINE, ("step", "step", "Connection refused"),
    ),
    "one cannot call": (
        [{"before": LAUNCH, "run": {"n1": 0}, "after": [RUNS[1], TRIED, "srun: error: n2: task 1: Exited"]}],
        FINE, ("no_way_back", "connect", "127.0.0.1 port 9: refused"),
    ),
    "none can call": (
        [{"before": [*LAUNCH, TRIED, TRIED.replace("n2", "n1")], "stays_s": 2}],
        ("no_way_back", "connect", "127.0.0.1 port 9: refused", Trouble.NETWORK),
        ("no_way_back", "connect", "127.0.0.1 port 9: refused", Trouble.NETWORK),
    ),
    "one is silent, and the rest is started again": (
        [{"before": [*LAUNCH, RUNS[0]], "stays_s": 30}, {"before": LAUNCH[:1], "run": {"n1": 0}}],
        FINE, ("no_way_back", "step", "Slurm started a task, and srun here heard nothing of it for 0.5 s"),
    ),
    "too many processors are asked for": (
        [{"before": ["srun: error: Unable to create step for job 1: More processors requested than is so"],
          "code": 1}, {"before": LAUNCH, "run": {"n1": 0, "n2": 1}}],
        FINE, FINE,
    ),
    "refused": (
        [{"before": ["srun: error: Job step 1 aborted", "srun: error: Invalid account"], "code": 1}],
        *[("control", "step", "Slurm refuses: Invalid account")] * 2,
    ),
    "cancelled": (
        [{"before": [*LAUNCH, CANCELLED],
          "code": 1}],
        ("lost", "step", "Slurm cancelled the step due to time limit"),
        ("lost", "step", "Slurm cancelled the step due to time limit"),
    ),
    "waits for the job's own steps": (
        [{"before": [WAITS], "stays_s": 30}],
        *[("busy", "step", f"Slurm started no step of ours beside the job's own: {BUSY}")] * 2,
    ),
    "a step that ends": ([{"before": LAUNCH}], *[("step", "step", "the task never called: it ended")] * 2),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("name", STEPS)
def test_what_becomes_of_a_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, *expected = STEPS[name]
    for command, text in COMMANDS.items():
        (tmp_path / command).write_text(text)
        (tmp_path / command).chmod(0o755)
    (tmp_path / "attempts").write_text(json.dumps(attempts))
    monkeypatch.setattr(slurm, "ABORT_S", 0.5)
    if "silent" in name:
        monkeypatch.setattr(slurm, "SILENT_S", 0.5)
    waits = "waits" in name
    if waits:
        monkeypatch.setattr(slurm, "LAUNCH_S", 1.0)
        monkeypatch.setattr(slurm, "ASKING_S", 1.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    options = slurm.SlurmOptions(job="1", nodes=("n1", "n2"), cpus=4, environ=dict(os.environ))
    transport = slurm.SlurmTransport(Limits(node_budget_s=6.0 if waits else 30.0), options)
    targets = [Target(id=n, host=n) for n in ("n1", "n2")]
    request = Request(op="facts", args={"groups": {"host": {}}})
    events = list(transport.start(targets, {"n1": request, "n2": request}, keep_open=False, collectors={}))
    sessions = [event for event in events if isinstance(event, SessionEvent)]
    found = {
        one.node: (one.session.outcome, one.session.stage, one.session.detail, one.session.trouble)
        for one in sessions
    }
    assert len(sessions) == 2
    assert found == {node: (*row, None)[:4] for node, row in zip(("n1", "n2"), expected, strict=True)}
    replies = {event.node: event.missing for event in events if isinstance(event, Reply)}
    assert replies == {node: None for node, row in found.items() if row[0] == "ok"}
    assert len(list(tmp_path.glob("argv.*"))) == len(attempts)
