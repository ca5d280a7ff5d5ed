"""Ranks on this machine alone: gloo over loopback wherever torch is, nccl where there is a GPU."""

import contextlib
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

import psutil
import pytest

from netdoctor.facts.bandwidth import AllReduce, NcclTaken, PairRates
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Job
from netdoctor.measure.collective import allreduce
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.ranks import Failed, Ranks
from netdoctor.store import Store
from netdoctor.transport.base import Reply, Request
from tests.agent.harness import AgentProcess
from tests.checks import build, build_hw

from .conftest import VARIABLE, torch_python


class Agents:
    """A transport of agents over pipes: all are asked at once, as over SSH."""

    def __init__(self, python: str, env: Mapping[str, Mapping[str, str] | None]) -> None:
        """env: of each node; None for ours."""
        self.open = contextlib.ExitStack()
        self.agents = {
            node: self.open.enter_context(AgentProcess(python, env=own)) for node, own in env.items()
        }

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        numbers = {n: self.agents[n].start(r.op, r.args) for n, r in requests.items()}
        for node, number in numbers.items():
            answer = self.agents[node].finish(number, requests[node].timeout_s)
            if answer["ok"]:
                yield Reply(node=node, result=answer["result"])
            else:
                yield Reply(node=node, missing=Missing(Why.FAILED, answer["detail"]))

    def close(self) -> None:
        self.open.close()


@pytest.fixture(scope="session")
def python() -> str:
    found, why = torch_python()
    if why:
        pytest.skip(why)
    return found


@contextlib.contextmanager
def started(
    python: str, backend: str, layout: list[str], env: Mapping[str, Mapping[str, str]]
) -> Iterator[Ranks]:
    """Ranks whose group is formed."""
    agents = Agents(python, dict.fromkeys(layout))
    ranks = Ranks(agents, layout, dict.fromkeys(layout, "127.0.0.1"), backend, env)
    try:
        ranks.start()
        ranks.join("127.0.0.1", 0)
        yield ranks
    except Failed as failed:
        raise AssertionError([(t.node, t.what, t.detail) for t in failed.troubles]) from failed
    finally:
        ranks.stop()
        agents.close()


def check_sums(ranks: Ranks) -> None:
    sizes = [4096, 1 << 20, 16 << 20]
    # Seconds enough for all sizes where other tests share two slow cores; an idle machine needs three.
    results = ranks.step("allreduce", 90.0, sizes=sizes, budget_s=40.0, each_s=0.5)
    assert len(results) == len(ranks.ranks)
    for result in results:
        assert [row["size"] for row in result["rows"]] == sizes
        assert all(row["wrong"] == 0 for row in result["rows"])
        assert all(0 < row["least_s"] <= row["median_s"] <= row["most_s"] for row in result["rows"])
    # All ranks go by the slowest one's time.
    assert len({str([row["median_s"] for row in result["rows"]]) for result in results}) == 1


@pytest.fixture
def ranks(request: pytest.FixtureRequest, python: str) -> Iterator[Ranks]:
    """Ranks as on two machines, of which gloo's first has two.

    One GPU is enough for nccl: a host id of its own makes each rank a node to it, so that it takes bootstrap,
    interface choice and sockets as between machines.
    """
    layout, env = ["a", "a", "b"], {"GLOO_SOCKET_IFNAME": "lo"}
    if request.param == "nccl":
        request.getfixturevalue("cuda")
        layout = ["a", "b"]
        env = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
    with started(python, request.param, layout, {n: {**env, "NCCL_HOSTID": n} for n in "ab"}) as made:
        yield made


