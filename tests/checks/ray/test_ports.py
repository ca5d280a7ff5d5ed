from dataclasses import replace

import pytest

from netdoctor.checks.ray.ports import ray_ports as check
from netdoctor.engine import registry
from netdoctor.engine.judge import judge
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.ray import RayPorts
from netdoctor.model import CLUSTER, Status, pair
from netdoctor.store import Store

from ..build import causes, said
from ..build_ray import ray, ray_ports, rays


def test_healthy_is_one_line() -> None:
    (finding,) = said(check(ray_ports(4), rays(4)))
    assert (finding.target, finding.status) == (CLUSTER, Status.PASS)
    assert "12 directed pairs" in finding.summary


@pytest.mark.parametrize("purpose", ["raylet", "gcs", "worker"])
def test_names_who_cannot_be_reached(purpose: str) -> None:
    found = said(check(ray_ports(3, ("n2", "n1", purpose, "filtered")), rays(3)))
    assert [(one.target, one.status) for one in found] == [(pair("n2", "n1"), Status.FAIL)]
    assert causes(found) == {"ray-ports": {"n1"}}


def test_what_was_not_tried_is_unknown() -> None:
    failed = replace(ray_ports(3), failed_nodes={"n3": "the session ended"})
    assert [one.target for one in said(check(failed, rays(3))) if one.status is Status.UNKNOWN] == ["n3"]
    odd = said(check(ray_ports(3, ("n2", "n1", "raylet", "error")), rays(3)))
    assert [(one.target, one.status) for one in odd] == [(pair("n2", "n1"), Status.UNKNOWN)]


def test_a_raylet_of_another_user_is_a_gap() -> None:
    found = said(check(ray_ports(3), rays(3, n2=ray(2, ports=()))))
    assert [(one.target, bool(one.gap)) for one in found if one.status is Status.SKIP] == [("n2", True)]


@pytest.mark.parametrize("count", [0, 1])
def test_does_not_apply_to_fewer_than_two(count: int) -> None:
    (finding,) = said(check(RayPorts(), rays(count)))
    assert finding.status is Status.SKIP


@pytest.mark.parametrize("runs", [False, True])
def test_cut_short_it_is_owed_only_where_ray_runs(runs: bool) -> None:
    store = Store()
    store.cluster["ray_ports"] = Missing(Why.STOPPED, "the scan was interrupted before this was measured")
    for node, found in rays(3).items():
        store.put("ray", node, found if runs else Missing(Why.NOT_APPLICABLE, "no Ray runs here"))
    only = [one for one in registry.load().checks.values() if one.id == "ray.ports"]
    cells = judge(only, tuple(rays(3)), store).cells["ray.ports"]
    assert set(cells.values()) == {Status.UNKNOWN if runs else Status.SKIP}
