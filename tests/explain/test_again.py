"""A CUDA error that came again: on the same node under another rank, on another node, or nobody knows."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import Explanation
from netdoctor.explain.rendering import headings, to_json

BOARD, PROGRAM = "gpu_hardware_fault", "program_failed"


def run(hour: int, *places: tuple[str, int]) -> str:
    """What torchrun prints where these ranks fail on these hosts."""
    illegal = "".join(
        f"[rank{rank}]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        for _, rank in places
    )
    rank = places[0][1]
    summary = "".join(
        f"[{number}]:\n  time      : 2025-11-26_{hour:02}:07:51\n  host      : {host}\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n  exitcode  : 1 (pid: 1557)\n"
        for number, (host, rank) in enumerate(places)
    )
    return (
        f"{illegal}E1126 {hour:02}:07:51.100000 1081 torch/distributed/elastic/multiprocessing/api.py:986] "
        f"failed (exitcode: 1) local_rank: {rank % 8} (pid: 1557) of binary: /opt/venv/bin/python3\n{summary}"
    )


def of_runs(runs: Sequence[str], separate: bool = True) -> Explanation:
    logs = {f"slurm-{4711 + number}.out": one for number, one in enumerate(runs)}
    return explain_text(logs if separate else {"job.log": "".join(runs)})


SAME_RANK = [run(3, ("gpu07", 3)), run(5, ("gpu07", 3))]
SAME_NODE = [run(3, ("gpu07", 3)), run(5, ("gpu07", 11)), run(9, ("gpu07", 20))]
OTHER_NODE = [run(3, ("gpu07", 3)), run(5, ("gpu09", 3))]


@pytest.mark.parametrize("separate", [True, False], ids=["a log a run", "one log"])
@pytest.mark.parametrize(
    ("runs", "first", "says"),
    [
        (SAME_NODE, BOARD, "in 3 runs, each time on gpu07, as ranks 3, 11 and 20"),
        (OTHER_NODE, PROGRAM, "on gpu07 and gpu09: the program's"),
        ([run(3, ("gpu07", 3), ("gpu09", 11))], PROGRAM, "on gpu07 and gpu09: the program's"),
        (SAME_RANK, PROGRAM, "in 2 runs, each time on gpu07 as rank 3: run without this node"),
        ([run(3, ("gpu07", 3))], PROGRAM, ""),
        ([run(3, ("gpu07", 3), ("gpu07", 4))], PROGRAM, ""),  # one run, one node
        (
            [run(3, ("gpu07", 3), ("gpu07", 4)), run(5, ("gpu07", 3), ("gpu07", 4))],
            PROGRAM,
            "each time on gpu07 as ranks 3-4: run without",
        ),
        ([run(3, ("gpu07", 3), ("gpu07", 4)), run(5, ("gpu07", 4))], PROGRAM, "as rank 4: run without"),
        ([run(3, ("gpu07", 3)), run(5, ("gpu07", 11), ("gpu09", 20))], PROGRAM, ""),  # either
    ],
)
def test_where_it_came_again_decides_between_program_and_board(
    runs: list[str], first: str, says: str, separate: bool
) -> None:
    answer = of_runs(runs, separate)
    assert (answer.reasons[0].known.label, bool(answer.again)) == (first, bool(says))
    assert says in answer.again
    assert not {str(one.confidence) for one in answer.reasons} & {"certain"}
    assert (answer.again in list(headings(answer))) == bool(says)
    assert to_json(answer, {})["again"] == answer.again


def test_order_of_runs_does_not_matter() -> None:
    found = {of_runs(runs).again for runs in itertools.permutations(SAME_NODE)}
    assert len(found) == 1


def test_what_only_tells_on_which_node_raises_what_the_same_lines_say_without_it() -> None:
    without = of_runs([SAME_NODE[0]])
    board = {one.known.label: one.weight for one in of_runs(SAME_NODE).reasons}
    program = {one.known.label: one.weight for one in of_runs(OTHER_NODE).reasons}
    alone = {one.known.label: one.weight for one in without.reasons}
    assert board[BOARD] > alone[BOARD] > program[BOARD]
    assert program[PROGRAM] > alone[PROGRAM] > board[PROGRAM]


def test_an_exception_of_the_program_s_own_is_nobody_s_board() -> None:
    own = [one.replace("CUDA error: an illegal memory access was encountered", "boom") for one in SAME_NODE]
    assert of_runs(own).again == ""


def test_nccl_says_where_a_rank_runs_and_groups_of_a_part_do_not() -> None:
    comm = "{0}:4711:4790 [0] NCCL INFO comm 0x1 rank {1} nranks {2} cudaDev 0 - Init COMPLETE\n"
    fails = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    log = comm.format("gpu02", 3, 4) + comm.format("gpu07", 3, 16) + comm.format("gpu05", 3, 8) + fails
    first = explain_text({"log": log}).ranks.first
    assert first is not None
    assert (first.rank, first.host) == (3, "gpu07")


def test_torchrun_s_own_summary_says_where_a_rank_ran() -> None:
    log = Path(__file__).with_name("logs").joinpath("gpu_raises", "rank1.log").read_text("utf-8")
    first = explain_text({"log": log.replace(": localhost", ": gpu07")}).ranks.first
    assert first is not None
    assert (first.rank, first.host) == (1, "gpu07")


def test_a_host_that_any_node_may_be_tells_nothing() -> None:
    answer = of_runs([one.replace("gpu07", "localhost") for one in SAME_NODE])
    assert (answer.again, answer.ranks.first.host if answer.ranks.first else None) == ("", "")


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (
            "gpu07 kernel: NVRM: Xid (PCI:0000:44:00): 79, pid=1, name=python, GPU has fallen off the bus.",
            BOARD,
        ),
        ("[rank3]: torch.AcceleratorError: CUDA error: device-side assert triggered", PROGRAM),
    ],
)
@pytest.mark.parametrize("runs", [SAME_NODE, OTHER_NODE], ids=["same node", "other node"])
def test_nothing_is_guessed_where_a_line_names_it(runs: list[str], line: str, label: str) -> None:
    answer = of_runs([f"{runs[0]}{line}\n", *runs[1:]])
    assert (answer.reasons[0].known.label, answer.again) == (label, "")


def test_times_that_cannot_be_compared_make_no_runs() -> None:
    """A log with years and one without: of one run, or of two."""
    dated = SAME_NODE[1].replace("E1126 05:07:51.100000 1081 ", "2025-11-26 05:07:51,100 ERROR ")
    assert of_runs([SAME_NODE[0], dated]).again == ""


def test_the_kernel_s_line_of_the_same_failure_is_no_run_of_its_own() -> None:
    kernel = "Nov 26 01:07:51 gpu07 kernel: NVRM: Xid (PCI:0000:44:00): 31, pid=1, name=python, Ch 00000008\n"
    assert of_runs([run(3, ("gpu07", 3)), kernel]).again == ""


def test_a_device_that_is_lost_on_two_nodes_is_not_the_program_s() -> None:
    lost = "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
    runs = [one.replace("CUDA error: an illegal memory access was encountered", lost) for one in OTHER_NODE]
    answer = of_runs(runs)
    assert (answer.reasons[0].known.label, answer.again) == (BOARD, "")


def test_what_other_causes_explain_as_well_is_not_compared() -> None:
    other = [one.replace("an illegal memory access was encountered", "unknown error") for one in OTHER_NODE]
    assert of_runs(other).again == ""


def test_names_of_hosts_are_made_inert() -> None:
    assert "\x1b" not in of_runs([one.replace("gpu07", "gpu\x1b[31m07") for one in SAME_NODE]).again
