"""Cheap SSH endpoints: two processes are any number of nodes, and leave the machine to the client.

They do whatever costs a client something: key exchange, host key, login, channel, the agent sent to them, its
frames with the facts of `tests/clusters.py`. They start no shell, no agent and no command. Where asked for,
one of a hundred nodes turns connections away, one takes them and is silent, and one cuts its answer short.
"""

import contextlib
import getpass
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from netdoctor.compat import Self
from netdoctor.transport import bundle
from tests.transport.conftest import free_port, make_key

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 2
# Which of a hundred nodes is what, and the network that says so to its server and to ssh_config.
KINDS = {33: "refusing", 66: "silent", 99: "dying"}
NETWORKS = {"healthy": 77, "refusing": 78, "silent": 79, "dying": 80}
# The key of the cause under which a report names each kind.
CAUSES = {"refusing": "ssh-refused", "silent": "ssh-no-answer", "dying": "unmeasured-lost"}
NODES_MAX = 16_000
LOGIN_S = 15  # what other clients are told; netdoctor's own default


@dataclass(frozen=True)
class Node:
    """One endpoint. place: which node of `tests/clusters.py` it is."""

    place: int
    kind: str

    @property
    def address(self) -> str:
        return f"127.{NETWORKS[self.kind]}.{self.place // 250}.{1 + self.place % 250}"


def node_at(address: str) -> Node:
    """The node that an address stands for."""
    _, network, high, low = (int(part) for part in address.split("."))
    kind = next(kind for kind, number in NETWORKS.items() if number == network)
    return Node(high * 250 + low - 1, kind)


class CannotServe(Exception):
    """No endpoints on this machine; the message says what is missing."""


class CheapEndpoints:
    """A context manager: `count` endpoints while it lasts, and no process of theirs after it."""

    def __init__(self, folder: Path, count: int, *, faulty: bool = False) -> None:
        self.folder = folder
        self.nodes = [Node(i, KINDS.get(i % 100, "healthy") if faulty else "healthy") for i in range(count)]
        self.addresses = [node.address for node in self.nodes]
        self.ssh_config, self.known_hosts = folder / "ssh_config", folder / "known_hosts"
        self._servers: list[subprocess.Popen[bytes]] = []
        self._silent = socket.socket()

    def of_kind(self, kind: str) -> list[str]:
        """The addresses of the nodes of that kind."""
        return [node.address for node in self.nodes if node.kind == kind]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def cpu_s(self) -> float:
        """What the servers have used so far."""
        times = [psutil.Process(server.pid).cpu_times() for server in self._servers]
        return float(sum(used.user + used.system for used in times))

    def settle(self) -> bool:
        """There is nothing to wait for: what a server does for a session ends with it."""
        return True

    def _start(self) -> None:
        key, host_key = make_key(self.folder / "key"), make_key(self.folder / "host_key")
        # The kernel takes what comes in, and nobody else does.
        self._silent.bind(("0.0.0.0", 0))
        self._silent.listen(4096)
        port, silent, closed = free_port(), self._silent.getsockname()[1], free_port()
        self.ports = {"healthy": port, "dying": port, "refusing": closed, "silent": silent}
        public = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
        self.known_hosts.write_text(
            "".join(f"[{node.address}]:{self.ports[node.kind]} {public}\n" for node in self.nodes)
        )
        self.ssh_config.write_text(
            "".join(f"Host 127.{NETWORKS[kind]}.*\n  Port {self.ports[kind]}\n" for kind in NETWORKS)
            + f"Host 127.*\n  User {getpass.getuser()}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            f"  ConnectTimeout {LOGIN_S}\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n"
        )
        words = [sys.executable, "-m", "tests.cheap", str(self.folder), str(port), str(len(self.nodes))]
        for _ in range(PROCESSES):
            self._servers.append(
                subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        for server in self._servers:
            assert server.stdout is not None
            if server.stdout.readline() != b"ready\n":
                raise CannotServe("cheap endpoints did not start: is asyncssh installed?")

    def _stop(self) -> None:
        for server in self._servers:
            server.kill()
            server.communicate()
        self._servers.clear()
        self._silent.close()


def answers(count: int) -> dict[int, dict[str, bytes]]:
    """Facts of each node by group, as JSON."""
    import msgspec

    from tests import clusters

    return {
        place: {group: msgspec.json.encode({"value": fact}) for group, fact in clusters.facts(place).items()}
        for place in range(count)
    }


def reply(request: Mapping[str, Any], facts: Mapping[str, bytes]) -> bytes:
    """The body of the frame that answers a request of netdoctor's."""
    number, now = request["id"], time.time()
    if request["op"] == "ping":
        return json.dumps({"id": number, "ok": True, "result": {"recv_s": now, "send_s": now}}).encode()
    if request["op"] != "facts":
        return json.dumps({"id": number, "ok": False, "why": "not_collected"}).encode()
    none = b'{"missing": {"why": "not_collected", "detail": "no such fact here"}}'
    asked = request["args"]["groups"]
    found = b", ".join(b'"%s": %s' % (group.encode(), facts.get(group, none)) for group in asked)
    return b'{"id": %d, "ok": true, "result": {%s}}' % (number, found)


def serve(folder: Path, port: int, count: int) -> None:
    """Be all endpoints, until stdin ends."""
    import asyncio

    import asyncssh

    facts = answers(count)

    class Session(asyncssh.SSHServerSession[bytes]):
        """One channel: a command, the agent, requests."""

        def connection_made(self, chan: Any) -> None:
            self._chan = chan
            self._node = node_at(chan.get_extra_info("sockname")[0])
            self._data = bytearray()
            self._frames = 0
            self._early: list[bytes] = []  # requests that came before the agent's modules
            self._modules = False

        def exec_requested(self, command: str) -> bool:
            self._marker = command.rpartition(" ")[2].strip("'").encode()
            return True

        def data_received(self, data: bytes, datatype: Any = None) -> None:
            self._data += data
            while len(self._data) >= 9 and len(self._data) >= (size := 9 + int(self._data[:8], 16)):
                body = bytes(self._data[9:size])
                del self._data[:size]
                self._frames += 1
                if self._frames == 1:
                    about = {"python": "3.11.2", "tag": bundle.own_tag(), "machine": "x86_64"}
                    self._say(json.dumps({"hello": about}).encode())
                elif not self._modules and not body.startswith(b"\0"):
                    self._early.append(body)
                    self._say(b'{"id": null, "need": "agent %s"}' % bundle.own_tag().encode())
                else:
                    self._modules = True
                    bodies = self._early if body.startswith(b"\0") else [body]
                    for one in [json.loads(one) for one in bodies]:
                        self._say(reply(one, facts[self._node.place]))
                    self._early = []

        def _say(self, body: bytes) -> None:
            frame = b"\x1e" + self._marker + b" %d\n" % len(body) + body + b"\n"
            if self._node.kind == "dying" and self._modules:
                self._chan.write(frame[: len(frame) // 2])
                asyncio.get_running_loop().call_later(0.2, self._chan.get_connection().abort)
            else:
                self._chan.write(frame)

        def eof_received(self) -> bool:
            self._chan.exit(0)
            return False

    class Server(asyncssh.SSHServer):
        def session_requested(self) -> Any:
            return Session()

    async def run() -> None:
        await asyncssh.create_server(
            Server,
            "0.0.0.0",
            port,
            reuse_port=True,
            backlog=4096,
            server_host_keys=[str(folder / "host_key")],
            authorized_client_keys=str(folder / "key.pub"),
            encoding=None,
        )
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
