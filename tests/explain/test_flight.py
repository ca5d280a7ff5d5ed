"""Flight records, and what watchdogs print: what is read, what is refused, who is to blame."""

import json
import os
import pickle
import random
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor.explain import desync, flight, plain_pickle
from netdoctor.explain.engine import explain, explain_text
from netdoctor.explain.watchdogs import Watchdogs
from tests.hostile import HOSTILE

# Of gloo, written by torch 2.13.0+cpu. gloo, json: rank 2 broadcasts; absent: it sleeps; healthy: none does.
RECORDS = Path(__file__).parent / "records"
WORLD = (0, 1, 2)


def call(group: str, number: int, name: str = "all_reduce", size: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "process_group": [group, "default_pg" if group == "0" else "part"],
        "collective_seq_id": number,
        "p2p_seq_id": number,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_created_ns": 1_700_000_000_000_000_000 + number * 10**9,
        "is_p2p": " " in name,
        **more,
    }


def records(
    calls: Mapping[int, list[dict[str, Any]]], groups: Mapping[str, tuple[int, ...]] | None = None
) -> list[flight.Record]:
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else "part", "ranks": str(list(ranks))}
        for name, ranks in (groups or {"0": tuple(calls)}).items()
    }
    return [
        flight.read(
            pickle.dumps(
                {
                    "version": "2.10",
                    "pg_config": {n: c for n, c in config.items() if str(rank) in c["ranks"]},
                    "entries": [{"record_id": i, **one} for i, one in enumerate(mine)],
                },
                2,
            ),
            f"trace_{rank}",
        )
        for rank, mine in calls.items()
    ]


def said(
    calls: Mapping[int, list[dict[str, Any]]], groups: Mapping[str, tuple[int, ...]] | None = None
) -> str:
    return "\n".join(line for _, _, line in desync.lines(records(calls, groups)))


WAITS = {"state": "started"}


def test_reads_what_torch_wrote():
    files = sorted((RECORDS / "gloo").iterdir())
    read = [flight.read(file.read_bytes(), file.name) for file in files]
    assert [(one.rank, one.backend) for one in read] == [(n, "gloo") for n in WORLD]
    assert [one.name for one in read[2].operations] == ["all_reduce", "all_reduce", "broadcast"]
    assert "/train.py:" in read[2].operations[-1].where
    same = [flight.read(f.read_bytes(), f.name) for f in sorted((RECORDS / "json").iterdir())]
    for one, other in zip(read, same, strict=True):
        assert [o.name for o in one.operations] == [o.name for o in other.operations]
        assert one.operations[0].inputs == other.operations[0].inputs == ((4,),)


@pytest.mark.parametrize("folder", ["gloo", "json"])
def test_a_folder_with_records_and_logs_is_explained(folder: str, tmp_path: Path):
    for file in (RECORDS / folder).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "rank_0.log").write_text(
        "[rank0]: RuntimeError: Timed out waiting 5000ms for send operation to complete\n"
    )
    found = explain([str(tmp_path)])
    assert found.reasons[0].known.label == "mismatched_collectives"
    assert found.reasons[0].confidence == "certain"
    assert found.reasons[0].lines[0].rank == 2
    assert "rank 2 called broadcast(4 Float)" in found.reasons[0].lines[0].text


def read(folder: str) -> list[flight.Record]:
    return [flight.read(file.read_bytes(), file.name) for file in sorted((RECORDS / folder).iterdir())]


def test_real_records_of_nccl():
    """Of torch 2.11 with NCCL 2.28.9 on an H100."""
    ((_, rank, line),) = desync.lines(read("nccl_absent"))
    assert rank == 1
    assert "collective 6: never entered by rank 1, which rank 0 waits for in all_reduce(1048576 F" in line
    ((_, rank, line),) = desync.lines(read("nccl_other"))
    assert rank == 1
    assert "rank 1 called broadcast(1048576 Float), at train.py:23 in <module>" in line


