"""What is known about a login while it goes on, and how one ends badly."""

from dataclasses import dataclass, fields

from netdoctor.errors import TransportError
from netdoctor.facts.host import Login, Session, Trouble
from netdoctor.text import clean
from netdoctor.transport.ssh.messages import Endpoint


class LoginFailed(TransportError):
    """A login ended badly: how, and one line about it; with Login.CONTROL, what of this machine it was."""

    def __init__(self, outcome: Login, detail: str, local_fault: Trouble | None = None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.local_fault = local_fault


@dataclass(slots=True)
class Record:
    """What is known about a login while it goes on."""

    endpoint: Endpoint
    interpreter: str = ""
    stage: str = "resolve"
    address: str | None = None
    passed_over: str = ""
    via: str | None = None
    server_version: str | None = None
    fingerprint: str | None = None
    key_type: str | None = None
    host_key: str = ""
    known_hosts: str | None = None
    offered: str = ""
    python_version: str | None = None
    login_ms: float | None = None
    first_byte_ms: float | None = None
    noise: str = ""

    def session(self, outcome: Login, detail: str = "", local_fault: Trouble | None = None) -> Session:
        """The session that this ends as: fields of the same name are copied."""
        copied = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "endpoint"}
        return Session(
            outcome=outcome,
            detail=clean(detail, 400),
            port=self.endpoint.port,
            user=self.endpoint.user,
            known_as=self.endpoint.known_as,
            trouble=local_fault,
            **{**copied, "passed_over": clean(self.passed_over, 400)},
        )
