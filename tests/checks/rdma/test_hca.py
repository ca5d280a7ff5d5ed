from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.nccl.ib_hca import nccl_ib_hca
from netdoctor.checks.rdma.hca import rdma_hca
from netdoctor.engine.registry import load_builtin
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import Job
from netdoctor.model import Status

from ..build import cause, causes, env, found, host, hosts
from ..build_hw import hca, rdma, rdmas

BARE: dict[str, Any] = {"uverbs_there": False, "uverbs_ok": None}


def test_silent_when_equal() -> None:
    assert not list(rdma_hca(rdmas(3), None))
    assert not list(rdma_hca(rdmas(1), None))


def test_skips_without_hcas() -> None:
    (finding,) = rdma_hca({"n1": RdmaFacts(), "n2": RdmaFacts()}, None)
    assert finding.status is Status.SKIP


def test_names_what_is_missing() -> None:
    findings = list(rdma_hca(rdmas(3, n2=rdma(hca("mlx5_0"))), None))
    assert causes(findings) == {"hca-missing": {"n2"}}
    assert findings[0].summary == "1 HCA, most nodes have 2; missing: mlx5_1"
    assert findings[0].evidence[0].output == "mlx5_0 MT4129 fw 28.39.1002"
    mute, *_ = rdma_hca(rdmas(3, n2=rdma(hca("mlx5_0", fw_version=None))), None)
    assert mute.evidence[0].output == "mlx5_0 MT4129 fw ?"


def test_the_number_that_the_user_expects_takes_the_place_of_the_others() -> None:
    nodes = rdmas(3, n1=rdma(hca("mlx5_0")), n3=rdma(*(hca(f"mlx5_{i}") for i in range(3))))
    expect = Expectations(wishes=(Expectation(key="rdma.hcas", any_of=("2",), place="e.toml:3"),))
    # Of the registry: a number that is spoiled gets no further than the file that it is read from.
    findings = found(load_builtin()["rdma.hca"].function(nodes, None, expect))
    assert {node: one.status for node, one in findings.items()} == {"n1": Status.FAIL, "n3": Status.WARN}
    assert findings["n1"].summary == "number of HCAs 1 here, e.toml:3 expects 2"


def test_an_unbound_card_is_named() -> None:
    findings = list(rdma_hca(rdmas(3, n2=replace(RdmaFacts(), unbound_pci=("0000:3b:00.0",))), None))
    assert causes(findings) == {"hca-missing": {"n2"}}
    assert "0000:3b:00.0" in findings[0].summary
    more = list(rdma_hca(rdmas(2, n1=rdma(unbound_pci=("0000:3b:00.0",))), None))
    assert causes(more) == {"hca-unbound": {"n1"}}


def test_two_nodes_suspect_the_one_with_fewer() -> None:
    assert causes(rdma_hca(rdmas(2, n1=RdmaFacts()), None)) == {"hca-missing": {"n1"}}


def test_devices_that_cannot_be_opened() -> None:
    closed = rdma(hca("mlx5_0", uverbs_ok=False), hca("mlx5_1"))
    findings = list(rdma_hca(rdmas(2, n1=closed), None))
    assert causes(findings) == {"hca-permission": {"n1"}}
    hosts = {"n1": host(container="docker"), "n2": host(2)}
    inside = list(rdma_hca(rdmas(2, n1=closed), hosts))
    hint = inside[0].cause
    assert hint is not None
    assert "--device /dev/infiniband" in hint.fixes[0].commands[0].shell


@pytest.mark.parametrize("container", ["", "docker"])
def test_hcas_without_a_device_are_what_nccl_cannot_open(container: str) -> None:
    bare = rdma(*(hca(f"mlx5_{i}", uverbs_there=False, uverbs_ok=None) for i in range(2)))
    nodes = rdmas(2, n1=bare)
    (finding,) = rdma_hca(nodes, {"n1": host(container=container), "n2": host(2)})
    assert (finding.target, finding.status) == ("n1", Status.FAIL)
    assert "mlx5_0 and mlx5_1 are in sysfs" in finding.summary
    assert finding.cause is not None
    assert ("--device /dev/infiniband" in str(finding.cause.fixes)) is bool(container)
    chosen = {f.target: f for f in nccl_ib_hca(nodes, dict.fromkeys(nodes, env()), None, Job())}
    assert chosen["n1"].cause is not None
    assert chosen["n1"].cause.key == "nccl-ib-mixed-transport"
    assert chosen["n2"].observed == "mlx5_0:1 and mlx5_1:1"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        pytest.param(
            {}, {"uverbs": "uverbs1", **BARE}, "mknod -m 666 /dev/infiniband/uverbs1", id="the file"
        ),
        pytest.param({}, {"uverbs": None, **BARE}, "dmesg", id="the other has its device"),
        pytest.param(
            {"uverbs": None, **BARE}, {"uverbs": None, **BARE}, "modprobe ib_uverbs", id="no module"
        ),
        pytest.param({}, {"uverbs": "x; rm", **BARE}, "dmesg", id="no number"),
    ],
)
def test_a_module_that_is_loaded_is_not_loaded_again(
    first: dict[str, Any], second: dict[str, Any], words: str
) -> None:
    facts = rdma(hca("mlx5_0", **first), hca("mlx5_1", **second))
    (finding,) = rdma_hca(rdmas(2, n1=facts), None)
    assert finding.cause
    (fix,) = finding.cause.fixes
    assert words in fix.commands[0].shell
    assert ("modprobe" in fix.commands[0].shell) == ("modprobe" in words)


