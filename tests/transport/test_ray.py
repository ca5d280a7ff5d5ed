"""Ray's table to targets, and what finds a cluster's Python. Real clusters: tests/ray."""

from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.transport.ray.raycluster import Raylet
from netdoctor.transport.ray.rayhelper import RayNode, RayOptions, checked, interpreter
from netdoctor.transport.ray.transport import Rows, inventory_of


def row(number: int, *, alive: bool = True, **changes: object) -> RayNode:
    said = {"address": f"10.0.0.{number}", "hostname": f"gpu{number}.site", "name": f"worker-{number}"}
    return RayNode(alive=alive, **{"id": f"{number:x}", **said, **changes})  # type: ignore[arg-type]


def ids(*rows: RayNode) -> list[tuple[str, str]]:
    return [(target.id, target.host) for target in inventory_of(rows, "Ray").targets]


def test_the_nodes_are_those_of_ray_with_the_head_first() -> None:
    head = row(10, resources={"node:__internal_head__": 1.0})
    assert ids(row(9), row(11), head) == [
        ("gpu10.site", "10.0.0.10"),
        ("gpu9.site", "10.0.0.9"),
        ("gpu11.site", "10.0.0.11"),
    ]
    # Containers of one image may share a name, and a name is whatever a node says.
    assert ids(row(1, hostname="c"), row(2, hostname="c"), row(3, hostname="-oX")) == [
        (f"10.0.0.{i}", f"10.0.0.{i}") for i in (1, 2, 3)
    ]
    assert ids(row(1, address="$(id)")) == []
    # Reports call the machine that netdoctor runs on by that name.
    assert ids(row(1, hostname="control")) == [("10.0.0.1", "10.0.0.1")]
    assert ids() == []


def test_of_the_dead_those_are_listed_that_nobody_stopped() -> None:
    stopped, died, taken = (row(i, alive=False, reason=why) for i, why in ((1, 1), (2, 2), (3, 3)))
    idle, no_word = row(4, alive=False, reason=4), row(5, alive=False, reason=None)
    assert [host for _, host in ids(stopped, died, taken, idle, no_word)] == ["10.0.0.2", "10.0.0.3"]
    # One that came back has a row of its own.
    again = [row(2, id="f"), died]
    assert [host for _, host in ids(*again)] == ["10.0.0.2"]
    found = Rows(again[::-1]).find(Target(id="a", host="10.0.0.2"))
    assert found is not None
    assert found.alive
    # A raylet that was started anew, while Ray has not missed the one before: either may be the live one.
    twice = [row(2, id="f"), row(2, id="e"), row(2, id="d", alive=False), row(3)]
    assert [one.id for one in Rows(twice).at_address_of(twice[1])] == ["e", "f"]
    assert [host for _, host in ids(*twice)] == ["10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize("name", ["10.0.0.7", "gpu7.site", "GPU7", "worker-7", "localhost"])
def test_a_listed_node_is_found_by_any_of_its_names(name: str) -> None:
    here = row(7) if name != "localhost" else row(7, address="127.0.0.1")
    found = Rows([row(1), here]).find(Target(id=name, host=name))
    assert found is here
    assert Rows([row(1)]).find(Target(id=name, host=name)) is None


def test_the_python_is_that_of_the_raylet_here_or_of_the_ray_in_path(tmp_path: Path) -> None:
    def of(text: str, python: str | None = None) -> str:
        (tmp_path / "ray").write_text(text)
        (tmp_path / "ray").chmod(0o755)
        return interpreter(RayOptions("auto", python, {"PATH": str(tmp_path)}))

    assert of("#!/opt/ray/bin/python3.11\nimport ray") == "/opt/ray/bin/python3.11"
    assert of("#!/usr/bin/env python3\n") == "python3"
    long = "#!/bin/sh\n'''exec' \"/opt/with blank/bin/python\" \"$0\" \"$@\"\n' '''\n"
    assert of(long) == "/opt/with blank/bin/python"
    assert of("#!/bin/bash\nexec something\n") == "python3"
    (tmp_path / "python3").write_text("")
    assert of("#!/bin/bash\nexec something\n") == str(tmp_path / "python3")
    assert of("", "/opt/x/bin/python") == "/opt/x/bin/python"
    own = RayOptions("auto", None, {"PATH": str(tmp_path)})
    assert interpreter(own, Raylet(head="auto", python="/opt/ray/bin/python")) == "/opt/ray/bin/python"
    assert interpreter(own, Raylet(head="auto")) == str(tmp_path / "python3")
    for hostile in ("-c", "python; id", "~/x"):
        with pytest.raises(InputError, match="--ray-python"):
            of("", hostile)


def test_no_cluster_is_started_by_asking_for_one() -> None:
    for address in ("10.0.0.1:6379", "head:6379", "[fd00::1]:6379", "auto"):
        assert checked(address) == address
    for address in ("local", "", "10.0.0.1", "ray://head:10001", "head:6379\n", "$(id):1"):
        with pytest.raises(InputError, match="address of a Ray cluster"):
            checked(address)
