"""A redacted report: nothing of the cluster left in it, and still a report."""

import dataclasses
import functools
import re
import string
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.engine.assemble.report import Context, Remote, build
from netdoctor.engine.judge import judge
from netdoctor.engine.run import Outcome
from netdoctor.facts.net import Lookup, PortMatrix, PortProbe, ResolveFacts, Route, RouteFacts
from netdoctor.facts.software import Job
from netdoctor.inventory import fold
from netdoctor.model import Command, Evidence, Fix, fail, pair
from netdoctor.report import redact as redact_module
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.model import Note, Report, Run
from netdoctor.report.redact import redact
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.core.fake import hint, login, saying


def report(names: list[str], addresses: list[str], user: str, **run: Any) -> Report:
    """A report in which every secret is told in as many ways as there are."""
    store = Store()
    for i, (name, address) in enumerate(zip(names, addresses, strict=True), start=1):
        store.put("node", name, healthy.node(i, id=name, host=name))
        store.put(
            "session",
            name,
            healthy.session(i, address=address, user=user, via=f"{user}@jump.{name}.corp.test"),
        )
        store.put(
            "host",
            name,
            healthy.host(i, hostname=name, fqdn=f"{name}.corp.test", user=user, ssh_server_address=address),
        )
        store.put(
            "resolve",
            name,
            ResolveFacts(
                own=Lookup(name=name, addresses=(address,)),
                hosts_lines=(f"{address} {name}.corp.test {name}",),
            ),
        )
        store.put(
            "routes",
            name,
            RouteFacts(routes={n: Route(destination=a) for n, a in zip(names, addresses, strict=True)}),
        )
    store.cluster["job"] = Job(
        master_node=names[0], master_addr=names[0], data_addresses=dict(zip(names, addresses, strict=True))
    )
    store.cluster["ports"] = PortMatrix(
        probes=(
            PortProbe(
                src=names[0],
                dst=names[-1],
                address=addresses[-1],
                port=1,
                purpose="rendezvous",
                outcome="open",
            ),
        )
    )
    fix = Fix(
        text=f"trust {addresses[0]}/24",
        commands=tuple(Command(run_on=n, shell=f"echo {a}") for n, a in zip(names, addresses, strict=True)),
        root=True,
    )
    bad = [
        fail(
            n,
            f"{n} ({a}) of {user} in /home/{user}/x: 02:42:ac:11:00:0{i % 8}",
            cause=hint("k", n, fixes=(fix,)),
            evidence=(Evidence(kind="file", where=n, what="/etc/hosts", output=f"{a} {n}\n"),),
        )
        for i, (n, a) in enumerate(zip(names, addresses, strict=True), start=1)
    ]
    pairs = (
        [
            fail(
                pair(names[0], names[-1]),
                f"TCP to {addresses[-1]}",
                cause=hint("p", f"{names[0]}->{names[-1]}"),
            )
        ]
        if len(names) > 1
        else []
    )
    checks = [login(), saying("net.a", *bad), saying("net.b", *pairs)]
    context = Context(
        run=Run(
            id="0" * 32,
            started="",
            finished="",
            duration_ms=1,
            complete=True,
            ended_by="end",
            profile="quick",
            replay={
                "targets": [{"id": n, "host": n, "user": user} for n in names],
                "options": {"ssh_config": f"/home/{user}/ssh_config"},
            },
            ssh_command=f"ssh -l {user} -J {user}@jump.{names[0]}.corp.test",
            control_host={"name": f"desk-{user}", "python": "3.11.2"},
            hosts_source={"path": f"/home/{user}/hosts.txt", "format": "plain"},
            **run,
        ),
        remote=Remote(destination={n: ("-p", "44222", f"{user}@{n}") for n in names}),
        notes=(Note(level="info", text=f"{fold(names)} and {fold(names, 20)} at {fold(addresses)}"),),
    )
    return build(Outcome(store=store, judgement=judge(checks, names, store)), context)