@pytest.mark.parametrize("ranks", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)], indirect=True)
def test_ranks_add_up_are_timed_as_pairs_and_the_killed_one_is_named(ranks: Ranks) -> None:
    check_sums(ranks)
    said = ranks.step("allreduce", 60.0, sizes=[4096], budget_s=1.0)[0]["nccl"]
    assert ranks.backend == "gloo" or (said["networks"], said["via"]) == (["Socket"], ["NET/Socket"])

    last = len(ranks.ranks) - 1
    for src, dst in ((0, last), (last, 0)):
        found = ranks.step("pairs", 60.0, pairs=[[src, dst]], seconds=1.0, most_bytes=4 << 20)
        took = found[dst]
        assert 0 < took["least"] <= took["median"] <= took["most"]
        assert found[src]["busy"] >= 0

    def kill() -> None:
        (child,) = psutil.Process(ranks.transport.agents["b"].process.pid).children()
        child.kill()

    timer = threading.Timer(3.0, kill)
    timer.start()
    try:
        with pytest.raises(Failed) as failed:
            ranks.step("allreduce", 60.0, sizes=[16 << 20], budget_s=40.0, each_s=30.0, batches=10_000)
    finally:
        timer.join()
    assert [(t.node, t.what) for t in failed.value.troubles if t.first] == [("b", "killed")]


def test_an_interface_that_is_not_there_names_the_rank(python: str) -> None:
    env = {"a": {"GLOO_SOCKET_IFNAME": "lo"}, "b": {"GLOO_SOCKET_IFNAME": "nope0"}}
    agents = Agents(python, dict.fromkeys("ab"))
    ranks = Ranks(agents, ["a", "b"], dict.fromkeys("ab", "127.0.0.1"), "gloo", env)
    try:
        ranks.start()
        with pytest.raises(Failed) as failed:
            ranks.join("127.0.0.1", 0)
    finally:
        ranks.stop()
        agents.close()
    assert {t.node for t in failed.value.troubles if t.first} == {"b"}
    assert "nope0" in failed.value.troubles[0].detail


# Puts gloo and the CPU where the program of a rank asks for nccl and GPUs, and notes which.
STAND_IN = """\
import os
note = os.environ.get("NCCL_TEST_STAND_IN")
if note:
    import torch, torch.distributed as dist

    def say(*words):
        with open(note, "a") as file:
            print(*words, file=file)

    class Device(type):
        def __instancecheck__(cls, value):
            return isinstance(value, real)
        def __call__(cls, kind, *index):
            if kind != "cuda":
                return real(kind, *index)
            say("device", *index)
            return real("cpu")

    real, start = torch.device, dist.init_process_group
    torch.device = Device("device", (), {})
    torch.cuda.set_device = lambda device: say("set")
    torch.cuda.synchronize = lambda device: say("sync")

    def init(backend, **rest):
        say("backend", backend)
        # NCCL opens the file when it is first asked for something, and says what it takes.
        with open(os.environ["NCCL_DEBUG_FILE"], "w") as file:
            file.write("h:1:1 [0] NCCL INFO Using network Socket\\n")
            file.write("h:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0\\n")
        return start("gloo", **rest)

    dist.init_process_group = init
"""


def led(
    python: str, counts: Mapping[str, int], job: Mapping[str, str], env: Mapping[str, Mapping[str, str]]
) -> tuple[PairRates, AllReduce]:
    """What comes of nodes with so many GPUs of 1 GiB. job, env: variables of the job, of each session."""
    store = Store()
    for node, count in counts.items():
        devices = tuple(build_hw.gpu(i, memory_total_bytes=1 << 30) for i in range(count))
        store.put("software", node, build_hw.software())
        store.put("gpu", node, build_hw.gpus(devices=devices))
        store.put("host", node, build.host(shares_machine=True))
    agents = Agents(python, env)
    context = Context(
        transport=agents,
        participants=Participants(
            nodes=tuple(counts), addresses=dict.fromkeys(counts, "127.0.0.1"), master_port=0
        ),
        store=store,
        job=Job(env=dict(job)),
        profile="full",
        seconds={"pair_rates": 3.0, "allreduce": 4.0},
    )
    try:
        pairs, reduced, *_ = allreduce(context)
    finally:
        agents.close()
    assert isinstance(pairs, PairRates)
    assert isinstance(reduced, AllReduce)
    assert not reduced.session.trouble
    assert reduced.session.backend == "nccl"
    # Half of the 512 MiB that are free, for four copies: 64 MiB at most, and less where time is short.
    sizes = [row.size_bytes for row in reduced.rows]
    assert sizes
    assert sizes == [32 << 10, 1 << 20, 16 << 20][: len(sizes)]
    assert not any(row.wrong for row in reduced.rows)
    return pairs, reduced


