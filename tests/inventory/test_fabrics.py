"""Leaves and rails of real clusters: recordings that are public, cut down, and what their own names say."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from netdoctor.inventory.topology import leaves, rails, read
from netdoctor.rules.switches import of_rail, rail_ports

FABRICS = Path(__file__).parent / "fabrics"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Of one cluster.

    file: in FABRICS; source: where it is public, and what says there where hosts belong, where the file's own
    names do not; leaves: the hosts of each; rails: of each host that is on several switches; odd: the ports
    whose cables were crossed when it was recorded.
    """

    file: str
    source: str
    leaves: Mapping[str, set[str]]
    rails: Mapping[str, str] = field(default_factory=dict)
    odd: frozenset[tuple[str, str]] = frozenset()


def numbers(form: str, *several: int) -> set[str]:
    return {form.format(one) for one in several}


# Nodes `dgx-UU-cNN` are in unit UU, whose rails have the switches `IBLEAF-01-UU` to `IBLEAF-04-UU`. On them
# are HCAs 1, 2, 5 and 6, which the nodes of unit 04 call mlx5_0, mlx5_1, mlx5_4 and mlx5_5.
DGX = {
    "a05-p1-dgx-01": (1, 3, 4),
    "a06-p1-dgx-02": (1, 2, 3, 4),
    "a07-p1-dgx-03": (1, 2, 3, 4),
    "a08-p1-dgx-04": (1, 2, 3, 4),
    "b05-p1-dgx-05": (1, 2, 3, 4),
    "b06-p1-dgx-06": (1, 2, 3),
    "b07-p1-dgx-07": (1, 2, 3, 4),
    "b08-p1-dgx-08": (1, 4, 5, 6),
}
DGX_PORTS = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5")
DGX_WITHOUT = {"a05-p1-dgx-01": "mlx5_4"}  # its third switch is not in the file
DGX_CROSSED = "b08-p1-dgx-08-c01"  # its HCA-5 is on the fourth switch, HCA-6 on the third


def dgx_switch(unit: str, rail: int) -> str:
    return f"{unit[0].upper()}09-P1-IBLEAF-{rail:02}-{unit[-2:]}"


def dgx_rails() -> Iterator[tuple[str, str]]:
    for unit, hosts in DGX.items():
        for host in (f"{unit}-c{number:02}" for number in hosts):
            order = (1, 2, 4, 3) if host == DGX_CROSSED else (1, 2, 3, 4)
            yield (
                host,
                ",".join(
                    f"{port}:{dgx_switch(unit, rail)}"
                    for port, rail in zip(DGX_PORTS, order, strict=True)
                    if port != DGX_WITHOUT.get(unit)
                ),
            )


