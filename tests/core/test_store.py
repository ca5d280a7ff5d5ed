"""Facts at the edge: what fits becomes a fact, everything else says why not, and both survive saving."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor import agent
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.host import HostFacts, Login, Session
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.facts.software import Job
from netdoctor.store import NOT_COLLECTED, ROWS_AT_MOST, Store, decode, dump, group_type, load
from tests import clusters
from tests.checks import build as healthy
from tests.core.fake import LOST, plain, store_of


def test_a_fact_comes_through() -> None:
    assert decode("host", plain(healthy.host(1))) == healthy.host(1)


@pytest.mark.parametrize("word", ["ok", "no_answer", "host_key_changed", "old_python"])
def test_how_a_login_ended_comes_through_as_the_word_that_was_saved(word: str) -> None:
    session = Session(outcome=Login(word))
    assert plain(session)["value"]["outcome"] == word
    assert decode("session", {"value": {"outcome": word}}) == session


@pytest.mark.parametrize("why", list(Why))
def test_a_reason_comes_through(why: Why) -> None:
    assert decode("host", {"missing": {"why": why.value, "detail": "x"}}) == Missing(why, "x")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(None, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param({}, id="neither"),
        pytest.param({"value": {}}, id="fields missing"),
        pytest.param({"value": {**plain(healthy.host(1))["value"], "uid": "0"}}, id="wrong type"),
        pytest.param({"missing": "x"}, id="reason is text"),
    ],
)
def test_what_does_not_fit_is_unparsable(raw: Any) -> None:
    found = decode("host", raw)
    assert isinstance(found, Missing)
    assert found.why is Why.UNPARSABLE


def test_an_unknown_reason_is_a_failure_and_its_text_is_capped() -> None:
    found = decode("host", {"missing": {"why": ["x"], "detail": "y" * 10_000}})
    assert isinstance(found, Missing)
    assert found.why is Why.FAILED
    assert len(found.detail) == 400


def test_deep_nesting_is_unparsable() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert isinstance(
        decode("host", {"value": {**plain(healthy.host(1))["value"], "hostname": deep}}), Missing
    )


def test_what_comes_as_text_is_what_comes_as_data() -> None:
    healthy_host = plain(healthy.host(1))["value"]
    cases: list[tuple[str, Any]] = [
        *((group, {"value": msgspec.to_builtins(fact)}) for group, fact in clusters.facts(1).items()),
        *(("host", {"value": {**healthy_host, **odd}}) for odd in ({"uid": "0"}, {"uid": None}, {"x": []})),
        *(("host", raw) for raw in ({}, {"value": None}, {"missing": "x"}, {"missing": {"why": 1}})),
        ("host", {"missing": {"why": "not_applicable", "detail": "no such thing"}}),
        ("nonsense", {"value": 1}),
        ("net", {"value": {"addresses": [{}] * (ROWS_AT_MOST + 1)}}),
    ]
    for group, raw in cases:
        as_data, as_text = decode(group, raw), decode(group, msgspec.Raw(json.dumps(raw).encode()))
        assert as_text == as_data, (group, raw)


@pytest.mark.parametrize(
    "text",
    [
        '{"value": ' + "[" * 100_000, '{"later": ' + "[" * 900 + "]" * 900 + "}", "nonsense", "",
        "null", "[]", '{"value": NaN}', '{"missing": {"detail": "\udc80"}}',
    ],
)  # fmt: skip
def test_text_that_cannot_be_read_is_unparsable(text: str) -> None:
    for group in ("host", "nonsense"):
        found = decode(group, msgspec.Raw(text.encode("utf-8", "surrogateescape")))
        assert isinstance(found, Missing)
        assert found.why is Why.UNPARSABLE


def test_unknown_groups_are_unparsable() -> None:
    assert isinstance(decode("nonsense", {"value": 1}), Missing)


def test_what_was_never_asked_is_not_collected() -> None:
    store = store_of(1)
    assert store.get("limits", "n1") is NOT_COLLECTED
    assert store.cluster_fact("ports") is NOT_COLLECTED


def test_present_keeps_order_and_leaves_out_the_missing() -> None:
    store = store_of(3)
    store.put("host", "n2", LOST)
    assert list(store.present("host", ["n3", "n2", "n1"])) == ["n3", "n1"]


def test_a_node_s_part_in_the_run() -> None:
    store = Store()
    store.cluster["ports"] = PortMatrix()
    store.put("ports", "n2", LOST)
    assert store.part("ports", "n1") == PortMatrix()
    assert store.part("ports", "n2") is LOST


def test_saved_and_loaded_is_the_same() -> None:
    store = store_of(2, limits={"n1": healthy.limits(), "n2": LOST})
    store.cluster["ports"] = PortMatrix(probes=(healthy.probe("n1", "n2"),), failed_nodes={"n2": "x"})
    store.cluster["path_mtu"] = Missing(Why.STOPPED, "interrupted")
    store.put("ports", "n2", LOST)
    again = load(json.loads(json.dumps(dump(store))))
    assert again == store
    assert isinstance(again.get("host", "n1"), HostFacts)
    assert isinstance(again.cluster_fact("ports").probes[0], PortProbe)
    assert isinstance(again.cluster_fact("job"), Job)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["node", "cluster", "x"]),
        st.dictionaries(st.sampled_from(["host", "job", "y"]), JSON) | JSON,
    )
)
def test_loading_anything_never_raises(data: dict[str, Any]) -> None:
    load(data)


@settings(deadline=None)
@given(
    st.sampled_from(["host", "net", "software", "ports", "x"]), JSON | st.builds(lambda v: {"value": v}, JSON)
)
def test_decoding_anything_never_raises(group: str, raw: Any) -> None:
    decode(group, raw)


@pytest.mark.parametrize(
    ("group", "change"),
    [
        pytest.param("net", {"addresses": [plain(healthy.net(1).addresses[0])["value"]]}, id="rows"),
        pytest.param("host", {"pretended": ["x"]}, id="texts"),
        pytest.param("resolve", {"own": {"name": "x", "addresses": ["10.0.0.1"]}}, id="inside"),
    ],
)
def test_more_rows_than_any_machine_has_are_no_fact(group: str, change: dict[str, Any]) -> None:
    known: dict[str, Any] = {"net": healthy.net(1), "host": healthy.host(1), "resolve": healthy.resolve(1)}
    value = plain(known[group])["value"]

    def many(data: Any, count: int) -> Any:
        if isinstance(data, dict):
            return {key: many(item, count) for key, item in data.items()}
        return data * count if isinstance(data, list) else data

    assert not isinstance(decode(group, {"value": {**value, **many(change, ROWS_AT_MOST)}}), Missing)
    found = decode(group, {"value": {**value, **many(change, ROWS_AT_MOST + 1)}})
    assert isinstance(found, Missing)
    assert found.why is Why.UNPARSABLE
    assert found.detail.startswith(f"{group}: {ROWS_AT_MOST + 1} rows")


def test_what_nodes_say_alike_is_one_object() -> None:
    def said(i: int, group: str) -> Any:
        raw = {"value": clusters.facts(i)[group]}
        return decode(group, msgspec.Raw(msgspec.json.encode(raw)))

    assert said(1, "limits") is said(2, "limits")
    assert said(1, "host") != said(2, "host")


def test_groups_that_do_not_apply_everywhere_are_marked() -> None:
    """Of any other group a node's word that it does not apply is not taken."""
    folder = Path(agent.__file__).parent
    saying = {
        path.stem
        for path in (folder / "facts").glob("*.py")
        if '("not_applicable"' in path.read_text("utf-8")
    }
    assert len(saying) > 2
    group_type("host")
    known = {info.group: info.absent for info in FACT_TYPES.values()}
    assert all(known[group] for group in saying)
    assert not any(known[group] for group in ("host", "limits", "net", "gpu", "rdma", "software", "env"))
