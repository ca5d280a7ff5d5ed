"""An agent at the other end of a channel. Runs inside a worker process only."""

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import paramiko
from gevent.lock import RLock

from netdoctor.facts.host import Login
from netdoctor.text import clean
from netdoctor.transport import frames
from netdoctor.transport.ssh.link import NodeTransport, Wire
from netdoctor.transport.ssh.record import Failed, Record

STDERR_KEPT_BYTES = 4096
NEEDS_MAX = 8
REPLY_BYTES_MAX = 4 * frames.FRAME_CAP_BYTES

# fork(2) and execve(2) at RLIMIT_NPROC or a cgroup's pids.max, as sshd, bash, dash, csh and Python say it:
# "-bash: fork: retry: Resource temporarily unavailable", "sh: 1: Cannot fork", "can't start new thread".
_NO_PROCESS = re.compile(rb"Resource temporarily unavailable|annot fork|No more processes|start new thread")

Provide = Callable[[str, str, int], bytes]


class Lost(Exception):
    """The channel to an agent ended."""


class AgentLink:
    """An agent at the other end of a channel: requests go out, frames come back."""

    def __init__(self, connection: Any, transport: NodeTransport, wire: Wire, marker: str) -> None:
        self._connection = connection
        self._transport = transport
        self.wire = wire
        self._channel: Any = None
        self._reader = frames.FrameReader(marker)
        self._payloads: deque[bytes] = deque()
        self._stderr = bytearray()
        self._stderr_bytes = 0
        self._spoke = False
        self._hello = frames.Hello()
        self._number = 0
        self._sending = False
        self.broken = ""
        self.lock = RLock()

    def start(self, command: str, first: bytes, record: Record) -> frames.Hello:
        """Run the command and return the agent's hello. Raises Failed."""
        self.wire.allow(REPLY_BYTES_MAX)
        try:
            record.stage = "channel"
            self._channel = self._transport.open_session()  # Fabric's word for it binds a signature
            record.stage = "shell"
            self._channel.begin(command)
        except (paramiko.SSHException, EOFError, OSError) as e:
            if not self._transport.is_active():
                raise Failed(Login.LOST, self._gone()) from e
            if record.stage == "channel":
                raise Failed(Login.SHELL, f"the server refuses to open a session: {e}") from e
            raise Failed(Login.SHELL, f"the command could not be sent: {e}") from e
        sent = time.monotonic()
        try:
            self.send(first)
            while True:
                frame = self.next_frame()
                if frame.hello is not None:
                    break
        except Lost as e:
            raise self._no_agent() from e
        except frames.AgentTrouble as e:
            raise Failed(Login.SHELL, f"the agent did not start: {e}") from e
        finally:
            record.noise = self._reader.noise
        self._spoke = True
        record.stage = "agent"
        record.first_byte_ms = (time.monotonic() - sent) * 1e3
        self._hello = frame.hello
        return frame.hello

    def _gone(self) -> str:
        words = self.wire.strange or self._transport.last_words
        return "the connection was cut" + (f": {words}" if words else "")

    def _no_agent(self) -> Failed:
        """Say why a channel ended before the agent spoke."""
        if self.wire.strange:
            return Failed(Login.SHELL, f"the login shell starts no agent: {self.wire.strange}")
        if self._channel.refused:
            if "OpenSSH" in self._transport.remote_version:
                # Its session.c refuses a command for nothing else, once the session is open.
                return Failed(Login.PROCESS_LIMIT, "sshd could not start a process for the command")
            return Failed(Login.SHELL, "the server refuses to run a command")
        if self._channel.closed or self._transport.is_active():
            # The exit status may come after the end of output.
            self._channel.status_event.wait(1.0)
        if not self._transport.is_active() and not self._channel.exit_status_ready():
            return Failed(Login.LOST, self._gone())
        if full := self.process_limit():
            return Failed(Login.PROCESS_LIMIT, full)
        status = self._channel.exit_status
        errors = clean(bytes(self._stderr), 200)
        said = errors or self._reader.tail
        if status in (126, 127) or (status == 1 and "not found" in errors.lower()):
            return Failed(Login.INTERPRETER, said or f"the shell ended with status {status}")
        if status < 0:
            if not self._transport.is_active():
                return Failed(Login.LOST, self._gone())
            how = "was killed or gave no status"
        else:
            how = f"ended with status {status}"
        return Failed(
            Login.SHELL, f"the login shell {how} before the agent spoke" + (f": {said}" if said else "")
        )

    def process_limit(self) -> str:
        """What was said where no process could be started, or ''."""
        for line in (*bytes(self._stderr).splitlines(), *self._reader.kept.splitlines()):
            if _NO_PROCESS.search(line):
                return f"no process could be started there: {clean(line.strip(), 200)}"
        return ""

    @property
    def silence(self) -> str:
        """What was printed instead of a frame so far."""
        return clean(bytes(self._stderr), 200) or self._reader.tail

    def send(self, data: bytes) -> None:
        """Send all of it. Raises Lost."""
        self._sending = True
        try:
            self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as e:
            # What the agent said before it ended is still there to be read.
            self.broken = self._gone()
            if not self._channel.closed and not self._channel.eof_received:
                raise Lost(self.broken) from e
        self._sending = False

    def next_frame(self) -> frames.Frame:
        """Return the next message. Raises Lost and AgentTrouble."""
        while not self._payloads:
            try:
                data = self._channel.recv(1 << 18)
            except TimeoutError:
                self._drain()
                continue
            self._drain()
            if not data:
                self.broken = self._gone() if not self._transport.is_active() else "the agent ended"
                raise Lost(self.broken)
            self._payloads.extend(self._reader.feed(data))
        return frames.decode_frame(self._payloads.popleft())

    def _drain(self) -> None:
        """Empty stderr, which shares the channel's window with stdout: left alone, it stalls the agent.

        Raises AgentTrouble where there is no end of it, and no agent yet.
        """
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(1 << 16)
            if not data:
                return
            self._stderr += data
            del self._stderr[:-STDERR_KEPT_BYTES]
            self._stderr_bytes += len(data)
            if self._stderr_bytes > frames.NOISE_CAP_BYTES and not self._spoke:
                raise frames.AgentTrouble(f"more than {frames.NOISE_CAP_BYTES >> 20} MiB on stderr")

    def frame_for(self, op: str, args: bytes) -> bytes:
        """Return the next request as bytes; its answer is what `answer` waits for."""
        self._number += 1
        return frames.request_frame(self._number, op, args)

    def answer(self, provide: Provide) -> frames.Frame:
        """Return the reply to the last request, providing what the agent asks for meanwhile."""
        needs = 0
        while True:
            frame = self.next_frame()
            if frame.need is not None:
                needs += 1
                if needs > NEEDS_MAX:
                    raise frames.AgentTrouble("the agent asks for libraries without end")
                self.send(provide(frame.need, self._hello.machine, self._hello.bits))
            elif frame.id == self._number:
                return frame
            elif frame.id is None and frame.hello is None:
                raise frames.AgentTrouble(f"the agent gave up: {clean(frame.detail, 200)}")

    def call(self, op: str, args: bytes, provide: Provide) -> frames.Frame:
        """Send a request and return its reply."""
        self.usable()
        self.wire.allow(REPLY_BYTES_MAX)
        self.send(self.frame_for(op, args))
        return self.answer(provide)

    def usable(self) -> None:
        """Raise Lost when there is no use in sending."""
        if self._sending and not self.broken:
            self.broken = "a request was cut short"
        if not self.broken and not self._transport.is_active():
            self.broken = self._gone()
        if self.broken:
            raise Lost(self.broken)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()
        self.wire.close()
