"""What NVIDIA's driver means by an Xid: the numbers it writes into the kernel log for trouble with a GPU.

Source: NVIDIA's Xid catalogue for Ampere and newer, column "Resolution Bucket (Immediate Need)",
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html; names as in nverror.h of
NVIDIA/open-gpu-kernel-modules.
"""

import re
from enum import StrEnum
from typing import NamedTuple


class Need(StrEnum):
    """What has to happen before the GPU is used again, the gravest last."""

    NONE = "none"  # the program ended, or nothing did
    RESET = "reset"  # of the GPU
    REBOOT = "reboot"  # of the node

    @property
    def rank(self) -> int:
        return list(Need).index(self)


class Xid(NamedTuple):
    words: str
    action: Need


_RESET = {
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    62: "the GPU's micro-controller halted",
    64: "a faulty memory row could not be recorded for remapping",
    74: "NVLink error",
    95: "uncontained memory error",
    109: "a context switch timed out",
    110: "security fault",
    119: "the GPU's firmware (GSP) does not answer",
    120: "error in the GPU's firmware (GSP)",
    136: "an NVLink did not train",
    140: "uncorrectable memory error that could not be recorded",
    143: "the GPU did not initialise",
    155: "an NVLink went down",
    156: "a faulty part of the GPU is to be retired",
    158: "fatal timeout of the GPU",
}
_REBOOT = {79: "the GPU has fallen off the bus"}
# Of these only messages that call themselves fatal need a reset: "XID 144-150 Decode" of the catalogue.
_NVLINK5 = range(144, 151)
_FATAL = re.compile(r"\b(?<!Non)(?<!Non-)(?<!non)(?<!non-)[Ff]atal\b")
# The catalogue's last entry. What comes after it is not known here.
LAST = 172
# "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)": the driver's own summary.
RECOVERY = 154
_TO = re.compile(r"\bto 0x([0-9a-fA-F]{1,2})\b")
# nvmlDeviceGpuRecoveryAction_t of nvml.h, which Xid 154 prints as well. 3 waits for peers to end before it
# becomes another; 5 restarts the domain of an NVL72.
_RECOVERIES = {
    0: Need.NONE,
    1: Need.RESET,
    2: Need.REBOOT,
    3: Need.RESET,
    4: Need.RESET,
    5: Need.REBOOT,
    6: Need.RESET,
    7: Need.REBOOT,
}


def meaning(code: int, text: str) -> Xid | None:
    """What a message asks for; None for a code that is not in the catalogue. text: what follows the code."""
    if code in _REBOOT:
        return Xid(_REBOOT[code], Need.REBOOT)
    if code in _RESET:
        return Xid(_RESET[code], Need.RESET)
    if code in _NVLINK5:
        return Xid("NVLink error", Need.RESET if _FATAL.search(text) else Need.NONE)
    return Xid("", Need.NONE) if 0 < code <= LAST else None


def recovery(number: int | None) -> Need | None:
    """What the driver says that a GPU needs now; None where it does not say, or what is not known here."""
    return None if number is None else _RECOVERIES.get(number)


def announced(text: str) -> Need | None:
    """The same from the text of an Xid 154."""
    found = _TO.search(text)
    return recovery(int(found.group(1), 16)) if found else None
