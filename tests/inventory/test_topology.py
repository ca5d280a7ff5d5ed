"""Leaves as fabrics, schedulers and clouds name them: files of each kind, and lldpd itself."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.errors import InputError
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.inventory import load
from netdoctor.inventory.topology import LABELS, leaves, rails, read, with_leaves
from netdoctor.rules.switches import of_rail, rail_ports
from netdoctor.store import Store, dump

FABRICS = Path(__file__).parent / "fabrics"


def leaf_of(*files: tuple[str, Any]) -> dict[str, str]:
    return leaves([read(name, text if isinstance(text, str) else json.dumps(text)) for name, text in files])


def test_a_fabric_with_a_switch_for_each_rail() -> None:
    found = leaf_of(("dgx.txt", (FABRICS / "dgx.txt").read_text()))
    assert len(found) == 30
    # a08-p1-dgx-04-c01 is in the fourth unit, whose first switch is IBLEAF-01-04.
    for host, leaf in found.items():
        unit = re.search(r"dgx-(\d\d)", host)
        assert unit is not None
        assert leaf.endswith(f"IBLEAF-01-{unit[1]}")


def test_the_rail_of_each_port() -> None:
    """HCAs 1, 2, 5 and 6 are on the first to fourth switch of their unit, but for links that are down and two
    cables that were crossed when this was recorded."""
    found = rails([read("dgx.txt", (FABRICS / "dgx.txt").read_text())])
    crossed = found["b08-p1-dgx-08-c01"]
    assert crossed.endswith(",mlx5_4:B09-P1-IBLEAF-04-08,mlx5_5:B09-P1-IBLEAF-03-08")
    for host, rail in found.items():
        unit = re.search(r"dgx-(\d\d)", host)
        assert unit is not None
        for number, port in enumerate(("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"), 1):
            assert (
                rail == crossed
                or f"{port}:" not in rail
                or re.search(rf"{port}:[AB]09-P1-IBLEAF-0{number}-{unit[1]}(,|$)", rail)
            )
    assert len(found) == 30
    odd = [str(one) for one in rail_ports({host: of_rail(rail) for host, rail in found.items()}).odd]
    third, fourth = "B09-P1-IBLEAF-03-08", "B09-P1-IBLEAF-04-08"
    assert odd == [
        f"mlx5_4 is on {fourth}, where mlx5_5 of the others is, and not on {third}",
        f"mlx5_5 is on {third}, where mlx5_4 of the others is, and not on {fourth}",
    ]


def test_switches_that_nobody_named_are_told_apart() -> None:
    found = leaf_of(("fabric", (FABRICS / "unnamed.txt").read_text()))
    assert Counter(found.values()) == {
        "ec0d9a0300ec8240": 5, "ec0d9a0300ec8480": 4, "ec0d9a0300f548e0": 3, "ec0d9a0300f548c0": 4,
    }  # fmt: skip
    assert found["gpu001"] == found["node018"] != found["gpu004"]


LINKINFO = """\
CA: gpu1 mlx5_0:
      0x0c42a10300a1b2c4     5    1[  ] ==( 4X          53.125 Gbps Active/  LinkUp)==>      1    1[  ] "leaf-1" ( )
Switch: 0xb8cef60300e5d2a0 MF0;leaf-1:MQM8790/U1:
           1    1[  ] ==( 4X          53.125 Gbps Active/  LinkUp)==>       5    1[  ] "gpu1 mlx5_0" ( )
           1    2[  ] ==( 4X          53.125 Gbps Active/  LinkUp)==>       6    1[  ] "gpu2 mlx5_0" ( )
           1    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           1   21[  ] ==( 4X          53.125 Gbps Active/  LinkUp)==>       2    1[  ] "MF0;spine-1:MQM8790/U1" ( )
Switch: 0xb8cef60300e5d2b0 MF0;leaf-2:MQM8790/U1:
           2    1[  ] ==( 4X          53.125 Gbps Active/  LinkUp)==>       7    1[  ] "gpu3 mlx5_0" ( )
"""  # noqa: E501
SLURM = """\
SwitchName=leaf1 Nodes=gpu[1-2]
SwitchName=leaf2 Nodes=gpu3  # the last
SwitchName=spine Switches=leaf[1-2]
"""
BLOCKS = "BlockName=b1 Nodes=gpu[1-2]\nBlockName=b2 Nodes=gpu3\nBlockSizes=2\n"
SCONTROL = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu3
SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[1-3] Switches=leaf[1-2]
"""


def labels(label: str, values: list[str]) -> dict[str, Any]:
    nodes = [{"metadata": {"name": f"gpu{i}", "labels": {label: v}}} for i, v in enumerate(values, 1)]
    return {"kind": "List", "items": nodes}


