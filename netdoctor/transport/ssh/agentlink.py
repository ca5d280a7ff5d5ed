"""An agent at the other end of a channel. Runs inside a worker process only."""

import contextlib
import re
import time
from collections import deque
from typing import Any

import paramiko
from gevent.lock import RLock

from netdoctor.errors import AgentLost, ProtocolError
from netdoctor.facts.host import Login
from netdoctor.text import clean
from netdoctor.transport import frames
from netdoctor.transport.session import (
    REPLY_BYTES_MAX,
    Answer,
    Broken,
    Conversation,
    Greeting,
    Send,
    broken_python,
)
from netdoctor.transport.ssh.link import NodeTransport, Wire
from netdoctor.transport.ssh.record import LoginFailed, Record

STDERR_KEPT_BYTES = 4096

# fork(2) and execve(2) at RLIMIT_NPROC or a cgroup's pids.max, as sshd, bash, dash, csh and Python say it:
# "-bash: fork: retry: Resource temporarily unavailable", "sh: 1: Cannot fork", "can't start new thread".
_NO_PROCESS = re.compile(rb"Resource temporarily unavailable|annot fork|No more processes|start new thread")


class AgentLink:
    """An agent at the other end of a channel, whose bytes are a `Conversation`."""

    def __init__(
        self, connection: Any, transport: NodeTransport, wire: Wire, marker: str, anchor_s: float
    ) -> None:
        self._connection = connection
        self._transport = transport
        self.wire = wire
        self._channel: Any = None
        self.conversation = Conversation(marker, anchor_s)
        self._events: deque[Greeting | Answer | Broken] = deque()
        self._stderr = bytearray()
        self._stderr_bytes = 0
        self._sending = False
        self.broken = ""
        self.lock = RLock()

    def start(self, command: str, first: bytes, record: Record) -> frames.Hello:
        """Run the command and return the agent's hello. Raises LoginFailed."""
        self.wire.allow(REPLY_BYTES_MAX)
        try:
            record.stage = "channel"
            self._channel = self._transport.open_session()  # Fabric's word for it binds a signature
            record.stage = "shell"
            self._channel.begin(command)
        except (paramiko.SSHException, EOFError, OSError) as e:
            if not self._transport.is_active():
                raise LoginFailed(Login.LOST, self._why_lost()) from e
            if record.stage == "channel":
                raise LoginFailed(Login.SHELL, f"the server refuses to open a session: {e}") from e
            raise LoginFailed(Login.SHELL, f"the command could not be sent: {e}") from e
        sent = time.monotonic()
        try:
            self.send(first)
            while not isinstance(event := self._next(), Greeting):
                if isinstance(event, Broken):
                    raise LoginFailed(Login.SHELL, f"the agent did not start: {event.why}")
        except AgentLost as e:
            raise self._no_agent() from e
        except ProtocolError as e:
            raise LoginFailed(Login.SHELL, f"the agent did not start: {e}") from e
        finally:
            record.noise = self.conversation.noise
            record.first_byte_ms = (time.monotonic() - sent) * 1e3
        record.stage = "agent"
        return event.hello

    def _why_lost(self) -> str:
        words = self.wire.strange or self._transport.last_words
        return "the connection was cut" + (f": {words}" if words else "")

    def _no_agent(self) -> LoginFailed:
        """Say why a channel ended before the agent spoke."""
        if self.wire.strange:
            return LoginFailed(Login.SHELL, f"the login shell starts no agent: {self.wire.strange}")
        if self._channel.refused:
            if "OpenSSH" in self._transport.remote_version:
                # Its session.c refuses a command for nothing else, once the session is open.
                return LoginFailed(Login.PROCESS_LIMIT, "sshd could not start a process for the command")
            return LoginFailed(Login.SHELL, "the server refuses to run a command")
        if self._channel.closed or self._transport.is_active():
            # The exit status may come after the end of output.
            self._channel.status_event.wait(1.0)
        if not self._transport.is_active() and not self._channel.exit_status_ready():
            return LoginFailed(Login.LOST, self._why_lost())
        if full := self.process_limit():
            return LoginFailed(Login.PROCESS_LIMIT, full)
        if words := broken_python(bytes(self._stderr) + self.conversation.tail_bytes):
            return LoginFailed(Login.BROKEN_PYTHON, words)
        status = self._channel.exit_status
        errors = clean(bytes(self._stderr), 200)
        output = errors or self.conversation.tail
        if status in (126, 127) or (status == 1 and "not found" in errors.lower()):
            return LoginFailed(Login.INTERPRETER, output or f"the shell ended with status {status}")
        if status < 0:
            if not self._transport.is_active():
                return LoginFailed(Login.LOST, self._why_lost())
            how = "was killed or gave no status"
        else:
            how = f"ended with status {status}"
        return LoginFailed(
            Login.SHELL, f"the login shell {how} before the agent spoke" + (f": {output}" if output else "")
        )

    def process_limit(self) -> str:
        """What was said where no process could be started, or ''."""
        for line in (*bytes(self._stderr).splitlines(), *self.conversation.tail_bytes.splitlines()):
            if _NO_PROCESS.search(line):
                return f"no process could be started there: {clean(line.strip(), 200)}"
        return ""

    @property
    def silence(self) -> str:
        """What was printed instead of a frame so far."""
        return clean(bytes(self._stderr), 200) or self.conversation.tail

    def send(self, data: bytes) -> None:
        """Send all of it. Raises AgentLost."""
        self._sending = True
        try:
            self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as e:
            # What the agent said before it ended is still there to be read.
            self.broken = self._why_lost()
            if not self._channel.closed and not self._channel.eof_received:
                raise AgentLost(self.broken) from e
        self._sending = False

    def _next(self) -> Greeting | Answer | Broken:
        """What the agent does next; what there is to say to that is said. Raises AgentLost, ProtocolError."""
        while not self._events:
            try:
                data = self._channel.recv(1 << 18)
            except TimeoutError:
                self._drain()
                continue
            self._drain()
            if not data:
                self.broken = self._why_lost() if not self._transport.is_active() else "the agent ended"
                raise AgentLost(self.broken)
            for event in self.conversation.feed(data, self.wire.last_receive_s):
                if isinstance(event, Send):
                    self.send(event.data)
                else:
                    self._events.append(event)
        return self._events.popleft()

    def _drain(self) -> None:
        """Empty stderr, which shares the channel's window with stdout: left alone, it stalls the agent.

        Raises ProtocolError where there is no end of it, and no agent yet.
        """
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(1 << 16)
            if not data:
                return
            self._stderr += data
            del self._stderr[:-STDERR_KEPT_BYTES]
            self._stderr_bytes += len(data)
            if self._stderr_bytes > frames.NOISE_CAP_BYTES and self.conversation.hello is None:
                raise ProtocolError(f"more than {frames.NOISE_CAP_BYTES >> 20} MiB on stderr")

    def answer(self) -> Answer:
        """What came of the request that was sent. Raises AgentLost, ProtocolError."""
        while not isinstance(event := self._next(), Answer):
            if isinstance(event, Broken):
                raise ProtocolError(event.why)
        return event

    def call(self, op: str, args: bytes, timeout_s: float) -> Answer:
        """Send a request and return what came of it; its result as it came, for the main process to read."""
        self.usable()
        self.wire.allow(REPLY_BYTES_MAX)
        self._events.clear()  # late answers to what nobody waits for any longer
        self.send(self.conversation.ask(op, args, timeout_s, bytes))
        return self.answer()

    def usable(self) -> None:
        """Raise AgentLost when there is no use in sending."""
        if self._sending and not self.broken:
            self.broken = "a request was cut short"
        if not self.broken and not self._transport.is_active():
            self.broken = self._why_lost()
        self.broken = self.broken or ("the agent was out of step" if self.conversation.broken else "")
        if self.broken:
            raise AgentLost(self.broken)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()
        self.wire.close()
