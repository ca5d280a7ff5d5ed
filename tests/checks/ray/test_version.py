from typing import Any

import pytest

from netdoctor.checks.ray.version import ray_version
from netdoctor.model import Status

from ..build import causes, said
from ..build_ray import ray, rays


def test_silent_where_all_are_alike() -> None:
    assert {one.status for one in said(ray_version(rays(4)))} == {Status.PASS}
    assert {one.status for one in said(ray_version(rays(1)))} == {Status.PASS}


@pytest.mark.parametrize(
    ("changes", "key", "status"),
    [
        ({"version": "2.40.0", "commit": "f" * 40}, "ray-version", Status.FAIL),
        ({"python_version": "3.11.9"}, "ray-python", Status.FAIL),
        ({"commit": "f" * 40}, "ray-commit", Status.WARN),
    ],
)
def test_names_the_node_that_differs(changes: dict[str, Any], key: str, status: Status) -> None:
    found = [one for one in said(ray_version(rays(4, n3=ray(3, **changes)))) if one.status is not Status.PASS]
    assert [(one.target, one.status) for one in found] == [("n3", status)]
    assert causes(found) == {key: {"n3"}}


def test_two_that_differ_are_both_named() -> None:
    found = said(ray_version(rays(2, n2=ray(2, python_version="3.12.1"))))
    assert causes(found) == {"ray-python": {"n1", "n2"}}


def test_what_could_not_be_read_is_unknown_and_not_green() -> None:
    found = said(ray_version(rays(3, n2=ray(2, version=None, commit=None, python_version=None))))
    assert {(one.target, one.status) for one in found if one.target == "n2"} == {("n2", Status.UNKNOWN)}
