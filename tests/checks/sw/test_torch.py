from dataclasses import replace

import pytest

from netdoctor.checks._shared.install import install_torch
from netdoctor.checks.sw.torch import sw_torch
from netdoctor.facts.software import Interpreter, SoftwareFacts
from netdoctor.model import DERIVED, LIKELY, Finding, Status

from ..build import cause, causes, found, session
from ..build_hw import all_gpus, gpus, no_gpus, software, softwares, torch


def bad(findings: list[Finding]) -> dict[str, Finding]:
    return found(findings, Status.FAIL)


def test_says_the_version_when_equal() -> None:
    findings = list(sw_torch(softwares(3), all_gpus(3)))
    assert {f.status for f in findings} == {Status.PASS}
    assert findings[0].observed == "2.6.0+cu124"


def test_skips_without_torch_anywhere() -> None:
    none = software(torch=None)
    (finding,) = sw_torch({"n1": none, "n2": none}, None)
    assert finding.status is Status.SKIP
    assert "nothing to compare" in finding.summary


BARE = software(torch=None, executable="/usr/bin/python3")


def elsewhere(*paths: str) -> SoftwareFacts:
    others = tuple(Interpreter(python=path, origin="venv", torch="2.6.0") for path in paths)
    return replace(BARE, others=others)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        pytest.param([BARE, BARE], "; --python names the job's", id="nowhere"),
        pytest.param([BARE, replace(BARE, executable="/x")], None, id="two interpreters"),
        pytest.param(
            [elsewhere("/a", "/b"), elsewhere("/c", "/b")], "; --python /b has it", id="one path on all nodes"
        ),
        pytest.param(
            [elsewhere("/a"), elsewhere("/c")], "; --python auto finds one on 2 of 2 nodes", id="each its own"
        ),
        pytest.param([elsewhere("/a"), BARE], "; --python auto finds one on 1 of 2 nodes", id="on one alone"),
    ],
)
def test_the_gap_names_the_interpreter_that_has_torch(nodes: list[SoftwareFacts], words: str | None) -> None:
    (finding,) = sw_torch({f"n{i}": one for i, one in enumerate(nodes)}, None)
    usual = "no torch in the interpreters that were asked; --python names the job's"
    assert finding.gap == (usual if words is None else f"no torch in /usr/bin/python3{words}")


def test_a_node_without_torch_is_told_where_it_has_one() -> None:
    findings = list(sw_torch(softwares(3, n2=elsewhere("/opt/venv/bin/python")), all_gpus(3)))
    assert "here /opt/venv/bin/python has it (--python auto)" in bad(findings)["n2"].summary


def test_fails_where_only_some_nodes_have_it() -> None:
    findings = list(sw_torch(softwares(3, n2=software(torch=None)), all_gpus(3)))
    assert set(bad(findings)) == {"n2"}
    (fix,) = cause(findings, "torch-missing").fixes
    assert "from torch's own index" in fix.text
    assert fix.commands[0].run_on == "n2"
    assert fix.commands[0].shell == (
        "/opt/v/bin/python -m pip install --index-url https://download.pytorch.org/whl/cu124 "
        "'torch==2.6.0+cu124'"
    )


def test_what_one_node_has_is_no_norm() -> None:
    """Whether that interpreter is the job's is the question, and pip comes last."""
    bare = software(torch=None, executable="/usr/bin/python3", externally_managed=True)
    lone = softwares(4, n1=bare, n2=bare, n3=bare)
    findings = list(sw_torch(lone, all_gpus(4)))
    assert not bad(findings)
    assert found(findings, Status.UNKNOWN).keys() == {"n1", "n2", "n3"}
    finding = found(findings)["n2"]
    assert finding.expected == "2.6.0+cu124, as on n4, or on no node"
    assert finding.expected_from is DERIVED
    hint = cause(findings, "torch-missing")
    assert hint.title.endswith(
        "no torch in /usr/bin/python3, other nodes have: is this the job's interpreter?"
    )
    first, second = hint.fixes
    assert ("--python PATH" in first.text, first.commands) == (True, ())
    assert "~/job-venv/bin/python -m pip install" in second.commands[0].shell
    # Where it was named there is no question; with as many on either side it is likely.
    asked = {node: session(interpreter="/usr/bin/python3") for node in lone}
    assert set(bad(list(sw_torch(lone, all_gpus(4), None, None, asked)))) == {"n1", "n2", "n3"}
    halves = list(sw_torch({node: lone[node] for node in ("n3", "n4")}, None))
    assert bad(halves).keys() == {"n3"}
    assert bad(halves)["n3"].expected == "2.6.0+cu124, as on n4, or on no node"
    assert cause(halves, "torch-missing").confidence is LIKELY


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.6.0", "pip install 'torch==2.6.0'"),
        ("2.6.0a0+ecf3bae40a.nv25.01", "pip install 'torch==2.6.0a0+ecf3bae40a.nv25.01'"),
        ("2.6.0+cpu", "pip install --index-url https://download.pytorch.org/whl/cpu 'torch==2.6.0+cpu'"),
        ("2.6.0+cu124/../x", "pip install 'torch'"),
    ],
)
def test_the_index_of_a_build(version: str, said: str) -> None:
    assert install_torch(software(), version).commands[0].shell == f"/opt/v/bin/python -m {said}"


