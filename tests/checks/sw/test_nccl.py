from netdoctor.checks.sw.nccl import sw_nccl
from netdoctor.model import CLUSTER, LIKELY, Status

from ..build import cause, causes, found, said
from ..build_hw import nccl, software, softwares, torch


def test_says_the_version_when_equal() -> None:
    findings = list(sw_nccl(softwares(2)))
    assert {f.observed for f in findings} == {"2.21.5"}
    assert {f.status for f in findings} == {Status.PASS}


def test_a_patch_release_apart_fails() -> None:
    findings = list(sw_nccl(softwares(3, n2=software(nccl=(nccl("2.21.6"),)))))
    assert set(found(findings, Status.FAIL)) == {"n2"}
    shell = cause(findings, "nccl-version").fixes[0].commands[0].shell
    assert shell == "/opt/v/bin/python -m pip install 'nvidia-nccl-cu12==2.21.5'"


def test_the_build_suffix_does_not_count() -> None:
    assert not causes(sw_nccl(softwares(2, n2=software(nccl=(nccl("2.21.5+cuda12.4"),)))))


def test_the_first_one_counts_and_an_override_is_named() -> None:
    both = software(nccl=(nccl("2.19.3", "LD_LIBRARY_PATH"), nccl("2.21.5")))
    findings = list(sw_nccl(softwares(3, n1=both)))
    assert causes(findings) == {"nccl-version": {"n1"}, "nccl-overridden": {"n1"}}
    (told,) = found(findings, Status.WARN).values()
    assert told.summary == "LD_LIBRARY_PATH gives NCCL 2.19.3 instead of torch's own 2.21.5"
    fix = cause(findings, "nccl-overridden").fixes[0]
    assert fix.commands[0].shell == "unset LD_LIBRARY_PATH"


def test_a_later_system_copy_is_harmless() -> None:
    both = software(nccl=(nccl(), nccl("2.19.3", "system")))
    assert not causes(sw_nccl(softwares(2, n1=both)))


def test_an_equal_preload_is_harmless() -> None:
    both = software(nccl=(nccl(origin="LD_PRELOAD"), nccl()))
    assert not causes(sw_nccl(softwares(2, n1=both)))


def test_skips_and_missing() -> None:
    cpu = software(torch=torch(cuda=None), nccl=())
    assert found(said(sw_nccl({"n1": cpu, "n2": cpu}), CLUSTER))[CLUSTER].status is Status.SKIP
    findings = list(sw_nccl(softwares(3, n1=cpu, n2=software(nccl=()))))
    assert found(findings)["n1"].status is Status.SKIP
    assert causes(findings) == {"nccl-missing": {"n2"}}


def test_no_wheel_is_proposed_where_the_release_or_the_cuda_of_torch_is_not_known() -> None:
    nameless = softwares(2, n1=software(nccl=(nccl(None),)), n2=software(nccl=()))
    assert cause(sw_nccl(nameless), "nccl-missing").fixes == ()
    no_cuda = softwares(3, n2=software(torch=torch(cuda=None), nccl=(nccl("2.19.3"),)))
    assert cause(sw_nccl(no_cuda), "nccl-version").fixes == ()


def test_an_unreadable_version_is_unknown() -> None:
    findings = found(sw_nccl(softwares(2, n1=software(nccl=(nccl(None),)))))
    assert findings["n1"].status is Status.UNKNOWN


def test_a_tie_blames_both() -> None:
    findings = list(sw_nccl(softwares(2, n1=software(nccl=(nccl("2.19.3"),)))))
    assert causes(findings) == {"nccl-version": {"n1", "n2"}}


def test_without_knowing_torch_it_is_unknown_which_nccl_it_loads() -> None:
    broken = software(torch=torch(cuda=None), torch_error="version.py: EACCES", nccl=())
    findings = found(sw_nccl(softwares(2, n1=broken)))
    assert findings["n1"].status is Status.UNKNOWN


def test_another_torch_beside_does_not_hide_who_has_another_nccl() -> None:
    """Three values on four nodes: of those with the majority's torch one has another NCCL than the two."""
    nodes = softwares(
        4,
        n2=software(torch=torch(version="2.4.0+cu121"), nccl=(nccl("2.20.5"),)),
        n3=software(nccl=(nccl("2.19.3"),)),
    )
    failed = found(sw_nccl(nodes), Status.FAIL)
    assert failed.keys() == {"n2", "n3"}
    assert "2.19.3 here, 2.21.5 on most nodes with torch 2.6.0+cu124" in failed["n3"].summary
    # Without anything that tells them apart nobody is the odd one.
    several = softwares(4, n2=software(nccl=(nccl("2.20.5"),)), n3=software(nccl=(nccl("2.19.3"),)))
    told = found(sw_nccl(several), Status.FAIL)
    assert told.keys() == {"n1", "n2", "n3", "n4"}
    hint = cause(told.values(), "nccl-version")
    assert (hint.confidence, hint.title) == (LIKELY, "NCCL differs between {nodes}, 3 values and no majority")
