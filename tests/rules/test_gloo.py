"""Gloo's selection rules against a table of cases read from its source."""

import pytest

from netdoctor.rules import gloo as rules
from tests.checks.build import lookup, net, resolve, row


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ()),
        ("", ()),
        ("x", ()),
        ("eth0", ("eth0",)),
        ("eth0,eth1", ("eth0", "eth1")),
        ("eth0,", ("eth0",)),
        ("eth0,,eth1", ("eth0", "", "eth1")),
        ("=eth0", ("=eth0",)),
        ("eth0, eth1", ("eth0", " eth1")),
    ],
)
def test_splits_names(value: str | None, names: tuple[str, ...]) -> None:
    assert rules.interface_names({} if value is None else {"GLOO_SOCKET_IFNAME": value}) == names


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("eth0", "10.0.0.1"),
        ("eth", None),
        ("=eth0", None),
        ("^lo", None),
        ("lo", "127.0.0.1"),
    ],
)
def test_names_are_exact(value: str, address: str | None) -> None:
    (device,) = rules.choose(net(), resolve(), {"GLOO_SOCKET_IFNAME": value})
    assert device.address == address


def test_a_list_makes_one_device_each() -> None:
    facts = net(addresses=(row("eth0", "10.0.0.1"), row("eth1", "10.1.0.1"), row("eth0", "fd00::1")))
    devices = rules.choose(facts, None, {"GLOO_SOCKET_IFNAME": "eth1,eth0"})
    assert [device.address for device in devices] == ["10.1.0.1", "10.0.0.1"]


def test_unset_takes_the_first_bindable_address_of_the_own_name() -> None:
    (device,) = rules.choose(net(), resolve(), {})
    assert (device.ifname, device.address, device.rule) == ("eth0", "10.0.0.1", "own name")


def test_the_debian_trap_is_loopback() -> None:
    facts = resolve(own=lookup("n1", "127.0.1.1"), first_bindable="127.0.1.1")
    (device,) = rules.choose(net(), facts, {})
    assert rules.is_loopback(device)
    assert device.ifname is None


def test_an_unusable_own_name_falls_back_to_loopback() -> None:
    facts = resolve(own=lookup("n1", error="EAI_NONAME"), first_bindable=None)
    (device,) = rules.choose(net(), facts, {})
    assert (device.address, device.rule) == ("127.0.0.1", "fallback")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "10.9.9.9"])
def test_an_address_that_binds_and_is_of_no_interface_ends_gloo(address: str) -> None:
    facts = resolve(own=lookup("n1", address), first_bindable=address)
    assert rules.choose(net(), facts, {}) == (rules.Device(None, None, None, "own name", tried=address),)


def test_a_name_of_64_characters_ends_gloo() -> None:
    for length, address in ((63, "10.0.0.1"), (64, None)):
        facts = resolve(own=lookup("n" * length, "10.0.0.1"), first_bindable="10.0.0.1")
        (device,) = rules.choose(net(), facts, {})
        assert device.address == address


def test_cannot_tell_without_the_lookup() -> None:
    assert rules.choose(net(), None, {}) == ()
