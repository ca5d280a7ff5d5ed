"""Versions that the job asks for, held against what pip would say of them."""

from typing import Any

import pytest

from netdoctor.checks.sw.parity import sw_parity
from netdoctor.checks.sw.torch import sw_torch
from netdoctor.checks.sw.wanted import sw_wanted
from netdoctor.facts.software import Requested
from netdoctor.model import Status

from ..build import causes, host, job, names
from ..build_hw import software, torch


def wanted(specifier: str = "", name: str = "torch", **more: Any) -> Requested:
    return Requested(name=name, specifier=specifier, **more)


def said(packages: dict[str, str | None], *asked: Requested, **changes: Any) -> dict[str, Status]:
    """Statuses by the key of a cause, or by the summary where there is none."""
    found = sw_wanted(software(packages=packages, **changes), host(), job(requested=asked))
    return {f.cause.key if f.cause else f.summary: f.status for f in found}


FAIL, WARN = Status.FAIL, Status.WARN
CASES: list[tuple[str, str | None, dict[str, Status]]] = [
    ("==2.6.0", "2.6.0", {}),
    ("==2.6.0", "2.6.0+cu124", {}),
    ("==2.6.0+cu126", "2.6.0+cu124", {"package-torch-unwanted": FAIL}),
    ("==2.6.0", "2.5.1+cu124", {"package-torch-unwanted": FAIL}),
    ("<2.7,>=2.4", "2.6.0", {}),
    ("<2.7,>=2.4", "2.7.0", {"package-torch-unwanted": FAIL}),
    ("~=2.6.0", "2.6.3", {}),
    (">=2.6.0", "2.6.0a0+ecf3bae40a.nv25.1", {"package-torch-unwanted": WARN}),
    (">=2.6.0", "2.7.0rc1", {}),
    ("", "2.5.1", {}),
    ("==2.6.0", None, {"package-torch-missing": FAIL}),
    ("", None, {"package-torch-missing": FAIL}),
]


def test_versions() -> None:
    for specifier, version, expected in CASES:
        assert said({"torch": version}, wanted(specifier)) == expected, (specifier, version)


def test_what_cannot_be_compared_is_unknown() -> None:
    for packages, asked in (
        ({"torch": ""}, wanted("==2")),
        ({"torch": "no number"}, wanted("==2")),
        ({}, wanted("==2")),
        ({"torch": "2.6.0"}, wanted("what is this")),
    ):
        assert list(said(packages, asked).values()) == [Status.UNKNOWN]


def test_markers_are_the_nodes_own() -> None:
    def meant(marker: str, **changes: Any) -> bool:
        return bool(said({"torch": None}, wanted("==2", marker=marker), **changes))

    assert meant('python_version >= "3.9"')
    assert not meant('python_version < "3.9"')
    assert meant('python_version == "3.8"', version="3.8.10")
    assert meant('sys_platform == "linux" and platform_machine == "x86_64"')
    assert not meant('sys_platform == "win32"')
    assert not meant('platform_machine == "aarch64"')
    assert not meant('extra == "gpu"')
    asked = job(requested=(wanted("==2", marker='platform_machine == "x86_64"'),))
    (finding,) = sw_wanted(software(packages={"torch": "2"}), None, asked)
    assert finding.status is Status.UNKNOWN


def test_a_constraint_asks_for_nothing_that_is_absent() -> None:
    assert said({"torch": None}, wanted("==2", only_if_there=True)) == {}
    assert said({"torch": "1"}, wanted("==2", only_if_there=True)) == {"package-torch-unwanted": FAIL}


def test_most_missing_is_another_interpreter() -> None:
    asked = [wanted("==1", name=f"p{i}") for i in range(8)]
    assert said({one.name: None for one in asked}, *asked) == {"packages-missing": FAIL}
    assert len(said({one.name: None if one.name < "p3" else "1" for one in asked}, *asked)) == 3


def test_fixes_hold_nothing_of_a_node() -> None:
    (finding,) = sw_wanted(
        software(packages={"vllm": "0.7"}), host(), job(requested=(wanted("<1,>=0.8", name="vllm"),))
    )
    assert finding.cause
    assert finding.cause.fixes[0].commands[0].shell == "/opt/v/bin/python -m pip install 'vllm<1,>=0.8'"
    for bad in (wanted("==1;reboot", name="vllm"), wanted("==1", name="$(reboot)")):
        for finding in sw_wanted(software(packages={bad.name: None}), host(), job(requested=(bad,))):
            assert not finding.cause or not finding.cause.fixes


def test_not_asked_is_skipped() -> None:
    (finding,) = sw_wanted(software(), host(), job())
    assert finding.status is Status.SKIP


def test_the_wrong_majority_does_not_blame_who_has_what_is_asked_for() -> None:
    versions = ("2.5.1", "2.5.1", "2.6.0")
    nodes = {
        node: software(torch=torch(version=v), packages={"torch": v})
        for node, v in zip(names(3), versions, strict=True)
    }
    asked = job(packages=("torch",), requested=(wanted("==2.6.0"),))
    assert causes(sw_torch(nodes, None, job=asked)) == {}
    assert causes(sw_parity(nodes, asked)) == {}
    assert causes(sw_torch(nodes, None, job=job())) != {}
    wrong = [node for node, one in nodes.items() if list(sw_wanted(one, host(), asked))]
    assert wrong == ["n1", "n2"]


@pytest.mark.parametrize(("origin", "status"), [("--packages", FAIL), ("reqs.txt:1", WARN)])
def test_what_a_file_leaves_open_may_differ(origin: str, status: Status) -> None:
    nodes = {node: software(packages={"numpy": v}) for node, v in zip(names(3), "112", strict=True)}
    asked = job(packages=("numpy",), requested=(wanted(">=1", name="numpy", origin=origin),))
    assert {f.status for f in sw_parity(nodes, asked)} == {status}
