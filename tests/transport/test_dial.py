"""Which address of a name is dialled, and what becomes of those that are tried before."""

import socket

import pytest

from netdoctor.facts.host import Login
from netdoctor.transport.ssh.dial import dial
from netdoctor.transport.ssh.messages import Endpoint
from netdoctor.transport.ssh.record import Record


@pytest.mark.parametrize(
    ("family", "dead"),
    [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")],
    ids=["the first of two", "IPv6"],
)
def test_an_address_that_leads_nowhere_is_passed_over_and_told(family: int, dead: str) -> None:
    if family == socket.AF_INET6 and not _has(dead):
        pytest.skip("no IPv6 on this machine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        endpoint = Endpoint(name="n1", host="n1", port=port, user="u", known_as="n1")
        record = Record(endpoint)
        addresses = [(family, (dead, port)), (socket.AF_INET, ("127.0.0.1", port))]
        dial(endpoint, addresses, 10.0, record).close()
        assert record.address == "127.0.0.1"
        assert record.session(Login.OK).passed_over.startswith(dead)
        dial(endpoint, addresses[1:], 10.0, record).close()
        assert record.passed_over == ""


def _has(address: str) -> bool:
    try:
        socket.create_server((address, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
