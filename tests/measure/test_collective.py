"""Who takes part in a torch experiment, and who is at the root when it fails."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from netdoctor.agent.programs import rank as rank_program
from netdoctor.facts.bandwidth import (
    Baseline,
    BaselineRate,
    NcclTaken,
    RankTrouble,
    SizeRow,
)
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import Job
from netdoctor.measure.collective import TorchRun, by_node, nccl_words
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import EXPERIMENTS, Context
from netdoctor.measure.load.collectives import rows_of
from netdoctor.measure.ranks import START_S, STOP_S, ProcessState, Ranks, join_s
from netdoctor.measure.roster import Roster, on_processors, roster_of
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.checks import build_hw as hw
from tests.core.fake import FakeTransport

GIB = healthy.GIB
BUSY = (hw.process(4711),)


def plan(*gpus: GpuFacts, variables: dict[str, str] | None = None, job: Job | None = None) -> Context:
    """One node for each of `gpus`. variables: of the login sessions."""
    names = healthy.names(len(gpus))
    store = Store()
    for i, (name, gpu) in enumerate(zip(names, gpus, strict=True), start=1):
        store.put("software", name, hw.software())
        store.put("gpu", name, gpu)
        store.put("host", name, healthy.host(i))
        store.put("net", name, healthy.net(i))
        store.put("env", name, healthy.env(**(variables or {})))
    addresses = {n: healthy.address(i) for i, n in enumerate(names, start=1)}
    participants = Participants(nodes=tuple(names), addresses=addresses)
    return Context(
        transport=FakeTransport(),
        participants=participants,
        store=store,
        job=job or Job(),
        seconds={"allreduce": 5.0},
    )


def chosen(found: Roster | Missing) -> Roster:
    assert isinstance(found, Roster), found
    return found


def test_one_rank_per_gpu_over_the_jobs_interface() -> None:
    found = chosen(roster_of(plan(hw.gpus(), hw.gpus(4))))
    assert (found.backend, found.counts) == ("nccl", {"n1": 8, "n2": 4})
    assert found.layout == ["n1"] * 8 + ["n2"] * 4
    assert found.environments["n1"]["NCCL_SOCKET_IFNAME"] == "=eth0"
    # Half of what is free on the fullest GPU.
    assert found.memory_bytes == (80 * GIB - GIB // 2) // 2


def test_ranks_send_where_the_job_would() -> None:
    context = plan(hw.gpus(), hw.gpus(), job=Job(backend="nccl"))
    context.store.cluster["paths"] = healthy.second(2)
    assert chosen(roster_of(context)).environments["n2"]["NCCL_SOCKET_IFNAME"] == "=eth0,eth1"
    for purposes, ifname in ((("NCCL socket 1", "gloo"), "eth1"), (("NCCL socket 1",), "eth0")):
        context = plan(hw.no_gpus(), hw.no_gpus())
        context.store.cluster["paths"] = healthy.second(2, *purposes)
        found = chosen(roster_of(context))
        assert found.environments["n1"]["GLOO_SOCKET_IFNAME"] == found.ifname["n1"] == ifname


def test_gpus_in_use_are_left_alone_and_the_user_is_named() -> None:
    used = hw.gpus(devices=(hw.gpu(0), hw.gpu(1, processes=BUSY)))
    found = chosen(roster_of(plan(hw.gpus(2), used)))
    assert found.counts == {"n1": 2}
    assert found.left_out == {"n2": "GPUs in use: python (pid 4711, alice)"}
    everywhere = roster_of(plan(used, used))
    assert isinstance(everywhere, Missing)
    assert everywhere == Missing(Why.NOT_EXAMINED, "GPUs in use: python (pid 4711, alice)")


def test_memory_that_somebody_unseen_holds_counts_as_use() -> None:
    used = hw.gpus(devices=(hw.gpu(0), hw.gpu(1, memory_used_bytes=40 * GIB)))
    found = chosen(roster_of(plan(hw.gpus(2), used)))
    assert found.left_out == {"n2": "GPUs in use: processes that cannot be seen (40960 MiB)"}


def test_a_gpu_that_is_not_known_to_be_idle_is_left_alone() -> None:
    silent = hw.gpus(devices=(hw.gpu(0), hw.gpu(1, processes=None)))
    found = chosen(roster_of(plan(hw.gpus(2), silent)))
    assert found.left_out == {"n2": "it is not known who uses the GPUs: the driver does not say it for GPU 1"}


@pytest.mark.parametrize(
    ("text", "takes_part"),
    [
        pytest.param("2,3", True, id="its own are idle"),
        pytest.param("GPU-3,GPU-2", True, id="by UUID"),
        pytest.param("0,1", False, id="one of its own is in use"),
        pytest.param("MIG-2", False, id="not to be told"),
    ],
)
def test_somebody_on_gpus_that_the_job_does_not_use(text: str, takes_part: bool) -> None:
    devices = (hw.gpu(0, processes=BUSY), *(hw.gpu(i) for i in range(1, 4)))
    shared = hw.gpus(devices=devices, cuda_visible_devices=text)
    found = chosen(roster_of(plan(hw.gpus(2), shared)))
    assert ("n2" in found.counts) is takes_part
    if takes_part:
        assert found.counts["n2"] == 2


def test_where_the_order_is_not_known_every_gpu_has_to_be_idle() -> None:
    mixed = (hw.gpu(0, processes=BUSY), hw.gpu(1, name="NVIDIA L4"), hw.gpu(2))
    shared = hw.gpus(devices=mixed, cuda_visible_devices="1,2")
    assert "n2" in chosen(roster_of(plan(hw.gpus(2), shared))).left_out
    by_bus = roster_of(plan(hw.gpus(2), shared, variables={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    assert chosen(by_bus).counts == {"n1": 2, "n2": 2}


def test_pretended_gpus_and_other_backends_compute_on_the_cpu() -> None:
    pretended = plan(hw.gpus(), hw.gpus())
    for name in ("n1", "n2"):
        pretended.store.put("host", name, healthy.host(pretended=("gpu",)))
    for found in (roster_of(pretended), roster_of(plan(hw.gpus(), hw.gpus(), job=Job(backend="gloo")))):
        assert (chosen(found).backend, chosen(found).counts) == ("gloo", {"n1": 1, "n2": 1})


def test_a_torch_for_rocm_says_that_it_ran_on_processors() -> None:
    context = plan(hw.no_gpus(), hw.no_gpus())
    found = chosen(roster_of(context))
    assert (found.backend, on_processors(context, found)) == ("gloo", "")
    rocm = hw.software(torch=hw.torch(version="2.6.0+rocm6.2.4", cuda=None, hip="6.2.41134"))
    context.store.put("software", "n2", rocm)
    assert "RCCL was not tried" in on_processors(context, chosen(roster_of(context)))


def test_a_reason_that_nodes_share_is_said_once() -> None:
    context = plan(*[hw.no_gpus()] * 4)
    for name in ("n2", "n3", "n4"):
        context.store.put("software", name, hw.software(torch=None))
    why = "too few nodes are free for it: torch is not installed there"
    assert roster_of(context) == Missing(Why.NOT_EXAMINED, why)


def test_one_gpu_alone_has_nothing_to_reduce_with() -> None:
    found = roster_of(plan(hw.gpus(1)))
    assert isinstance(found, Missing)
    assert "one rank alone" in found.detail


def test_one_node_with_several_gpus_is_enough() -> None:
    assert chosen(roster_of(plan(hw.gpus(2)))).counts == {"n1": 2}


# What torch 2.x prints on stderr before it aborts, shortened: ProcessGroupNCCL.cpp, NCCLUtils.cpp.
LOST = """\
[rank0]:[E1 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=30000) ran for 30010 milliseconds
[rank0]:[E1 10:00:00.2 ProcessGroupNCCL.cpp:70] To avoid data inconsistency, we are taking the process down.
terminate called after throwing an instance of 'c10::DistBackendError'
frame #9: clone3 + 0x2c (0x7f2c0b1296ec in /usr/lib/x86_64-linux-gnu/libc.so.6)
"""
REMOTE = """\
[rank2]:[E1 10:00:00.1 ProcessGroupNCCL.cpp:2057] Process group watchdog thread terminated with exception: \
NCCL error: remote process exited or there was a network error, NCCL version 2.26.2
"""
BROKEN = """\
[rank1]:[E1 10:00:00.1 ProcessGroupNCCL.cpp:2057] Process group watchdog thread terminated with exception: \
CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call
"""


def ended(code: int | None = None, stderr: str = "", error: str = "", stage: str = "ready") -> ProcessState:
    events: list[Any] = [{"event": "stage", "stage": stage}]
    if error:
        events.append({"event": "error", "stage": stage, "kind": "DistBackendError", "text": error})
    return ProcessState(running=code is None, code=code, events=events, stderr=stderr)


def blamed(*heard: ProcessState, step: str = "3") -> list[RankTrouble]:
    """Those at the root, of one rank on each of n1…"""
    names = healthy.names(len(heard))
    ranks = Ranks(FakeTransport({}), names, {}, "nccl", {})
    for rank, one in zip(ranks.ranks, heard, strict=True):
        rank.take(one)
    ranks.end = float("inf")
    return [one for one in ranks._blame(names, step) if one.first]


def test_a_killed_rank_is_not_hidden_behind_those_whose_torch_gave_up() -> None:
    found = blamed(
        ended(-signal.SIGABRT, LOST), ended(-signal.SIGKILL), ended(-signal.SIGABRT, REMOTE), ended()
    )
    assert [(one.node, one.what) for one in found] == [("n2", "killed")]


def test_a_gpu_that_fails_is_named_and_those_that_waited_for_it_are_not() -> None:
    found = blamed(
        ended(-signal.SIGABRT, LOST), ended(-signal.SIGABRT, BROKEN), ended(-signal.SIGABRT, REMOTE)
    )
    assert [(one.node, one.what) for one in found] == [("n2", "device")]
    assert found[0].detail.endswith("CUDA error: uncorrectable ECC error encountered")


def test_a_store_without_descriptors_is_named() -> None:
    died = (
        "[E1122 10:00:00 socket.cpp:338] [c10d] The server socket on SocketImpl(fd=3, addr=n1) has "
        "failed to accept a connection (errno: 24 - Too many open files).\nterminate called after …\n"
    )
    found = blamed(ended(-signal.SIGABRT, died), ended(-signal.SIGABRT, REMOTE))
    assert [(one.node, one.what) for one in found] == [("n1", "files")]


def test_all_that_only_waited_are_named_alike() -> None:
    found = blamed(ended(-signal.SIGABRT, LOST), ended(-signal.SIGABRT, LOST))
    assert [(one.node, one.what) for one in found] == [("n1", "error"), ("n2", "error")]
    assert "Watchdog caught" in found[0].detail


def test_another_abort_is_a_killed_rank() -> None:
    found = blamed(ended(-signal.SIGABRT, "free(): invalid pointer\n"), ended(-signal.SIGABRT, REMOTE))
    assert [(one.node, one.what) for one in found] == [("n1", "killed")]


@pytest.mark.parametrize(
    ("text", "what", "root"),
    [
        (
            "NCCL error: unhandled cuda error. Last error: Cuda failure 802 'system not yet initialized'",
            "device",
            1,
        ),
        ("CUDA out of memory. Tried to allocate 4.00 GiB", "device", 1),
        (
            "ncclRemoteError: … connect to 10.0.0.3<4> returned Connection refused, "
            "exceeded error retry count after 35 attempts",
            "connect",
            1,
        ),
        ("ncclSystemError: … Last error: Bootstrap : no socket interface found", "error", 1),
        ("ncclRemoteError: … Last error: socketProgress: Connection closed by remote peer n2<5>", "error", 2),
        (
            "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d store",
            "error",
            2,
        ),
    ],
)
def test_what_nccl_says(text: str, what: str, root: int) -> None:
    """Beside a rank that only noticed."""
    echo = ended(error="ncclRemoteError: remote process exited or there was a network error")
    found = blamed(ended(error=text), echo)
    assert len(found) == root
    assert found[0].what == what
    assert found[0].node == "n1"


def test_who_is_only_late_is_behind_and_not_at_fault() -> None:
    """Also where the time of those that waited for it was over first."""
    waiting = ended(error="wait timeout after 15000ms, keys: /all", stage="peers")
    for others in (ended(stage="peers"), waiting):
        found = blamed(others, ended(stage="store"), others)
        assert [(one.node, one.what) for one in found] == [("n2", "stuck")]


def test_limits_grow_with_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(world: int) -> list[float]:
        ranks = Ranks(FakeTransport({}), [f"n{i // 8}" for i in range(world)], {}, "nccl", {})
        asked: list[float] = []

        def step(do: str, timeout_s: float, nodes: Any = None, **args: Any) -> list[Any]:
            asked.extend((timeout_s, args["store_s"], args["group_s"]))
            return [{"port": 29500}]

        monkeypatch.setattr(ranks, "step", step)
        ranks.join("10.0.0.1", 29500)
        _, store_s, group_s, wait_s, *_ = asked
        assert wait_s >= 2 * store_s
        assert group_s > store_s
        return [store_s, group_s, wait_s]

    few, many, most = joined(8), joined(2192), joined(16384)
    assert few == pytest.approx([15, 30, 30], rel=0.03)  # what is known to be plenty for a few
    for a, b, c in zip(few, many, most, strict=True):
        assert a + 40 < b
        assert b + 250 < c
    # What --plan prints holds for as many ranks as these nodes may have.
    assert EXPERIMENTS["allreduce"].limit_s(274, 20.0) > START_S + join_s(2192) + STOP_S


@pytest.mark.thorough
def test_what_is_said_to_nodes_and_back_does_not_grow_with_the_square_of_the_world() -> None:
    """A reply has a bound, and a node whose reply is over it would be called lost."""
    ranks = Ranks(FakeTransport({}), [f"n{i // 8}" for i in range(100_000)], {}, "nccl", {})
    asked = [(i, 99_999 - i) for i in range(0, 50_000)]
    parts = by_node(ranks, asked)
    assert len(parts) == 12_500
    assert {len(part["pairs"]) for part in parts.values()} == {8}
    assert parts["n0"]["pairs"][0] == [0, 99_999]


@pytest.mark.parametrize(
    ("runs", "nodes"),
    [
        ([[2, 2], [1, 1]], [[0, 1], [2, 3], [4]]),
        ([[1, 1], [1, 3]], [[0], [1, 2, 3]]),
    ],
)
def test_nodes_are_told_in_runs(runs: list[list[int]], nodes: list[list[int]]) -> None:
    assert rank_program.nodes_of(runs) == nodes


def test_groups_inside_nodes_are_made_by_their_own_ranks_where_torch_can() -> None:
    made: list[tuple[list[int], bool]] = []

    def new(ranks: list[int], timeout: Any, use_local_synchronization: bool = False) -> str:
        made.append((ranks, use_local_synchronization))
        return f"group {ranks}"

    def old(ranks: list[int], timeout: Any) -> str:
        return new(ranks, timeout)

    def inside(new_group: Any, number: int) -> Any:
        made.clear()
        torch = SimpleNamespace(device=lambda kind: kind)
        rank = rank_program.Rank(torch, SimpleNamespace(new_group=new_group))
        rank.rank = number
        return rank.group_among(rank_program.nodes_of([[2, 2], [1, 1]]))

    assert inside(new, 3) == ([2, 3], "group [2, 3]")
    assert made == [([2, 3], True)]
    assert inside(new, 4) == ([4], None)
    assert not made
    for number, group in ((3, "group [2, 3]"), (4, None)):
        assert inside(old, number)[1] == group
        assert made == [([0, 1], False), ([2, 3], False)]


def test_a_hundred_thousand_ranks_know_their_nodes() -> None:
    nodes = rank_program.nodes_of([[12_500, 8]])
    assert (len(nodes), nodes[-1][-1]) == (12_500, 99_999)


# --- the sum that is verified ---------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 126, 127, 128, 2188, 2192])
def test_a_sum_is_what_its_ranks_bring(world: int) -> None:
    parts = [rank_program.brought(position) for position in range(world)]
    assert rank_program.sums(world) == [sum(column) for column in zip(*parts, strict=True)]
    assert min(map(min, parts)) > 0  # a rank that is left out is missed everywhere


@pytest.mark.parametrize("world", [2189, 16384, 100_000, 132_000])
def test_a_sum_is_exact_in_float32_at_any_size(world: int) -> None:
    """Whole numbers under 2^24 are, in whatever order they are added."""
    assert max(rank_program.sums(world)) < 2**24
    assert min(rank_program.sums(world)) >= world


# --- what NCCL says that it took ------------------------------------------------------------------

HEAD = "gpu1:4711:4722 [0] NCCL INFO "
RDMA = [
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "Using network IB",
    "Pattern 4, crossNic 0, nChannels 12, bw 240.000000/48.000000, type NVL/PIX, sameChannels 1",
    "Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    "Channel 01/0 : 15[7] -> 0[0] [receive] via NET/IB/1(9)/GDRDMA/Shared",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
]
TCP = [
    "NET/IB : No device found.",
    "NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "Initialized NET plugin Socket",
    "Using network Socket",
    "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
]


def heard(monkeypatch: pytest.MonkeyPatch, text: str) -> dict[str, list[str]]:
    """What a rank makes of it, by way of the file that NCCL is told to open."""
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "/var/log/the-jobs-own")
    fd = rank_program.hear_nccl()
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "INIT,NET,GRAPH"
    with open(os.environ["NCCL_DEBUG_FILE"], "w") as opened:  # debug.cc, ncclDebugInit
        opened.write(text)
    assert fd is not None
    try:
        return dict(rank_program.nccl_said(fd))
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("lines", "networks", "via", "links"),
    [
        (RDMA, ["IB"], ["NET/IB/GDRDMA", "P2P"], ["NVL"]),
        (TCP, ["Socket"], ["NET/Socket", "SHM"], []),
        (["Using network AWS Libfabric", "x] via NET/AWS Libfabric/0"], ["AWS Libfabric"], ["NET/AWS"], []),
        (["Using network "], [], [], []),
    ],
)
def test_what_nccl_says_is_read_in_memory(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], networks: list[str], via: list[str], links: list[str]
) -> None:
    said = heard(monkeypatch, "".join(f"{HEAD}{line}\n" for line in lines))
    assert said == {"networks": networks, "via": via, "links": links}


def test_what_a_library_writes_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch, "".join(f"{HEAD}Using network {i:040d}\n" for i in range(50_000)))
    assert len(said["networks"]) == rank_program.SAID_WORDS


def test_what_ranks_heard_is_put_together_by_node() -> None:
    ranks: Any = SimpleNamespace(ranks=[SimpleNamespace(node=n) for n in ("n1", "n1", "n2", "n3", "n4")])
    found = nccl_words(
        ranks,
        [
            {"nccl": {"networks": ["IB"], "via": ["NET/IB"], "links": []}},
            {"nccl": {"networks": ["IB"], "via": ["P2P"], "links": ["NVL"]}},
            {"nccl": {"networks": ["x" * 999] * 999}},
            {"nccl": {"networks": "Socket"}},
            "x",
        ],
    )
    assert found == {
        "n1": NcclTaken(networks=("IB",), via=("NET/IB", "P2P"), links=("NVL",)),
        "n2": NcclTaken(networks=("x" * 40,)),
    }


# --- answers that cannot be read ------------------------------------------------------------------


def rows(*answers: Any) -> tuple[tuple[SizeRow, ...], dict[str, str]]:
    """What is made of the answers of ranks on n1, n2, …, and who could not be read."""
    ranks: Any = SimpleNamespace(ranks=[SimpleNamespace(node=n) for n in healthy.names(len(answers))])
    unread: dict[str, str] = {}
    return rows_of(ranks, answers, range(len(answers)), unread), unread


def told(*sizes: int, **changes: Any) -> dict[str, Any]:
    one = {"median_s": 1.0, "least_s": 0.9, "most_s": 1.1, "batches": 3, "iterations": 1, **changes}
    return {"rows": [{"size": size, **one} for size in sizes]}


def test_answers_of_all_ranks_are_read() -> None:
    found, unread = rows(told(1024, 2048), told(1024, 2048, wrong=3, first_wrong=[1, 2.0, 3.0]))
    assert [row.size_bytes for row in found] == [1024, 2048]
    assert found[0].wrong == {"n2": 3}
    assert not unread


@pytest.mark.parametrize("answer", [None, {}, {"rows": "x"}, {"rows": [{"size": 1}]}, {"rows": []}, "x"])
def test_a_rank_that_cannot_be_read_is_told(answer: Any) -> None:
    """Nobody verified its sums, although the others tell how fast it was."""
    found, unread = rows(told(1024), answer)
    assert [row.size_bytes for row in found] == [1024]
    assert unread == {"n2": "rank 1 reports 0 sizes of 1"}
    found, unread = rows(answer, told(1024))
    assert found == ()
    assert unread == {"n1": "rank 0 reports 0 sizes"}


def test_a_size_that_a_rank_leaves_out_and_figures_that_cannot_be_are_told() -> None:
    assert rows(told(1024, 2048), told(1024))[1] == {"n2": "rank 1 reports 1 sizes of 2"}
    found, unread = rows(told(1024, median_s=-1.0), told(1024))
    assert found == ()
    assert unread == {"n1": "rank 0 gives figures that cannot be"}


@pytest.mark.parametrize(
    ("backend", "rounds"), [("gloo", 4), ("", 4), pytest.param("nccl", 3, id="no measure for gloo")]
)
def test_a_pair_of_ranks_below_its_baseline_is_measured_once_more(backend: str, rounds: int) -> None:
    names = healthy.names(4)
    members = [SimpleNamespace(number=i, node=node) for i, node in enumerate(names)]
    ran: list[set[frozenset[int]]] = []

    def step(name: str, wait_s: float, *, per_node: dict[str, Any], **sizes: Any) -> list[Any]:
        ran.append({frozenset(two) for one in per_node.values() for two in one["pairs"]})
        rate = (0.6 if len(ran) <= 6 else 0.97) * 1e9  # a round is two steps, one for each direction
        return [{"median": rate, "least": rate, "most": rate, "busy": 0.0}] * len(members)

    ranks: Any = SimpleNamespace(nodes=names, ranks=members, step=step, backend="gloo")
    ranks.on_node = lambda node: [one for one in members if one.node == node]
    context = plan(*(hw.no_gpus() for _ in names))
    then = (BaselineRate(src=names[0], dst=names[1], gbyte_s=1.0),)
    context.store.cluster["baseline"] = Baseline(source="x", finished="x", pairs=then, backend=backend)
    taking = Roster(
        backend="gloo", counts=dict.fromkeys(names, 1), environments={}, ifname={}, given_by="netdoctor"
    )
    run = TorchRun(context, taking)
    run.ranks = ranks
    run.measure_pairs(100.0)
    found = run.pairs
    assert (found.planned, found.rounds, len(ran)) == (3, rounds, 2 * rounds)
    assert rounds == 3 or ran[-1] == {frozenset((0, 1))}
