"""A second of the generator, and what it was made after."""

from netdoctor.checks._shared.hosts_file import own_name, rewrite
from tests.checks.build import host
from tests.fuzz import hosts


def test_worlds() -> None:
    assert hosts.run(seed=1, seconds=1.5) > 0


def test_localhost_is_never_moved() -> None:
    """As on `127.0.0.1 localhost node1`, where getfqdn() says localhost."""
    (command,) = own_name(hosts.OWN, host(fqdn="localhost"), hosts.ADDRESS).commands
    assert "localhost" not in command.shell
    assert rewrite({"localhost": hosts.ADDRESS}) is None
    assert own_name("localhost", None, hosts.ADDRESS).commands == ()