def leaks(text: str, secret: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", text, re.IGNORECASE) is not None


NAMES = ["gpu-a01", "gpu-a02", "gpu-a03", "gpu-a04", "login.site.test", "B7"]
ADDRESSES = ["10.20.0.11", "10.20.0.12", "10.20.0.13", "10.20.0.14", "fd00:12::7", "172.16.4.9"]


@pytest.fixture(scope="module")
def both() -> tuple[Report, Report]:
    original = report(NAMES, ADDRESSES, "marie")
    return original, redact(original)


def test_nothing_is_left(both: tuple[Report, Report]) -> None:
    original, redacted = both
    for secret in [
        *NAMES,
        *ADDRESSES,
        "marie",
        "gpu-a",
        "corp.test",
        "10.20.0",
        "02:42:ac:11:00:01",
        "jump",
        "desk",
    ]:
        assert secret.lower() in str(original).lower()
        assert not leaks(dumps(redacted, facts=True).decode(), secret), secret


def test_it_is_still_a_report(both: tuple[Report, Report]) -> None:
    original, redacted = both
    assert redacted.run.redacted
    assert redacted.verdict == original.verdict
    assert redacted.matrix.cells == original.matrix.cells
    assert redacted.checks == original.checks
    assert [t.id for t in redacted.targets] == [f"node00{i}" for i in range(1, 7)]
    assert loads(dumps(redacted, facts=True)) == redacted


def test_names_fold(both: tuple[Report, Report]) -> None:
    [first, *_] = both[1].causes
    assert first.nodes == "node[001-006]"
    assert "node[001-006]" in both[1].notes[0].text


def test_nodes_that_did_not_fit_a_line_are_all_there_where_their_aliases_do() -> None:
    names = [f"{letter}{n}-{'x' * n}" for n, letter in enumerate("zkqabydwfm", start=1)]
    original = report(names, [f"10.0.0.{n}" for n in range(1, 11)], "marie")
    assert original.causes[0].nodes.endswith(",... (10 nodes)")
    assert redact(original).causes[0].nodes == "node[001-010]"


def test_a_name_that_was_cut_short_tells_no_beginning(both: tuple[Report, Report]) -> None:
    told = dataclasses.replace(
        both[0], notes=(Note(level="info", text="waiting... for gpu-a0... and gp... of it"),)
    )
    assert redact(told).notes[0].text == "waiting... for ... and gp... of it"


def test_it_is_consistent(both: tuple[Report, Report]) -> None:
    redacted = both[1]
    by_id = {t.id: t.address for t in redacted.targets}
    [probe] = redacted.facts["cluster"]["ports"]["value"]["probes"]
    assert by_id[probe["dst"]] == probe["address"]
    assert set(redacted.facts["node"]["host"]) == set(by_id)


def test_fingerprints_are_not_of_real_names(both: tuple[Report, Report]) -> None:
    assert {c.fingerprint for c in both[0].causes}.isdisjoint(c.fingerprint for c in both[1].causes)


@pytest.mark.parametrize(("leaf", "goes"), [("row7-secret", True), ("ToR_9", True), ("7", False)])
def test_leaves_have_names_too(both: tuple[Report, Report], leaf: str, goes: bool) -> None:
    facts = {"node": {"node": {"n1": {"value": {"id": "n1", "leaf": leaf}}}}, "cluster": {}}
    told = dataclasses.replace(
        both[0], facts=facts, notes=(Note(level="info", text=f"the uplink of {leaf} x"),)
    )
    shown = redact(told)
    assert (leaf in shown.notes[0].text) is not goes
    assert ("leaf01" in shown.notes[0].text) is goes


def test_twice_is_the_same(both: tuple[Report, Report]) -> None:
    assert redact(both[0]) == both[1]


def test_aliases_are_not_names_that_were_there() -> None:
    names = ["node002", "node001", "user01"]
    redacted = redact(report(names, ["192.0.2.2", "192.0.2.1", "10.0.0.1"], "user02"))
    text = dumps(redacted, facts=True).decode()
    for secret in [*names, "192.0.2.1", "192.0.2.2", "user02"]:
        assert not leaks(text, secret), secret


def test_versions_and_check_ids_stay() -> None:
    one = report(["net", "b"], ["10.0.0.1", "10.0.0.2"], "ml")
    one = dataclasses.replace(
        one,
        facts={
            **one.facts,
            "node": {**one.facts["node"], "software": {"b": {"value": {"packages": {"cublas": "12.4.5.8"}}}}},
        },
        notes=(Note(level="info", text="cublas 12.4.5.8, run --only net.a on net"),),
    )
    assert redact(one).notes[0].text == "cublas 12.4.5.8, run --only net.a on node001"


LABEL = st.text(string.ascii_lowercase + string.digits, min_size=3, max_size=8).filter(
    lambda s: not s.isdigit() and s not in _common()
)
NAME = st.builds(
    lambda a, sep, n: f"{a}{sep}{n}",
    LABEL,
    st.sampled_from(["", "-", "."]),
    st.from_regex(r"[0-9]{1,3}", fullmatch=True),
)
V4 = (
    st.ip_addresses(v=4)
    .filter(lambda a: not (a.is_loopback or a.is_unspecified or str(a).startswith("255.")))
    .map(str)
)
V6 = st.ip_addresses(v=6).filter(lambda a: not (a.is_loopback or a.is_unspecified)).map(str)


@functools.cache
def _common() -> frozenset[str]:
    """Words that a report has of itself; a node called like one cannot be told from them."""
    empty = report(["zzq1"], ["10.9.8.7"], "zzu")
    words = {w.lower() for w in re.findall(r"[^\W_]+", dumps(empty, facts=True).decode())}
    return frozenset(words) | {"node", "host", "user", "domain", "example"} | redact_module._UNREDACTED


@pytest.mark.thorough
@settings(deadline=None, max_examples=60)
@given(
    st.lists(NAME, min_size=1, max_size=6, unique_by=str.lower),
    st.lists(V4 | V6, min_size=6, max_size=6, unique=True),
    LABEL,
)
def test_nothing_is_left_of_random_clusters(names: list[str], addresses: list[str], user: str) -> None:
    redacted = redact(report(names, addresses[: len(names)], user))
    texts = list(_values(msgspec.to_builtins(redacted)))
    for secret in [*names, *addresses[: len(names)], user]:
        for text in texts:
            assert not leaks(text, secret), (secret, text)


def _values(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item)
