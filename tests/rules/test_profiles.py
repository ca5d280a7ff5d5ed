"""What systems with a known board normally have: a word where all nodes lack it, and no verdict."""

import re
from dataclasses import replace

import pytest

from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.rules import profiles
from tests import machines
from tests.checks import build, build_hw
from tests.checks.build_hw import gpu, gpus, hca, rdma

HCAS = rdma(*(hca(f"mlx5_{i}") for i in range(8)))


def said(
    count: int = 2, cloud: str | None = None, wanted: Expectations | None = None, **facts: object
) -> list[str]:
    nodes = build.names(count)
    gpu_facts = facts.get("gpu", gpus())
    hosts = {node: replace(build.host(), cloud=cloud) for node in nodes}
    return profiles.remarks(
        dict.fromkeys(nodes, gpu_facts), dict.fromkeys(nodes, facts.get("rdma", HCAS)), hosts, wanted
    )


def test_a_whole_system_needs_no_word() -> None:
    assert said() == []
    assert said(gpu=build_hw.no_gpus()) == []
    assert said(gpu=gpus(4), rdma=RdmaFacts()) == [], "a smaller machine is another kind"
    assert said(gpu=gpus(devices=tuple(gpu(i, name="NVIDIA L40S") for i in range(8))), rdma=RdmaFacts()) == []
    assert said(cloud="gcp", rdma=RdmaFacts()) == [], "what a cloud sells is not guessed"


def test_what_all_nodes_lack_is_said_with_its_source() -> None:
    bare = said(rdma=RdmaFacts())
    board = "a system with an HGX H100 or H200 board"
    assert [text.partition(" (")[0] for text in bare] == [
        f"{board} normally has 8 RDMA devices; all 2 nodes of the kind have none"
    ]
    assert "docs.nvidia.com" in bare[0]
    assert [text.partition(" (")[0] for text in said(1, gpu=gpus(7))] == [
        f"{board} normally has 8 GPUs; n1 has 7"
    ]
    (efa,) = said(cloud="aws")
    assert efa.startswith("p5.48xlarge normally has 32 RDMA devices; all 2 nodes of the kind have 8 (")
    slow = rdma(*(hca(f"mlx5_{i}", ports=(build_hw.port(f"mlx5_{i}", rate_gbit_s=200.0),)) for i in range(8)))
    assert "400 Gbit/s on each RDMA port" in said(rdma=slow)[0]


def test_what_one_node_has_or_the_user_has_typed_is_not_said() -> None:
    nodes = dict.fromkeys(build.names(2), gpus())
    hosts = build.hosts(2)
    assert profiles.remarks(nodes, {"n1": HCAS, "n2": RdmaFacts()}, hosts) == [], "the check names n2"
    typed = Expectations(wishes=(Expectation(key="rdma.hcas", any_of=("0",), place="expect.toml:1"),))
    assert said(rdma=RdmaFacts(), wanted=typed) == []


def test_every_profile_has_known_words() -> None:
    for one in profiles.PROFILES:
        assert one.has.keys() <= profiles.WHAT.keys(), one.name
        assert re.compile(one.gpu)


@pytest.mark.skipif(machines.nvml_library() is None, reason="no C compiler for the lab's NVML (gcc)")
@pytest.mark.parametrize(
    "name", ["hgx-h100-ib", "hgx-h100-roce", "hgx-b200", "dgx-a100-hdr", "gb200-nvl72", "p5-efa"]
)
def test_documented_machines_are_whole(name: str) -> None:
    store = machines.fleet([machines.load(name)] * 2)
    facts = [store.present(group, build.names(2)) for group in ("gpu", "rdma", "host")]
    assert profiles.profile(facts[0]["n1"], facts[2]["n1"]) is not None
    assert profiles.remarks(*facts) == []
