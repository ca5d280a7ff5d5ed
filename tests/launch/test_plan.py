"""What a plan knows, where it says that it knows it from, and what it refuses."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import Gpu, GpuFacts, PciGpu
from netdoctor.facts.host import Node
from netdoctor.facts.net import Listener, PortHolderFacts, PortMatrix, PortProbe
from netdoctor.facts.paths import Path, Paths
from netdoctor.facts.rdma import Gid
from netdoctor.facts.software import Nccl, SoftwareFacts, Torch
from netdoctor.inventory import Target
from netdoctor.launch import Evidence, Origin, environment, rank_table
from tests.checks import build as healthy
from tests.launch.build import evidence, gpus, planned, rdma, targets

IFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def origins(values: Any) -> dict[str, tuple[str, str]]:
    return {name: (value.text, value.origin.value) for name, value in values.items()}


def test_a_healthy_report_makes_values_measured() -> None:
    made = planned(targets(4), evidence(4))
    assert origins(made.env) == {
        "MASTER_ADDR": ("10.0.0.1", "measured"),
        "MASTER_PORT": ("29500", "measured"),
        "NCCL_SOCKET_IFNAME": ("=eth0", "measured"),
        "GLOO_SOCKET_IFNAME": ("eth0", "measured"),
    }
    assert made.env["MASTER_ADDR"].source == "n1 has it, all other nodes reached it"
    assert (
        made.head
        == "4 nodes x 8 GPUs = world size 32; hosts.txt + report of 2026-11-20 14:02, 60 min old: READY"
    )
    assert not made.remarks
    assert environment(targets(4), evidence(4)) == made.env


def test_without_a_report_nothing_is_measured() -> None:
    made = planned(targets(2, slots=8))
    assert origins(made.env) == {"MASTER_ADDR": ("n1", "guessed"), "MASTER_PORT": ("29500", "guessed")}
    assert set(made.left_out) == {*IFACES, "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"}
    assert "nothing is measured" in made.head
    assert [node.processes.origin for node in made.nodes] == [Origin.GIVEN] * 2
    assert planned(targets(2)).nodes[0].processes.origin is Origin.GUESSED
    every = [
        *made.env.values(),
        *(v for n in made.nodes for v in (n.processes, n.name, n.address, n.python) if v),
    ]
    assert Origin.MEASURED not in {value.origin for value in every}


def test_what_a_report_lacks_is_not_measured() -> None:
    """Each fact taken away from one node in turn; what hung on it must not be called measured."""
    cases = [
        ("net", {"MASTER_ADDR", *IFACES}),
        ("port_holder", {"MASTER_PORT"}),
        ("gpu", set()),
    ]
    for group, lost in cases:
        seen = evidence(3)
        for gone in ({"n1": Missing(Why.LOST, "gone")}, {}):
            seen.facts.node[group] = gone if gone else {}
            made = planned(targets(3), seen)
            known = {name for name, value in made.env.items() if value.origin is Origin.MEASURED}
            assert not known & lost, (group, known)
    # A later node alone.
    seen = evidence(3)
    seen.facts.put("net", "n3", Missing(Why.LOST, "gone"))
    made = planned(targets(3), seen)
    assert made.env["MASTER_ADDR"].origin is Origin.MEASURED
    assert not set(IFACES) & set(made.env)
    assert "not measured on n3" in made.left_out["GLOO_SOCKET_IFNAME"]


def test_what_is_given_wins_and_says_so() -> None:
    made = planned(
        targets(2), evidence(2), port=4000, env={"NCCL_SOCKET_IFNAME": "ens9", "X": "a b"}, nproc=4
    )
    assert origins(made.env)["NCCL_SOCKET_IFNAME"] == ("ens9", "given")
    assert origins(made.env)["MASTER_PORT"] == ("4000", "given")
    assert [node.processes.origin for node in made.nodes] == [Origin.GIVEN] * 2
    with pytest.raises(InputError, match="--env RANK"):
        planned(targets(2), env={"RANK": "0"})


def test_reports_that_are_not_ready_or_old_say_so_first() -> None:
    bad = evidence(2, state="not_ready", causes=("n2 lets nobody in",), good=frozenset({"n1"}))
    made = planned(targets(2), bad)
    assert made.head.endswith("NOT READY: n2 lets nobody in")
    old = planned(targets(2), evidence(2, age_s=3 * 86400.0))
    assert "3 days old" in old.head
    assert any("scan again" in text for text in old.remarks)
    only = planned(targets(2), bad, only_good=True)
    assert [node.id for node in only.nodes] == ["n1"]
    assert any(text.endswith("healthy: n2") for text in only.remarks)
    with pytest.raises(InputError, match="needs a report"):
        planned(targets(2), None, only_good=True)
    with pytest.raises(InputError, match="none of the 2 nodes"):
        planned(targets(2), evidence(2, good=frozenset()), only_good=True)


def test_who_did_not_reach_the_master_is_named() -> None:
    cut = evidence(3, ports=healthy.matrix(3, {("n3", "n1"): "filtered"}))
    assert "n3 did not reach it" in planned(targets(3), cut).env["MASTER_ADDR"].source
    alone = evidence(3, ports=Missing(Why.NOT_COLLECTED, "no"))
    assert "nobody tried" in planned(targets(3), alone).env["MASTER_ADDR"].source


def test_a_port_that_is_taken_or_in_the_ephemeral_range() -> None:
    seen = evidence(2)
    seen.facts.put(
        "port_holder", "n1", PortHolderFacts(port=29500, listeners=(Listener(port=29500, address="::"),))
    )
    value = planned(targets(2), seen).env["MASTER_PORT"]
    assert (value.text, value.origin) == ("29501", Origin.GUESSED)
    inside = evidence(
        2, job=healthy.job(2, master_port=40000), each={"port_holder": PortHolderFacts(port=40000)}
    )
    made = planned(targets(2), inside)
    assert made.env["MASTER_PORT"].text == "40000"
    assert any("ephemeral range" in text for text in made.remarks)


def test_interfaces_that_differ_are_values_of_single_nodes() -> None:
    seen = evidence(2)
    other = healthy.net(2, netdevs=(healthy.loopback(), healthy.netdev("ens9")),
                        addresses=(healthy.row("ens9", "10.0.0.2"),))  # fmt: skip
    seen.facts.put("net", "n2", other)
    made = planned(targets(2), seen)
    assert origins(made.env)["NCCL_SOCKET_IFNAME"] == ("=eth0,ens9", "measured")
    assert [origins(node.env)["GLOO_SOCKET_IFNAME"] for node in made.nodes] == [
        ("eth0", "measured"), ("ens9", "measured")
    ]  # fmt: skip
    assert not {"GLOO_SOCKET_IFNAME"} & set(made.env)


def test_hcas_and_gids() -> None:
    routable = Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2")
    roce = {"rdma": rdma(Gid(index=0, gid="fe80::1", type="IB/RoCE v1"), routable)}
    made = planned(targets(2), evidence(2, roce))
    assert origins(made.env)["NCCL_IB_HCA"] == ("=mlx5_0", "measured")
    assert origins(made.env)["NCCL_IB_GID_INDEX"] == ("3", "measured")

    def with_nccl(version: str) -> dict[str, Any]:
        nccl = (Nccl(version=version, origin="wheel", path="/x"),)
        return {**roce, "software": SoftwareFacts(executable="/usr/bin/python3", version="3.11", nccl=nccl)}

    newer = planned(targets(2), evidence(2, with_nccl("2.21.5")))
    assert "NCCL_IB_GID_INDEX" not in newer.env
    assert "by themselves (index 3)" in newer.left_out["NCCL_IB_GID_INDEX"]
    assert origins(planned(targets(2), evidence(2, with_nccl("2.18.1"))).env)["NCCL_IB_GID_INDEX"][0] == "3"
    ib = planned(targets(2), evidence(2, {"rdma": rdma(layer="InfiniBand")}))
    assert "NCCL_IB_GID_INDEX" not in ib.env
    lonely = evidence(2, roce)
    lonely.facts.put("rdma", "n2", Missing(Why.NOT_APPLICABLE, "no"))
    assert "NCCL_IB_HCA" not in planned(targets(2), lonely).env
    cpu = planned(targets(2), evidence(2, {**roce, "gpu": GpuFacts(nvml="no_library")}))
    assert "no node has a GPU" in cpu.left_out["NCCL_IB_HCA"]


def test_rails_that_do_not_meet_keep_nccl_on_its_own() -> None:
    """Of the nodes of the plan alone, and only where somebody looked."""
    tables = [{name: f"10.{r}.0.{name[1:]}" for name in ("n1", "n2", "n3")} for r in range(2)]
    way = {"src": "n1", "dst": "n2", "port": 40000, "purpose": "ephemeral", "outcome": "open"}
    own = tuple(PortProbe(**way, source=one["n1"], address=one["n2"]) for one in tables)
    across = PortProbe(**{**way, "outcome": "no_route"}, source=tables[0]["n1"], address=tables[1]["n2"])
    known = evidence(3, ports=PortMatrix(probes=own, crossings=(across,)))
    assert "NCCL_CROSS_NIC" not in planned(targets(3), known).env, "no rails are known"
    known.facts.cluster["paths"] = Paths(
        rails=tuple(Path(id=f"RoCE mlx5_{r}:1", addresses=t, sources=t) for r, t in enumerate(tables))
    )
    made = planned(targets(3), known)
    assert origins(made.env)["NCCL_CROSS_NIC"] == ("0", "measured")
    assert "1 of 1 tries" in made.env["NCCL_CROSS_NIC"].why
    assert "NCCL_CROSS_NIC" not in planned([one for one in targets(3) if one.id != "n2"], known).env
    assert planned(targets(3), known, env={"NCCL_CROSS_NIC": "1"}).env["NCCL_CROSS_NIC"].text == "1"


def test_process_counts() -> None:
    def counts(seen: Any, **options: Any) -> list[tuple[int, str]]:
        made = planned(targets(2, slots=options.pop("slots", None)), seen, **options)
        return [(node.count, node.processes.origin.value) for node in made.nodes]

    assert counts(evidence(2)) == [(8, "measured")] * 2
    assert counts(evidence(2), slots=4) == [(4, "given")] * 2
    assert counts(evidence(2, {"gpu": gpus(7)}), slots=8) == [(7, "measured")] * 2
    assert counts(evidence(2, {"gpu": gpus(8, cuda_visible_devices="0,1")})) == [(2, "measured")] * 2
    assert counts(evidence(2, {"gpu": GpuFacts(nvml="no_library")})) == [(1, "guessed")] * 2
    # NVML is silent and the PCI bus shows GPUs: how many a process would see is not known.
    broken = GpuFacts(nvml="mismatch", pci=(PciGpu(address="0000:3b:00.0", device_id="2330"),))
    assert counts(evidence(2, {"gpu": broken})) == [(1, "guessed")] * 2
    lost = GpuFacts(nvml="ok", devices=(Gpu(index=0), Gpu(index=1, error="GPU is lost")))
    assert counts(evidence(2, {"gpu": lost})) == [(1, "measured")] * 2
    with pytest.raises(InputError, match="8 GPUs answer on n1"):
        counts(evidence(2), nproc=9)
    assert counts(evidence(2, {"gpu": GpuFacts(nvml="no_library")}), nproc=9) == [(9, "given")] * 2


def test_sizes_multiply_out_or_say_why_not() -> None:
    nodes = targets(4, slots=8)
    made = planned(nodes, None, tp=8, pp=2, batch=4, accum=8)
    assert made.arithmetic == (
        "dp 2 x tp 8 x pp 2 = world size 32",
        "global batch = 4 per process x 8 accumulation x dp 2 = 64",
    )
    assert not [text for text in made.remarks if "cross" in text]
    crossing = planned(nodes, None, tp=16).remarks
    assert any("groups of 16 cross nodes, first ranks 0 to 15 on n1 and n2" in text for text in crossing)
    # Groups of four fit every node; with six on the first, the second group begins there and ends elsewhere.
    uneven = [replace(one, slots=6) if one.order == 0 else one for one in targets(2, slots=2)]
    assert any("first ranks 4 to 7 on n1 and n2" in text for text in planned(uneven, tp=4).remarks)
    for sizes, why in (
        ({"dp": 3, "tp": 8}, "dp 3 x tp 8 x pp 1 = 24, but there are 32 processes"),
        ({"tp": 5}, "tp 5 x pp 1 = 5, but 32 processes are not a multiple"),
        ({"dp": 2, "tp": 4}, "8 would fit on n1 alone"),
    ):
        with pytest.raises(InputError, match=why):
            planned(nodes, None, **sizes)
    assert any("would fit on n1 alone" in text for text in planned(targets(4), evidence(4), nproc=2).remarks)


def test_the_table_of_ranks_on_nodes_that_differ() -> None:
    nodes = [replace(one, slots=count) for one, count in zip(targets(2), (2, 1), strict=True)]
    rows = [line.split() for line in rank_table(planned(nodes)).splitlines()]
    assert rows[1:] == [["n1", "0", "0", "0", "0"], ["n1", "0", "1", "1", "1"], ["n2", "1", "0", "0", "2"]]


def test_the_interpreter_with_torch_is_taken_unless_its_path_is_odd() -> None:
    def python(path: str) -> str | None:
        torch = Torch(version="2.13.0")
        facts = SoftwareFacts(executable=path, version="3.11", torch=torch)
        found = planned(targets(1), evidence(1, {"software": facts})).nodes[0].python
        return found and found.text

    assert python("/opt/venv/bin/python") == "/opt/venv/bin/python"
    assert python("/opt/$(id)/python") is None
    assert python("python3") is None


@pytest.mark.parametrize(
    ("name", "was", "told"),
    [
        ("MASTER_ADDR", "n2", True),
        ("MASTER_PORT", "29999", True),
        ("GLOO_SOCKET_IFNAME", "eth9", True),
        ("MASTER_ADDR", "10.0.0.1", False),
        ("NCCL_DEBUG", "WARN", False),
    ],
)
def test_what_the_scans_environment_file_had_is_not_replaced_without_a_word(
    name: str, was: str, told: bool
) -> None:
    known = evidence(2)
    scanned = replace(known.facts.cluster_fact("job"), env={name: was}, env_from={name: "job.env:3"})
    known.facts.cluster["job"] = scanned
    remarks = planned(targets(2), known).remarks
    assert (f"job.env:3 has {name}={was}; what follows replaces it" in remarks) == told
    if told:
        asked = planned(targets(2), known, env={name: "mine"}).remarks
        assert not [text for text in asked if "replaces it" in text], "what was typed is no surprise"


@pytest.mark.parametrize(
    ("leaves", "expected"), [("aabb", False), ("abab", True), ("abba", True), ("a..a", True), ("....", False)]
)
def test_nodes_of_a_leaf_that_are_apart_are_reported(leaves: str, expected: bool) -> None:
    nodes = [
        replace(target, leaf=None if leaf == "." else leaf)
        for target, leaf in zip(targets(4), leaves, strict=True)
    ]
    known = evidence(4)
    for plan in (planned(nodes, known), planned(targets(4), known_leaves(known, nodes))):
        assert any("are not one after the other" in text for text in plan.remarks) == expected


def known_leaves(known: Evidence, nodes: Sequence[Target]) -> Evidence:
    """With the leaves of these targets as what the scan found by itself."""
    for i, target in enumerate(nodes):
        known.facts.put("node", target.id, Node(id=target.id, host=target.host, order=i, leaf=target.leaf))
    return known
