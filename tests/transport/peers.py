"""Servers that are not what a client hopes for, on loopback, in threads."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

Behaviour = Callable[[socket.socket], None]
IDENT = b"SSH-2.0-Peer_1.0\r\n"


@contextlib.contextmanager
def peer(behaviour: Behaviour, backlog: int = 16) -> Iterator[int]:
    """Serve each connection with `behaviour`; yields the port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)
    ended = threading.Event()

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            behaviour(sock)

    def accept() -> None:
        while not ended.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.settimeout(20)
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextlib.contextmanager
def full_queue() -> Iterator[int]:
    """A port whose queue is full, so that further SYNs are dropped."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        waiting = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            waiting.append(sock)
        try:
            yield port
        finally:
            for sock in waiting:
                sock.close()


def until_closed(sock: socket.socket) -> None:
    """Read and say nothing."""
    while sock.recv(4096):
        pass


def silent(sock: socket.socket) -> None:
    until_closed(sock)


def says(*parts: bytes, then_close: bool = True) -> Behaviour:
    """Send the parts, then close or keep silent."""

    def behave(sock: socket.socket) -> None:
        for part in parts:
            sock.sendall(part)
        if not then_close:
            until_closed(sock)

    return behave


def drips(data: bytes) -> Behaviour:
    """Send one byte, and another a while later."""

    def behave(sock: socket.socket) -> None:
        for byte in data:
            sock.sendall(bytes([byte]))
            time.sleep(0.4)

    return behave


def http(sock: socket.socket) -> None:
    """Wait for a request, as web servers do."""
    sock.recv(100)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def closes(sock: socket.socket) -> None:
    """Say nothing and close."""


def resets(sock: socket.socket) -> None:
    """End with RST."""
    import struct

    sock.recv(1)  # or the client is still connecting
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def floods(data: bytes) -> Behaviour:
    """Send without end."""

    def behave(sock: socket.socket) -> None:
        while True:
            sock.sendall(data * 100)

    return behave
