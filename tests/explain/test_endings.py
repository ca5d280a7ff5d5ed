"""The ways a job ends: its last line leads to what ended it, and order tells a failure from what follows."""

from collections import Counter
from pathlib import Path

import pytest

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import Confidence, Explanation

ENDINGS = tomllib.loads(Path(__file__).with_name("endings.toml").read_text("utf-8"))["ending"]
AT_LEAST = 115
WATCHDOG = (
    "[rank{rank}]:[E1122 14:41:08.402 ProcessGroupNCCL.cpp:563] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=1800000) ran "
    "for 1800328 milliseconds before timing out.\n"
)
NO_NAME = (
    "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node0, 29400) cannot be retrieved (gai error: "
    "-2 - Name or service not known).\n"
)
TRAINS = "".join(f"step {step} loss: 1.{step}\n" for step in range(30))
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'\n"


def labels(found: Explanation) -> list[str]:
    return [one.known.label for one in found.reasons]


@pytest.fixture(scope="module")
def answers() -> list[tuple[dict[str, str], Explanation]]:
    return [(one, explain_text({"log": one["line"]})) for one in ENDINGS]


def test_last_lines_name_what_ended_the_job(answers: list[tuple[dict[str, str], Explanation]]) -> None:
    wrong = [
        (one["line"], labels(found)[:3]) for one, found in answers if labels(found)[:1] != [one["label"]]
    ]
    assert len({one["line"] for one in ENDINGS}) - len(wrong) >= AT_LEAST, wrong
    assert not wrong
    assert all(one["source"] for one in ENDINGS)
    assert len(Counter(one["family"] for one in ENDINGS)) >= 15


def test_none_is_confidently_wrong(answers: list[tuple[dict[str, str], Explanation]]) -> None:
    certain = [(one, found.reasons[0]) for one, found in answers if found.reasons]
    assert not [
        one["line"]
        for one, best in certain
        if best.confidence is Confidence.CERTAIN and best.known.label != one["label"]
    ]


@pytest.mark.parametrize(
    ("failure", "label"),
    [
        ("[rank3]: RuntimeError: boom\n", "program_failed"),
        ("[rank3]:     raise BadBatch('sample 17 is empty')\n", "program_failed"),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error.\n",
         "host_oom_killed"),
        ("  exitcode  : -11 (pid: 25002)  (SIGSEGV)\n", "native_crash"),
    ],
)  # fmt: skip
def test_who_failed_before_the_others_gave_up_is_the_cause(failure: str, label: str) -> None:
    """In one log, where lines come in order."""
    echoes = "".join(WATCHDOG.format(rank=rank) for rank in range(3))
    assert labels(explain_text({"log": failure + echoes}))[0] == label
    after = explain_text({"log": echoes + failure}).reasons
    slow = next(one for one in after if one.known.label == "collective_timeout_slow_rank")
    assert slow.confidence is Confidence.LIKELY


def test_without_a_clock_two_logs_have_no_order() -> None:
    timeless = WATCHDOG.replace("[E1122 14:41:08.402 ", "[E ")
    found = explain_text({"a.log": "[rank3]: RuntimeError: boom\n", "b.log": timeless.format(rank=0)})
    assert labels(found)[0] == "collective_timeout_slow_rank"


def test_a_warning_of_the_beginning_is_nothing_where_the_job_trained() -> None:
    assert labels(explain_text({"log": NO_NAME})) != []
    assert labels(explain_text({"log": NO_NAME + TRAINS})) == []
    failed = labels(explain_text({"log": NO_NAME + TRAINS + WATCHDOG.format(rank=0)}))
    assert "hostname_unresolvable" not in failed
    assert labels(explain_text({"log": TRAINS + NO_NAME}))[0] == "hostname_unresolvable"


def test_a_path_that_every_rank_misses_is_a_wrong_path() -> None:
    every = explain_text({f"rank_{rank}.log": MISSING for rank in range(4)})
    assert labels(every)[0] == "program_failed"
    one = explain_text({"rank_0.log": "step 1\n", "rank_1.log": MISSING})
    assert labels(one)[0] == "shared_filesystem_missing"


