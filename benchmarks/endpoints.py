"""Loopback SSH endpoints: real OpenSSH servers on addresses of 127.0.0.0/8, with keys of their own."""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from netdoctor.compat import Self

# OpenSSH's own limit of addresses that one server listens on (MAX_LISTEN_SOCKS).
ADDRESSES_PER_SERVER = 16
PR_SET_CHILD_SUBREAPER = 36


class CannotStart(Exception):
    """No endpoints on this machine; the message says what is missing."""


@dataclass(frozen=True)
class Client:
    """What a client needs to log in everywhere without a question."""

    ssh_config: Path
    key: Path
    known_hosts: Path
    user: str
    port: int


class Endpoints:
    """A context manager: `count` endpoints while it lasts, and no process of theirs after it.

    The servers are children of this process and not of what is measured, so what they burn is not counted
    as the client's, though they use the same cores.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.addresses = [
            f"127.77.{i // ADDRESSES_PER_SERVER}.{1 + i % ADDRESSES_PER_SERVER}" for i in range(count)
        ]
        self._servers: list[subprocess.Popen[bytes]] = []
        self._made_run_sshd = False
        self._orphans_cpu_s = 0.0

    def __enter__(self) -> Self:
        # An agent whose session was cut outlives its server for a moment; it then becomes a child of ours.
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot become the reaper of the endpoints' processes")
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def cpu_s(self) -> float:
        """What the servers and all ended sessions, agents included, have used so far."""
        total = self._orphans_cpu_s
        for server in self._servers:
            used = psutil.Process(server.pid).cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
        return total

    def settle(self, timeout_s: float = 20.0) -> bool:
        """Wait until the last session and agent of the run before has ended; say whether it did."""
        end = time.monotonic() + timeout_s
        while self._busy():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _busy(self) -> bool:
        for orphan in self._orphans():
            pid, _, used = os.wait4(orphan.pid, os.WNOHANG)
            if pid == 0:
                return True
            self._orphans_cpu_s += used.ru_utime + used.ru_stime
        for server in self._servers:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(server.pid).children():
                    return True
        return False

    def _orphans(self) -> list[psutil.Process]:
        """Children of this process that are no servers; called only while no tool is running."""
        servers = {server.pid for server in self._servers}
        return [child for child in psutil.Process().children() if child.pid not in servers]

    def _start(self) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if sshd is None or shutil.which("ssh-keygen") is None:
            raise CannotStart("no sshd or ssh-keygen: apt-get install openssh-server openssh-client")
        if os.geteuid() == 0 and not Path("/run/sshd").exists():
            # Where a server of root's locks its unprivileged half in; made at boot by the service otherwise.
            Path("/run/sshd").mkdir(mode=0o755)
            self._made_run_sshd = True
        (self.folder / "home").mkdir(exist_ok=True)
        key, host_key = self.folder / "key", self.folder / "host_key"
        for path in (key, host_key):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "benchmark", "-f", str(path)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(f"{key}.pub", self.folder / "authorized_keys")
        port = _free_port(self.addresses[0])
        public = " ".join(Path(f"{host_key}.pub").read_text().split()[:2])
        known_hosts = self.folder / "known_hosts"
        known_hosts.write_text("".join(f"[{a}]:{port} {public}\n" for a in self.addresses))
        user = _user()
        ssh_config = self.folder / "ssh_config"
        # One stanza for all, so that no client pays for reading hundreds.
        ssh_config.write_text(
            f"Host 127.77.*\n  User {user}\n  Port {port}\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n"
        )
        self.client = Client(ssh_config, key, known_hosts, user, port)
        for first in range(0, len(self.addresses), ADDRESSES_PER_SERVER):
            self._serve(sshd, first // ADDRESSES_PER_SERVER, port)
        for address in self.addresses:
            _wait_for_banner(address, port)

    def _serve(self, sshd: str, number: int, port: int) -> None:
        first = number * ADDRESSES_PER_SERVER
        listen = "".join(
            f"ListenAddress {a}:{port}\n" for a in self.addresses[first : first + ADDRESSES_PER_SERVER]
        )
        config = self.folder / f"sshd_config.{number}"
        config.write_text(
            f"{listen}HostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized_keys\n"
            "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 4096\n"
            "MaxSessions 64\nPrintMotd no\nPrintLastLog no\nUseDNS no\nLogLevel ERROR\n"
            "Subsystem sftp internal-sftp\n"
            # An empty home: what this user's shell does at each login is no property of any of the tools.
            f"SetEnv HOME={self.folder}/home\n"
        )
        command = [sshd, "-D", "-f", str(config), "-E", str(self.folder / "sshd.log")]
        # Should this process be killed outright, its servers go too.
        setpriv = shutil.which("setpriv")
        wrapper = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        self._servers.append(
            subprocess.Popen([*wrapper, *command], stdin=subprocess.DEVNULL, start_new_session=True)
        )

    def _stop(self) -> None:
        left = []
        for server in self._servers:
            with contextlib.suppress(psutil.Error):
                # Sessions are in sessions of their own (setsid), so no process group has them all.
                left += psutil.Process(server.pid).children(recursive=True)
        for server in self._servers:
            server.kill()
            server.wait()
        for process in [*left, *self._orphans()]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._servers.clear()
        if self._made_run_sshd:
            with contextlib.suppress(OSError):
                Path("/run/sshd").rmdir()


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_banner(address: str, port: int, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address, port), timeout=2) as connection,
        ):
            if connection.recv(4) == b"SSH-":
                return
        if time.monotonic() > end:
            raise CannotStart(f"the SSH server on {address}:{port} does not answer")
        time.sleep(0.05)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
