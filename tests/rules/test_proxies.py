"""Which hosts a proxy takes, against urllib itself on random variables."""

import random
import urllib.request

from netdoctor.rules.proxies import is_bypassed, proxy

HOSTS = ("n1", "n1.example.org", "example.org", "10.0.0.1", "10.0.0.11", "N1.Example.ORG")
PARTS = ("", "*", "n1", ".example.org", "example.org", " 10.0.0.1", "0.0.1", "org", "localhost", "1", ".1")


def test_agrees_with_urllib() -> None:
    rng = random.Random(20264)
    met = {True: 0, False: 0}
    for _ in range(3000):
        text = ",".join(rng.choice(PARTS) for _ in range(rng.randrange(4)))
        env = {rng.choice(("no_proxy", "NO_PROXY")): text}
        host = rng.choice(HOSTS)
        theirs = bool(urllib.request.proxy_bypass_environment(host, {"no": text}))  # type: ignore[attr-defined]
        assert is_bypassed(host, env) is theirs, (host, text)
        met[theirs] += 1
    assert min(met.values()) > 300, met


def test_networks_and_which_variable_counts() -> None:
    assert is_bypassed("10.0.0.1", {"no_proxy": "10.0.0.0/8"})
    assert not is_bypassed("n1", {"no_proxy": "10.0.0.0/8,10.0.0.0/99"})
    assert not is_bypassed("10.0.0.1", {"no_proxy": "", "NO_PROXY": "*"})
    assert proxy({"HTTP_PROXY": "a"}) == "a"
    assert proxy({"http_proxy": "", "HTTP_PROXY": "a"}) == ""
    assert proxy({"ALL_PROXY": "b", "http_proxy": "a"}) == "a"
    assert proxy({"all_proxy": "b"}) == "b"