# https://docs.aws.amazon.com/cli/latest/reference/ec2/describe-instance-topology.html
AWS = {
    "Instances": [
        {
            "InstanceId": f"i-{i}",
            "InstanceType": "p5.48xlarge",
            "NetworkNodes": ["nn-1", "nn-2", f"nn-{leaf}"],
        }
        for i, leaf in ((1, 3), (2, 3), (3, 4))
    ]
}
AWS_NAMES = {
    "Reservations": [
        {
            "Instances": [
                {
                    "InstanceId": f"i-{i}",
                    "PrivateDnsName": f"ip-10-0-0-{i}.ec2.internal",
                    "PrivateIpAddress": f"10.0.0.{i}",
                    "Tags": [{"Key": "Name", "Value": f"gpu{i}"}],
                }
            ]
        }
        for i in (1, 2, 3)
    ]
}


def gcloud(key: str) -> list[dict[str, Any]]:
    return [
        {
            "name": f"gpu{i}",
            "resourceStatus": {
                "physicalHostTopology": {"cluster": "c", "block": "b", key: leaf, "host": f"h{i}"}
            },
        }
        for i, leaf in ((1, "0fc09525"), (2, "0fc09525"), (3, "c02af6bd"))
    ]


def oci(block: str) -> dict[str, Any]:
    """As https://docs.oracle.com/en-us/iaas/Content/Compute/Tasks/gettingmetadata.htm has them."""
    start = "ocid1.computelocalblock.oc1.iad.anuwcljrg5pyaeyc"
    return {
        "rackId": "r",
        "rdmaTopologyData": {"customerNetworkBlock": "n", "customerLocalBlock": start + block},
    }


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([("links.txt", LINKINFO)], id="iblinkinfo"),
        pytest.param([("topology.conf", SLURM)], id="slurm"),
        pytest.param([("scontrol.txt", SCONTROL)], id="scontrol"),
        pytest.param([("blocks.txt", BLOCKS)], id="slurm-blocks"),
        pytest.param(
            [("n.json", labels("topology.k8s.aws/network-node-layer-3", ["nn-3", "nn-3", "nn-4"]))], id="eks"
        ),
        pytest.param(
            [("n.json", labels("cloud.google.com/gce-topology-subblock", ["a", "a", "b"]))], id="gke"
        ),
        pytest.param(
            [("n.json", labels("network.topology.nvidia.com/leaf", ["x", "x", "y"]))], id="topograph"
        ),
        pytest.param([("aws.json", AWS), ("names.json", AWS_NAMES)], id="aws"),
        pytest.param([("g.json", gcloud("subblock"))], id="gcloud"),
        pytest.param([("g.json", {"items": gcloud("subBlock")})], id="gcloud-list"),
        pytest.param(
            [
                ("g.json", [
                    {"name": f"gpu{i}", "resourceStatus": {"physicalHost": f"/c/{r}/h{i}"}}
                    for i, r in ((1, "r1"), (2, "r1"), (3, "r2"))
                ])
            ],
            id="gcloud-physicalHost",
        ),
        pytest.param(
            [(f"dir/gpu{i}.json", oci("x" * 90 + end)) for i, end in ((1, "aa"), (2, "aa"), (3, "bb"))],
            id="oci",
        ),
    ],
)  # fmt: skip
def test_each_kind_says_who_is_together(files: list[tuple[str, Any]]) -> None:
    found = leaf_of(*files)
    assert found["gpu1"] == found["gpu2"] != found["gpu3"]
    ordered, notes = with_leaves(load(["gpu3", "gpu1", "gpu9", "gpu2"]).targets, found)
    assert [one.id for one in ordered] == ["gpu3", "gpu1", "gpu2", "gpu9"]
    assert [one.order for one in ordered] == [0, 1, 2, 3]
    assert notes[0].startswith("2 leaves: ")
    assert "no leaf is known of gpu9" in notes
    assert "hosts are in the order of their leaves, so that neighbouring ranks share one" in notes


def test_addresses_and_long_names_are_known_too() -> None:
    found = leaf_of(("aws.json", AWS), ("names.json", AWS_NAMES))
    ordered, _ = with_leaves(load(["10.0.0.3", "ip-10-0-0-1.ec2.internal", "ip-10-0-0-2"]).targets, found)
    assert [one.leaf for one in ordered] == ["nn-4", "nn-3", "nn-3"]


@pytest.mark.parametrize("text", ["", "hello", "{", "[1]", "{}", '{"items": 3}', '{"lldp": []}', "[" * 9000])
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"fabric\.txt: (nothing that says where|it names no host)"):
        read("fabric.txt", text)


