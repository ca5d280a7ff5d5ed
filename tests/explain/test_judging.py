"""Who failed first, who only echoes it, and what is said when lines admit several causes."""

import itertools
from dataclasses import replace

from netdoctor.explain.engine import explain_text
from netdoctor.explain.judging import LAST_WORDS, NAMES_FROM
from netdoctor.explain.knowledge import Knowledge, read
from netdoctor.explain.model import Confidence, Explanation
from netdoctor.explain.rendering import headings, main_reasons, raised, text

SHM = "NCCL WARN Error: failed to extend /dev/shm/nccl-qHbmRX to 33030528 bytes"
NO_NAME = "RuntimeError: Unable to find address for: eth7"
WATCHDOG = "[rank{r}]:[E ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout"
CLOSED = "[rank{r}]: n{r}:1:2 [0] NCCL WARN socketProgress: Connection closed by remote peer n9<51159>"
TIMED_OUT = "[E socket.cpp:793] [c10d] The client socket has timed out after 60s"
WARNING = "[W socket.cpp:663] [c10d] The client socket has failed to connect to [::1]:29500 (errno: 110)"
COMM = "n{r}:1:2 [0] NCCL INFO comm 0x1 rank {r} nranks 5 cudaDev 0"
VERSION = "NCCL version {v}+cuda12.2"
DEVICE = "torch.cuda.set_device(self._local_rank)"
SLURM = "srun: error: task 3 exited"

# label: patterns of its own. The rest of the form is held by test_knowledge.py.
OWN: dict[str, list[dict[str, object]]] = {
    "shm": [{"regex": "failed to extend /dev/shm"}],
    "name": [{"regex": "Unable to find address for"}],
    "firewall": [],
    "address": [],
    "slow": [],
    "versions": [{"regex": r"NCCL version (?P<value>[\d.]+)", "differs": True, "percent": 90}],
    "binding": [{"regex": r"cuda\.set_device", "percent": NAMES_FROM, "needs": ["slurm"]}],
}
SHARED: list[dict[str, object]] = [
    {
        "regex": "client socket has timed out",
        "role": "symptom",
        "admits": {"firewall": 40, "address": 30, "slow": 5},
    },
    {
        "regex": "client socket has failed to connect",
        "role": "symptom",
        "retried": True,
        "admits": {"firewall": 30},
    },
    {"regex": "Watchdog caught collective", "role": "echo", "admits": {"slow": 60}},
    {"regex": "Connection closed by remote peer", "role": "echo", "admits": {"shm": 5}},
    {"regex": r"rank \d+ nranks \d+", "role": "context"},
    {"regex": "srun: error", "role": "context", "id": "slurm"},
    {
        "regex": "ufw is inactive",
        "role": "context",
        "against": {"firewall": 100},
        "supports": {"address": 50},
    },
]


def knowledge() -> Knowledge:
    causes, patterns = {}, []
    texts = {"title": "t", "why": "w"}
    for label, own in OWN.items():
        full = [{"line": "l", "source": "s", **one} for one in own]
        known, found = read(
            {"label": label, **texts, "checks": ["net.ports"], "pattern": full}, f"{label}.toml"
        )
        assert known is not None
        causes[label] = known
        patterns += found
    patterns += read({"pattern": [{"line": "l", "source": "s", **one} for one in SHARED]}, "_shared.toml")[1]
    return Knowledge(causes, tuple(patterns))


KNOWN = knowledge()


def explained(logs: dict[str, str]) -> Explanation:
    return explain_text(logs, KNOWN)


def first(said: Explanation) -> tuple[str, Confidence, int | None]:
    assert said.ranks.first is not None
    return said.reasons[0].known.label, said.reasons[0].confidence, said.ranks.first.rank


