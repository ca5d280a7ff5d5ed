import pytest

from netdoctor.checks._shared.addresses import data_device, parse
from netdoctor.rules import addresses as rules
from tests.checks.build import address, name, net, nets
from tests.checks.build import row as row_of


def test_a_text_is_taken_apart_once() -> None:
    many = nets(200)
    rules.ip.cache_clear()
    rules.parse.cache_clear()
    for one in many.values():
        for i in range(1, 201):
            assert (data_device(one, address(i)) is None) == (one is not many[name(i)])
    assert rules.parse.cache_info().misses == rules.ip.cache_info().misses == 201  # and 127.0.0.1


@pytest.mark.parametrize(
    ("text", "is_usable"),
    [("::1", False), ("::", False), ("fe80::1", False), ("127.0.0.2", False), ("2001:db8::1", True)],
)
def test_peers_dial_neither_loopback_nor_link_local_nor_unspecified(text: str, is_usable: bool) -> None:
    assert rules.is_usable(row_of("eth0", text, 64 if ":" in text else 24)) is is_usable


def test_scopes_and_mapped_addresses() -> None:
    assert str(parse("fe80::1%eth0")) == "fe80::1"
    assert str(parse("::ffff:10.0.0.1")) == "10.0.0.1"
    assert parse(None) is parse("") is parse("n1") is None


@pytest.mark.parametrize("scope", ["$(touch x)", "'", "eth0;x", "-x", "", "e" * 40])
def test_a_scope_that_no_interface_has_is_no_address(scope: str) -> None:
    """Python takes any. Rows that can be judged can be taken apart: one node's text ends no check for all."""
    text = f"fe80::1%{scope}"
    assert parse(text) is None
    for row in rules.rows_of(net(1, addresses=(row_of("eth0", text, 64),))):
        assert rules.ip(row.address)
        assert rules.is_usable(row) is False
