import pytest

from netdoctor.checks.host.parity import host_parity
from netdoctor.facts.expected import RecordedExpectations
from netdoctor.model import Status

from ..build import cause, causes, found, host, hosts


def test_silent_when_equal() -> None:
    assert list(host_parity(hosts(4))) == []


def test_one_node_has_nothing_to_compare_with() -> None:
    (finding,) = host_parity(hosts(1))
    assert finding.status is Status.SKIP


def test_what_one_node_has_is_recorded_for_a_file_of_expectations() -> None:
    watched = RecordedExpectations()
    assert [one.status for one in host_parity(hosts(1), watched)] == [Status.SKIP]
    assert watched.compared["host.kernel", ""] == {"n1": host().kernel}


def test_another_kernel_warns() -> None:
    findings = list(host_parity({**hosts(3), "n2": host(2, kernel="5.4.0")}))
    assert causes(findings) == {"parity-kernel": {"n2"}}
    assert findings[0].status is Status.WARN
    assert findings[0].expected == "6.1.0-18-amd64"


def test_another_architecture_fails() -> None:
    (finding,) = host_parity({**hosts(3), "n3": host(3, arch="aarch64")})
    assert finding.status is Status.FAIL


def test_a_tie_names_both_and_says_so() -> None:
    findings = list(host_parity({**hosts(1), "n2": host(2, os_name="Ubuntu 22.04")}))
    assert causes(findings) == {"parity-distribution": {"n1", "n2"}}
    assert cause(findings, "parity-distribution").settle_by


@pytest.mark.parametrize("attribute", ["arch", "kernel", "os_name"])
def test_an_unread_value_is_no_difference_and_not_green(attribute: str) -> None:
    findings = list(host_parity({**hosts(2), "n3": host(3, **{attribute: ""})}))
    assert {target: one.status for target, one in found(findings).items()} == {"n3": Status.UNKNOWN}
    assert causes(findings) == {}
