"""What is quoted of a log: inert, one line, without secrets. Pure."""

from netdoctor.agent.private import masked
from netdoctor.explain.model import Hit, Quote
from netdoctor.text import clean, inert_line

QUOTE_MAX = 400


def shown(text: str, limit: int = QUOTE_MAX) -> str:
    """A text from a log as it may stand on a terminal, in a report or in somebody's issue."""
    return inert_line(clean(masked(clean(text[:LONG], LONG)), limit))


LONG = 8192


def quote(hit: Hit) -> Quote:
    """A hit as it is shown."""
    match = hit.pattern.regex.search(hit.text)
    text = hit.text
    if match is not None and match.end() > QUOTE_MAX:  # a line of a progress bar, with the error at its end
        text = "… " + text[max(0, match.start() - 40) :]
    return Quote(
        file=shown(hit.file, 300),
        line=hit.number,
        rank=hit.speaker.rank,
        text=shown(text),
        when=hit.when.seconds if hit.when else None,
        host=shown(hit.speaker.host, 100),
        pattern=hit.pattern.id,
        role=hit.pattern.role,
    )
