# mypy: ignore-errors
import os
import socket
import time

__all__ = ["barrier", "get_backend", "get_rank", "get_world_size", "init_process_group"]
_group = {}


def init_process_group(backend="gloo"):
    """Rank 0 waits for all others at MASTER_PORT; then all go on."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    peers = []
    if rank == 0:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(where)
            server.listen(64)
            peers = [server.accept()[0] for _ in range(world - 1)]
    else:
        while True:
            try:
                peers = [socket.create_connection(where, timeout=2)]
                break
            except OSError:
                time.sleep(0.05)
    for peer in peers:
        peer.settimeout(None)
    _group.update(rank=rank, world=world, backend=backend, peers=peers)
    barrier()


def barrier():
    """Everybody waits for everybody; a peer that is gone is a RuntimeError."""
    try:
        if _group["rank"]:
            _group["peers"][0].sendall(b"x")
            if _group["peers"][0].recv(1) != b"y":
                raise OSError
        else:
            for peer in _group["peers"]:
                if peer.recv(1) != b"x":
                    raise OSError
            for peer in _group["peers"]:
                peer.sendall(b"y")
    except OSError:
        raise RuntimeError("Connection closed by peer [10.0.0.1]:1234") from None


def get_rank():
    return _group["rank"]


def get_world_size():
    return _group["world"]


def get_backend():
    return _group["backend"]
