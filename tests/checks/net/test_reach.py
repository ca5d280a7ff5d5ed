from typing import Any

import pytest

from netdoctor.checks.net.reach import net_reach
from netdoctor.facts.mesh import Reach, Reached
from netdoctor.model import Finding, Status
from netdoctor.options import url

from ..build import cause, causes, found, job, names

URL = "https://hub.example.org/models"


def judged(bad: dict[str, dict[str, Any]], count: int = 3, **more: Any) -> list[Finding]:
    """What is said of so many nodes that get 200, but for these."""
    rows = tuple(
        Reached(
            **{"node": n, "url": URL, "status": None if "stage" in bad.get(n, {}) else 200, **bad.get(n, {})}
        )
        for n in names(count)
    )
    return list(net_reach(Reach(rows=rows, **more), job(count, reach=(URL,))))


def test_who_gets_no_further() -> None:
    every = {n: {"stage": "dns", "detail": "no such host"} for n in names(3)}
    for bad, key, nodes, status in (
        ({}, None, set(), Status.PASS),
        ({"n2": {"status": 302}}, None, set(), Status.PASS),
        ({"n2": {"stage": "dns", "detail": "not known"}}, "reach-dns", {"n2"}, Status.FAIL),
        ({"n2": {"stage": "connect", "detail": "ECONNREFUSED"}}, "reach-connect", {"n2"}, Status.FAIL),
        ({"n2": {"stage": "proxy", "status": 407}}, "reach-proxy", {"n2"}, Status.FAIL),
        ({"n2": {"stage": "tls", "detail": "certificate: expired"}}, "reach-tls", {"n2"}, Status.FAIL),
        ({"n2": {"stage": "http", "detail": "no HTTP"}}, "reach-http", {"n2"}, Status.FAIL),
        ({"n2": {"status": None}}, "reach-http", {"n2"}, Status.FAIL),
        ({"n2": {"status": 500}}, "reach-status", {"n2"}, Status.WARN),
        ({"n2": {"status": 403}}, "reach-differs", {"n2"}, Status.WARN),
        ({n: {"status": 403} for n in names(3)}, None, set(), Status.PASS),
        (every, "reach-dns", {*names(3)}, Status.FAIL),
    ):
        findings = judged(bad)
        assert causes(findings) == ({key: nodes} if key else {}), bad
        assert {one.status for one in findings} <= {status, Status.PASS}, bad
        if key:
            assert cause(findings, key).fixes


def test_another_answer_is_told_with_those_who_get_the_usual_one() -> None:
    """The refusal is this node's alone only where the others are let in."""
    findings = judged({"n3": {"status": 403}})
    assert found(findings)["n3"].summary == f"{URL} answers 403 here, 200 on n1 and n2"
    one = cause(findings, "reach-differs")
    assert one.fixes[0].text.endswith("refuses this address, and not n1 and n2")
    findings = judged({"n1": {"status": 403}, "n2": {"status": 403}, "n3": {"status": 404}})
    assert found(findings)["n3"].summary == f"{URL} answers 404 here, 403 on n1 and n2"
    one = cause(findings, "reach-differs")
    assert one.fixes[0].text.endswith("refuses this address")
    assert "refuses" not in one.title
    # Nobody gets the usual answer of two that are equally frequent.
    assert not causes(judged({"n2": {"status": 403}}, count=2))


def test_commands_name_the_host() -> None:
    for url_of, host, endpoint in (
        (URL, "hub.example.org", "hub.example.org:443"),
        ("https://10.0.0.9:8443/x", "10.0.0.9", "10.0.0.9:8443"),
        ("https://[fd00::1]/x", "fd00::1", "'[fd00::1]:443'"),
    ):
        rows = (Reached(node="n1", url=url_of, stage="tls"),)
        findings = list(net_reach(Reach(rows=rows), job(1, reach=(url_of,))))
        (command,) = cause(findings, "reach-tls").fixes[0].commands
        assert command.shell.startswith(f"openssl s_client -connect {endpoint} -servername {host} <"), url_of


def test_what_was_not_tried_is_unknown() -> None:
    assert [one.status for one in net_reach(Reach(), job(2))] == [Status.SKIP]
    assert found(judged({"n1": {"stage": "untried", "detail": "socks"}}))["n1"].status is Status.UNKNOWN
    assert found(judged({}, failed_nodes={"n1": "gone"}), Status.UNKNOWN).keys() == {"n1"}


def test_a_url_is_kept_without_what_may_be_secret() -> None:
    for text, kept in (
        ("https://me:secret@pypi.example.org/simple?token=x#y", "https://pypi.example.org/simple"),
        ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("https://[fd00::1]:443/a/b%20c", "https://[fd00::1]:443/a/b%20c"),
    ):
        assert url(text) == kept
    for text in (
        "ftp://x/y",
        "https://",
        "https://a b/c",
        "https://x:0/",
        "https://-x/",
        "https://x/\x1b",
        "x" * 2000,
        "https://u:secret@x:99999/",
    ):
        with pytest.raises(Exception, match="that is not a URL") as error:
            url(text)
        assert "secret" not in str(error.value)