def led_by_stand_in(
    python: str, folder: Path, counts: dict[str, int]
) -> tuple[PairRates, AllReduce, Counter[str]]:
    """The same, and what the ranks asked torch for."""
    (folder / "sitecustomize.py").write_text(STAND_IN, "utf-8")
    note = folder / "note"
    job = {"NCCL_TEST_STAND_IN": str(note), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    env = {**os.environ, "PYTHONPATH": str(folder)}
    pairs, reduced = led(python, counts, job, dict.fromkeys(counts, env))
    return pairs, reduced, Counter(note.read_text("utf-8").splitlines())


def test_one_rank_per_gpu_is_led_through_everything(python: str, tmp_path: Path) -> None:
    """Our side of the nccl path. Of NCCL itself this proves nothing."""
    pairs, reduced, asked = led_by_stand_in(python, tmp_path, {"n1": 2, "n2": 2})
    assert reduced.session.ranks == ("n1", "n1", "n2", "n2")
    assert asked["device 0"] == asked["device 1"] == 2
    assert asked["set"] == asked["backend nccl"] == 4
    assert asked["sync"] > 100
    said = NcclTaken(networks=("Socket",), via=("NET/Socket",))
    assert reduced.taken == {"n1": said, "n2": said}
    assert all(row.busbw_gbyte_s == pytest.approx(row.algbw_gbyte_s * 6 / 4) for row in reduced.rows)
    assert list(reduced.solo) == ["n1", "n2"]
    assert all(row.busbw_gbyte_s == row.algbw_gbyte_s for rows in reduced.solo.values() for row in rows)
    ends = (("n1", "n2"), ("n2", "n1"))
    assert {(r.src, r.dst, r.rail) for r in pairs.rates} == {(*e, g) for e in ends for g in ("gpu0", "gpu1")}


def test_nodes_with_different_gpu_counts(python: str, tmp_path: Path) -> None:
    counts = {"n1": 2, "n2": 1, "n3": 1}
    pairs, reduced, asked = led_by_stand_in(python, tmp_path, counts)
    assert reduced.session.ranks == ("n1", "n1", "n2", "n3")
    assert (asked["device 0"], asked["device 1"]) == (3, 1)
    assert list(reduced.solo) == ["n1"]
    # As many rails as every node has GPUs: here one, which needs no name.
    found = {(r.src, r.dst, r.rail) for r in pairs.rates}
    assert found
    assert found <= {(a, b, None) for a, b in permutations(counts, 2)}


@pytest.fixture(scope="session")
def cuda(python: str) -> str:
    program = "import torch; assert torch.cuda.is_available(); print(torch.cuda.get_device_name(0))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"no GPU that the torch of {python} could use ({VARIABLE} names another interpreter)")
    return python


@pytest.mark.gpu
def test_two_nodes_with_one_gpu_each_are_led_by_nccl_itself(cuda: str) -> None:
    """The nodes have one GPU between them, and host ids of their own."""
    env = {node: {**os.environ, "NCCL_HOSTID": node} for node in ("n1", "n2")}
    job = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_IB_DISABLE": "1"}
    pairs, reduced = led(cuda, dict.fromkeys(env, 1), job, env)
    taken = {node: (said.networks, said.via) for node, said in reduced.taken.items()}
    assert taken == dict.fromkeys(env, (("Socket",), ("NET/Socket",)))
    assert {(rate.src, rate.dst) for rate in pairs.rates} == set(permutations(env))
    assert min(row.busbw_gbyte_s for row in reduced.rows) > 0