def test_a_cuda_error_is_told_apart_by_its_xid() -> None:
    error = "[rank1]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    xid = "NVRM: Xid (PCI:0000:3b:00): {}, pid=4242, name=python, {}\n"
    alone = explain_text({"log": error}).reasons
    assert {one.confidence for one in alone} == {Confidence.POSSIBLE}
    assert {"program_failed", "gpu_hardware_fault"} == {one.known.label for one in alone}
    assert {"gpu.xid", "gpu.ecc"} <= {check for one in alone for check in one.known.checks}
    program = explain_text({"log": error + xid.format(31, "MMU Fault")}).reasons[0]
    assert (program.known.label, program.confidence) == ("program_failed", Confidence.LIKELY)
    assert labels(explain_text({"log": error + xid.format(48, "DBE")}))[0] == "gpu_hardware_fault"


@pytest.mark.parametrize(
    "line",
    [
        "n1:5:9 [0] ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        "n1:5:9 [0] transport/net_ib.cc:881 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<49577> with "
        "status=12 opcode=1 len=0 vendor err 129 (Send) hca mlx5_0",
        "n1:5:9 [0] include/socket.h:345 NCCL WARN Call to socket failed : Address family not supported by "
        "protocol",
        "[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (node0, "
        "29500).",
    ],
)
def test_a_line_of_several_causes_is_likely_for_none(line: str) -> None:
    found = explain_text({"log": line}).reasons
    assert len(found) > 1
    assert {one.confidence for one in found} == {Confidence.POSSIBLE}


def test_ncclras_that_finds_its_port_taken_is_no_trouble() -> None:
    ras = "n1:1:2 [0] NCCL WARN RAS failed to establish a client listening socket at localhost<28028>\n"
    bind = "n1:1:2 [0] misc/socket.cc:500 NCCL WARN Call to bind failed : Address already in use\n"
    assert labels(explain_text({"log": bind + ras})) == []
    assert labels(explain_text({"log": bind}))[0] == "port_in_use"


def test_what_one_side_has_and_the_other_has_not_is_read() -> None:
    line = "{}:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/{}{}\n"
    failed = "n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n"
    uneven = line.format("a", 0, "/GDRDMA") + line.format("b", 1, "")
    even = line.format("a", 0, "/GDRDMA") + line.format("b", 1, "/GDRDMA/Shared")
    assert "gdr_peermem_missing" in labels(explain_text({"log": uneven + failed}))
    assert "gdr_peermem_missing" not in labels(explain_text({"log": even + failed}))


STRANGE = "frobnicator 3: the tensor pool cannot reserve a buffer"


def test_a_last_line_that_nobody_knows_is_taken_by_what_it_is_about() -> None:
    found = explain_text({"log": TRAINS + STRANGE})
    assert found.is_guess
    assert labels(found)[0] == "gpu_oom_one_rank"
    assert {one.confidence for one in found.reasons} == {Confidence.POSSIBLE}
    assert found.reasons[0].lines[0].line == TRAINS.count("\n") + 1
    assert found.ranks.first is None


@pytest.mark.parametrize(
    "log",
    [
        STRANGE + "\n" + TRAINS,  # it went on
        TRAINS + "WARNING " + STRANGE,
        TRAINS + STRANGE + ", trying again",
        TRAINS + "evaluated 500 samples, 0 errors\n",
        TRAINS
        + "Unable to find image 'nvcr.io/nvidia/pytorch:23.10-py3' locally\n" * 9,  # known, and no failure
    ],
)
def test_what_went_on_is_no_last_line(log: str) -> None:
    assert not explain_text({"log": log}).reasons


def test_nothing_is_guessed_where_a_line_is_known() -> None:
    found = explain_text({"log": MISSING, "other": TRAINS + STRANGE})
    assert not found.is_guess
    assert labels(found) == labels(explain_text({"log": MISSING}))
