"""The SSH transport against a real sshd."""

from __future__ import annotations

import pytest

from netdoctor.transport.base import SshOptions

from .conftest import USER, Server, log_in, target

pytestmark = pytest.mark.ssh


def test_logs_in_and_brings_facts(server: Server) -> None:
    outcome = log_in(SshOptions(ssh_config=server.config()), target("node1"))
    session = outcome.session
    assert session.outcome == "ok", session
    assert (session.address, session.port, session.user) == ("127.0.0.1", server.port, USER)
    assert session.stage == "agent"
    assert session.server_version is not None
    assert session.server_version.startswith("SSH-2.0-OpenSSH")
    assert session.fingerprint is not None
    assert session.python_version is not None
    assert session.login_ms
    assert session.first_byte_ms
    print(session, outcome.reply)
    assert outcome.reply.missing is None