INFINIBAND = {
    # A cluster of DGXs, with crossed cables.
    "dgx": Recording(
        file="dgx.txt",
        source="https://github.com/NVIDIA/topograph/blob/main/tests/output/ibnetdiscover/example.out",
        leaves={dgx_switch(unit, 1): numbers(unit + "-c{:02}", *hosts) for unit, hosts in DGX.items()},
        rails=dict(dgx_rails()),
        odd=frozenset({(DGX_CROSSED, "mlx5_4"), (DGX_CROSSED, "mlx5_5")}),
    ),
    # University of Tartu: 24 of its 135 stages a switch, and others on the last two.
    "rocket": Recording(
        file="rocket.txt",
        source="https://github.com/loginoff/infiniband_topology/blob/master/topo",
        leaves={
            **{f"ib{i + 1}": numbers("stage{}", *(24 * i + k for k in (1, 16, 18, 24))) for i in range(5)},
            "ib6": numbers("stage{}", 121, 132, 134, 135)
            | {"booster2", "booster4", "rocket", "sputnik1", "atlas"},
            "ib7": {"tank1", "tank2"},
        },
    ),
    # A lab of NVIDIA; what libibmad says of a port that does not answer comes first.
    "ufm": Recording(
        file="ufm.txt",
        source="https://github.com/jabl/ibtopotool/blob/master/tests/3.topo",
        leaves={
            "SwitchIB-Mellanox-Technologies": {"r-ufm216", "r-ufm111"},
            "switch-de779e": {"r-ufm101", "r-ufm100", "r-ufm96"},
        },
    ),
    # Azure. Pairs of hosts on one switch, as ib_traffic_topo_aware_expected_config says next to it.
    "rmd70": Recording(
        file="rmd70.txt",
        source="https://github.com/microsoft/superbenchmark/blob/main/tests/data/"
        "ib_traffic_topo_aware_ibnetdiscover.txt",
        leaves={
            "rmd70-0101-0919-01ib0": numbers("rmd701091901{:03}", 3, 19),
            "rmd70-0101-0919-02ib0": numbers("rmd701091901{:03}", 53, 37),
            "rmd70-0101-0919-03ib0": numbers("rmd701091902{:03}", 3, 19),
            "rmd70-0101-0919-11ib0": numbers("rmd701091906{:03}", 3, 19),
            "rmd70-0101-0919-12ib0": numbers("rmd701091906{:03}", 53, 37),
        },
    ),
}
SLURM = {
    # Azure; tree_topo_vis.txt next to it draws the same tree.
    "hpcbench": Recording(
        file="hpcbench.conf",
        source="https://github.com/Azure/cyclecloud-slurm/blob/master/slurm/test/slurmcc_test/"
        "topology_test_input/slurm_topology.txt",
        leaves={
            "sw00": numbers("hpcbench-hpc-{}", 36, 39, 42),
            "sw01": numbers("hpcbench-hpc-{}", 1, 35, 38, 41, 44, 49),
            "sw02": numbers("hpcbench-hpc-{}", 37, 45, 46),
            "sw03": numbers("hpcbench-hpc-{}", 40, 43),
            "sw04": numbers("hpcbench-hpc-{}", 47, 48),
        },
    ),
    # The GPU partition of the University of Melbourne's Spartan.
    "spartan": Recording(
        file="spartan.txt",
        source="https://github.com/JCheney20/DRL_HPC_Scheduling/blob/main/data/topology/"
        "deeplearn_topology.txt",
        leaves={
            "le-266-q08-1-res": numbers("spartan-gpgpu{:03}", 72, 73, 74, 75, 78, 79, 80, 81, 82),
            "le-266-q11-1-res": numbers("spartan-gpgpu{:03}", 86, 87, 88),
            "le-266-r17-1-res": numbers("spartan-gpgpu{:03}", 91, 92, 93, 94, 95, 96),
            "le-266-r21-1-res": numbers("spartan-gpgpu{:03}", *range(132, 144)),
        },
    ),
    # TARA of Thailand's NSTDA.
    "tara": Recording(
        file="tara.conf",
        source="https://github.com/hibozzy18/nstda-hpc-test-suite/blob/master/etc/slurm/topology.conf",
        leaves={
            "s0": numbers("tara-c-{:03}", 1, 2, 3, 4),
            "s1": numbers("tara-c-{:03}", 5, 6),
            "s2": numbers("tara-m-{:03}", 1, 2),
            "s3": numbers("tara-dgx1-{:03}", 1, 2),
        },
    ),
    # Meta's, on AWS: hosts bear the name of their switch; one switch has none.
    "h100": Recording(
        file="h100.txt",
        source="https://github.com/facebookresearch/gcm/blob/main/gcm/tests/data/"
        "sample-scontrol-show-topo-switch-output.txt",
        leaves={
            "cpu": {"cpu-000-109", "cpu-002-219", "cpu-003-040"},
            "h100": {"h100-008-154", "h100-236-009"},
        },
    ),
}
OTHERS = {
    # Livermore's performance study on AWS; the last of NetworkNodes is the lowest.
    "eks": Recording(
        file="eks.json",
        source="https://github.com/converged-computing/performance-study/blob/main/experiments/aws/eks/cpu/"
        "size32/topology-32.json",
        leaves={
            "nn-f2cf7e32b49b9e1ad": {
                "i-05b81ea4189899b68", "i-012c30a1fdc8cf13a", "i-0fb10baacd60af72d", "i-0c438443edb103b03",
            },
            "nn-05cb6f17d55907fb3": {"i-050965a7035ab9c78", "i-07c098beb702262c2"},
            "nn-e5758739936379ea8": {"i-024526e1fb5d3cba7", "i-0102d9411d764c1f3"},
            "nn-06862d17f9725875a": {
                "i-0eb1e11e8bef351e4", "i-03b0d4ca1bfee4d20", "i-0b8c6f029e21e8f8a", "i-02da50cca6f2f0091",
            },
            "nn-41b82cce0fb18d366": {"i-00abb679de9490499"},
            "nn-8f666cdac218f3f8c": {
                "i-02846e578e6a027ac", "i-0cebdf8c228b495c9", "i-0844ad1fe896399b4", "i-01577337056d0c0b1",
            },
        },
    ),
    "pcluster": Recording(
        file="pcluster.json",
        source="https://github.com/converged-computing/performance-study/blob/main/experiments/aws/"
        "parallel-cluster/cpu/size32/results/osu/topology-size-32-osu.json",
        leaves={
            "nn-cb1aa1954afad8210": {
                "i-0d452b1486b3d0c7f", "i-004fef6caa97b365f", "i-01202f7e7b5d28d09", "i-08dd777902350b756",
            },
            "nn-77bc655a11ed3a83c": {
                "i-0eabe56566e561521", "i-0771aae780353fb03", "i-09ec5a87cbc1053f0", "i-0f2dc2a6d3cae02c9",
            },
            "nn-fd22418e622395b62": {
                "i-0dd3cb0144bbcb30e", "i-071cfe123b071c9e8", "i-0110ccbda05b9de63", "i-012bf78f0cd6f27eb",
            },
            "nn-c6eb039fffc989f7d": {"i-0a56049e114ce026e"},
            "nn-89ab24518afd09af0": {
                "i-04bfd980999104933", "i-0312babd1e7de0085", "i-0aed6b08e31b13122", "i-0e3c7d82b7e2f3538",
            },
        },
    ),
    # `lldpcli -f json0` of one node of DaoCloud's; the test that has it lists the switch of each interface.
    # Our name of the leaf is its first switch's.
    "daocloud": Recording(
        file="daocloud.json",
        source="https://github.com/unifabric-io/unifabric/blob/main/pkg/agent/fabricnode/lldp_test.go",
        leaves={"StorageSW": {"daocloud"}},
        rails={
            "daocloud": "ens1np0:StorageSW,ens108np0:LEAF01,ens110np0:LEAF02,ens841np0:LEAF03,"
            "ens842np0:LEAF04",
        },
    ),
}  # fmt: skip
RECORDINGS = INFINIBAND | SLURM | OTHERS