def neighbour(switch: str, title: str) -> dict[str, Any]:
    chassis = {title: {"id": {"type": "mac", "value": switch}}}
    return {"lldp": {"interface": {"eth0": {"chassis": chassis}}}}


def test_switches_that_share_a_name_are_two_in_each_kind() -> None:
    macs = ("02:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:02")
    by_lldp = leaf_of(*((f"gpu{i}.json", neighbour(mac, "sonic")) for i, mac in enumerate(macs, 1)))
    by_links = leaf_of(("links", re.sub(r"MF0;leaf-\d:MQM8790/U1", "SwitchIB Mellanox", LINKINFO)))
    for found in (by_lldp, by_links):
        assert found["gpu1"] == found["gpu2"] != found["gpu3"]
    assert leaf_of(("gpu1.json", neighbour(macs[0], "leaf1"))) == {"gpu1": "leaf1"}


def test_a_first_word_that_hosts_of_two_leaves_share_names_none() -> None:
    found = leaf_of(("t", "SwitchName=a Nodes=gpu1.east\nSwitchName=b Nodes=gpu1.west,gpu2.west\n"))
    ordered, _ = with_leaves(load(["gpu1", "gpu2"]).targets, found)
    assert [one.leaf for one in ordered] == ["b", None]


@pytest.mark.parametrize("text", [None, 0, "x", [], {}, [None], [[]], {"x": 1}, True])
def test_what_is_not_of_its_form_is_left_out_or_refused(text: Any) -> None:
    """Each value of each kind's document in place of what stands there."""
    documents = [AWS, AWS_NAMES, gcloud("subblock"), labels(LABELS[0], ["a"]), oci("a"), neighbour("m", "t")]
    for document in documents:
        for changed in replaced(document, text):
            with contextlib.suppress(InputError):
                leaves([read("f.json", json.dumps(changed))])


def replaced(document: Any, value: Any) -> Iterator[Any]:
    yield value
    for key in (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    ):
        for inner in replaced(document[key], value):
            changed = dict(document) if isinstance(document, dict) else list(document)
            changed[key] = inner
            yield changed


def test_a_switch_may_be_called_anything() -> None:
    hostile = 'Switch\t36 "S-1"\t\t# "\x1b[31m$(reboot)"\n[1]\t"H-2"[1](2) \t\t# "gpu1 mlx5_0" lid 1\n'
    assert leaf_of(("f", hostile)) == {"gpu1": "31m-reboot-"}


def test_convert_writes_leaves_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "topology.conf").write_text(SLURM)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu1\ngpu3\ngpu2\n")
    words = ["hosts", "convert", str(hosts), "--topology", str(tmp_path / "topology.conf"), "--to", "plain"]
    assert cli.run(words) == 0
    printed = capsys.readouterr()
    assert printed.out == "gpu1 leaf=leaf1\ngpu2 leaf=leaf1\ngpu3 leaf=leaf2\n"
    assert "2 leaves: leaf1 2, leaf2 1" in printed.err
    hosts.write_text("other1\n")
    assert cli.run(words) == 2
    assert "--topology knows none of these hosts; it names gpu1, gpu2, gpu3" in capsys.readouterr().err
    assert cli.run([*words[:4], str(tmp_path / "none"), *words[5:]]) == 2
    assert "none: no such file" in capsys.readouterr().err.lower()


def saved(crossed: bool) -> str:
    """A report of ours, whose nodes report what their ports are connected to."""
    ports = [("mlx5_0:1", "02:01"), ("mlx5_1:1", "02:02")]
    by_node = {f"gpu{i}": ports[::-1] if crossed and i == 2 else ports for i in (1, 2, 3, 4)}
    store = Store()
    for node, several in by_node.items():
        rows = [
            CabledPort(port=name, switch=switch, switch_name=f"leaf-{switch[-1]}", at=node[3:])
            for (name, _), (_, switch) in zip(ports, several, strict=True)
        ]
        store.put("cabling", node, CablingFacts(ports=tuple(rows)))
    return json.dumps({"facts": dump(store)})


