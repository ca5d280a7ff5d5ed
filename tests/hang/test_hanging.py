"""Who holds a job up: from literals, and from what py-spy really says."""

import base64
import json
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from netdoctor.agent.operations.hang import frames_of
from netdoctor.cli.explain_scan import _lines_of
from netdoctor.explain.model import Confidence
from netdoctor.measure.common import read_as
from netdoctor.trial.hang_output import groups, json_text, text
from netdoctor.trial.hanging import Answer, Child, Hang, RankProcess, Sample, judge, with_lines
from tests.hostile import HOSTILE

C10D = "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WRAPPER = ("/opt/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper")
MAIN = ("/home/ann/train.py", 59, "main")
RECORDED = Path(__file__).with_name("py_spy")


def collective(name: str = "all_reduce", line: int = 59) -> list[tuple[str, int, str]]:
    return [(C10D, 3200, name), WRAPPER, (MAIN[0], line, "main")]


def sleeps(line: int = 12, name: str = "load") -> list[tuple[str, int, str]]:
    return [("/home/ann/train.py", line, name), MAIN]


def rank(
    number: int,
    frames: list[tuple[str, int, str]] | None = None,
    wchan: str = "futex_do_wait",
    **more: object,
) -> RankProcess:
    """A rank that is still at `frames`, else in a collective. later, switches, cpu_s: of the second look."""
    frames = collective() if frames is None else frames
    later = more.pop("later", frames)
    first = Sample(state=str(more.get("state", "S")), wchan=wchan, switches=7, frames=list(frames))
    second = Sample(
        state=str(more.pop("state", "S")),
        wchan=wchan,
        switches=7 + int(more.pop("switches", 0)),  # type: ignore[call-overload]
        cpu_s=more.pop("cpu_s", 0.0),  # type: ignore[arg-type]
        asleep_s=more.pop("asleep_s", 40.0),  # type: ignore[arg-type]
        frames=list(later),  # type: ignore[call-overload]
    )
    fields = {"world": 4, "job": "j", "local_world": 1, **more}
    return RankProcess(pid=100 + number, rank=number, before=first, after=second, **fields)  # type: ignore[arg-type]


def nodes(*ranks: RankProcess) -> dict[str, Answer]:
    """A node for each rank, node1 with the address 10.0.0.1 and so on."""
    return {f"node{one.rank}": Answer(ranks=[one], addresses=[f"10.0.0.{one.rank}"]) for one in ranks}


def four(odd: RankProcess, **others: object) -> dict[str, Answer]:
    return nodes(
        *sorted([odd, *(rank(n, **others) for n in range(4) if n != odd.rank)], key=lambda r: r.rank)
    )  # type: ignore[arg-type]


NO_STACKS: dict[str, object] = {"frames": []}


@pytest.mark.parametrize(
    ("answers", "confidence", "words"),
    [
        pytest.param(
            four(rank(2, sleeps(), "hrtimer_nanosleep")),
            Confidence.CERTAIN,
            "rank 2 on node2: load (train.py:12) (sleeps); 3 ranks wait in all_reduce",
            id="sleeps",
        ),
        pytest.param(
            four(rank(2, sleeps(), "hrtimer_nanosleep"), asleep_s=8.0),
            Confidence.LIKELY,
            "load (train.py:12)",
            id="sleeps, and the others do not wait for long",
        ),
        pytest.param(
            four(rank(2, state="T", frames=[])),
            Confidence.CERTAIN,
            "rank 2 on node2: stopped by a signal",
            id="stopped",
        ),
        pytest.param(four(rank(2, state="t")), Confidence.CERTAIN, "held by a debugger", id="traced"),
        pytest.param(
            four(rank(2, sleeps(), "locks_lock_inode_wait")), Confidence.CERTAIN, "a file lock", id="lock"
        ),
        pytest.param(
            four(rank(2, sleeps(), "rpc_wait_bit_killable", state="D")),
            Confidence.CERTAIN,
            "in the kernel, cannot be interrupted: waits for NFS",
            id="nfs",
        ),
        pytest.param(
            four(rank(2, collective("broadcast", 40))),
            Confidence.LIKELY,
            "in another call than the others: broadcast, main (train.py:40)",
            id="another collective",
        ),
        pytest.param(
            four(rank(2, sleeps(), "poll_schedule_timeout", switches=1)),
            Confidence.CERTAIN,
            "load (train.py:12)",
            id="looks again and again whether its data are there",
        ),
        pytest.param(
            four(rank(2, [], "hrtimer_nanosleep"), **NO_STACKS), Confidence.CERTAIN, "sleeps", id="no stacks"
        ),
        pytest.param(
            four(rank(2, sleeps(), cpu_s=4.9)),
            Confidence.LIKELY,
            "(busy, 98 % of a CPU)",
            id="endless loop, the others wait for long",
        ),
    ],
)
def test_who_holds_the_job_up_is_named(
    answers: dict[str, Answer], confidence: Confidence, words: str
) -> None:
    found = judge(answers)
    assert (found.confidence, found.suspects, found.nodes) == (confidence, (2,), ("node2",)), found
    assert words in found.headline
    assert not found.moves