@pytest.mark.parametrize("one", RECORDINGS.values(), ids=RECORDINGS)
def test_a_recording(one: Recording) -> None:
    found = read(one.file, (FABRICS / one.file).read_text())
    groups: dict[str, set[str]] = {}
    for host, leaf in leaves([found]).items():
        groups.setdefault(leaf, set()).add(host)
    assert groups == one.leaves
    assert rails([found]) == one.rails
    assert odd(rails([found])) == one.odd


def odd(rails_of: Mapping[str, str]) -> set[tuple[str, str]]:
    ports = {host: of_rail(rail) for host, rail in rails_of.items()}
    return {(one.node, one.found.port) for one in rail_ports(ports).odd}


def test_recordings_say_where_they_are_from() -> None:
    for one in RECORDINGS.values():
        text = (FABRICS / one.file).read_text()
        assert one.file.endswith(".json") or text.startswith("# https://github.com/"), one.file


@pytest.mark.parametrize("unit", DGX)
def test_two_cables_that_are_swapped(unit: str) -> None:
    """Of the last node of a unit, in the one recording with rails and leaves of three hosts or more."""
    recording = RECORDINGS["dgx"]
    text = (FABRICS / recording.file).read_text()
    host = f"{unit}-c{DGX[unit][-1]:02}"
    # The HCAs of the first two rails, as the unit calls them.
    first, second = re.findall(rf"{host} (?:HCA-[12]|mlx5_[01])\b", text)
    swapped = re.sub(rf"{first}|{second}", lambda found: second if found[0] == first else first, text)
    found = odd(rails([read(recording.file, swapped)]))
    assert found == recording.odd | {(host, "mlx5_0"), (host, "mlx5_1")}


def test_other_names_of_instances() -> None:
    """ip-192-168-18-63 is the first instance of the first leaf, ip-192-168-9-82 that of the second."""
    found = eks_with_names()
    for name, leaf in (("18-63", "nn-f2cf7e32b49b9e1ad"), ("9-82", "nn-05cb6f17d55907fb3")):
        assert found[f"ip-192-168-{name}.us-east-2.compute.internal"] == leaf
        assert found[f"192.168.{name.replace('-', '.')}"] == leaf


def test_a_name_that_instances_share_has_no_leaf() -> None:
    """EKS gives all instances of a node group one name."""
    assert "performance-study-32-workers-node" not in eks_with_names()


def eks_with_names() -> dict[str, str]:
    # names: experiments/aws/eks/cpu/size32/instances-32.json of the same repository, two of its instances
    return leaves([read(name, (FABRICS / name).read_text()) for name in ("eks.json", "eks-names.json")])
