import pytest

from netdoctor.checks.sw.python import sw_python
from netdoctor.facts.software import Interpreter
from netdoctor.model import Status

from ..build import causes, found, session
from ..build_hw import software, softwares


def test_silent_when_equal_or_only_patches_differ() -> None:
    assert not list(sw_python(softwares(4, n2=software(version="3.11.2"))))
    assert not list(sw_python(softwares(1)))


def test_names_the_node_with_another_minor() -> None:
    findings = list(sw_python(softwares(4, n3=software(version="3.9.18"))))
    assert {f.target: f.status for f in findings} == {"n3": Status.WARN}
    assert findings[0].observed == "3.9"
    assert findings[0].expected == "3.11"
    assert causes(findings) == {"python-version": {"n3"}}


def test_another_python_that_the_job_may_take_is_a_word_and_no_alarm() -> None:
    other = Interpreter(python="/opt/venv/bin/python3", origin="torchrun", torch="2.7.0")
    nodes = softwares(2, n2=software(executable="/usr/bin/python3", others=(other,)))
    asked = {"n1": session(1), "n2": session(2)}
    (finding,) = sw_python(nodes, None, asked)
    assert (finding.target, finding.status) == ("n2", Status.PASS)
    assert finding.summary.endswith("/opt/venv/bin/python3, of torchrun, has torch 2.7.0")
    assert finding.gap == "which Python the job uses; --python names it"
    named = {"n1": session(1), "n2": session(2, interpreter="/usr/bin/python3")}
    assert not list(sw_python(nodes, None, named))
    assert not list(sw_python(softwares(2, n2=software(others=(other,), torch=None)), None, asked))
    assert not list(sw_python(nodes))


def test_a_tie_blames_both_sides() -> None:
    findings = list(sw_python(softwares(2, n2=software(version="3.12.1"))))
    assert set(found(findings)) == {"n1", "n2"}
    assert all("3.12 on n2" in f.summary for f in findings)


def test_an_old_python_matters_with_torch_only() -> None:
    old = software(version="3.8.19")
    assert "python-old" in causes(sw_python({"n1": old}))
    assert not list(sw_python({"n1": software(version="3.6.8", torch=None)}))


def test_names_another_implementation() -> None:
    findings = list(sw_python(softwares(3, n1=software(implementation="PyPy"))))
    assert causes(findings) == {"python-implementation": {"n1"}}


@pytest.mark.parametrize("changes", [{"version": ""}, {"version": "3"}, {"implementation": ""}])
def test_what_cannot_be_read_is_unknown_there(changes: dict[str, str]) -> None:
    findings = list(sw_python(softwares(3, n2=software(**changes))))
    assert {f.target: f.status for f in findings} == {"n2": Status.UNKNOWN}
