from typing import Any

import pytest

from netdoctor.checks.host.identity import host_identity
from netdoctor.model import Confidence, Status

from ..build import cause, causes, found, host, hosts, node, nodes


def test_silent_on_a_healthy_cluster() -> None:
    assert list(host_identity(hosts(4), nodes(4))) == []


def test_one_machine_listed_twice() -> None:
    facts = {**hosts(2), "n3": host(2)}
    findings = list(host_identity(facts, {**nodes(2), "n3": node(3, host="10.0.0.2")}))
    assert causes(findings) == {"same-machine": {"n3"}}
    assert "already listed as n2" in findings[0].summary


def test_a_snapshot_at_another_address_is_only_likely() -> None:
    facts = {**hosts(2), "n3": host(2, ssh_server_address="10.0.0.3")}
    findings = list(host_identity(facts, {**nodes(2), "n3": node(3, host="10.0.0.3")}))
    assert cause(findings, "same-machine").confidence is Confidence.LIKELY


def test_containers_on_one_machine_are_nodes_of_their_own() -> None:
    facts = {f"n{i}": host(i, boot_id="one", machine_id="one", shares_machine=True) for i in (1, 2, 3)}
    assert list(host_identity(facts, nodes(3))) == []


def test_swapped_names() -> None:
    facts = {"n1": host(1), "n2": host(3), "n3": host(2)}
    findings = list(host_identity(facts, nodes(3)))
    assert causes(findings) == {"wrong-node": {"n2", "n3"}}
    assert {one.status for one in findings} == {Status.FAIL}


def test_short_names_aliases_and_addresses_are_fine() -> None:
    facts = {"n1": host(1, hostname="n1.example.com"), "gpu": host(2), "10.0.0.3": host(3)}
    listed = {
        "n1": node(1),
        "gpu": node(2, id="gpu", host="gpu"),
        "10.0.0.3": node(3, id="10.0.0.3", host="10.0.0.3"),
    }
    assert list(host_identity(facts, listed)) == []


def test_one_host_name_on_two_machines_warns() -> None:
    facts = {"n1": host(1, hostname="localhost"), "n2": host(2, hostname="localhost")}
    findings = list(host_identity(facts, nodes(2)))
    assert causes(findings) == {"hostname-duplicate": {"n1", "n2"}}
    assert set(found(findings, Status.WARN)) == {"n1", "n2"}


def test_a_cloned_image_warns() -> None:
    facts = {f"n{i}": host(i, machine_id="same") for i in (1, 2, 3)}
    assert causes(host_identity(facts, nodes(3))) == {"machine-id-cloned": {"n2", "n3"}}


@pytest.mark.parametrize("inside", [{"container": "docker"}, {"shares_machine": True}])
def test_nodes_inside_machines_may_have_one_machine_id(inside: dict[str, Any]) -> None:
    facts = {f"n{i}": host(i, machine_id="of the image", **inside) for i in (1, 2)}
    assert list(host_identity(facts, nodes(2))) == []


def test_missing_ids_judge_nothing() -> None:
    facts = {f"n{i}": host(i, boot_id=None, machine_id=None) for i in (1, 2)}
    assert list(host_identity(facts, nodes(2))) == []


def test_one_host_name_and_no_boot_id_leave_it_open_whether_it_is_one_machine() -> None:
    facts = {f"n{i}": host(i, hostname="gpu", boot_id=None) for i in (1, 2)}
    findings = found(host_identity(facts, nodes(2)))
    assert {target: one.status for target, one in findings.items()} == dict.fromkeys(facts, Status.UNKNOWN)
    assert "like n2" in findings["n1"].summary


def test_an_unread_host_name_is_not_green() -> None:
    facts = {**hosts(2), "n3": host(3, hostname="")}
    assert {one.target: one.status for one in host_identity(facts, nodes(3))} == {"n3": Status.UNKNOWN}
