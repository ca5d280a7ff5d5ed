"""Key exchange: what is the same for all servers of one kind is worked out once. Runs inside a worker only.

Nodes of a cluster run the same sshd: they announce the same algorithms, and the same are agreed upon.
paramiko works that out, and words thirty lines for its log, once for each kind of announcement; from then on
its answer is taken. What is a node's own stays: random numbers, keys, signatures, and that the first packet
was the first. Private parts of paramiko, proven by tests/transport/test_link.py.
"""

import os
from collections.abc import Hashable
from typing import Any, NamedTuple

import paramiko
from paramiko.common import cMSG_KEXINIT

from netdoctor.transport.ssh.packed import PeerMessage

COOKIE_BYTES = 16
# A server says what it likes: what is remembered has an end. OpenSSH's announcement is a KiB.
KINDS_MAX = 64
ANNOUNCED_BYTES_MAX = 4 << 10
# Of each connection, and never taken from another one.
OWN = frozenset({"kex_engine", "remote_kex_init"})


class Agreed(NamedTuple):
    """What paramiko made of an announcement. size: bytes of it that count."""

    engine: Any
    settings: dict[str, Any]
    size: int


_announced: dict[Hashable, bytes] = {}
_agreed: dict[Hashable, Agreed] = {}
_extended: dict[bytes, dict[str, bytes]] = {}


class QuickKeys(paramiko.Transport):  # type: ignore[misc]  # paramiko has no types
    """A transport that negotiates keys as paramiko does, without doing again what others have done."""

    local_kex_init: Any
    _derived: tuple[bytes, Any] | None = None

    def _wishes(self) -> Hashable:
        """Everything of ours that an announcement and an agreement depend on."""
        return (
            self._preferred_kex, self._preferred_keys, self._preferred_ciphers, self._preferred_macs,
            self._preferred_compression, self.advertise_strict_kex, self.server_mode,
        )  # fmt: skip

    def _send_kex_init(self) -> None:
        wishes = self._wishes()
        known = None if self.server_mode else _announced.get(wishes)
        if known is None:
            super()._send_kex_init()
            _announced[wishes] = self.local_kex_init[1 + COOKIE_BYTES :]
            return
        with self.clear_to_send_lock:
            self.clear_to_send.clear()
        self.in_kex = True
        said = cMSG_KEXINIT + os.urandom(COOKIE_BYTES) + known
        self.local_kex_init = self._latest_kex_init = said
        self._send_message(PeerMessage(said))

    def _parse_kex_init(self, m: Any) -> None:
        # Strict key exchange wants the very first packet: any other goes paramiko's way, each time.
        if self.server_mode or self.initial_kex_done or m.seqno != 0:
            super()._parse_kex_init(m)
            return
        said = m.get_remainder()
        kind = (self._wishes(), said[COOKIE_BYTES:])
        known = _agreed.get(kind)
        if known is not None:
            self.__dict__.update(known.settings)
            self.kex_engine = known.engine(self)
            self.remote_kex_init = cMSG_KEXINIT + said[: known.size]
            return
        before = dict(vars(self))
        super()._parse_kex_init(m)
        if len(said) <= ANNOUNCED_BYTES_MAX and len(_agreed) < KINDS_MAX:
            settings = {
                name: value
                for name, value in vars(self).items()
                if name not in OWN and (name not in before or before[name] is not value)
            }
            _agreed[kind] = Agreed(type(self.kex_engine), settings, len(self.remote_kex_init) - 1)

    def _parse_ext_info(self, m: Any) -> None:
        said = m.get_remainder()
        known = _extended.get(said)
        if known is not None:
            self.server_extensions = known
            return
        super()._parse_ext_info(m)
        if len(said) <= ANNOUNCED_BYTES_MAX and len(_extended) < KINDS_MAX:
            _extended[said] = self.server_extensions

    def _compute_key(self, id: str, nbytes: int) -> bytes:
        """Return a key of RFC 4253, 7.2. The six of an exchange begin with the same bytes."""
        if self._derived is None or self._derived[0] is not self.H:
            start = PeerMessage()
            self._add_K(start)
            self._derived = self.H, self.kex_engine.hash_algo(start.asbytes() + self.H)
        digest = self._derived[1].copy()
        digest.update(id.encode() + self.session_id)
        key: bytes = digest.digest()
        return key[:nbytes] if len(key) >= nbytes else bytes(super()._compute_key(id, nbytes))

    def _parse_newkeys(self, m: Any) -> None:
        super()._parse_newkeys(m)
        self._derived = None
