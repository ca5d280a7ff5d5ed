"""What NVIDIA's driver means by an Xid: the numbers it writes into the kernel log for trouble with a GPU.

The catalogue is data/xid.toml.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from netdoctor import tables
from netdoctor.compat import StrEnum


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


class _Catalogue(Struct, forbid_unknown_fields=True):
    """data/xid.toml: what messages say, by code; needs of recovery actions, by their number."""

    last: int
    reset: dict[int, str]
    reboot: dict[int, str]
    recoveries: dict[int, Need]


_TABLE = tables.table("netdoctor.rules", "xid.toml", _Catalogue)
_RESET, _REBOOT, _RECOVERIES, LAST = _TABLE.reset, _TABLE.reboot, _TABLE.recoveries, _TABLE.last
# Of these only messages that call themselves fatal need a reset: "XID 144-150 Decode" of the catalogue.
_NVLINK5 = range(144, 151)
_FATAL = re.compile(r"\b(?<!Non)(?<!Non-)(?<!non)(?<!non-)[Ff]atal\b")
# "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)": the driver's own summary.
RECOVERY = 154
_TO = re.compile(r"\bto 0x([0-9a-fA-F]{1,2})\b")


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
