from typing import Any

import pytest

from netdoctor.checks.rdma.gpudirect import rdma_gpudirect
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Finding, Status

from ..build import causes, host, job, said
from ..build_hw import gpu, gpus, hca, no_gpus, rdma


def judged(kernel: str = "6.8.0-45-generic", hcas: RdmaFacts | None = None, **changes: Any) -> list[Finding]:
    return said(rdma_gpudirect(gpus(**changes), hcas or rdma(), host(1, kernel=kernel), None, job()))


def test_silent_with_either_way() -> None:
    assert not judged()
    assert not judged(open_module=True, peermem=False)
    assert not judged("5.12.0", open_module=True, peermem=False)
    assert not judged("4.18.0-553.el8", open_module=True, peermem=True)


@pytest.mark.parametrize(("kernel", "is_open"), [("6.8.0", False), ("5.4.0-190-generic", True)])
def test_neither(kernel: str, is_open: bool) -> None:
    findings = judged(kernel, open_module=is_open, peermem=False)
    assert [f.status for f in findings] == [Status.WARN]
    assert causes(findings) == {"gpudirect-none": {"n1"}}
    assert kernel in findings[0].evidence[0].output


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hcas": RdmaFacts()}, "no HCA on this node"),
        ({"hcas": rdma(hca("rxe0", hca_type="")), "peermem": False}, "no HCA on this node"),
        ({"hcas": rdma(hca("rdmap16s0", hca_type=None, driver="efa 2.13.0g"))}, "no HCA on this node"),
        ({"devices": (gpu(0, name="NVIDIA GeForce RTX 4090"),)}, "no GPU with GPUDirect on this node"),
        ({"devices": no_gpus().devices}, "no GPU with GPUDirect on this node"),
    ],
)
def test_not_applicable(changes: dict[str, Any], why: str) -> None:
    assert [(f.status, f.summary) for f in judged(**{"peermem": False, **changes})] == [(Status.SKIP, why)]


def test_what_was_not_read_is_not_green() -> None:
    assert [f.status for f in judged(peermem=None)] == [Status.UNKNOWN]
    assert [f.status for f in judged(peermem=False, open_module=None)] == [Status.UNKNOWN]


def test_an_iommu_that_translates_and_switches_that_redirect() -> None:
    for iommu in ("identity", None, "unmanaged"):
        assert not judged(hcas=rdma(hca(iommu=iommu)))
        (told,) = judged(hcas=rdma(hca(iommu=iommu, acs=None)))
        assert (told.status, told.summary[:17]) == (Status.PASS, "only root can see")
    both = rdma(hca("mlx5_0", iommu="DMA-FQ"), hca("mlx5_1", acs=("0000:a1:00.0",)))
    findings = judged(hcas=both)
    assert causes(findings) == {"gpudirect-iommu": {"n1"}, "gpudirect-acs": {"n1"}}
    assert [f.summary for f in findings] == [
        "the IOMMU translates for mlx5_0", "ACS of 0000:a1:00.0 redirects traffic from device to device",
    ]  # fmt: skip
    on_arm = host(1, kernel="6.8.0", arch="aarch64")
    assert not said(rdma_gpudirect(gpus(), both, on_arm, None, job()))
    assert not judged(hcas=rdma(hca("rxe0", hca_type="", iommu="DMA"), hca(iommu="identity")))


def test_gb10_has_none_and_is_not_to_be_asked_for_it() -> None:
    spark = gpus(devices=(gpu(0, name="NVIDIA GB10"),), peermem=False)

    def asked(**env: str) -> list[Finding]:
        return said(rdma_gpudirect(spark, rdma(), host(1), None, job(env=env)))

    for env in ({}, {"NCCL_NET_GDR_LEVEL": "LOC"}, {"NCCL_NET_GDR_LEVEL": "0", "NCCL_DMABUF_ENABLE": "0"}):
        assert [one.status for one in asked(**env)] == [Status.SKIP]
    findings = asked(NCCL_NET_GDR_LEVEL="SYS")
    assert causes(findings) == {"gpudirect-forced": {"n1"}}
    assert findings[0].status is Status.WARN
