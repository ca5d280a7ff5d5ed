"""Text from outside made inert: one function, for every room that shows or stores it."""

import re
import shlex
from collections.abc import Iterable, Mapping

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LISTED = 6

# Whole escape sequences, so that "\x1b[31mred" leaves one mark and not "[31m" as litter. ECMA-48 5.4 (CSI),
# 5.6 (OSC, DCS and friends, which end at BEL or ST), then two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_SPACES = re.compile(r"[ \t\n\v\f\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
# Printable by Python's rules, yet drawn as nothing.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")

# What Azure Pipelines, GitHub Actions (its older form) and TeamCity take for a command anywhere in a log:
# ##vso[task.setvariable variable=x], ##[add-mask]x, ##teamcity[testFailed name='x'].
_CI = re.compile(r"##(?=\w*\[)")


def clean(text: str | bytes, limit: int = 500) -> str:
    """Return `text` as one harmless line of at most `limit` characters.

    Escape sequences, control, format (bidirectional ones too), unassigned and surrogate characters become one
    visible U+FFFD per run; line ends, tabs and odd spaces become single spaces; what a CI would take for a
    command in its log is taken apart; what is cut ends in an ellipsis. Bytes are read as UTF-8. Applying it
    twice changes nothing.
    """
    if isinstance(text, bytes):
        text = text[: 8 * limit + 64].decode("utf-8", "replace")
    if len(text) <= limit and text.isascii() and text.isprintable() and "  " not in text and "##" not in text:
        return text.strip(" ")
    text = text[: 8 * limit + 64]
    text = _SPACES.sub(" ", _ESCAPES.sub("\x00", text)).strip(" ")
    if not text.isprintable() or not _BLANK.isdisjoint(text):
        visible: list[str] = []
        for char in text:
            if char.isprintable() and char not in _BLANK:
                visible.append(char)
            elif not visible or visible[-1] != REPLACEMENT:
                visible.append(REPLACEMENT)
        text = "".join(visible)
    text = _CI.sub("# #", text)
    if len(text) > limit:
        text = text[: max(limit - 1, 0)].rstrip(" ") + "…" if limit > 0 else ""
    return text


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``; did you mean --profile?``, or nothing where nothing is close. cutoff: how close, up to 1."""
    import difflib

    close = difflib.get_close_matches(word[:255], list(known), n=1, cutoff=cutoff)
    return f"; did you mean {clean(close[0])}?" if close else ""


def comma_words(text: str) -> tuple[str, ...]:
    """What stands between commas, each once."""
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))


def has_ci_command(text: str) -> bool:
    """Whether a CI would take a part of this line for a command. `clean` leaves none."""
    return _CI.search(text) is not None


def inert_line(line: str) -> str:
    """A whole line of a log, as no CI takes it for a command: GitHub Actions looks for ``::`` after spaces.

    ActionCommand.cs of actions/runner. Wrapping may bring any word to the start of a line.
    """
    line = _CI.sub("# #", line)
    return f"| {line}" if line.lstrip().startswith("::") else line


def listing(names: Iterable[str], limit: int = LISTED) -> str:
    """``n1``, ``n1 and n2``, ``n1, n2 and 3 more``."""
    every = list(names)
    if len(every) > limit:
        return f"{', '.join(every[: limit - 1])} and {len(every) - limit + 1} more"
    if len(every) < 2:
        return "".join(every)
    return f"{', '.join(every[:-1])} and {every[-1]}"


def age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``5 h``, ``3 days``."""
    for limit, size, unit in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(seconds, 0) // size:.0f} {unit}"
    return f"{seconds // 86400:.0f} days"


def columns_of(environ: Mapping[str, str]) -> int | None:
    """How wide an exported COLUMNS wants lines, 40 at least, as it does of other tools; None without one."""
    columns = environ.get("COLUMNS", "")
    return (
        max(int(columns), 40)
        if columns.isascii() and columns.isdecimal() and 0 < int(columns[:6]) <= 4096
        else None
    )


def hung(text: str, indent: str, width: int | None, rest: str | None = None) -> list[str]:
    """`text` wrapped behind `indent`, and behind `rest` from the second line on. No word is torn."""
    import textwrap

    if width is None:
        return [f"{indent}{text}"]
    return textwrap.wrap(
        text,
        max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=indent if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


_IFNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}")


def is_ifname(text: str | None) -> bool:
    """Return whether `text` is an interface name that may stand in a command to paste."""
    return text is not None and _IFNAME.fullmatch(text) is not None


def quoted(text: str) -> str:
    """`text` as one word of a POSIX shell command, and of zsh, which expands a leading ``=``."""
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)


def is_plain_name(name: str) -> bool:
    """Whether a device name may stand in a command and in NCCL_IB_HCA."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is not None


def ranges(numbers: Iterable[int]) -> list[str]:
    """Numbers in order, those that follow each other as one: ``0-2``, ``5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ["-".join(map(str, run)) for run in runs]
