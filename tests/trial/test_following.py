"""What lines and probes of a job say; nothing that they hold can break it."""

import re

from netdoctor.trial.following import Event, Follower, Stack, place_of

NCCL = b"gpu7:12:34 [0] NCCL INFO comm 0x5 rank %d nranks 2 cudaDev 0 busId 1000 commId 0x9 - Init COMPLETE\n"


def test_nccl_says_who_joined_where_no_probe_does() -> None:
    job = Follower(["a", "b"], [1, 1])
    job.output("a", 0, NCCL % 0, 2.0)
    job.output("b", 0, NCCL % 1, 3.0)
    assert (job.world, sorted(rank.number for rank in job.joined)) == (2, [0, 1])


def test_smaller_groups_do_not_take_the_numbers_of_ranks() -> None:
    job = Follower(["a", "b"], [1, 1])
    job.output("a", 0, NCCL % 0, 2.0)
    job.output("b", 0, NCCL % 1, 3.0)
    job.output("b", 0, NCCL.replace(b"nranks 2", b"nranks 1") % 0, 4.0)
    assert job.ranks[0].nodes == {"a"}


def test_what_nccl_uses_is_kept_by_node() -> None:
    job = Follower(["a"], [1])
    job.output("a", 0, b"gpu7:1:2 [0] NCCL INFO NET/IB : No device found.\n", 1.0)
    job.output("a", 0, b"gpu7:1:2 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>\n", 1.0)
    job.output("a", 0, b"gpu7:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n", 1.0)
    assert job.networks == {"a": {"Socket [0]eth0:10.0.0.1<0>": 1}}


def test_counters_of_logs() -> None:
    lines = {
        b"iteration       10/ 500 | loss 2.1": 10,
        b"step=12 loss=0.1": 12,
        b"{'step': 7, 'loss': 1}": 7,
        b"global_step: 3": 3,
        b"iter 99: loss 1.2, time 3ms": 99,
        b"Step 5/100": 5,
        b"footstep 4": None,
        b"Loading checkpoint shards: 30%| 3/10 [00:01<00:02]": None,
        b"step 1.5 of the guide": None,
        b"steps are made": None,
    }
    for line, count in lines.items():
        job = Follower(["a"], [1])
        job.output("a", 0, line + b"\n", 1.0)
        assert (job.log_steps["a"].last if "a" in job.log_steps else None) == count, line


def test_a_counter_that_stands_still_is_none() -> None:
    job = Follower(["a"], [1])
    job.output("a", 0, b"step 1: reading the data\n", 1.0)
    assert not job.steps_seen
    job.output("a", 0, b"step 2: training\n", 2.0)
    assert job.steps_seen
    assert job.rate() == 1.0


def test_the_user_knows_the_counter() -> None:
    job = Follower(["a"], [1], re.compile(rb"batch ([0-9]+)"))
    job.output("a", 0, b"step 5\nbatch 1\n", 1.0)
    assert (job.steps_seen, job.steps()) == (True, 1)


def test_a_line_in_pieces_and_progress_bars() -> None:
    job = Follower(["a"], [1])
    for piece in (b"ste", b"p 1\rstep 2\r", b"step 3\n"):
        job.output("a", 0, piece, 1.0)
    assert (job.log_steps["a"].first, job.log_steps["a"].last) == (1, 3)


def test_what_a_probe_may_say_is_bounded() -> None:
    job = Follower(["a"], [1])
    for rank in (-1, 10**9, None):
        job.event("a", Event(what="joined", rank=rank, world=1))
    assert not job.ranks
    job.output("a", 0, b"\xff\x1b[31m" * 100_000, 1.0)
    job.output("a", 0, b"\n", 1.0)
    (line,) = job.processes["a"][0].tail
    assert "\x1b" not in line
    assert len(line) <= 400


def test_a_line_of_any_length_is_looked_at_at_its_beginning_alone() -> None:
    """So that the cost of a line is bounded, whoever wrote it."""
    job = Follower(["a", "b"], [1, 1])
    job.output("a", 0, b"NCCL INFO " + b"x" * 2000 + b" rank 0 nranks 2 - Init COMPLETE\n", 1.0)
    assert not job.ranks


def test_a_stack_in_few_words() -> None:
    text = (
        'Thread 0x1 (most recent call first):\n  File "/v/site-packages/torch/d.py", line 9 in barrier\n'
        '  File "/home/ann/a b.py", line 72 in <module>\n'
    )
    assert place_of(Stack(pid=1, state="S", text=text)) == "barrier, <module> (a b.py:72)"
    assert place_of(Stack(pid=1, state="T", text="")) == "stopped by a signal"
    assert place_of(Stack(pid=1, state="S", text="rubbish\x1b[2J")) == ""
