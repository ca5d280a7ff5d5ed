"""STARTED takes proof of every rank; whatever is less is FAILED or UNDECIDED, and names rank and node."""

import random
import signal

import pytest

from netdoctor.trial.following import Event, Follower, RunState, Stack
from netdoctor.trial.judging import Ended, Judgement, State, judge, may_go_on


def follower(nodes: int = 2, each: int = 2) -> Follower:
    """Ranks that have all joined and made a step a second, up to second 10."""
    names = [f"n{i}" for i in range(nodes)]
    job = Follower(names, [1] * nodes)
    for number in range(nodes * each):
        say(job, number, "waits", 1.0, each)
        say(job, number, "joined", 2.0, each, world=nodes * each, backend="gloo")
        for count in range(1, 9):
            say(job, number, "step", 2.0 + count, each, count=count, at=100.0 + count)
    for name in names:
        job.run(name, 0, RunState(state="started", pid=5))
    return job


def say(
    job: Follower, rank: int, what: str, heard_s: float, each: int = 2, node: str = "", **more: object
) -> None:
    event = Event(what=what, rank=rank, pid=1000 + rank, heard_s=heard_s, **more)  # type: ignore[arg-type]
    job.event(node or f"n{rank // each}", event)


def end(job: Follower, node: str, code: int, at_s: float, *tail: str) -> None:
    job.output(node, 0, "".join(f"{line}\n" for line in tail).encode(), at_s)
    job.run(node, 0, RunState(state="ended", code=code, at_s=at_s))


def judged(job: Follower, ended: Ended = Ended.TIME, seconds: float = 11.0) -> Judgement:
    return judge(job, ended, seconds)


def test_all_ranks_that_joined_and_step_are_started() -> None:
    found = judged(follower())
    assert found.state is State.STARTED
    assert found.headline == "all 4 ranks joined, first step after 3.0 s, 1 steps/s"


@pytest.mark.parametrize("ended", [Ended.TIME, Ended.STEPS, Ended.JOB])
def test_started_whatever_ends_a_healthy_trial(ended: Ended) -> None:
    assert judged(follower(), ended).state is State.STARTED


def test_a_rank_that_never_joined_is_named_with_its_node() -> None:
    job = follower()
    job.ranks[3].joined_s = None
    found = judged(job)
    assert (found.state, found.nodes) == (State.FAILED, ("n1",))
    assert found.headline == "3 of 4 ranks have joined; not rank 3"


def test_nodes_that_each_have_a_rank_0_are_no_group() -> None:
    job = Follower(["n0", "n1"], [1, 1])
    for node in ("n0", "n1"):
        say(job, 0, "joined", 2.0, node=node, world=1)
        say(job, 0, "step", 3.0, node=node, count=1)
    found = judged(job)
    assert found.state is State.FAILED
    assert found.headline == "no single group: n[0-1] have a rank 0 each"


def test_groups_of_different_sizes_are_no_group() -> None:
    job = follower()
    job.ranks[3].world = 2
    assert judged(job).headline == "its ranks are in groups of different sizes: 2, 4"


def test_a_node_that_the_job_does_not_use_is_named() -> None:
    job = Follower(["n0", "n1"], [1, 1])
    for rank in (0, 1):
        say(job, rank, "joined", 2.0, node="n0", world=2)
        say(job, rank, "step", 3.0, node="n0", count=1)
    found = judged(job)
    assert (found.state, found.nodes) == (State.FAILED, ("n1",))


def test_ranks_that_wait_for_one_that_does_not_call() -> None:
    job = Follower(["n0", "n1"], [1, 1])
    say(job, 0, "waits", 1.0, 1)
    say(job, 1, "loaded", 1.0, 1)
    job.stack("n1", Stack(pid=1001, state="S", text='  File "/home/ann/data.py", line 7 in download\n'))
    found = judged(job)
    assert (found.state, found.nodes, found.hangs) == (State.FAILED, ("n1",), True)
    assert found.found == ("nothing has called it on n1", "rank 1 on n1: in download (data.py:7)")


NODE0 = "node0:29500"


