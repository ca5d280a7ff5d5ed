"""Faults of HCAs, GPUs and the software on them: each is one cause on the right node, and its fix heals it.

What GPUs answer comes from the lab's stand-in of NVML, asked by the real pynvml that netdoctor brings along.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.scan.faults import Case, case, found, hold, put, together
from tests.scan.harness import changed, scan

# All of these are seen by passive questions.
QUICK = ("--profile", "quick")
GPU_CHECKS = frozenset({"gpu.count", "gpu.driver", "gpu.idle", "gpu.ecc", "gpu.throttle", "gpu.link"})


# --- HCAs ---------------------------------------------------------------------------------------------

EITHER_LAYER = [
    case(
        "node2 hca-missing", "hca-missing", "rdma.hca", said="missing: mlx5_1", fix="lspci",
        hidden=frozenset({"nccl.ib-hca"}),
    ),
    case(
        "node2 hca-down", "hca-port-down", "rdma.port", said="mlx5_1:1 is DOWN (Disabled)",
        hidden=frozenset({"nccl.ib-hca"}),
    ),
    case(
        "node2 hca-rate", "hca-rate-lanes", "rdma.rate", said="2 of 4 lanes", fix="mlxlink -d mlx5_1",
    ),
]  # fmt: skip

VARIANTS = [
    case("node2 hca-missing hca=mlx5_0", "hca-missing", "rdma.hca", said="missing: mlx5_0"),
    case(
        "node2 hca-missing hca=all", "hca-missing", "rdma.hca", said="no HCAs, most nodes have 2",
        hidden=frozenset({"nccl.ib-hca"}),
    ),
    case(
        "node2 hca-down hca=all", "hca-port-down", "rdma.port", said="mlx5_0:1",
        hidden=frozenset({"nccl.ib-hca"}),
    ),
    case(
        "node2 hca-rate rate=200 Gb/sec (4X HDR)", "hca-rate-low", "rdma.rate",
        said="200 Gbit/s, the same port of most nodes at 400",
    ),
    case(
        "node2 hca-rate rate=10 Gb/sec (4X SDR)", "hca-rate-not-known", "rdma.rate", status="warn",
        confidence="suspected", said="prints 10 Gbit/s",
    ),
    case(
        "node2 hca-no-device hca=all", "hca-no-device", "rdma.hca", said="mlx5_0 and mlx5_1 are in sysfs",
        hidden=frozenset({"nccl.ib-hca"}), fix="mknod -m 666 /dev/infiniband/uverbs",
    ),
    case(
        "node2 hca-pcie", "hca-pcie-narrow", "rdma.pcie", status="warn",
        said="mlx5_1 runs at PCIe 32 GT/s x8, slot and card can do 32 GT/s x16", fix="lspci -vvs",
    ),
    case(
        "node2 hca-fw", "hca-firmware", "rdma.hca", status="warn",
        said="28.33.0800 here, 28.39.1002 on most nodes",
    ),
    case(
        ("node1 hca-down", "node2 hca-down"), "hca-port-down", "rdma.port", nodes=("node1", "node2"),
        confidence="likely",
    ),
]  # fmt: skip


# Both networks are one wire then, and the addresses of both HCAs in one subnet.
ONE_SUBNET = [
    case(
        "node2 same-subnet", "rail-answered-twice", "net.same-subnet", status="warn", confidence="likely",
        said="eth0 and eth1 all answer ARP", fix="eth1/arp_ignore=1",
    ),
    case(
        "node2 same-subnet rp_filter=1 arp_ignore=1", "subnet-no-answer", "net.same-subnet",
        said="no interface answers ARP", fix="eth1/rp_filter=2",
    ),
]  # fmt: skip


@pytest.mark.parametrize("cases", together([*EITHER_LAYER, *VARIANTS, *ONE_SUBNET]))
def test_hcas_on_ethernet(hw_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(hw_lab, tmp_path, *cases, args=QUICK)


@pytest.mark.parametrize(
    "cases",
    together([
        *EITHER_LAYER,
        case(
            "node2 hca-init", "hca-port-not-managed", "rdma.port", said="mlx5_1:1 is INIT",
            hidden=frozenset({"nccl.ib-hca"}),
        ),
        case(
            "node2 hca-file", "rdma-sm-lid", "rdma.parity", status="warn", fix="sminfo",
            said="subnet manager's LID of mlx5_1:1 0x9 here, 0x1 on most nodes",
        ),
        case(
            "node2 hca-file file=ports/1/pkeys/0 value=0x8001", "rdma-pkeys", "rdma.parity", status="warn",
            said="partitions of mlx5_1:1 0x8001 here",
        ),
        case(
            tuple(f"node{i} hca-init hca=all" for i in range(4)), "no-subnet-manager", "rdma.port",
            nodes=(), said="no subnet manager runs", fix="opensm", id="no subnet manager",
        ),
    ]),
)  # fmt: skip
def test_hcas_on_infiniband(ib_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(ib_lab, tmp_path, *cases, args=QUICK)


ERRORS = ("--only", "rdma.errors,net.errors,gpu.link-errors")


@pytest.mark.parametrize(
    "cases",
    together([
        case("node2 hca-errors", "hca-link-errors", "rdma.errors", status="warn",
             said="mlx5_1:1 counted", fix="mlxlink -d mlx5_1", args=ERRORS),
        case("node2 hca-errors counter=packet_seq_err", "hca-resends", "rdma.errors", status="warn",
             confidence="suspected", said="packet_seq_err", args=ERRORS),
        case("node2 hca-errors counter=rp_cnp_ignored", "hca-cnp-ignored", "rdma.errors", status="warn",
             confidence="suspected", said="rp_cnp_ignored", fix="rdma statistic show", args=ERRORS),
        case("node2 gpu-mode link7.field161_per_s=5", "gpu-nvlink-replays", "gpu.link-errors", status="warn",
             said="GPU 0, NVLink 7:", fix="nvidia-smi nvlink -e -i 0 -l 7", args=ERRORS),
        case("node2 if-flap if=eth1", "net-link-flap", "net.errors", status="warn",
             said="eth1 counted", fix="dmesg", args=ERRORS),
    ]),
)  # fmt: skip
def test_what_links_count_meanwhile(hw_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(hw_lab, tmp_path, *cases)


@pytest.mark.parametrize(
    "cases",
    together([
        case(
            "node2 hca-gid", "gid-no-ipv4", "rdma.gid", said="though its interface eth1 has 10.",
            fix="modprobe -r mlx5_ib",
        ),
        case("node2 hca-gid hca=mlx5_0", "gid-no-ipv4", "rdma.gid", said="mlx5_0:1 has no IPv4 RoCE v2 GID"),
        case(
            "node2 env NCCL_IB_GID_INDEX=1", "gid-index-wrong", "rdma.gid", said="NCCL_IB_GID_INDEX=1",
        ),
        case(
            "node2 nccl-conf NCCL_IB_GID_INDEX=9", "gid-index-wrong", "rdma.gid", said="empty row",
        ),
    ]),
)  # fmt: skip
def test_gids(hw_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(hw_lab, tmp_path, *cases, args=QUICK)


# --- which HCAs NCCL is told to use -------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    together([
        case(
            "node2 env NCCL_IB_HCA=mlx5_7", "nccl-ib-hca-nomatch", "nccl.ib-hca",
            said="mlx5_7 (login session) matches none",
        ),
        case(
            "node2 nccl-conf NCCL_IB_HCA=mlx5_7", "nccl-ib-hca-nomatch", "nccl.ib-hca",
            said="/etc/nccl.conf",
        ),
        case(
            "node2 env NCCL_IB_HCA=eth0", "nccl-ib-hca-nomatch", "nccl.ib-hca",
            said="names of RDMA devices, not of network interfaces",
        ),
        case(
            (), "nccl-ib-hca-nomatch", "nccl.ib-hca", nodes=("node0", "node1", "node2", "node3"),
            said="NCCL_IB_HCA=mlx5_7 (job.env:1)", job={"NCCL_IB_HCA": "mlx5_7"},
            id="NCCL_IB_HCA=mlx5_7 in the job",
        ),
        case(
            "node2 env NCCL_IB_HCA==mlx5_0", "nccl-ib-fewer", "nccl.ib-hca", status="warn",
            said="1 HCA port here, 2 on most nodes",
        ),
        case(
            "node2 env NCCL_IB_DISABLE=1", "nccl-ib-off", "nccl.ib-hca",
            said="NCCL_IB_DISABLE=1 (login session) switches them off", hidden=frozenset({"nccl.env"}),
        ),
        case(
            "node2 nccl-conf NCCL_NET=Socket", "nccl-ib-off", "nccl.ib-hca", said="asks for TCP",
            hidden=frozenset({"nccl.env"}),
        ),
        case(
            "node2 env NCCL_IB_DISABLE=true", "nccl-env-number-nccl-ib-disable", "nccl.env", status="warn",
            said="means 0", fix="NCCL_IB_DISABLE /etc/environment",
        ),
    ], size=2),  # more, and there is hardly a majority left
)  # fmt: skip
def test_hcas_that_nccl_is_told_to_use(hw_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(hw_lab, tmp_path, *cases, args=QUICK)


def test_a_prefix_selects_more_than_it_names(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab(2, hcas=11)
    trap = Case(
        faults=(),
        key="nccl-ib-hca-prefix",
        check="nccl.ib-hca",
        status="warn",
        nodes=("node0", "node1"),
        said="also selects mlx5_10, because mlx5_1 is a prefix",
        job={"NCCL_IB_HCA": "mlx5_1"},
    )
    hold(lab, tmp_path, trap, args=QUICK)
    lab.down()


# --- GPUs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    together([
        case("node2 gpu-missing", "gpu-count-fewer", "gpu.count", status="warn",
             said="1 GPU, most nodes have 2"),
        case(
            "node2 gpu-lost", "gpu-lost", "gpu.visible", said="GPU 0 has fallen off the bus",
            hidden=GPU_CHECKS,
        ),
        case("node2 gpu-lost gpu=1", "gpu-lost", "gpu.visible", said="GPU 1 has fallen off the bus"),
        case(
            "node2 gpu-mismatch", "driver-mismatch", "gpu.visible", fix="modprobe -r",
            said="library is 550.127.05, the loaded kernel module 535.183.01", hidden=GPU_CHECKS,
        ),
        case(
            "node2 gpu-no-driver", "driver-not-loaded", "gpu.visible", fix="modprobe nvidia",
            said="2 GPUs on the PCI bus", hidden=GPU_CHECKS,
        ),
        case(
            "node2 gpu-driver", "driver-branch", "gpu.driver", status="warn",
            said="driver branch 535 here, 550 on most nodes",
        ),
        case(
            "node2 gpu-driver version=550.54.15", "driver-version", "gpu.driver", status="warn",
            said="550.54.15 here, 550.127.05 on most nodes",
        ),
        case(
            "node2 gpu-process", "gpu-busy", "gpu.idle", status="warn",
            said="GPU 0 is in use by python3 (pid", look=True,
        ),
        case("node2 gpu-ecc", "gpu-ecc", "gpu.ecc", said="GPU 0 has 3 uncorrected memory errors"),
        case(
            "node2 gpu-fabric", "gpu-fabric-waits", "gpu.fabric", said="GPU 0: in progress",
            fix="systemctl enable --now nvidia-fabricmanager",
        ),
        case(
            "node2 gpu-fabric state=3 status=999", "gpu-fabric-failed", "gpu.fabric", said="GPU 1: 999",
        ),
        case(
            "node2 gpu-mode ecc=0", "gpu-parity-ecc", "gpu.parity", status="warn",
            said="off here, on on most nodes", fix="nvidia-smi -e 1",
        ),
        case(
            "node2 gpu-mode power_limit_mw=400000", "gpu-power-capped", "gpu.parity", status="warn",
            said="GPU 0 is limited to 400 W (power), its default is 700 W",
        ),
        case(
            "node2 gpu-mode set_clock0=1200", "gpu-clocks-set", "gpu.parity", status="warn",
            said="GPU 1 is limited to 1200 MHz (graphics clock), its default is 1980 MHz",
        ),
        case(
            "node2 gpu-mode margin=-3", "gpu-hot", "gpu.throttle", status="warn",
            said="GPU 0 is -3 C from its limit",
        ),
        case(
            "node2 gpu-mode sram_exceeded=1", "gpu-memory-spent", "gpu.ecc", status="warn",
            said="GPU 0 has had more SRAM errors",
        ),
        case(
            "node2 gpu-mode field31=1", "gpu-memory-pending", "gpu.ecc", status="warn",
            said="memory pages that are replaced at its next reset",
        ),
        case(
            "node2 gpu-no-peermem", "gpudirect-none", "rdma.gpudirect", status="warn",
            said="no nvidia-peermem, and no DMA-BUF", fix="modprobe nvidia-peermem",
        ),
        case(
            "node2 gpu-xid", "gpu-needs-reset", "gpu.xid", confidence="suspected",
            said="GPU 0 had Xid 95, uncontained memory error", fix="nvidia-smi --gpu-reset -i 0",
        ),
        case(
            "node2 gpu-xid code=79 recovery=2 text=GPU has fallen off the bus.",
            "gpu-needs-reboot", "gpu.xid", said="GPU 0 needs a reboot, says the driver", fix="reboot",
        ),
        case(
            "node2 gpu-throttle", "gpu-slowdown", "gpu.throttle", status="warn",
            said="hardware thermal slowdown",
        ),
        case(
            "node2 gpu-throttle reasons=0x80", "gpu-power-brake", "gpu.throttle", status="warn",
            said="power brake",
        ),
        case(
            "node2 gpu-mode link4.field164=13281", "gpu-nvlink-slow", "gpu.link", status="warn",
            said="NVLink 4 at 13.28 GB/s", fix="nvidia-smi nvlink -s -i 0",
        ),
        case(
            "node2 gpu-mode inforom_corrupt=1", "gpu-inforom-corrupt", "gpu.parity", status="warn",
            said="wrong checksums", fix="nvidia-smi -q -i 0",
        ),
        case("node2 gpu-nvlink", "gpu-nvlink-down", "gpu.link", status="warn", said="16 of 18 NVLinks up"),
        case(
            "node2 gpu-nvlink gpu=all links=18", "gpu-nvlink-none", "gpu.link",
            said="NVLinks of all 2 GPUs are down", fix="nvidia-fabricmanager",
        ),
        case(
            "node2 hca-numa hca=all", "gpu-far-from-hca", "gpu.affinity", status="warn",
            said="GPU 0 SYS and GPU 1 SYS; there GPU 0 NODE and GPU 1 NODE", fix="nvidia-smi topo -m",
        ),
        case("node2 gpu-pcie", "gpu-pcie-narrow", "gpu.link", status="warn", said="PCIe 5 x8"),
        case(
            ("node1 gpu-lost", "node3 gpu-lost"), "gpu-lost", "gpu.visible", nodes=("node1", "node3"),
        ),
    ], size=2),  # a GPU that is lost leaves its node out of what is compared
)  # fmt: skip
def test_gpus(hw_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(hw_lab, tmp_path, *cases, args=QUICK)


def test_gpus_that_the_hosts_file_lists(hw_lab: Lab, tmp_path: Path) -> None:
    hosts = tmp_path / "gpus.txt"
    hosts.write_text("".join(f"{node} gpus={3 if node == 'node1' else 2}\n" for node in hw_lab.nodes))
    scanned = scan(hw_lab, tmp_path, *QUICK, hosts=str(hosts))
    assert found(scanned) == {"gpu-count-fewer": ("node1",)}, scanned.summary()
    assert "the hosts file lists 3" in " ".join(scanned.cause("gpu-count-fewer")["seen"])


# --- torch, CUDA and NCCL -----------------------------------------------------------------------------

PACKAGES = ("--packages", "torch,nvidia-nccl-cu12")


@pytest.mark.parametrize(
    "cases",
    together([
        case(
            "node2 torch", "torch-version", "sw.torch",
            fix="https://download.pytorch.org/whl/cu124 'torch==2.6.0+cu124'",
            said="2.4.0+cu121 here, 2.6.0+cu124 on most nodes", hidden=frozenset({"sw.nccl"}),
        ),
        case(
            "node2 torch", "torch-version", "sw.torch", args=PACKAGES, id="node2 torch with --packages",
            hidden=frozenset({"sw.nccl", "sw.parity"}),
        ),
        case(
            "node2 torch version=2.6.0+cu118 cuda=11.8 nccl=2.21.5", "torch-version", "sw.torch",
            args=PACKAGES, hidden=frozenset({"sw.cuda", "sw.parity"}),
        ),
        case(
            "node2 torch version=2.6.0+cu124 cuda=12.4 nccl=2.19.3", "nccl-version", "sw.nccl",
            fix="'nvidia-nccl-cu12==2.21.5'", said="NCCL 2.19.3 here, 2.21.5 on most nodes",
        ),
        case(
            "node2 torch version=2.6.0+cu124 cuda=12.4 nccl=2.23.4", "nccl-version", "sw.nccl",
            args=PACKAGES, hidden=frozenset({"sw.parity"}),
        ),
        case(
            "node2 old-python version=3.9.2", "python-version", "sw.python", status="warn",
            said="Python 3.9 here", id="another Python release",
        ),
        case(
            ("node1 torch", "node2 torch", "node3 torch version=2.6.0+cu124 cuda=12.4 nccl=2.21.5"),
            "torch-version", "sw.torch", nodes=("node0", "node1", "node2", "node3"), confidence="likely",
            said="and as many nodes have one as the other", args=PACKAGES, id="torch, two against two",
            excuse="which of the two is right is a person's choice",
        ),
        case(
            "node2 gpu-mode cc_major=3 cc_minor=7", "torch-no-gpu-code", "gpu.torch",
            said="torch 2.6.0+cu124 has no code for NVIDIA H100 80GB HBM3 (sm_37)", fix="a build with code",
        ),
        case(
            "node2 gpu-driver version=515.65.01 cuda=11070", "driver-too-old", "sw.cuda",
            said="too old for torch 2.6.0+cu124", hidden=frozenset({"gpu.driver"}),
        ),
    ]),
)  # fmt: skip
def test_software(torch_lab: Lab, tmp_path: Path, cases: tuple[Case, ...]) -> None:
    hold(torch_lab, tmp_path, *cases, args=QUICK)


def test_torch_missing_on_one_node(torch_lab: Lab, tmp_path: Path) -> None:
    base = "/usr/local/lib/python3*/dist-packages"
    parts = f"{base}/torch {base}/torch-* {base}/nvidia {base}/nvidia_*"
    do = f"mkdir /root/aside && mv {parts} /root/aside"
    with changed(torch_lab, "node2", do, f"mv /root/aside/* {base}/ && rmdir /root/aside"):
        scanned = scan(torch_lab, tmp_path, *QUICK, *PACKAGES)
    assert scanned.code == 1
    assert found(scanned) == {"torch-missing": ("node2",)}, scanned.summary()
    shells = [c["shell"] for f in scanned.cause("torch-missing")["fixes"] for c in f["commands"]]
    assert "whl/cu124 'torch==2.6.0+cu124'" in shells[0]


def test_torch_on_healthy_nodes(torch_lab: Lab, tmp_path: Path) -> None:
    scanned = scan(torch_lab, tmp_path, *QUICK, *PACKAGES)
    assert (scanned.state, scanned.code, found(scanned)) == ("ready", 0, {}), scanned.summary()
    assert "torch 2.6.0+cu124" in scanned.text


def test_an_import_that_fails_on_one_node(torch_lab: Lab, tmp_path: Path) -> None:
    file = "/usr/local/lib/python3*/dist-packages/torch/__init__.py"
    error = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    spoil = f"cp $(echo {file}) /root/torch.aside; echo 'raise ImportError(\"{error}\")' >> $(echo {file})"
    with changed(torch_lab, "node2", spoil, f"mv /root/torch.aside $(echo {file})"):
        scanned = scan(torch_lab, tmp_path, "--only", "sw.import", *PACKAGES)
    assert found(scanned) == {"import-library-torch": ("node2",)}, scanned.summary()
    assert f"a library is missing: ImportError: {error}" in " ".join(scanned.text.split())
    assert [scanned.cell("sw.import", f"node{i}") for i in (0, 1, 3)] == ["."] * 3


def test_what_a_requirements_file_asks_for(torch_lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("nvidia-nccl-cu12==2.23.4; sys_platform == 'linux'\n")
    asked = tmp_path / "reqs.txt"
    asked.write_text("torch==2.6.0 --hash=sha256:0\n-r more.txt\nno-such-thing\nx; sys_platform == 'win32'\n")
    older = "cd /usr/local/lib/python3*/dist-packages && mv nvidia_cuda_runtime_cu12-{}.dist-info "
    older += "nvidia_cuda_runtime_cu12-{}.dist-info"
    older, newer = (older.format(*way) for way in (("12.4.105", "12.1.105"), ("12.1.105", "12.4.105")))
    args = ("--packages", "torch>=2.4,<3", "--requirements", str(asked))
    with changed(torch_lab, "node2", older, newer):
        scanned = scan(torch_lab, tmp_path, *QUICK, *args)
    nodes = ("node0", "node1", "node2", "node3")
    wrong = ("package-nvidia-nccl-cu12-unwanted", "package-no-such-thing-missing")
    assert found(scanned) == {
        **dict.fromkeys(wrong, nodes),
        "torch-requires-older-nvidia": ("node2",),
    }, scanned.summary()
    older = "requires nvidia-cuda-runtime-cu12==12.4.105; 12.1.105 is installed"
    assert older in " ".join(scanned.text.split())
    assert "more.txt:1 requires ==2.23.4" in scanned.text
    assert "reqs.txt: hashes are not compared" in scanned.text
    assert scanned.code == 1


# --- two faults at once -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (
            ("node1 hca-down", "node2 gpu-lost", "node3 memlock"),
            {"hca-port-down": ("node1",), "gpu-lost": ("node2",), "memlock-low": ("node3",)},
        ),
        (
            ("node1 gpu-no-driver", "node2 gpu-mismatch", "node3 nccl-conf NCCL_IB_DISABLE=1"),
            {"driver-not-loaded": ("node1",), "driver-mismatch": ("node2",), "nccl-ib-off": ("node3",)},
        ),
        (
            ("node1 hca-fw", "node2 env NCCL_IB_HCA=mlx5_7", "node3 hca-down"),
            {"nccl-ib-hca-nomatch": ("node2",), "hca-port-down": ("node3",), "hca-firmware": ("node1",)},
        ),
        (
            ("node0 gpu-ecc", "node1 small-shm", "node1 hca-gid", "node2 nofile", "node3 gpu-missing"),
            {
                "gpu-ecc": ("node0",),
                "shm-small": ("node1",),
                "gid-no-ipv4": ("node1",),
                "nofile-low": ("node2",),
                "gpu-count-fewer": ("node3",),
            },
        ),
    ],
    ids=lambda value: " + ".join(value) if isinstance(value, tuple) else "",
)
def test_faults_on_different_nodes_are_causes_of_their_own(
    hw_lab: Lab,
    tmp_path: Path,
    faults: tuple[str, ...],
    expected: dict[str, tuple[str, ...]],
) -> None:
    put(hw_lab, faults)
    scanned = scan(hw_lab, tmp_path, *QUICK)
    assert scanned.code == 1
    assert found(scanned) == expected, scanned.summary()
    assert all(cause["fixes"] for cause in scanned.report["causes"])


def test_torch_and_an_hca_at_once(torch_lab: Lab, tmp_path: Path) -> None:
    put(torch_lab, ("node1 torch", "node2 hca-down"))
    scanned = scan(torch_lab, tmp_path, *QUICK, *PACKAGES)
    assert found(scanned) == {"torch-version": ("node1",), "hca-port-down": ("node2",)}, scanned.summary()
