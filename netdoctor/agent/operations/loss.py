"""Packet loss between nodes: small datagrams at an even pace to echoes of op_listen, counted at both ends."""

import select
import socket
import time

from ..system import files
from . import listen as op_listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TARGETS = 64
MAX_PACKETS = 2000
MAX_SECONDS = 30.0
# After the last packet: a late answer is no loss.
PATIENCE_S = 1.0


class Prober(object):
    """The datagrams to one peer."""

    def __init__(self, reply: "dict[str, Any]", port: "Any", token: bytes) -> None:
        """Raises OSError, ValueError, TypeError. reply: the row that it fills."""
        self.reply = reply
        self.tag = op_listen.tag_of(token)
        family, where = op_listen.resolve(self.reply["address"], port, socket.SOCK_DGRAM)
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self.socket.connect(where)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def send(self) -> None:
        number = b"%08x" % self.reply["sent"]
        try:
            # The "c" asks the echo for its count: what it has seen of this socket so far.
            self.socket.send((self.tag + b" " + number + b"c").ljust(op_listen.ACK_BYTES, b"."))
            self.reply["sent"] += 1
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            # Refused by an ICMP answer or by an own rule: not a loss on the way, and told apart from one.
            self.reply["detail"] = files.errno_name(e)

    def hear(self) -> None:
        while True:
            try:
                data = self.socket.recv(2048)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as e:
                self.reply["detail"] = files.errno_name(e)
                return
            words = data.split()
            if len(words) == 4 and words[0] == self.tag and words[3].isdigit():
                self.reply["answered"] = min(self.reply["answered"] + 1, self.reply["sent"])
                count = min(int(words[3]), self.reply["sent"])
                self.reply["arrived"] = max(self.reply["arrived"], count, self.reply["answered"])


def udp_loss(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Send datagrams to every target at once, evenly over the time; rows in the order of the targets.

    args: {"targets": [{"dst", "address", "port": of a udp_echo}], "token", "packets", "seconds"}.
    Rows: {"dst", "address", "sent", "arrived": as the far end counted, "answered", "detail"}.
    """
    token = op_listen.check_token(args)
    packets = min(max(int(args.get("packets") or 200), 1), MAX_PACKETS)
    seconds = min(max(float(args.get("seconds") or 1.0), 0.05), MAX_SECONDS)
    rows = []  # type: list[dict[str, Any]]
    probers = []  # type: list[Prober]
    for one in list(args.get("targets") or [])[:MAX_TARGETS]:
        target = one if isinstance(one, dict) else {}
        row = {"dst": str(target.get("dst", "")), "address": str(target.get("address", ""))}  # type: Any
        row.update(sent=0, arrived=0, answered=0, detail="")
        rows.append(row)
        try:
            probers.append(Prober(row, target.get("port"), token))
        except (OSError, ValueError, TypeError) as e:
            row["detail"] = files.errno_name(e)
    by_fd = {prober.socket.fileno(): prober for prober in probers}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    started = time.monotonic()
    done = 0
    try:
        while done < packets and probers:
            due = started + seconds * done / packets
            # Answers wait in the socket's buffer until then: to wake for each costs more than to send.
            time.sleep(max(0.0, due - time.monotonic()))
            for fd, _ in poll.poll(0):
                by_fd[fd].hear()
            for prober in probers:
                prober.send()
            done += 1
        end = time.monotonic() + PATIENCE_S
        while any(p.reply["answered"] < p.reply["sent"] for p in probers):
            left = end - time.monotonic()
            if left <= 0:
                break
            for fd, _ in poll.poll(max(1, int(left * 1000))):
                by_fd[fd].hear()
    finally:
        for prober in probers:
            prober.socket.close()
    return rows