def test_the_rank_that_says_what_is_wrong_is_first_whatever_others_say() -> None:
    """From all logs in any order, and from the one that matters alone."""
    logs = {f"rank_{r}.log": CLOSED.format(r=r) + "\n" + WATCHDOG.format(r=r) for r in (0, 1, 2)}
    logs["rank_3.log"] = f"2026-11-22 14:11:08,402 n3:1:2 [3] {SHM}\n"
    for order in itertools.permutations(logs):
        said = explained({name: logs[name] for name in order})
        assert first(said) == ("shm", Confidence.CERTAIN, 3)
        assert said.echo_count == 6
        assert said.echo_ranks == (0, 1, 2)
        assert main_reasons(said) == said.reasons[:1]
    assert first(explained({"rank_3.log": logs["rank_3.log"]})) == ("shm", Confidence.CERTAIN, 3)


def test_beside_a_certain_cause_guesses_are_shown_where_they_are_likely_or_have_a_fix() -> None:
    likely = explained({"log": f"{SHM}\n{DEVICE}\n{SLURM}\n"})
    assert [one.known.label for one in main_reasons(likely)] == ["shm", "binding"]
    guessed = explained({"log": f"{SHM}\n{TIMED_OUT}\n"})
    assert [one.known.label for one in main_reasons(guessed)] == ["shm"]
    certain, *guesses = guessed.reasons
    proven = replace(
        guessed, reasons=(certain, replace(guesses[0], fixes=("ufw allow 29500",)), *guesses[1:])
    )
    assert [one.known.label for one in main_reasons(proven)] == ["shm", "firewall"]


def test_echoes_alone_are_certain_of_nothing() -> None:
    said = explained({f"rank_{r}.log": WATCHDOG.format(r=r) for r in range(4)})
    assert said.reasons
    assert all(one.confidence is not Confidence.CERTAIN for one in said.reasons)


def test_a_symptom_gives_a_list_and_the_checks_that_decide() -> None:
    said = explained({"log": TIMED_OUT})
    assert [r.known.label for r in said.reasons] == ["firewall", "address", "slow"]
    assert all(one.confidence is not Confidence.CERTAIN for one in said.reasons)
    assert all(one.known.checks for one in said.reasons)
    assert [r.weight for r in said.reasons] == sorted((r.weight for r in said.reasons), reverse=True)


def test_time_orders_over_zones_and_files() -> None:
    """Two causes that lines name: the first in time is certain, also where its file comes last."""
    late = f"2026-11-22T15:00:05+02:00 {SHM}"  # 13:00:05
    early = f"2026-11-22T12:59:59Z {NO_NAME}"
    for logs in ({"a": late, "b": early}, {"b": early, "a": late}, {"one": f"{late}\n{early}"}):
        said = explained(logs)
        assert said.reasons[0].known.label == "name"
        assert said.reasons[1].known.label == "shm"
        assert said.reasons[1].confidence is Confidence.LIKELY


def test_times_without_a_zone_are_not_held_against_such_with_one() -> None:
    logs = {
        "a": f"2026-11-22 09:00:00 {NO_NAME}",
        "b": f"2026-11-22T12:59:59Z {SHM}",
        "c": f"2026-11-22T13:00:00Z {SHM}",
    }
    said = explained(logs)
    assert said.ranks.first is not None
    assert said.ranks.first.file == "b"


def test_a_log_that_repeats_itself_hides_no_earlier_line_of_another() -> None:
    often = "\n".join(f"2026-11-22T13:00:0{i}Z {SHM}" for i in range(9))
    said = explained({"a": often, "b": f"2026-11-22T12:59:59Z {SHM}"})
    assert said.ranks.first is not None
    assert said.ranks.first.file == "b"


def test_ranks_that_say_nothing_are_told() -> None:
    said = explained({f"rank_{r}.log": COMM.format(r=r) + f"\n{SHM}" for r in (0, 1, 3)})
    assert said.ranks.world_size == 5
    assert said.ranks.silent == (2, 4)