def test_real_records_of_gloo():
    """Six kinds of calls, and a group of two ranks; in one of the jobs rank 2 does not come to the last."""
    assert list(desync.lines(read("healthy"))) == []
    ((_, rank, line),) = desync.lines(read("absent"))
    assert rank == 2
    assert "collective 7: never entered by rank 2, which ranks 0-1 wait for in all_reduce(4 Float)" in line
    assert "its last there was 6 (reduce), " in line


def test_the_same_on_all_ranks_is_no_trouble():
    plain = [call("0", 1), call("0", 2, "broadcast"), call("0", 3, **WAITS)]
    assert said(dict.fromkeys(WORLD, plain)) == ""


def test_names_who_never_came():
    whole = [call("0", 1), call("0", 2, **WAITS)]
    text = said({0: whole, 1: whole, 2: whole[:1]})
    assert "collective 2: never entered by rank 2, which ranks 0-1 wait for in all_reduce(4 Float)" in text
    assert "its last there was 1 (all_reduce, completed), 1.0 s before they came" in text


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (call("0", 1, "all_gather", output_sizes=[[12]], **WAITS), "all_gather(4 Float)"),
        (call("0", 1, "scatter", input_sizes=[], **WAITS), "scatter(4 Float)"),
    ],
)
def test_a_call_is_shown_with_the_size_that_goes_in_or_else_comes_out(one: dict[str, Any], shown: str):
    assert f"waits for in {shown}" in said({0: [one], 1: []})


@pytest.mark.parametrize("text", ["", "undefined"])
def test_a_group_that_nobody_described_is_named_by_its_number_alone(text: str):
    read = [replace(one, texts={"0": text}) for one in records({0: [call("0", 1, **WAITS)], 1: []})]
    ((_, _, line),) = desync.lines(read)
    assert "group 0, collective 1: never entered" in line


def test_who_is_behind_while_nobody_waits_is_no_trouble():
    assert said({0: [call("0", 1), call("0", 2)], 1: [call("0", 1)]}) == ""


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (
            {"name": "broadcast"},
            "mismatch: rank 1 called broadcast(4 Float) where ranks 0,2 called all_reduce",
        ),
        ({"size": 5}, "mismatch: rank 1 called all_reduce(5 Float) where"),
        ({"input_dtypes": ["Half"], "output_dtypes": ["Half"]}, "mismatch: rank 1 called all_reduce(4 Half)"),
        ({"state": "scheduled"}, "not begun on rank 1, whose GPU"),
    ],
)
def test_names_who_called_something_else(odd: dict[str, Any], words: str):
    last = {"name": "all_reduce", "size": 4, **WAITS}
    usual = [call("0", 1), call("0", 2, **last)]
    assert words in said({0: usual, 1: [call("0", 1), call("0", 2, **{**last, **odd})], 2: usual})


