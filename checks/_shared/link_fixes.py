"""What to look at where the counters of a link say that something is wrong, and what heals it."""

from netdoctor.checks._shared.text import on_dev
from netdoctor.model import Fix, look, run
from netdoctor.text import is_plain_name

Fixes = tuple[Fix, ...]
SWAP = run("clean or swap cable and transceiver, then try another port of the switch")


def port_fixes(port: str) -> tuple[Fixes, Fixes]:
    """For a port such as ``mlx5_0:1``: of a link that is bad, and of one that is jammed."""
    hca, _, number = port.rpartition(":")
    known = is_plain_name(hca) and number.isascii() and number.isdigit()
    report = look(
        "read the link's own report: errors before and after correction, the cable, its temperature",
        f"mlxlink -d {hca} -p {number} -m -c" if known else "",
        root=True,
    )
    jammed = look(
        "compare the counters of pauses and congestion marks with those of the switch",
        f"rdma statistic show link {hca}/{number}" if known else "",
    )
    return (report, SWAP), (jammed, report)


def interface_fixes(name: str) -> tuple[Fixes, Fixes, Fixes, Fixes]:
    """For an interface: whose link damages packets, whose link goes down, that is read too slowly, that stops
    its switch."""
    report = look(
        "read what the driver counts, and the transceiver's own report",
        on_dev(name, "ethtool -S {0} | grep -iE 'err|crc|drop|discard'; ethtool -m {0}"),
        root=True,
    )
    log = look("see when the link was lost", on_dev(name, "dmesg -T | grep {0} | tail -n 20"), root=True)
    rings = look(
        "compare the receive ring with its highest size, and see which cores take the interrupts",
        on_dev(name, "ethtool -g {0}; ethtool -l {0}; grep {0} /proc/interrupts"),
    )
    paused = look(
        "see which priority it stops, and whether the PCIe link is what is slow",
        on_dev(name, "ethtool -S {0} | grep -E 'pause|stall|discard'"),
    )
    return (report, SWAP), (log, SWAP), (rings,), (paused,)
