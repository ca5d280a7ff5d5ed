"""What is known about a login while it goes on, and how one ends badly."""

from dataclasses import dataclass

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
    known_hosts: str | None = None
    offered: str = ""
    python_version: str | None = None
    login_ms: float | None = None
    first_byte_ms: float | None = None
    noise: str = ""

    def session(self, outcome: Login, detail: str = "", local_fault: Trouble | None = None) -> Session:
        return Session(
            outcome=outcome,
            stage=self.stage,
            detail=clean(detail, 400),
            address=self.address,
            passed_over=clean(self.passed_over, 400),
            port=self.endpoint.port,
            user=self.endpoint.user,
            via=self.via,
            server_version=self.server_version,
            fingerprint=self.fingerprint,
            key_type=self.key_type,
            known_hosts=self.known_hosts,
            known_as=self.endpoint.known_as,
            offered=self.offered,
            interpreter=self.interpreter,
            python_version=self.python_version,
            login_ms=self.login_ms,
            first_byte_ms=self.first_byte_ms,
            noise=self.noise,
            trouble=local_fault,
        )