@pytest.mark.parametrize(
    ("given", "headline", "nodes", "cause"),
    [
        ([(0, 4, NODE0), (1, 4, NODE0), (2, 4, "node0:29511"), (3, 4, NODE0)],
         "rank 2 on n2 goes to node0:29511, the others to node0:29500", ("n2",), "rdzv_endpoint_mismatch"),
        ([(0, 4, NODE0), (1, 4, NODE0), (2, 8, NODE0), (3, 4, NODE0)],
         "WORLD_SIZE is 8 on n2, and 4 elsewhere", ("n2",), "rank_world_size_misconfig"),
        ([(0, 4, NODE0), (1, 4, NODE0), (1, 4, NODE0), (3, 4, NODE0)],
         "rank 1 was given to n[1-2]", ("n1", "n2"), "rank_world_size_misconfig"),
        ([(0, 5, NODE0), (1, 5, NODE0), (2, 5, NODE0), (3, 5, NODE0)],
         "WORLD_SIZE is 5, and 4 ranks were started", (), "rank_world_size_misconfig"),
        ([(0, 4, NODE0), (1, 4, NODE0), (2, 4, NODE0), (3, 4, NODE0)],
         "4 wait in init_process_group", (), ""),
        ([(0, 0, ""), (1, 0, ""), (2, 0, ""), (3, 0, "")], "4 wait in init_process_group", (), ""),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_named(
    given: list[tuple[int, int, str]], headline: str, nodes: tuple[str, ...], cause: str
) -> None:
    job = Follower([f"n{i}" for i in range(4)], [1] * 4)
    for i, (rank, world, meets) in enumerate(given):
        say(job, rank, "waits", 1.0, node=f"n{i}", world=world, meets=meets)
    found = judge(job, Ended.TIME, 30.0)
    assert (found.state, found.nodes, found.cause) == (State.FAILED, nodes, cause)
    assert found.headline == f"no rank has joined within 30 s: {headline}"


@pytest.mark.parametrize(
    ("places", "nodes", "cause"),
    [
        (("barrier", "all_reduce", "all_reduce", "all_reduce"), ("n0",), "mismatched_collectives"),
        (("next_batch", "all_reduce", "all_reduce", "all_reduce"), ("n0",), ""),
        (("all_reduce", "all_reduce", "all_reduce", "all_reduce"), (), ""),
        (("all_reduce", "all_reduce", "barrier", "barrier"), (), "mismatched_collectives"),
        (("next_batch", "all_reduce", "all_reduce", ""), (), ""),
    ],
)
def test_who_hangs_alone_is_named(places: tuple[str, ...], nodes: tuple[str, ...], cause: str) -> None:
    job = follower()
    for number, place in enumerate(places):
        file = "data.py" if place == "next_batch" else "torch/distributed/distributed_c10d.py"
        text = f'  File "/x/{file}", line 1 in {place}\n  File "/home/train.py", line 9 in main\n'
        job.stack(f"n{number // 2}", Stack(pid=1000 + number, state="S", text=text if place else ""))
    found = judge(job, Ended.TIME, 100.0)
    assert (found.state, found.nodes, found.cause) == (State.FAILED, nodes, cause)


def test_a_world_is_not_too_large_while_ranks_may_still_come() -> None:
    job = Follower(["n0", "n1"], [1, 1])
    say(job, 0, "waits", 1.0, 1, world=4)
    say(job, 1, "waits", 1.0, 1, world=4)
    assert not judge(job, Ended.TIME, 5.0).cause  # the last one came a moment ago
    say(job, 2, "loaded", 1.0, node="n1")
    assert not judge(job, Ended.TIME, 30.0).cause


def test_a_job_that_only_loads_is_not_called_failed() -> None:
    job = Follower(["n0", "n1"], [1, 1])
    say(job, 0, "loaded", 1.0, 1)
    say(job, 1, "loaded", 1.0, 1)
    job.run("n0", 0, RunState(state="started", pid=5))
    job.run("n1", 0, RunState(state="started", pid=5))
    assert judge(job, Ended.TIME, 16.0).state is State.UNDECIDED


def test_without_a_word_nothing_is_claimed() -> None:
    job = Follower(["n0"], [1])
    assert judged(job).state is State.UNDECIDED
    end(job, "n0", 0, 3.0, "done")
    found = judged(job, Ended.JOB)
    assert found.state is State.UNDECIDED
    assert found.headline == "it ended with code 0, and no rank was seen to join a group"


def test_steps_of_a_log_alone_prove_no_group() -> None:
    job = Follower(["n0"], [1])
    for i in range(20):
        job.output("n0", 0, b"iteration %d loss 0.3\n" % i, float(i))
    found = judged(job)
    assert found.state is State.UNDECIDED
    assert "nothing shows that its ranks are in one group" in found.headline


def test_joined_and_no_step_is_undecided() -> None:
    job = follower()
    for rank in job.ranks.values():
        rank.first_step_s = None
    assert judged(job).headline == "all 4 ranks joined, and no step was seen in 11 s"


def test_one_rank_without_a_step_is_not_started() -> None:
    job = follower()
    job.ranks[2].first_step_s = None
    found = judged(job)
    assert (found.state, found.nodes) == (State.UNDECIDED, ("n1",))


@pytest.mark.parametrize(
    ("seconds", "state", "goes_on"),
    [(11.9, State.STARTED, False), (12.1, State.UNDECIDED, True), (41.0, State.FAILED, False)],
)
def test_steps_that_stopped(seconds: float, state: State, goes_on: bool) -> None:
    """The last one was in second 10, and each took one: up to two are as usual, from thirty on it hangs."""
    job = follower()
    assert judged(job, seconds=seconds).state is state
    assert may_go_on(job, seconds) is goes_on


def test_a_log_that_counts_every_hundredth_step_is_given_that_time() -> None:
    job = follower()
    for rank in job.ranks.values():
        rank.first_step_s = rank.last_step_s = None
    for at_s in (10.0, 60.0, 110.0):
        job.output("n0", 0, b"step %d\n" % (10 * at_s), at_s)
    assert not may_go_on(job, 200.0)
    assert judged(job, seconds=200.0).state is State.STARTED
    assert may_go_on(job, 225.0)


def test_one_rank_that_stopped_is_what_counts() -> None:
    job = follower()
    for number in (0, 1, 2):
        say(job, number, "step", 45.0, count=44, at=144.0)
    assert judged(job, seconds=46.0).state is State.FAILED


def test_the_few_that_are_elsewhere_come_first() -> None:
    job = follower()
    inner = '  File "/opt/lib/python3.11/site-packages/torch/distributed/x.py", line 5 in all_reduce\n'
    for number in (0, 1, 3):
        text = f'{inner}  File "/home/ann/train.py", line 72 in main\n'
        job.stack(f"n{number // 2}", Stack(pid=1000 + number, state="S", text=text))
    job.stack("n1", Stack(pid=1002, state="T"))
    found = judged(job, seconds=60.0)
    assert found.found[1:] == (
        "rank 2 on n1: stopped by a signal",
        "3 ranks on n[0-1]: in all_reduce, main (train.py:72)",
    )


def test_what_torchrun_adds_to_an_error_is_not_shown() -> None:
    job = follower()
    said = "[rank1]: torch.AcceleratorError: CUDA error: device-side assert triggered"
    end(job, "n0", 1, 4.0, said, "exitcode  : -6 (pid: 1683)", "error_file: <N/A>", "=" * 60)
    assert judged(job).found[0] == f"n0: {said}"


def test_the_rank_with_a_reason_of_its_own_is_blamed_not_the_first_echo() -> None:
    job = follower()
    end(job, "n0", 1, 5.0, "RuntimeError: Connection closed by peer [10.0.0.1]:1234")
    end(job, "n1", 1, 5.2, "ValueError: bad data")
    found = judged(job, Ended.JOB)
    assert (found.state, found.nodes) == (State.FAILED, ("n1",))
    assert found.headline == "n1: its process ended with code 1 after 5.2 s"
    assert found.found[0] == "n1: ValueError: bad data"


def test_who_was_killed_is_blamed_before_who_complains() -> None:
    job = follower(3)
    end(job, "n0", 1, 5.0, "RuntimeError: something of its own")
    end(job, "n1", -signal.SIGKILL, 5.1)
    assert judged(job, Ended.JOB).headline == "n1: its process was killed by SIGKILL after 5.1 s"


SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-26_18:08:55
  host      : n
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 92)
  error_file: <N/A>
============================================================
"""


def test_under_torchrun_what_its_rank_printed_counts_and_not_its_summary() -> None:
    """The summary is longer than what is shown of a log, and every node prints one."""
    job = follower(3)
    end(
        job,
        "n0",
        1,
        5.0,
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1234",
        SUMMARY.format(code=1),
    )
    end(job, "n1", 1, 5.1, "[rank1]: ValueError: bad data", SUMMARY.format(code=1))
    end(job, "n2", 1, 5.05, "SignalException: Process 80 got signal: 15")
    assert judged(job, Ended.JOB).nodes == ("n1",)


def test_a_rank_that_torchrun_says_was_killed_is_blamed() -> None:
    job = follower()
    end(
        job,
        "n0",
        1,
        5.0,
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1234",
        SUMMARY.format(code=1),
    )
    end(job, "n1", 1, 5.2, SUMMARY.format(code=-9))
    assert judged(job, Ended.JOB).nodes == ("n1",)


def test_our_own_trouble_is_no_nodes() -> None:
    job = follower()
    job.own_fault = "netdoctor's own worker was killed by signal 9"
    job.lost["n1"] = "no answer"
    found = judged(job, Ended.JOB)
    assert (found.state, found.nodes) == (State.UNDECIDED, ())
    assert found.headline == "netdoctor itself could not go on: netdoctor's own worker was killed by signal 9"


def test_who_left_early_with_code_0_is_blamed_by_echoes() -> None:
    job = follower()
    end(job, "n1", 0, 4.9)
    end(job, "n0", 1, 5.0, "RuntimeError: Connection closed by peer [10.0.0.1]:1234")
    assert judged(job, Ended.JOB).headline == (
        "n1: its process ended with code 0 after 4.9 s, and the others went on"
    )


def test_a_much_later_end_is_of_its_own() -> None:
    job = follower()
    end(job, "n0", 1, 5.0, "Connection reset")
    end(job, "n1", 1, 50.0, "ValueError")
    assert judged(job, Ended.JOB).nodes == ("n0",)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("folder", "n0: the folder to start in could not be used: No such file or directory"),
        (
            "command",
            "n0: the command could not be used: No such file or directory; --python PATH looks in that "
            "interpreter's folder first",
        ),
    ],
)
def test_what_could_not_be_started(what: str, text: str) -> None:
    job = Follower(["n0"], [1])
    job.run("n0", 0, RunState(state="failed", errno=2, what=what, at_s=0.1))
    assert judged(job, Ended.JOB).headline == text


def test_a_lost_node_is_named_whatever_the_others_did() -> None:
    job = follower()
    job.lost["n1"] = "no answer: gone"
    end(job, "n0", 1, 5.0, "Connection reset")
    found = judged(job, Ended.JOB)
    assert (found.state, found.nodes) == (State.FAILED, ("n1",))


def test_how_netdoctor_ended_it_says_nothing() -> None:
    job = follower()
    job.closing = True
    end(job, "n0", 1, 11.0, "SignalException: got signal: 15")
    assert judged(job).state is State.STARTED


def test_an_interrupt_decides_nothing_but_what_is_broken_already() -> None:
    assert judged(follower(), Ended.INTERRUPT).state is State.INTERRUPTED
    job = follower()
    end(job, "n0", 1, 5.0, "ValueError")
    assert judged(job, Ended.INTERRUPT).state is State.FAILED


def test_started_is_never_said_of_a_world_that_is_not_whole() -> None:
    """Worlds of any size, of which at random something is taken away: one rank's joining, its steps, its
    process, its node, or its group's size."""
    for seed in range(300):
        chance = random.Random(seed)
        nodes, each = chance.randint(1, 6), chance.randint(1, 4)
        job = follower(nodes, each)
        assert judged(job).state is State.STARTED, seed
        victim = chance.randrange(nodes * each)
        node = f"n{victim // each}"
        match chance.randrange(6):
            case 0:
                job.ranks[victim].joined_s = None
                job.ranks[victim].first_step_s = None
            case 1:
                del job.ranks[victim]
                if nodes * each == 1:
                    continue
            case 2:
                job.ranks[victim].last_step_s = -60.0
            case 3:
                end(job, node, chance.choice([1, 2, -9, -11, 137]), 5.0)
            case 4:
                job.lost[node] = "gone"
            case 5:
                job.ranks[victim].world += 1
        assert judged(job).state is not State.STARTED, seed