def test_sizes_that_may_differ_are_no_mismatch():
    uneven = {rank: [call("0", 1, "all_to_all", size=4, **WAITS)] for rank in WORLD}
    assert said(uneven) == ""
    uneven[0] = [call("0", 1, "all_to_all", size=4, output_sizes=[[9]], **WAITS)]
    assert "do not add up" in said(uneven)
    lists = {rank: [call("0", 1, "all_gather", size=4 + rank // 2, **WAITS)] for rank in WORLD}
    assert "uneven sizes: rank 2" in said(lists)


def test_ranks_that_wait_for_each_other_are_told_and_their_victims_not():
    groups = {"0": (0, 1, 2), "1": (0, 1)}
    text = said({0: [call("1", 1, **WAITS)], 1: [call("0", 1, **WAITS)], 2: [call("0", 1, **WAITS)]}, groups)
    assert "another order of groups: rank 0 waits in group 1 (part), collective 1, while ranks 1-2" in text
    assert "never entered" not in text
    # Rank 2 waits for 0 in one group, 0 for 1 in another; 1 does nothing.
    text = said({0: [call("1", 1, **WAITS)], 1: [], 2: [call("0", 1, **WAITS)]}, groups)
    assert (
        "never entered by rank 1, which rank 0 waits for in all_reduce(4 Float); its last there was none\n"
        in (text + "\n")
    )
    assert "by rank 0" not in text
    assert "mismatch" not in text


def test_ranks_without_a_record_are_told_and_not_blamed():
    whole = [call("0", 1), call("0", 2, **WAITS)]
    text = said({0: whole, 1: whole[:1], 2: whole}, {"0": (0, 1, 2, 3, 4)})
    assert "no record of ranks 3-4" in text
    assert text.index("never entered by rank 1") < text.index("no record")


def test_a_ring_that_was_full_is_compared_from_where_all_have_it():
    def wrapped(first: int, last: int) -> list[dict[str, Any]]:
        return [call("0", n, **(WAITS if n == 30 else {})) | {"record_id": n} for n in range(first, last + 1)]

    assert said({0: wrapped(5, 30), 1: wrapped(20, 30), 2: wrapped(25, 30)}) == ""
    assert "collective 30: never entered by rank 2" in said(
        {0: wrapped(5, 30), 1: wrapped(20, 29 + 1), 2: wrapped(9, 29)}
    )


def test_sends_without_receives_are_told():
    send = call("0", 1, "send 0->1", **WAITS)
    receive = call("0", 1, "recv 1<-0", **WAITS)
    assert said({0: [send], 1: [receive]}) == ""
    assert "no partner: rank 0 waits in send 0->1(4 Float) for rank 1" in said({0: [send], 1: []})
    other = call("0", 1, "recv 1<-0", size=5, **WAITS)
    assert "no partner: rank 0 called send 0->1(4 Float), and rank 1 recv" in said({0: [send], 1: [other]})


def test_ranks_of_a_send_are_those_of_its_own_group():
    """Rank 0 of the part is rank 1 of the job, and nobody sends in the group of all."""
    calls = {0: [], 1: [call("1", 1, "send 0->1", **WAITS)], 2: [call("1", 1, "recv 1<-0", **WAITS)]}
    assert said(calls, {"0": WORLD, "1": (1, 2)}) == ""
    calls[2] = []
    text = said(calls, {"0": WORLD, "1": (1, 2)})
    assert text.count("no partner") == 1
    assert "group 1 (part), operation 1: no partner: rank 1 waits in send 0->1(4 Float) for rank 2" in text


# --- what is refused -------------------------------------------------------------------------------

RAN: list[str] = []


def fire(*_: object) -> None:
    RAN.append("a pickle ran code")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (fire, ())


def laughs() -> bytes:
    """Thirty lists, each of which holds the one before it twice."""
    body = b"]q\x00" + b"".join(b"]q%c(h%ch%ce" % (n, n - 1, n - 1) for n in range(1, 30))
    return b"\x80\x02" + body + b"."


NAME = f"{__name__}\nfire\n".encode()
HOSTILE_PICKLES = {
    **{f"reduce, protocol {n}": pickle.dumps({"entries": [Bomb()]}, n) for n in range(2, 6)},
    "global": b"\x80\x02c" + NAME + b".",
    "inst": b"\x80\x02(i" + NAME + b".",
    "obj": b"\x80\x02(c" + NAME + b"o.",
    "newobj": b"\x80\x02c" + NAME + b")\x81.",
    "build": b"\x80\x02}}b.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x02Px\n.",
    "long text line": b"\x80\x02I" + b"1" * 10_000 + b"\n.",
    "a place in the memo beyond all memory": b"\x80\x02]r\xff\xff\xff\xff0.",
    "text beyond all memory": b"\x80\x05\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "bytes": b"\x80\x04C\x01a.",
    "a list as key": b"\x80\x02}]K\x01s.",
    "no mark": b"\x80\x02]e.",
    "a nest of tuples as key": b"\x80\x02})" + b"\x85" * 400_000 + b"K\x01s.",
    "bytes beyond all memory": b"\x80\x05\x96" + struct.pack("<Q", 1 << 35) + b"x.",
    "sets": b"\x80\x04" + b"\x8f" * 1000 + b".",
    "nothing there": b"\x80\x02.",
    "memo of nothing": b"\x80\x02q\x00.",
    "not there": b"\x80\x02h\x07.",
    "no end": b"\x80\x02]",
    "odd dict": b"\x80\x02}(K\x01u.",
    "marks": b"\x80\x02" + b"(" * 100_000,
    "protocol 0": b"(lp0\n.",
    "only a byte": b"\x80",
}


@pytest.mark.parametrize("data", HOSTILE_PICKLES.values(), ids=HOSTILE_PICKLES)
def test_hostile_pickles_are_refused_and_run_nothing(data: bytes):
    with pytest.raises(flight.FlightError):
        flight.read(data, "trace_0")
    assert not RAN


def test_what_would_take_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    lists = b"\x80\x02" + b"]" * 1000 + b"."
    assert plain_pickle.load(lists) == []
    for bound in ("CONTAINERS_MAX", "STEPS_MAX"):
        monkeypatch.setattr(plain_pickle, bound, 999)
        with pytest.raises(plain_pickle.NotPlain, match=r"too many|more than"):
            plain_pickle.load(lists)
        monkeypatch.undo()


def test_a_pickle_may_be_larger_than_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight, "JSON_MAX", 10)
    assert flight.read(pickle.dumps({"entries": []}, 2), "trace_0").operations == ()
    with pytest.raises(flight.FlightError, match="more than"):
        flight.read(b'{"entries": []}', "trace_0")


def test_what_is_shared_without_end_is_read_in_no_time():
    with pytest.raises(flight.FlightError, match="without entries"):
        flight.read(laughs(), "trace_0")
    itself: dict[str, Any] = {"version": "2.10", "pg_config": {}, "entries": []}
    one = call("0", 1)
    one["input_sizes"] = [one]
    one["frames"] = itself
    itself["entries"] = [one] * 1000
    itself["pg_config"] = {"0": itself}
    assert len(flight.read(pickle.dumps(itself, 2), "trace_0").operations) == 1000


def test_reads_all_that_plain_pickles_have():
    value = {
        "a": [
            1,
            255,
            65535,
            -1,
            1 << 40,
            1.5,
            None,
            True,
            False,
            "ü",
            (),
            (1,),
            (1, 2),
            (1, 2, 3),
            (1, 2, 3, 4),
        ]
    }
    for protocol in range(2, 6):
        assert plain_pickle.load(pickle.dumps(value, protocol)) == value


def test_damaged_records_are_said_to_be_so():
    rng = random.Random(1)
    whole = (RECORDS / "gloo" / "tr_0").read_bytes()
    text = (RECORDS / "json" / "fr_0.json").read_bytes()
    for turn in range(300):
        data = bytearray(text if turn % 3 == 0 else whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if turn % 5 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            record = flight.read(bytes(data), "trace_0")
        except flight.FlightError:
            continue
        list(desync.lines([record, *records({1: [call("0", 1)]})]))


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        ({"entries": [3]}, "another form"),
        ({"entries": [{"process_group": "0"}]}, "another form"),
        ({"entries": {}}, "without entries"),
        ([], "without entries"),
        ({"entries": [], "pg_config": {"0": {"ranks": [1, "x", None]}, "1": 3}}, ""),
        ({"entries": [call("0", -(1 << 80))]}, ""),
    ],
)
def test_records_of_another_form(whole: Any, why: str):
    if why:
        with pytest.raises(flight.FlightError, match=why):
            flight.read(json.dumps(whole).encode(), "trace_0")
    else:
        list(desync.lines([flight.read(json.dumps(whole).encode(), f"trace_{n}") for n in (0, 1)]))


def test_a_file_without_a_rank_in_its_name_is_told():
    with pytest.raises(flight.FlightError, match="rank"):
        flight.read(b'{"entries": []}', "trace.json")
    assert flight.rank_of("/x/nccl_trace_rank_12") == 12
    assert flight.rank_of("/x/fr_3.json") == 3


def test_hostile_text_in_a_record_stays_inert(tmp_path: Path):
    for rank in (0, 1):
        entries = [
            {
                "record_id": n,
                **call("0", n, name=f"{text}{rank}", frames=[{"name": text, "filename": text, "line": text}]),
            }
            for n, text in enumerate(HOSTILE.values(), 1)
        ]
        data = json.dumps({"version": "2.10", "pg_config": {}, "entries": entries})
        (tmp_path / f"fr_{rank}.json").write_bytes(data.encode("utf-8", "surrogatepass"))
    found = explain([str(tmp_path)])
    assert found.reasons
    for quoted in found.reasons[0].lines:
        assert quoted.text.isprintable()


def test_logs_are_no_records(tmp_path: Path):
    for head in (b"", b"{", b'{"level": "info"}', b"NCCL INFO pg_config", os.urandom(64)):
        assert not flight.is_record(head)
    (tmp_path / "a_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [Bomb()]}, 2))
    found = explain([str(tmp_path)])
    assert "opcode 0x63" in found.sources[0].remarks[0]
    assert not RAN


# --- torch's watchdogs -----------------------------------------------------------------------------

# How far a rank is in a group, as releases print it (pytorch/pytorch ProcessGroupNCCL.cpp): of a rank whose
# own work timed out, and from 2.3 on of one that hears of it.
_WORK = "last enqueued NCCL work: {last}, last completed NCCL work: {done}."
TIMED_OUT = {
    "2.2": "[Rank {rank}] Timeout at NCCL work: {at}, " + _WORK,
    "2.4": "[PG {group} (default_pg) Rank {rank}] Timeout at NCCL work: {at}, " + _WORK,
    "2.5": "[PG ID 0 PG GUID {group}(default_pg) Rank {rank}] Exception (either an error or timeout) "
    "detected by watchdog at work: {at}, " + _WORK,
    "2.8": "[PG ID 0 PG GUID {group}(default_pg) Rank {rank}]  failure detected by watchdog at work "
    "sequence id: {at} PG status: last enqueued work: {last}, last completed work: {done}",
}
HEARD = (
    "[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from "
    " rank 1 and we will try our best to dump the debug info. L" + _WORK[1:] + "This is most likely caused by"
)


def watchdogs(*lines: str, world: int | None = None) -> list[str]:
    taken = Watchdogs()
    taken.block("job.log", "\n".join(lines).encode(), 1)
    return [text for _, _, text in taken.lines(world)]


def status(
    rank: int, last: int, done: int, at: int | None = None, form: str = "2.5", group: str = "0"
) -> str:
    text = HEARD if at is None else TIMED_OUT[form]
    line = text.format(rank=rank, last=last, done=done, at=at, group=group)
    return f"[rank{rank}]:[E703 15:37:17.178057290 ProcessGroupNCCL.cpp:1922] {line}"


@pytest.mark.parametrize("form", TIMED_OUT)
def test_watchdogs_name_who_did_not_come(form: str):
    lines = [status(rank, 35, 31, 32, form) for rank in (0, 1, 3)] + [status(2, 31, 31)]
    (line,) = watchdogs(*lines)
    assert line.startswith(
        "[rank2]: watchdogs: group 0 (default_pg), collective 32: never entered by rank 2, "
    )
    assert "which ranks 0-1,3 wait for" in line
    explanation = explain_text({"job.log": "\n".join(lines)})
    assert explanation.reasons[0].known.label == "collective_timeout_slow_rank"
    assert explanation.reasons[0].lines[0].rank == 2
    assert explanation.reasons[0].lines[0].line == 4


def test_watchdogs_of_a_real_job():
    """torch 2.11 on two GPUs, with its defaults; logs/README.md says how it was made."""
    logs = sorted((Path(__file__).parent / "logs" / "gpu_collective_skipped").glob("rank*.log"))
    explanation = explain([str(log) for log in logs])
    assert explanation.ranks.first is not None
    assert explanation.ranks.first.text.startswith("[rank1]: watchdogs: ")


def test_who_waits_in_nothing_where_nearly_all_do_is_named():
    """Of a part of the job only who waits in it says how far it is; the default group is done with."""
    parts = [status(rank, 7, 6, 7, group="3").replace("default_pg", "dp") for rank in range(8) if rank != 5]
    heard = [status(rank, 2, 2) for rank in range(8)]
    (line,) = watchdogs(*parts, *heard)
    assert line == "[rank5]: watchdogs: rank 5 waited in nothing when the time of 7 others was up"
    reason = explain_text({"job.log": "\n".join([*parts, *heard])}).reasons[0]
    assert (reason.known.label, reason.lines[0].rank) == ("collective_timeout_slow_rank", 5)
    assert watchdogs(*parts[:4], *heard) == []  # half of them wait in nothing


def test_who_waits_in_another_group_is_not_to_blame():
    inner = [status(rank, 7, 6, 7, group="3").replace("default_pg", "tp") for rank in (2, 3)]
    outer = [status(rank, 9, 8, 9) for rank in (0, 1)]
    heard = [status(rank, 8, 8) for rank in (2, 3)]
    assert watchdogs(*inner, *outer, *heard) == []


@pytest.mark.parametrize(
    "lines",
    [
        [status(0, 32, 31, 32), status(1, 32, 31, 32)],  # the others may have printed nothing
        [status(0, 32, 31), status(1, 31, 31)],  # nothing timed out here
        [status(0, 900, 899, 900), status(1, 12, 12)],  # a count of something else
        [status(0, 32, 31, 32), status(1, 31, 31), status(1, 3, 3)],  # a second start, or a second job
        [status(0, 32, 31, 32), status(1, 4, 31)],  # sends and collectives in one group
        [status(0, 32, 31, 32).removeprefix("[rank0]:").replace("Rank 0", "rank"), status(1, 31, 31)],
    ],
)
def test_watchdogs_that_prove_nothing(lines: list[str]):
    assert watchdogs(*lines) == []


def test_where_all_ranks_came_nobody_is_late():
    lines = [status(rank, 32, 31, 32) for rank in range(4)]
    assert watchdogs(*lines, world=8) == []
    assert watchdogs(*lines, world=4) == [
        "watchdogs: group 0, collective 32: entered by all 4 ranks, done by none"
    ]
    weight = {}
    for world in (4, 8):
        log = "\n".join(
            [
                f"world_size={world}",
                *lines,
                lines[0].replace("Exception", "Watchdog caught collective operation timeout"),
            ]
        )
        weight[world] = {r.known.label: r.weight for r in explain_text({"job.log": log}).reasons}
    assert weight[4]["collective_timeout_slow_rank"] < weight[8]["collective_timeout_slow_rank"]
    assert weight[4]["ib_link_or_fabric"] > weight[8]["ib_link_or_fabric"]


def test_watchdogs_of_many_ranks_and_any_bytes():
    lines = [status(rank, 40, 39, 40) for rank in range(2048)] + [status(2048, 39, 39)]
    (line,) = watchdogs(*lines)
    assert line.startswith("[rank2048]: ")
    junk = Watchdogs()
    junk.block(
        "log", b"\xff last enqueued NCCL work: 1, last completed NCCL work: \x00\n[rank0] ast enqueued ", 1
    )
    assert list(junk.lines(None)) == []
