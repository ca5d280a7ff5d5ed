"""Ranks on this machine alone: gloo over loopback wherever torch is, nccl where there is a GPU."""

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from netdoctor.facts.base import Missing, Why
from netdoctor.measure.ranks import Failed, Ranks
from netdoctor.transport.base import Reply, Request
from tests.agent.harness import AgentProcess

from .conftest import VARIABLE, torch_python


class Agents:
    """A transport of agents over pipes: all are asked at once, as over SSH."""

    def __init__(self, python: str, nodes: list[str]) -> None:
        self.agents = {node: AgentProcess(python) for node in nodes}
        for agent in self.agents.values():
            agent.read()

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        numbers = {n: self.agents[n].start(r.op, r.args) for n, r in requests.items()}
        for node, number in numbers.items():
            answer = self.agents[node].finish(number, requests[node].timeout_s)
            if answer["ok"]:
                yield Reply(node=node, result=answer["result"])
            else:
                yield Reply(node=node, missing=Missing(Why.FAILED, answer["detail"]))

    def close(self) -> None:
        for agent in self.agents.values():
            agent.stop()


@pytest.fixture
def python() -> str:
    found, why = torch_python()
    if why:
        pytest.skip(why)
    return found


def run(python: str, backend: str, layout: list[str], env: dict[str, dict[str, str]]) -> list[Any]:
    """Results of an all-reduce of every rank."""
    agents = Agents(python, list(dict.fromkeys(layout)))
    ranks = Ranks(agents, layout, dict.fromkeys(layout, "127.0.0.1"), backend, env)
    try:
        ranks.start()
        ranks.join("127.0.0.1", 0)
        sizes = [4096, 1 << 20, 16 << 20]
        return ranks.step("allreduce", 90.0, sizes=sizes, budget_s=8.0, each_s=0.5)
    except Failed as failed:
        raise AssertionError([(t.node, t.what, t.detail) for t in failed.trouble]) from failed
    finally:
        ranks.stop()
        agents.close()


def check(results: list[Any], ranks: int) -> None:
    assert len(results) == ranks
    for result in results:
        assert [row["size"] for row in result["rows"]] == [4096, 1 << 20, 16 << 20]
        assert all(row["wrong"] == 0 and row["wrong_everywhere"] == 0 for row in result["rows"])
        assert all(0 < row["least_s"] <= row["median_s"] <= row["most_s"] for row in result["rows"])
    # All ranks go by the slowest one's time.
    assert len({str([row["median_s"] for row in result["rows"]]) for result in results}) == 1


def test_gloo_over_loopback(python: str) -> None:
    nodes = ["a", "b"]
    check(run(python, "gloo", nodes, {n: {"GLOO_SOCKET_IFNAME": "lo"} for n in nodes}), 2)


def test_several_ranks_of_one_node(python: str) -> None:
    check(run(python, "gloo", ["a", "a", "b"], {n: {"GLOO_SOCKET_IFNAME": "lo"} for n in "ab"}), 3)


def test_an_interface_that_is_not_there_names_the_rank(python: str) -> None:
    env = {"a": {"GLOO_SOCKET_IFNAME": "lo"}, "b": {"GLOO_SOCKET_IFNAME": "nope0"}}
    agents = Agents(python, ["a", "b"])
    ranks = Ranks(agents, ["a", "b"], dict.fromkeys("ab", "127.0.0.1"), "gloo", env)
    try:
        ranks.start()
        with pytest.raises(Failed) as failed:
            ranks.join("127.0.0.1", 0)
    finally:
        ranks.stop()
        agents.close()
    assert {t.node for t in failed.value.trouble if t.first} == {"b"}
    assert "nope0" in failed.value.trouble[0].detail


@pytest.fixture
def cuda(python: str) -> str:
    program = "import torch; assert torch.cuda.is_available(); print(torch.cuda.get_device_name(0))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"no GPU that the torch of {python} could use ({VARIABLE} names another interpreter)")
    return python


@pytest.mark.gpu
def test_nccl_with_one_gpu(cuda: str) -> None:
    check(run(cuda, "nccl", ["a"], {"a": {"NCCL_SOCKET_IFNAME": "=lo"}}), 1)


@pytest.mark.gpu
def test_nccl_with_two_ranks_on_one_gpu(cuda: str) -> None:
    """A host id of its own makes each rank a node to NCCL: bootstrap and sockets as between two machines."""
    env = {
        n: {"NCCL_HOSTID": n, "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_P2P_DISABLE": "1"}
        for n in "ab"
    }
    check(run(cuda, "nccl", ["a", "b"], env), 2)
