"""Small words: lists of names, sizes, text that goes into titles and commands."""

import re

from netdoctor.text import is_ifname as is_ifname  # noqa: PLC0414  passed on
from netdoctor.text import listing as listing  # noqa: PLC0414  passed on
from netdoctor.text import quoted as quoted  # noqa: PLC0414  passed on

MIB = 1024 * 1024
GIB = 1024 * MIB

# What may stand in a command that a person pastes: names as DNS and the kernel allow them. Anything else is
# shown as text only.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")


def size(value: int) -> str:
    """``1.5 GiB``, ``64 MiB``, ``64 KiB``."""
    if value >= GIB:
        return f"{value / GIB:.1f} GiB"
    return f"{value / MIB:.0f} MiB" if value >= MIB else f"{value / 1024:.0f} KiB"


def number(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def title_text(text: str) -> str:
    """`text` for a cause title, where braces are placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def is_host_name(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


def on_dev(ifname: str | None, shell: str) -> str:
    """`shell` with the interface's name for ``{0}``; empty where that name should stand in no command."""
    return shell.format(ifname) if is_ifname(ifname) else ""


def slug(text: str) -> str:
    """``flash-attn`` for ``Flash_Attn``: a name as it may stand in a cause's key."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
