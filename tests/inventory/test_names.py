"""The allow-lists: what may reach ssh config, DNS and command lines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor.inventory import names
from tests.hostile import HOSTILE, each_of, steers_a_terminal

HOSTS = (
    *("gpu1", "gpu-a01", "gpu_a01", "_jump", "GPU1", "a", "n1.example.com", "n1.example.com."),
    *("10.0.0.1", "192.168.1.254", "127.0.0.1", "::1", "2001:db8::1", "fe80::1%eth0"),
    *("fe80::1%bond0.100", "::ffff:10.0.0.1", "xn--caf-dma.example", "3com", "ip-10-0-0-1"),
    "a" * 63,
    ".".join(["a" * 49] * 5),
)
NOT_HOSTS = {
    "-x": "begin with '-'",
    "a.-b": "begin or end with '-'",
    "a-.b": "begin or end with '-'",
    "a..b": "between two dots",
    ".": "between two dots",
    ".a": "between two dots",
    "a" * 64: "63",
    "a." * 127: "253",
    "a b": "U+0020",
    "a\tb": "U+0009",
    "a\u00a0b": "no-break space",
    "n\u0430": "cyrillic small letter a",
    "a/b": "'/'",
    "a@b": "user@host",
    "a=b": "key=value",
    "a%b": "zone",
    "a[1-2]": "bracket",
    "{a,b}": "gpu[01-16]",
    "12345": "taken for one",
    "0x7f000001": "taken for one",
    "1.2.3": "taken for one",
    "1.2.3.4.5": "taken for one",
    "256.0.0.1": "taken for one",
    "010.0.0.1": "taken for one",
    "10.0.0.1-4": "10.0.0.[1-4]",
    "10.0.0.0/24": "10.0.0.[1-4]",
    "0.0.0.0": "one machine",
    "255.255.255.255": "one machine",
    "224.0.0.1": "one machine",
    "::": "one machine",
    "ff02::1": "one machine",
    ":::": "not an IPv6",
    "fe80::1%": "zone",
    "fe80::1%-x": "zone",
    "fe80::1%$(x)": "'%'",
    "1:2:3": "not an IPv6",
}


@pytest.mark.parametrize("host", HOSTS)
def test_accepts_hosts(host: str) -> None:
    assert names.host_fault(host) is None
    assert names.is_valid_host(host)


@pytest.mark.parametrize(("host", "words"), NOT_HOSTS.items())
def test_refuses_hosts_with_the_reason(host: str, words: str) -> None:
    fault = names.host_fault(host)
    assert fault is not None
    assert words in f"{fault.message} {fault.hint}"


@pytest.mark.parametrize(
    "user",
    ["root", "ml", "_svc", "a.b-c", "User1", "machine$", "1234abc", "jane@corp.example", "CORP\\jane", "a+b"],
)
def test_accepts_users(user: str) -> None:
    assert names.is_valid_user(user)


@pytest.mark.parametrize("user", ["", "-l", "@a", "a b", "a$b", "a\\", "a;b", "é", "a\n", "a" * 256])
def test_refuses_users(user: str) -> None:
    assert not names.is_valid_user(user)


@pytest.mark.parametrize(
    "path",
    ["python3", "python3.11", "/usr/bin/python3", "/opt/c++/my-env_2/bin/python", "pypy3", "/p"],
)
def test_accepts_interpreters(path: str) -> None:
    assert not names.python_fault(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "-c", ".", "..", "/", "bin/python", "./python", "../python", "~/bin/python"),
        *("/a b/python", "python;x", "python$x", "/usr/bin/", "/usr/bin/python\n", "python\0"),
        *("+1", "/" + "a" * 1024),
    ],
)
def test_refuses_interpreters(path: str) -> None:
    assert names.python_fault(path)


@pytest.mark.parametrize(
    ("port", "valid"), [(0, False), (1, True), (22, True), (65535, True), (65536, False), (-1, False)]
)
def test_ports(port: int, valid: bool) -> None:
    assert names.is_valid_port(port) is valid


# Plain where a list of hosts is concerned; the corpus also attacks other sinks with them.
HARMLESS_HERE = {"json-nan"}


@each_of(HOSTILE.keys() - HARMLESS_HERE)
def test_refuses_the_hostile_corpus(attack: str) -> None:
    text = HOSTILE[attack]
    assert not names.is_valid_host(text)
    assert not names.is_valid_user(text)
    assert names.python_fault(text) or attack in {"path-absolute", "long-name"}


@each_of(HOSTILE)
def test_printable_leaves_nothing_that_steers(attack: str) -> None:
    shown = names.printable(HOSTILE[attack])
    assert not steers_a_terminal(shown)
    assert "\n" not in shown
    assert len(shown) <= 100
    assert names.printable(shown) == shown
    shown.encode()


@given(st.text())
def test_valid_names_hold_safe_characters_only(text: str) -> None:
    if names.is_valid_host(text):
        assert re.fullmatch(r"[A-Za-z0-9_.:%-]+", text)
        assert text[0] != "-"
    if names.is_valid_user(text):
        assert re.fullmatch(r"[A-Za-z0-9_.@+\\-]+\$?", text)
        assert text[0] not in "-@+\\"
    if not names.python_fault(text):
        assert re.fullmatch(r"[A-Za-z0-9_.+/-]+", text)


@given(st.text())
def test_printable_is_stable(text: str) -> None:
    assert names.printable(names.printable(text)) == names.printable(text)
    assert not steers_a_terminal(names.printable(text))


@given(st.ip_addresses())
def test_addresses_and_their_other_spellings_have_one_key(address: object) -> None:
    text = str(address)
    assert names.host_key(text.upper()) == names.host_key(text)
