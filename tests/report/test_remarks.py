"""What differs between nodes and is no finding: told where most are alike, and else not."""

from dataclasses import replace

import pytest

from netdoctor.engine.assemble.remarks import remarks
from netdoctor.facts.base import Missing, Why
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.core.fake import store_of


def cluster(count: int, **changes: dict[str, object]) -> Store:
    """Healthy nodes; `first_byte_ms` and `interfaces` of some of them are others."""
    store = store_of(count)
    for i in range(1, count + 1):
        node = healthy.name(i)
        said = changes.get(node, {})
        store.put("session", node, healthy.session(i, first_byte_ms=said.get("first_byte_ms", 200.0)))
        net = healthy.net(i)
        names = said.get("interfaces")
        if isinstance(names, str):
            rows = [healthy.row(name, f"10.9.{place}.{i}") for place, name in enumerate(names.split())]
            net = replace(net, addresses=(healthy.row("lo", "127.0.0.1", 8), *rows))
        store.put("net", node, net)
    return store


def said(store: Store) -> list[str]:
    return remarks(store, healthy.names(len(store.node["node"])))


def test_nodes_that_are_alike_are_not_spoken_of() -> None:
    assert said(cluster(4)) == []
    assert remarks(Store(), []) == remarks(store_of(3), healthy.names(3)) == []


def test_a_slow_shell_is_told_where_the_others_are_not() -> None:
    slow = {"first_byte_ms": 3100.0}
    assert said(cluster(4, n2=slow)) == [
        "on n2 a login takes up to 3.1 s before its first command runs, on most nodes 0.2 s: the shell's "
        "start-up files, or packets lost on the way; launchers wait, too"
    ]
    assert said(cluster(3, n1=slow, n2=slow, n3=slow)) == [], "this machine, or the way there"
    assert said(cluster(2, n2=slow)) == []
    assert said(cluster(4, n2={"first_byte_ms": 1400.0})) == []


def test_logins_in_each_others_way_are_told_with_a_number() -> None:
    crowd = cluster(30, **{f"n{i}": {"first_byte_ms": 5000.0} for i in range(1, 31)})
    assert said(crowd) == []
    for i in range(21, 31):
        crowd.put("host", healthy.name(i), Missing(Why.TIMED_OUT, "not finished within the node's 30 s"))
    (line,) = said(crowd)
    assert line.startswith("several nodes ran out of time, and the others were slow")
    assert "; -j 10 is half of those that succeeded in time" in line


@pytest.mark.parametrize(
    ("interfaces", "words"),
    [
        ("lan0", "interfaces differ: n2 has also lan0 and no eth0"),
        ("eth0 virbr0", "interfaces differ: n2 has also virbr0"),
        ("eth0:1 eth0", None),
        ("eth0 a b c d e", "interfaces differ: n2 has also a, b, c, d and 1 more"),
    ],
)
def test_renamed_and_extra_interfaces_are_told(interfaces: str, words: str | None) -> None:
    assert said(cluster(4, n2={"interfaces": interfaces})) == ([words] if words else [])


def test_nobody_is_odd_where_there_is_no_majority() -> None:
    assert said(cluster(4, n1={"interfaces": "a"}, n2={"interfaces": "b"})) == []
    assert said(cluster(2, n1={"interfaces": "a"})) == []


def test_many_ways_to_differ_stay_few_lines() -> None:
    odd = {f"n{i}": {"interfaces": f"eth0 tap{i}"} for i in range(1, 10)}
    lines = said(cluster(30, **odd))
    assert len(lines) == 4
    assert lines[-1] == "interfaces differ on 9 nodes in 9 ways"