def test_what_was_tried_again_until_it_worked_is_no_cause() -> None:
    """A warning while the job starts; it counts where the job says nothing more."""
    healthy = "\n".join([WARNING, *(f"step {i} loss 1.0" for i in range(LAST_WORDS + 5))])
    assert explained({"log": healthy}).reasons == ()
    assert explained({"log": WARNING}).reasons
    assert explained({"log": healthy + "\n" + TIMED_OUT}).reasons


def test_unknown_trouble_is_quoted_without_secrets() -> None:
    said = explained(
        {"log": "FooError: cannot frobnicate with token=hf_abcdefghijklmnopqrstuv \x1b[31mnow\x07"}
    )
    assert said.reasons == ()
    assert len(said.unknown) == 1
    assert "hf_abc" not in said.unknown[0].text
    assert said.unknown[0].text.isprintable()


def test_what_is_compared_counts_once_it_differs() -> None:
    same = {f"rank_{r}.log": VERSION.format(v="2.19.3") for r in range(3)}
    assert explained(same).reasons == ()
    said = explained({**same, "rank_3.log": VERSION.format(v="2.18.5")})
    assert said.reasons[0].known.label == "versions"
    assert {one.text for one in said.reasons[0].lines} == {VERSION.format(v=v) for v in ("2.19.3", "2.18.5")}


def test_a_line_may_need_another() -> None:
    assert explained({"log": DEVICE}).reasons == ()
    (reason,) = explained({"log": f"{DEVICE}\n{SLURM}"}).reasons
    assert (reason.known.label, reason.confidence) == ("binding", Confidence.LIKELY)


def test_context_rules_out_and_raises() -> None:
    said = explained({"log": f"ufw is inactive\n{TIMED_OUT}"})
    assert [r.known.label for r in said.reasons] == ["address", "slow"]
    assert said.reasons[0].confidence is Confidence.LIKELY
    assert explained({"log": "ufw is inactive"}).reasons == ()


def test_a_line_counts_once_however_often_it_came() -> None:
    once, often = explained({"log": TIMED_OUT}), explained({"log": f"{TIMED_OUT}\n" * 5000})
    assert [(r.known.label, r.weight) for r in once.reasons] == [
        (r.known.label, r.weight) for r in often.reasons
    ]


def test_a_rank_whose_log_has_nothing_of_it_is_told() -> None:
    logs = {f"rank_{r}.log": CLOSED.format(r=r) for r in (0, 1, 3)}
    said = explained({**logs, "rank_2.log": "step 7\nstep 8"})
    assert said.ranks.quiet == (2,)
    assert "The log of rank 2 says nothing of a failure" in " ".join(headings(said))
    assert explained({"rank_2.log": "step 7"}).ranks.quiet == ()


def test_an_exception_that_nobody_knows_may_be_the_first_failure() -> None:
    logs = {f"rank_{r}.log": CLOSED.format(r=r) for r in (0, 1)}
    said = explained(
        {**logs, "rank_2.log": "Traceback (most recent call last):\n[rank2]: ValueError: bad batch"}
    )
    assert [one.text for one in raised(said)] == ["[rank2]: ValueError: bad batch"]
    assert "ValueError: bad batch" in text(said, {})
    assert raised(explained({"a": SHM, "b": "ValueError: later"})) == []


def test_an_exception_before_all_echoes_was_the_first_failure() -> None:
    """In one log, where only the later lines have times."""
    echo = "[rank0]:[E1122 14:41:08.402113 socket.cpp:7] [c10d] The client socket has timed out after 60s"
    said = explained({"log": f"[rank3]: ValueError: bad batch\n{echo}"})
    assert said.ranks.first is not None
    assert said.ranks.first.rank == 3
    assert {one.confidence for one in said.reasons} == {Confidence.POSSIBLE}
    later = explained({"log": f"{echo}\n[rank3]: ValueError: bad batch"})
    assert later.ranks.first is not None
    assert later.ranks.first.rank == 0