def test_a_python_that_is_its_distributions_own_has_to_be_told_twice() -> None:
    there = install_torch(software(externally_managed=True), "2.6.0")
    assert "-m pip install --break-system-packages 'torch==2.6.0'" in there.commands[0].shell
    fix = install_torch(software(externally_managed=True, torch=None), "2.6.0")
    shell = fix.commands[0].shell
    assert shell.startswith(
        "/opt/v/bin/python -m venv --system-site-packages ~/job-venv && ~/job-venv/bin/python "
    )
    assert shell.endswith(" -m pip install 'torch==2.6.0'")
    assert "break-system-packages" not in shell
    assert "virtual environment" in fix.text


def test_names_the_odd_version() -> None:
    odd = software(torch=torch(version="2.5.1+cu124"))
    findings = list(sw_torch(softwares(3, n3=odd), None))
    assert set(bad(findings)) == {"n3"}
    assert (
        cause(findings, "torch-version").title
        == "{nodes} {has} torch 2.5.1+cu124 where most nodes have 2.6.0+cu124"
    )


def test_several_odd_versions_share_a_title_that_is_true_of_each() -> None:
    odd = {n: software(torch=torch(version=v)) for n, v in (("n1", "2.4.0"), ("n2", "2.5.1"))}
    findings = list(sw_torch(softwares(5, **odd), None))
    titles = {f.cause.title for f in findings if f.cause}
    assert titles == {"{nodes} {has} another torch than most nodes (2.6.0+cu124)"}


def test_a_tie_proposes_no_command() -> None:
    findings = list(sw_torch(softwares(2, n2=software(torch=torch(version="2.5.1"))), None))
    assert set(bad(findings)) == {"n1", "n2"}
    (fix,) = cause(findings, "torch-version").fixes
    assert fix.commands == ()


def test_a_cpu_build_fails_where_there_are_gpus() -> None:
    cpu = {"n1": software(torch=torch(version="2.6.0+cpu", cuda=None))}
    assert causes(sw_torch(cpu, {"n1": gpus()})) == {"torch-cpu-build": {"n1"}}
    assert causes(sw_torch(cpu, {"n1": no_gpus()})) == {}
    rocm = {"n1": software(torch=torch(version="2.6.0+rocm6.2", cuda=None, hip="6.2"))}
    assert causes(sw_torch(rocm, {"n1": gpus()})) == {}


def test_an_unreadable_torch_is_unknown() -> None:
    broken = software(torch=None, torch_error="no version in version.py")
    findings = list(sw_torch(softwares(2, n1=broken), None))
    assert found(findings)["n1"].status is Status.UNKNOWN
    findings = list(sw_torch(softwares(2, n1=software(torch=torch(version=""))), None))
    assert found(findings, Status.UNKNOWN).keys() == {"n1"}


def test_an_unreadable_torch_does_not_make_the_others_pass() -> None:
    nodes = {"n1": software(torch=None, torch_error="EACCES"), "n2": software(torch=None)}
    assert {f.target: f.status for f in sw_torch(nodes, None)} == {"n1": Status.UNKNOWN, "n2": Status.SKIP}


def test_a_build_that_could_not_be_read_is_no_cpu_build() -> None:
    metadata_only = software(torch=torch(cuda=None), torch_error="version.py: EACCES")
    findings = list(sw_torch(softwares(2, n1=metadata_only), all_gpus(2)))
    assert found(findings, Status.UNKNOWN).keys() == {"n1"}
    assert not bad(findings)


def test_a_cpu_build_is_unknown_where_gpus_could_not_be_looked_for() -> None:
    cpu = software(torch=torch(version="2.6.0+cpu", cuda=None))
    for gpus_of in (None, {"n2": gpus()}):
        findings = sw_torch({"n1": cpu, "n2": cpu}, gpus_of)
        assert found(findings, Status.UNKNOWN).keys() >= {"n1"}


@pytest.mark.parametrize("version", ["2.6'; reboot; '", "$(reboot)", "2.6\nreboot", "-r /etc/shadow"])
def test_no_version_from_a_node_becomes_a_command(version: str) -> None:
    hostile = software(torch=torch(version=version), executable="/tmp/x; reboot")
    findings = list(sw_torch(softwares(3, n1=hostile, n2=hostile, n3=software(torch=None)), None))
    (fix,) = cause(findings, "torch-missing").fixes
    assert [command.shell for command in fix.commands] == ["/opt/v/bin/python -m pip install 'torch'"]
    shells = [c.shell for f in findings if f.cause for fix in f.cause.fixes for c in fix.commands]
    assert not [shell for shell in shells if "reboot" in shell or "shadow" in shell]
