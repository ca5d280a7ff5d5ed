"""What is quoted of a log: inert, one line, without secrets. Pure."""

import re
from collections.abc import Sequence

from netdoctor.agent.system.private import masked
from netdoctor.explain.model import Hit, Quote
from netdoctor.text import clean, inert_line

QUOTE_MAX = 400
LONG = 8192


def sanitized(text: str, limit: int = QUOTE_MAX) -> str:
    """A text from a log as it may stand on a terminal, in a report or in somebody's issue."""
    return inert_line(clean(masked(clean(text[:LONG], LONG)), limit))


def quote(hit: Hit) -> Quote:
    """A hit as it is shown."""
    text = hit.text
    match = hit.pattern.search(text) if len(text) > QUOTE_MAX else None
    if match is not None and match.end() > QUOTE_MAX:  # a line of a progress bar, with the error at its end
        text = "… " + text[max(0, match.start() - 40) :]
    return Quote(
        file=sanitized(hit.file, 300),
        line=hit.number,
        rank=hit.speaker.rank,
        text=sanitized(text),
        when=hit.when.seconds if hit.when else None,
        host=sanitized(hit.speaker.host, 100),
        local_rank=hit.speaker.local_rank,
        pattern=hit.pattern.id,
        role=hit.pattern.role,
    )


_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"
    r"|(?<![\w:])(?=[0-9A-Fa-f.:]{0,45}::|(?:[0-9A-Fa-f]{0,4}:){3})[0-9A-Fa-f:.]{3,45}(?:%\w{1,15})?(?![\w:])"
)
_HOME = re.compile(r"/(?:home|Users|root)/[^/\s:'\",;)\]]{1,64}|[\w.-]{1,64}@(?=[\w\[])")
# web1.example.org, and neither socket.cpp nor python3.11
_DOMAIN = re.compile(r"(?<![\w./-])[A-Za-z0-9](?:[\w-]{0,62}\.){2,8}[A-Za-z]{2,24}(?![\w(])")


def anonymous(text: str, hosts: Sequence[str] = ()) -> str:
    """A quoted text without addresses, users and hosts, for somebody who does not know the cluster.

    hosts: names that are known to be such.
    """
    text = _ADDRESS.sub("<address>", text)
    text = _HOME.sub("<user>", text)
    text = _DOMAIN.sub("<host>", text)
    names = sorted((one for one in hosts if len(one) > 2), key=len, reverse=True)[:500]
    if names:
        text = re.sub(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", "<host>", text)
    return text