@pytest.mark.parametrize(
    ("answers", "moves"),
    [
        pytest.param(four(rank(2, switches=3), switches=4), True, id="collectives come and go"),
        pytest.param(four(rank(2, later=collective(line=60))), True, id="one has gone on"),
        pytest.param(nodes(*(rank(n, [], switches=9) for n in range(4))), True, id="no stacks, it goes on"),
        pytest.param(nodes(*(rank(n, sleeps(), cpu_s=4.0) for n in range(4))), True, id="all compute"),
        pytest.param(nodes(*(rank(n) for n in range(4))), False, id="all wait alike"),
        pytest.param(nodes(*(rank(n, []) for n in range(4))), False, id="no stacks, all wait alike"),
        pytest.param(
            nodes(*(rank(n, collective("broadcast" if n < 2 else "barrier")) for n in range(4))),
            False,
            id="two halves",
        ),
        pytest.param(four(rank(2, sleeps(), cpu_s=4.9), asleep_s=8.0), False, id="one is slow"),
        pytest.param(
            four(rank(2, [], "hrtimer_nanosleep"), frames=[], wchan="", cpu_s=5.0, gpu=True),
            False,
            id="others spin on GPUs, and nobody knows for whom",
        ),
    ],
)
def test_nobody_is_blamed(answers: dict[str, Answer], moves: bool) -> None:
    found = judge(answers)
    assert (found.confidence, found.suspects, found.moves) == (None, (), moves), found


def test_a_rank_without_a_process() -> None:
    three = [rank(n, local_world=2, world=6) for n in (0, 1, 2)]
    answers = {"a": Answer(ranks=three[:2]), "b": Answer(ranks=[three[2]])}
    found = judge({**answers, "c": Answer(ranks=[rank(n, local_world=2, world=6) for n in (4, 5)])})
    assert (found.confidence, found.suspects, found.nodes) == (Confidence.CERTAIN, (3,), ("b",))
    # One rank a node, and a node without any; one that is silent; ranks of nodes that nobody named.
    rest = nodes(rank(0), rank(1), rank(3))
    assert judge({**rest, "node2": Answer()}).nodes == ("node2",)
    silent = judge(rest, ["node2"])
    assert (silent.confidence, silent.suspects) == (Confidence.LIKELY, (2,))
    assert "does not answer" in silent.headline
    elsewhere = judge(rest)
    assert elsewhere.confidence is None
    assert "rank 2 on no node that was asked" in elsewhere.notes
    # More ranks than are looked at: nobody knows who is absent.
    assert judge({**rest, "node2": Answer(left_out=3)}).confidence is None


def test_a_link_that_is_cut() -> None:
    stuck = {1: [("10.0.0.2", 5)], 2: [("10.0.0.3", 4), ("10.0.0.1", 3)]}
    found = judge(nodes(*(rank(n, stuck=stuck.get(n, [])) for n in range(4))))
    assert (found.confidence, found.nodes, found.suspects) == (Confidence.CERTAIN, ("node2",), (2,))
    between = judge(nodes(*(rank(n, stuck=stuck[1] if n == 1 else []) for n in range(4))))
    assert (between.confidence, between.nodes) == (Confidence.LIKELY, ("node1", "node2"))
    # One packet that was lost, and a connection within the node.
    healthy = nodes(*(rank(n, stuck=[("10.0.0.2", 1), (f"10.0.0.{n}", 9)]) for n in range(4)))
    assert judge(healthy).confidence is None


def test_a_job_that_joins_looks_again_and_again() -> None:
    joining = [
        ("/opt/torch/distributed/rendezvous.py", 190, "_create_c10d_store"),
        (C10D, 1, "init_process_group"),
    ]
    found = judge(four(rank(2, sleeps(), "hrtimer_nanosleep"), frames=[*joining, MAIN], switches=30))
    assert (found.confidence, found.suspects) == (Confidence.CERTAIN, (2,))


def test_the_larger_job_is_judged() -> None:
    answers = four(rank(2, sleeps(), "hrtimer_nanosleep"))
    answers["node0"].ranks.append(rank(0, job="other", world=1))
    found = judge(answers)
    assert found.suspects == (2,)
    assert "1 ranks of 1 other jobs are left aside" in found.notes