@pytest.mark.parametrize("crossed", [False, True])
def test_convert_writes_rails_and_names_crossed_cables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], crossed: bool
) -> None:
    (tmp_path / "report.json").write_text(saved(crossed))
    words = ["--topology", str(tmp_path / "report.json"), "--to", "plain"]
    assert cli.run(["hosts", "convert", "gpu1", "gpu2", "gpu3", "gpu4", *words]) == 0
    printed = capsys.readouterr()
    first, second, *_ = printed.out.splitlines()
    assert first == "gpu1 leaf=leaf-1 rail=mlx5_0:leaf-1,mlx5_1:leaf-2"
    assert second.endswith(" rail=mlx5_0:leaf-2,mlx5_1:leaf-1" if crossed else first[4:])
    odd = "gpu2: mlx5_0 is on leaf-2, where mlx5_1 of the others is, and not on leaf-1"
    assert (odd in printed.err) is crossed
    assert cli.run(["hosts", "show", "gpu2", *words[:2]]) == 0
    shown = capsys.readouterr().out
    assert "rail" not in shown
    table = [line.split() for line in shown.rpartition("\n\n")[2].splitlines()]
    ends = ("leaf-2", "leaf-1") if crossed else ("leaf-1", "leaf-2")
    assert table == [
        ["host", "port", "switch", "its", "port"],
        ["gpu2", "mlx5_0", ends[0], "2"],
        ["gpu2", "mlx5_1", ends[1], "2"],
    ]
    (tmp_path / "hosts").write_text(printed.out)
    again = load([str(tmp_path / "hosts")]).targets
    assert [one.rail for one in again] == [line.partition(" rail=")[2] for line in printed.out.splitlines()]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "rail= with '', which is no port and its switch"),
        ("mlx5_0", "rail= with 'mlx5_0', which is no port"),
        ("mlx5_0:", "rail= with 'mlx5_0:'"),
        ("mlx5_0:a,,", "rail= with ''"),
        ("-x:a", "rail= with '-x:a'"),
        ("mlx5_0:$(x)", "rail= with 'mlx5_0:$(x)'"),
        (",".join(f"p{i}:a" for i in range(65)), "rail= of 65 ports, 64 are allowed"),
    ],
)
def test_a_rail_that_is_none(tmp_path: Path, value: str, fault: str) -> None:
    (tmp_path / "hosts").write_text(f"gpu1\ngpu2 rail={value}\n")
    with pytest.raises(InputError, match=re.escape(fault)) as raised:
        load([str(tmp_path / "hosts")])
    assert "rail=mlx5_0:leaf1,mlx5_1:leaf2" in str(raised.value)


# --- lldpd itself, in network namespaces: two switches and a host with a port to each ---------------------

SPACES = """\
for kind in leaf1 leaf2 gpu1; do ip netns add $1$kind; done
for i in 1 2; do
    ip -n $1gpu1 link add eth$i type veth peer name swp1 netns $1leaf$i
    ip -n $1gpu1 link set eth$i up
    ip -n $1leaf$i link set swp1 up
done
"""
# Its own /run, in which a daemon of this machine has nothing.
DAEMON = """\
mount -t tmpfs run /run && mkdir /run/lldpd
echo configure system hostname $1 >$2/$1.conf
exec lldpd -d -u $2/$1 -O $2/$1.conf
"""


@pytest.fixture
def neighbours() -> Iterator[str]:
    """What lldpcli prints on the host."""
    if os.geteuid() or not shutil.which("lldpd"):
        pytest.skip("it takes root and lldpd")
    folder = Path(tempfile.mkdtemp(prefix="ndlldp", dir="/tmp"))  # a socket's path is short
    folder.chmod(0o755)  # a part of lldpd is not root
    start, kinds, started = f"ndt{os.getpid()}", ("leaf1", "leaf2", "gpu1"), []
    try:
        subprocess.run(["sh", "-ec", SPACES, "sh", start], check=True, timeout=30)
        for kind in kinds:
            words = ["ip", "netns", "exec", start + kind, "unshare", "-mu", "sh", "-ec", DAEMON, "sh", kind]
            started.append(subprocess.Popen([*words, str(folder)], stderr=subprocess.DEVNULL))
        end, text = time.monotonic() + 40, ""
        while time.monotonic() < end and not ("leaf1" in text and "leaf2" in text):
            time.sleep(1)
            for kind in kinds:
                subprocess.run(["lldpcli", "-u", folder / kind, "update"], capture_output=True, check=False)
            words = ["lldpcli", "-u", str(folder / "gpu1"), "-f", "json", "show", "neighbors"]
            text = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        yield text
    finally:
        for process in started:
            process.terminate()
            process.wait(20)
        for kind in kinds:
            subprocess.run(["ip", "netns", "del", start + kind], check=False)
        shutil.rmtree(folder)


@pytest.mark.lab
def test_lldpd_names_the_switch_of_each_port(neighbours: str) -> None:
    found = read("facts/gpu1.json", neighbours)
    assert {(host, port, found.titles[switch]) for host, port, switch in found.links} == {
        ("gpu1", "eth1", "leaf1"), ("gpu1", "eth2", "leaf2"),
    }  # fmt: skip
    assert leaves([found]) == {"gpu1": "leaf1"}