@pytest.mark.parametrize(("container", "status"), [("docker", Status.WARN), ("", Status.FAIL)])
def test_containers_without_devices_on_any_node_may_be_meant_for_tcp(container: str, status: Status) -> None:
    bare = rdma(*(hca(f"mlx5_{i}", uverbs_there=False, uverbs_ok=None) for i in range(2)))
    hosts = {n: host(container=container) for n in ("n1", "n2")}
    findings = list(rdma_hca(rdmas(2, n1=bare, n2=bare), hosts))
    assert [finding.status for finding in findings] == [status] * 2
    assert all("as on every node" in finding.summary for finding in findings)


def test_no_library() -> None:
    bare = rdmas(2, n1=rdma(libibverbs=None))
    findings = list(rdma_hca(bare, None))
    assert causes(findings) == {"libibverbs-missing": {"n1"}}
    assert "|| dnf install -y libibverbs" in str(cause(findings, "libibverbs-missing").fixes)
    (fix,) = cause(rdma_hca(bare, hosts(2)), "libibverbs-missing").fixes  # Debian
    assert fix.commands[0].shell == "apt-get install -y libibverbs1 ibverbs-providers"


def test_other_firmware_is_a_warning() -> None:
    odd = rdma(hca("mlx5_0"), hca("mlx5_1", fw_version="28.35.1012"))
    findings = list(rdma_hca(rdmas(3, n3=odd), None))
    assert causes(findings) == {"hca-firmware": {"n3"}}
    assert found(findings)["n3"].status is Status.WARN


def test_firmware_of_other_boards_is_not_compared() -> None:
    odd = rdma(hca("mlx5_0"), hca("mlx5_1", fw_version="16.1", board_id="MT_storage"))
    assert not list(rdma_hca(rdmas(3, n3=odd), None))


def test_other_names_are_a_warning() -> None:
    odd = rdma(hca("mlx5_0"), hca("mlx5_4"))
    assert causes(rdma_hca(rdmas(3, n1=odd), None)) == {"hca-names": {"n1"}}


def test_only_an_absent_hca_explains_what_nccl_would_choose() -> None:
    nodes = rdmas(
        4,
        n1=rdma(libibverbs=None),
        n2=rdma(hca("mlx5_0", uverbs_ok=False), hca("mlx5_1", fw_version="28.35.1012")),
        n3=rdma(hca("mlx5_0")),
    )
    explains = {f.cause.key: f.cause.explains for f in rdma_hca(nodes, None) if f.cause}
    assert explains == {
        "hca-missing": True,
        "libibverbs-missing": False,
        "hca-permission": False,
        "hca-firmware": False,
    }


def test_firmware_is_compared_as_versions() -> None:
    older = rdma(hca("mlx5_0"), hca("mlx5_1", fw_version="28.9.1000"))
    (finding,) = rdma_hca(rdmas(3, n3=older), None)
    assert (finding.target, finding.observed) == ("n3", "28.9.1000")
    padded = rdma(hca("mlx5_0", fw_version="28.039.1002"), hca("mlx5_1", fw_version="28.039.1002"))
    assert not list(rdma_hca(rdmas(3, n3=padded), None))


@pytest.mark.parametrize(
    "changes", [{"fw_version": None}, {"fw_version": "?"}, {"board_id": None}, {"uverbs_ok": None}]
)
def test_one_card_that_does_not_tell_is_unknown(changes: dict[str, Any]) -> None:
    silent = rdma(hca("mlx5_0"), hca("mlx5_1", **changes))
    findings = list(rdma_hca(rdmas(3, n2=silent), None))
    assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN}
    assert "mlx5_1" in findings[0].summary


def test_cards_that_name_no_board_are_not_compared() -> None:
    bare = rdma(hca("bnxt_re0", board_id=None, hca_type="BCM57508", fw_version="1"))
    other = rdma(hca("bnxt_re0", board_id=None, hca_type="BCM57508", fw_version="2"))
    assert not list(rdma_hca({"n1": bare, "n2": other}, None))
