"""Flow control of an interface, as the kernel answers."""

import os
import socket
import struct
from pathlib import Path

from netdoctor.agent.system import flow

BY_EIGHTS = "".join(str(i >> 3) for i in range(64))


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + b"\0" * (-len(content) % 4)


def answer(pfc_on: int | None, apps: list[tuple[int, int, int]], kind: int = 78) -> bytes:
    """As dcbnl_ieee_get() makes it: the name, and nested ETS, PFC and the table of applications."""
    table = b"".join(attribute(1, struct.pack("=BBH", *app)) for app in apps)
    nested = attribute(1, bytes(59)) + (
        attribute(2, struct.pack("=BBBxHxx16Q", 8, pfc_on, 0, 0, *range(16))) if pfc_on is not None else b""
    )
    nested += attribute(0x8003, table)
    body = struct.pack("=BBH", 0, 21, 0) + attribute(1, b"ens1f0np0\0") + attribute(0x800D, nested)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_what_the_kernel_answers() -> None:
    dscp = [(5, i >> 3, i) for i in range(64)]
    whole = answer(0b1000, [*dscp, (1, 3, 0x8906)])  # FCoE by its Ethernet type is no DSCP
    assert flow.settings(whole) == {"pfc": [3], "dscp": BY_EIGHTS}
    assert flow.settings(answer(0, [])) == {"pfc": [], "dscp": ""}
    assert flow.settings(answer(0xFF, [(5, 6, 46)])) == {
        "pfc": list(range(8)),
        "dscp": "-" * 46 + "6" + "-" * 17,
    }
    # A driver that knows of no PFC, and garbage: out of range, cut short, of another kind.
    assert flow.settings(answer(None, dscp)) is None
    assert flow.settings(answer(8, [(5, 9, 1), (5, 1, 64)])) == {"pfc": [3], "dscp": ""}
    for cut in range(len(whole)):
        found = flow.settings(whole[:cut])
        assert found is None or found["pfc"] == [3]
    assert flow.settings(answer(8, [], kind=2)) is None


def test_this_kernel_takes_the_question() -> None:
    """Of lo, which has no such settings: refused in the kernel's own words, and not as malformed."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(5.0)
        for name, errors in (("lo", (95,)), ("nosuchdevice0", (19, 95))):
            link.send(flow.request(name))
            said = link.recv(4096)
            assert struct.unpack_from("=H", said, 4)[0] == 2  # NLMSG_ERROR
            assert -struct.unpack_from("=i", said, 16)[0] in errors
    assert (flow.ask("lo"), flow.pauses("lo"), flow.counted("lo")) == (None, None, {})
    assert flow.counted("x" * 40) == {}


def test_pauses_are_summed_over_priorities() -> None:
    counters = {
        "rx_packets": 9, "not_tx_prio3_pause": 7, "tx_prio3_pause": 5, "tx_prio4_pause": 6,
        "tx_prio3_pause_duration": 700, "rx_prio3_pause": 2, "rx_global_pause": 1,
        "tx_pause_storm_warning_events ": 3, "tx_pause_storm_error_events": 0,
    }  # fmt: skip
    names = b"".join(name.encode().ljust(32, b"\0") for name in counters)
    values = struct.pack(f"={len(counters)}Q", *counters.values())
    expected = {
        "tx_pauses": 11, "rx_pauses": 3, "tx_pause_us": 700, "tx_pause_storm_warning_events": 3,
    }  # fmt: skip
    assert flow.sums(names, values) == expected
    assert flow.sums(names, values[:24]) == {"tx_pauses": 5}
    # bnxt_en and ice call them otherwise.
    other = ("tx_pfc_ena_frames_pri3", "rx_priority_0_xoff.nic")
    names = b"".join(name.encode().ljust(32, b"\0") for name in other)
    assert flow.sums(names, struct.pack("=2Q", 4, 8)) == {"tx_pauses": 4, "rx_pauses": 8}


def test_notices_of_congestion(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/net/eth1/ecn"
    assert flow.ecn(str(tmp_path), "eth1") is None
    for side in ("rp", "np"):
        os.makedirs(folder / f"roce_{side}/enable")
        for i in range(8):
            (folder / f"roce_{side}/enable/{i}").write_text("1\n" if side == "rp" or i == 3 else "0\n")
    assert flow.ecn(str(tmp_path), "eth1") == "rp all np 3"
    (folder / "roce_np/enable/3").write_text("0\n")
    assert flow.ecn(str(tmp_path), "eth1") == "rp all np none"
