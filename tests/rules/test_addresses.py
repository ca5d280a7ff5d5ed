from netdoctor.checks._addresses import data_device, parse
from netdoctor.rules import addresses as rules
from tests.checks.build import address, name, nets


def test_a_text_is_taken_apart_once() -> None:
    many = nets(200)
    rules.ip.cache_clear()
    rules.parse.cache_clear()
    for net in many.values():
        for i in range(1, 201):
            assert (data_device(net, address(i)) is None) == (net is not many[name(i)])
    assert rules.parse.cache_info().misses == rules.ip.cache_info().misses == 201  # and 127.0.0.1


def test_scopes_and_mapped_addresses() -> None:
    assert str(parse("fe80::1%eth0")) == "fe80::1"
    assert str(parse("::ffff:10.0.0.1")) == "10.0.0.1"
    assert parse(None) is parse("") is parse("n1") is None