def test_a_child_that_is_stuck_is_told() -> None:
    child = Child(pid=7, name="pt_data_worker", state="S", wchan="locks_lock_inode_wait")
    found = judge(four(rank(2, sleeps(), "poll_schedule_timeout", children=[child])))
    assert found.found == ("rank 2 on node2: child 7 (pt_data_worker) waits for a file lock",)


def test_stacks_as_py_spy_says_them() -> None:
    stacks = {
        n: frames_of(RECORDED.joinpath(f"{name}_0.4.3.json").read_text(), 29238 + n)
        for n, name in enumerate(("backward", "loader"))
    }
    assert stacks[0][0][1:] == [979, "_engine_run_backward"]
    assert stacks[1][-2] == ["/home/ann/train.py", 60, "main"]
    odd = rank(1, [tuple(f) for f in stacks[1]], "do_poll.constprop.0", switches=1)
    found = judge(four(odd, frames=[tuple(f) for f in stacks[0]]))
    assert found.suspects == (1,)
    assert found.headline == (
        "rank 1 on node1: _PollLikeSelector.select, main (train.py:60) (waits for a file or socket); "
        "3 ranks wait in backward"
    )


@pytest.mark.parametrize("odd", ["", "{}", "[]", "[1]", '[{"frames": 3}]', '[{"frames": [1]}]', "[" * 9999])
def test_what_py_spy_does_not_say(odd: str) -> None:
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        assert frames_of(odd, 1) == []


def test_nccl_that_counts_is_a_job_that_moves() -> None:
    before = Path(__file__).parents[1].joinpath("explain/ras/other_collective_2.28.9.json").read_text()
    counts = json.loads(before)
    for one in counts["communicators"][0]["ranks"]:
        one["collective_counts"]["AllReduce"] = 99
    answers = four(rank(2, sleeps(), "hrtimer_nanosleep"))
    answers["node0"].ras = [before, json.dumps(counts)]
    assert judge(answers).moves
    answers["node0"].ras = [before, before]
    assert judge(answers).suspects == (2,)
    named = with_lines(judge(nodes(*(rank(n) for n in range(4)))), _lines_of(answers))
    assert (named.confidence, named.suspects) == (Confidence.LIKELY, (0, 1))
    assert "launched Broadcast 0 times, others 1" in named.headline


def test_flight_records_name_who_did_not_come() -> None:
    def record(number: int, calls: int) -> str:
        entry = {
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "state": "scheduled",
            "input_sizes": [[4]],
            "output_sizes": [[4]],
        }
        entries = [dict(entry, record_id=i, collective_seq_id=i + 1) for i in range(calls)]
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        data = json.dumps({"version": "2.10", "pg_config": config, "entries": entries}).encode()
        return base64.b64encode(zlib.compress(data)).decode()

    answers = nodes(*(rank(n, []) for n in range(4)))
    for n in range(4):
        answers[f"node{n}"].records = [(n, record(n, 4 if n == 2 else 5))]
    answers["node0"].records += [(3, "no record"), (3, base64.b64encode(b"x").decode())]
    found = with_lines(judge(answers), _lines_of(answers))
    assert (found.confidence, found.suspects, found.nodes) == (Confidence.LIKELY, (2,), ("node2",))
    moving = with_lines(Hang(headline="it moves", moves=True), _lines_of(answers))
    assert (moving.confidence, moving.suspects) == (None, ())


def test_fewest_first_and_untrusted_text_is_made_harmless() -> None:
    for name, evil in HOSTILE.items():
        answers = four(rank(2, [(f"/x/{evil}.py", 3, evil), MAIN], evil, children=[Child(1, evil, "T")]))  # type: ignore[arg-type]
        answers["node1"].notes.append(evil)
        found = judge(answers)
        assert len(groups(found.positions)[0]) == 1, name
        for line in text(found, 80).splitlines():
            assert line.isprintable(), (name, line)
        assert json.loads(json_text(found))["ranks_at_fault"] == [2]


@pytest.mark.parametrize(
    "odd", [None, 3, [], {"ranks": 3}, {"ranks": [{}]}, {"ranks": [{"pid": 1, "rank": "x"}]}]
)
def test_answers_of_another_form_are_none(odd: object) -> None:
    assert read_as(odd, Answer) is None


def test_what_is_shown() -> None:
    shown = text(judge(four(rank(2, sleeps(), "hrtimer_nanosleep"))), 110).splitlines()
    assert shown == [
        "CERTAIN   rank 2 on node2: load (train.py:12) (sleeps); 3 ranks wait in all_reduce",
        "ranks     2 on node2: load (train.py:12) (sleeps, for 40 s)",
        "          0-1 and 3 on node[0-1,3]: all_reduce, main (train.py:59) (waits for another thread, "
        "for 40 s)",
    ]
