"""Runs the agent as a real process over pipes, with the real bundle; other tests may use it too."""

import base64
import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdoctor.agent import main
from netdoctor.compat import Self
from netdoctor.transport import bundle

MARKER = "t35tm4rk3r"


def interpreters() -> dict[str, str]:
    """Return node-side interpreters by version (``3.6``), found on PATH and under pyenv."""
    found: dict[str, str] = {}
    root = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    for path in sorted(root.glob("versions/*/bin/python")):
        version = re.match(r"(\d+\.\d+)", path.parent.parent.name)
        if version:
            found.setdefault(version.group(1), str(path))
    for minor in range(6, 15):
        path_found = shutil.which(f"python3.{minor}")
        # A pyenv shim without a selected version is on PATH but does not run.
        if path_found and "shims" not in path_found:
            found.setdefault(f"3.{minor}", path_found)
    return found


def empty_environment(folder: Path, python: str = sys.executable) -> str:
    """Return the interpreter of a new environment with nothing installed."""
    real = Path(os.path.realpath(python))
    (folder / "empty/bin").mkdir(parents=True)
    (folder / "empty/bin/python").symlink_to(real)
    (folder / "empty/pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    return f"{folder}/empty/bin/python"


class Ended(Exception):
    """The agent closed its output."""


class AgentProcess:
    """One agent over pipes. Frames are parsed independently of the production reader."""

    def __init__(
        self,
        python: str = sys.executable,
        *,
        deadline_s: float = 60.0,
        collectors: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
        provide: bool = False,
    ) -> None:
        command = bundle.argv(python, MARKER)
        self.process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
            cwd=cwd,
        )
        self.buffer = b""
        self.noise = b""
        self.sequence = 0
        self.provide = provide
        self.needs: list[str] = []
        self.replies: dict[int, dict[str, Any]] = {}
        packed = bundle.build_bundle(marker=MARKER, deadline_s=deadline_s, collectors=collectors or {})
        with contextlib.suppress(BrokenPipeError):  # an old interpreter speaks and leaves without reading
            self.send_raw(packed)

    def __enter__(self) -> Self:
        self.hello = self.read()["hello"]
        self.tag = self.hello["tag"]
        self.send_raw(bundle.pack(self.tag))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            if self.process.stdin:
                self.process.stdin.close()
        try:
            self.process.wait(5)
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe:
                    pipe.close()

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, timeout_s: float = 20.0) -> dict[str, Any]:
        """Return the next message of the agent. Raises Ended or TimeoutError."""
        assert self.process.stdout
        head = re.compile(rb"\x1e" + MARKER.encode() + rb" (\d+)\n")
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if match := head.search(self.buffer):
                    size = int(match.group(1))
                    if len(self.buffer) > match.end() + size:
                        self.noise += self.buffer[: match.start()]
                        body = self.buffer[match.end() : match.end() + size]
                        assert self.buffer[match.end() + size] == 10
                        self.buffer = self.buffer[match.end() + size + 1 :]
                        message: dict[str, Any] = json.loads(body, parse_constant=_no_constant)
                        return message
                if not selector.select(end - time.monotonic()):
                    raise TimeoutError(f"no frame; noise {self.buffer[:300]!r}")
                part = os.read(self.process.stdout.fileno(), 1 << 20)
                if not part:
                    raise Ended(self.stderr())
                self.buffer += part

    def stderr(self) -> str:
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode(errors="replace")

    def start(self, op: str, args: Mapping[str, Any] | None = None) -> int:
        """Send a request, return its number."""
        # Its modules go first: who waits for one agent does not look at what another needs.
        module = "operations." + main.OPERATIONS.get(op, (op, ""))[0]
        if module in bundle.modules():
            self.send_raw(bundle.pack(self.tag, module))
        self.sequence += 1
        self.send_raw(bundle.request_frame({"id": self.sequence, "op": op, "args": dict(args or {})}))
        return self.sequence

    def finish(self, number: int, timeout_s: float = 20.0) -> dict[str, Any]:
        """Return the reply to a request, answering calls for libraries on the way."""
        while number not in self.replies:
            message = self.read(timeout_s)
            if "need" in message:
                if not message["need"].startswith("agent "):
                    self.needs.append(message["need"].partition(" ")[0])
                self._provide(message["need"])
            else:
                self.replies[message["id"]] = message
        return self.replies.pop(number)

    def _provide(self, name: str) -> None:
        from netdoctor.transport import provide

        if name.startswith("agent "):
            self.send_raw(provide.provide_bytes(name, "", 64))
            return
        if self.provide:
            self.send_raw(provide.provide_bytes(name, self.hello["machine"], self.hello["bits"]))
        else:
            refused = {"provide": name.partition(" ")[0], "error": "not in this test"}
            self.send_raw(bundle.request_frame(refused))

    def request(self, op: str, args: Mapping[str, Any] | None = None) -> Any:
        """Return the result of a request; fail the test when the agent reports an error."""
        reply = self.finish(self.start(op, args))
        assert reply.get("ok"), reply
        return reply["result"]

    def facts(self, **groups: Mapping[str, Any]) -> Any:
        return self.request("facts", {"groups": groups})


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@contextlib.contextmanager
def agent(python: str = sys.executable, **options: Any) -> Iterator[AgentProcess]:
    """Run an agent that has said hello."""
    with AgentProcess(python, **options) as running:
        yield running


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
