"""What the agent does without `re`, `json` and `socket`, beside what these say of the same input."""

import json
import random
import re
import socket
from typing import Any

import pytest

from netdoctor.agent import wire
from netdoctor.agent.facts import host as facts_host
from netdoctor.agent.facts import rdma as facts_rdma
from netdoctor.agent.system import dists, files, private

DICE = random.Random(1)
PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def words(letters: str, count: int = 2000, longest: int = 12) -> list[str]:
    """Texts of few letters, so that most of them are nearly right."""
    return ["".join(DICE.choices(letters, k=DICE.randrange(longest + 1))) for _ in range(count)]


def test_names_of_packages() -> None:
    for name in words("aB-_.1"):
        assert dists.normalise(name) == re.sub(r"[-_.]+", "-", name).lower()


def test_versions_in_metadata(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for head in ("Name: x\nVersion: 1.2\n", "version:3\r\nx: y\n", "x: Version: 4\n", "VERSION:\t5 6\n", ""):
        (tmp_path / "METADATA").write_text(head + "\nVersion 7\n", newline="")
        known = re.search(r"^Version:\s*(\S+)", head, re.M | re.I)
        found = dists.Distribution("x", "0", "/", str(tmp_path)).version()
        assert found == (known.group(1) if known else "0")


def test_addresses_of_devices() -> None:
    tails = [f"{a}:{b}:{c}" for a, b, c in zip(*[words("0af:.g8", 3000, 4)] * 3, strict=True)]
    tails += ["0000:0a:00.0", "10000:e1:00.7", "0000:0a:00.8", "000:0a:00.0", "0000:0A:00.0", "0000:0a:000.0"]
    for tail in tails:
        path = f"/sys/devices/pci0000:00/0000:00:03.0/{tail}/virtio0"
        known = [part for part in path.split("/") if PCI.fullmatch(part)]
        assert files.pci_address(path) == known[-1], path
    assert files.pci_address("/sys/devices/pci0000:00/virtual") is None


def test_rates_of_ports() -> None:
    for text in [
        "400 Gb/sec (4X NDR)",
        "2.5 Gb/sec",
        "2. Gb/sec",
        ".5 Gb/sec",
        *words("12. Gb/sec", 1000, 9),
    ]:
        known = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
        assert facts_rdma.rate(text) == (float(known.group(1)) if known else None), text


KEYS = (
    "hf_{} ghp_{} gho_{} ghr_{} ghs_{} ghu_{} github_pat_{} glpat-{} sk-{} sk-proj-{} xoxb-{} nvapi-{} npm_{}"
)
KEYS += " pypi-{} AKIA{} ASIA{} AIza{} ya29.{} dapi{} eyJ{}.{} Bearer_{} Basic_{}"
SECRETS = "TOKEN SECRET PASSW PASSPHRASE CREDENTIAL COOKIE BEARER AUTHORIZATION API_KEY ACCESSKEY ACCOUNT-KEY"
SECRETS += " PRIVATE_KEY SHARED_KEY AUTH_KEY SIGNING_KEY PASS PWD AUTH PSK"


def test_what_is_looked_for_first_is_in_all_that_is_masked() -> None:
    """Forms of keys, and words for a secret: a text without one of the few words is not looked at twice."""
    for form in KEYS.split():
        text = form.replace("_{}", " {}" if form[0] == "B" else "_{}").format(*["0123456789" * 4] * 2)
        assert private.MASK in str(private.masked_in([text])), text
    for word in SECRETS.split():
        assert private.is_secret(word)
        assert private.is_secret(f"X_{word.lower()}")
        assert private.masked_in({"x": f"{word}=abc"}) == {"x": f"{word}={private.MASK}"}


def value(depth: int = 0) -> Any:
    """Return what JSON can carry."""
    kind = DICE.randrange(8 if depth < 4 else 6)
    if kind < 6:
        text = "".join(chr(DICE.choice((34, 92, 10, 65, 233, 0x2028, 0x1F600))) for _ in range(kind))
        number = DICE.choice((DICE.uniform(-1e9, 1e9), 1e300, -0.0, 5e-324))
        return (None, True, text, DICE.randrange(-(1 << 70), 1 << 70), number, False)[kind]
    inner = [value(depth + 1) for _ in range(DICE.randrange(5))]
    return inner if kind == 6 else {str(value(4)): one for one in inner}


def test_json_of_values() -> None:
    for _ in range(300):
        one = value()
        assert wire.dumps(one) == json.dumps(one)
        assert wire.loads(wire.dumps(one)) == one


def test_texts_that_are_json_and_texts_that_are_not() -> None:
    good = ["[1, NaN, -Infinity]", ' {"a": [1.5e3, "\\u00e9"]} \n', "[]]", "{} {}", "", "[1,]", "tru", '"\n"']
    for text in [
        *good,
        *words('{}[]",:01.eE+- \n\\', 2000, 9),
        *(f"[{w}]" for w in words("01.eE+-", 500, 6)),
    ]:
        try:
            known = json.loads(text)
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                wire.loads(text)
        else:
            assert repr(wire.loads(text)) == repr(known)


def test_what_json_cannot_carry() -> None:
    for value in (float("nan"), {1: float("inf")}, object(), b"x"):
        with pytest.raises((TypeError, ValueError)):
            wire.dumps(value)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises((ValueError, RecursionError)):
        wire.dumps(circle)


def test_full_name_of_this_host() -> None:
    for name in (socket.gethostname(), "localhost", "no-such-host.invalid"):
        assert facts_host._getfqdn(name) == socket.getfqdn(name)
