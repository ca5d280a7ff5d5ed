"""What we read of interfaces by ethtool's calls, against ethtool."""

import os
import re
import shutil
import subprocess

import pytest

from netdoctor.agent.system import ethtool

pytestmark = pytest.mark.process

FEATURES = {
    "rx": "rx-checksumming", "tx": "tx-checksumming", "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload", "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
}  # fmt: skip


def said(*words: str) -> str:
    return subprocess.run(["ethtool", *words], capture_output=True, text=True).stdout


def sizes(kind: str, text: str) -> dict[str, tuple[int, int]]:
    """Of ``Pre-set maximums:`` and ``Current hardware settings:``, a number for each of ``RX:``."""
    rows = re.findall(r"^(RX|TX|Combined):\s+(\d+)$", text, re.MULTILINE)
    half = len(rows) // 2
    both = zip(rows[half:], rows[:half], strict=True)
    return {f"{kind} {now[0].lower()}": (int(now[1]), int(most[1])) for now, most in both if int(most[1])}


def test_ethtool_says_the_same() -> None:
    if shutil.which("ethtool") is None:
        pytest.skip("no ethtool")
    asked = 0
    for name in os.listdir("/sys/class/net"):
        driver, version, firmware = ethtool.driver_info(name)
        got = ethtool.settings(name)
        info = dict(re.findall(r"^([\w-]+): (.*)$", said("-i", name), re.MULTILINE))
        assert (driver or "") == info.get("driver", ""), name
        if driver:
            own = info["version"] == os.uname().release[:31]
            assert version == ("in-kernel" if own else info["version"] or "in-kernel"), name
            assert (firmware or "") == info["firmware-version"].replace("N/A", ""), name
        shown = dict(re.findall(r"^([\w-]+): (on|off)", said("-k", name), re.MULTILINE))
        for key, on in got["features"].items():
            assert on == (shown[FEATURES[key]] == "on"), (name, key)
            asked += 1
        theirs = {**sizes("ring", said("-g", name)), **sizes("channels", said("-l", name))}
        assert {key: tuple(value) for key, value in got["sizes"].items()} == theirs, name
    if not asked:
        pytest.skip("no interface here shows offloads")


@pytest.mark.parametrize(("bit", "mbit_s"), [(21, 20_000), (22, 20_000), (31, 25_000), (20, 10_000)])
def test_a_link_mode_has_its_speed(bit: int, mbit_s: int) -> None:
    """Bits of include/uapi/linux/ethtool.h: 21 and 22 are 20000baseMLD2 and KR2, 31 is 25000baseCR."""
    assert max(speed for mask, speed in ethtool._MODES if 1 << bit & mask) == mbit_s
