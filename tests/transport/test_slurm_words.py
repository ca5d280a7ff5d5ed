"""What Slurm's commands print, and what they are asked."""

import pytest

from netdoctor.facts.host import Login
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
