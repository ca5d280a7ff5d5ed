"""A word as one screen: what it is, who sets it, what goes wrong with it, which check decides."""

import dataclasses
import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from netdoctor.check import Check
from netdoctor.explain.glossary import Word, entries, find, plain, spellings
from netdoctor.explain.knowledge import Known, load
from netdoctor.explain.near import Near, Value, status, values
from netdoctor.model import Status
from netdoctor.text import clean, listing

HEIGHT = 24
WIDTH = 80
LABEL = 10
SHOWN_VALUES = 4
LONGEST = 4  # words that are one name, such as ``vendor err 129``
SCHEMA = "netdoctor.words/1"


def statuses() -> Iterator[Word]:
    """The six statuses as words."""
    others = tuple(one.value for one in Status)
    for one in Status:
        yield Word(
            name=one.value,
            kind="status",
            group="netdoctor's words",
            what=one.meaning,
            also=(one.letter,),
            see=tuple(other for other in others if other != one.value),
            source="docs/verdict.md",
        )


def of_check(check: Check) -> Word:
    """A check as a word; its text is its manual's."""
    parts = sections(check.manual)
    wrong = parts.get("Matters because", "")
    return Word(
        name=check.id,
        kind="check",
        group="checks",
        what=check.title,
        by=f"netdoctor, from profile {check.profile.value} on; {check.cost}",
        wrong=(wrong,) if wrong else (),
        do=parts.get("Fix", ""),
        see=(*check.after, *(one for one in check.explains if "*" not in one)),
        source=f"docs/checks/{check.id}.md; netdoctor checks explain {check.id}",
    )


def of_cause(cause: Known) -> Word:
    """A cause that logs are explained by."""
    return Word(
        name=cause.label,
        kind="cause",
        group="causes of explain log",
        what=cause.title,
        wrong=(cause.why,),
        do=" ".join(cause.fix),
        checks=cause.checks,
        source=f"netdoctor/explain/knowledge/{cause.label}.toml",
    )


def sections(manual: str) -> dict[str, str]:
    """The paragraphs of a check's manual by heading, each as one line."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in manual.splitlines()[1:]:
        if line.endswith(":") and line[:1].isalpha():
            heading = line[:-1]
        elif heading and line.strip():
            found.setdefault(heading, []).append(line.strip().replace("``", "`"))
    return {heading: " ".join(lines) for heading, lines in found.items()}


class Glossary:
    """All words: the data's, and those that the checks and the model bring themselves."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self.checks = checks
        causes = load().causes.values()
        brought = (*statuses(), *map(of_check, checks.values()), *map(of_cause, causes))
        self.words = {word.name: word for word in brought}  # that are not the data's
        # Names that lead to a cause, where they are no entry of their own.
        self._causes: dict[str, list[Word]] = {}
        for cause in causes:
            for name in cause.words:
                self._causes.setdefault(plain(name), []).append(self.words[cause.label])

    def groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for word in (*entries(), *self.words.values()):
            found.setdefault(word.group, []).append(word.name)
        return found

    def look_up(self, text: str) -> tuple[Word, ...]:
        low = text.lower()
        for name in (text, low, low.replace("_", ".", 1).replace("_", "-")):
            if name in self.words:
                return (self.words[name],)
        return find(text) or tuple(self._causes.get(plain(text), ()))

    def split(self, words: Sequence[str]) -> Iterator[tuple[str, tuple[Word, ...]]]:
        """What was typed, as names: as many words together as make one, ``Xid 79``."""
        start = 0
        while start < len(words):
            for length in range(min(LONGEST, len(words) - start), 0, -1):
                text = " ".join(words[start : start + length])
                found = self.look_up(text)
                if found or length == 1:
                    yield text, found
                    start += length
                    break

    def near(self, text: str, most: int = 3) -> list[str]:
        """Names that look like what was typed, the nearest first."""
        names: dict[str, str] = {}
        for name in (*self.words, *spellings(), *self._causes):
            names.setdefault(plain(name), name)
        close = difflib.get_close_matches(plain(text[:80]), names, n=most, cutoff=0.6)
        return [names[one] for one in close]


# --- text ------------------------------------------------------------------------------------------


def rows(word: Word, glossary: Glossary, near: Near | None) -> Iterator[tuple[str, list[str]]]:
    """Label and paragraphs, in the order of the screen."""
    yield "", [word.what]
    if word.by:
        yield "runs" if word.kind == "check" else "set by", [word.by]
    if word.default:
        yield "default", [word.default]
    allowed = ", ".join(word.allowed)
    if word.values or allowed:
        yield "values", [word.values or allowed]
    if word.wrong:
        yield {"check": "matters", "cause": "why"}.get(word.kind, "wrong"), list(word.wrong)
    if word.do:
        yield "fix" if word.kind == "check" else "do", [word.do]
    if word.checks:
        yield "decides", [_decider(check, glossary, near) for check in word.checks]
    if near is not None and (here := _here(word, near)):
        texts = [one.describe(len(near.nodes)) for one in here[:SHOWN_VALUES]]
        more = [f"and {len(here) - SHOWN_VALUES} more"] if len(here) > SHOWN_VALUES else []
        yield "here", [*texts, *more, f"(from {near.name})"]
    if word.see:
        yield "see", [listing(word.see)]
    yield "source", [word.source]


def _here(word: Word, near: Near) -> list[Value]:
    return status(word.name, near) if word.kind == "check" else values(word, near)


def _decider(check: str, glossary: Glossary, near: Near | None) -> str:
    title = glossary.checks[check].title if check in glossary.checks else ""
    found = [one for one in status(check, near) if one.text in ("fail", "warn", "unknown")] if near else []
    results = "; ".join(one.describe(len(near.nodes)) for one in found) if near else ""
    return f"{check}: {results or title}" if results or title else check


def text(word: Word, glossary: Glossary, near: Near | None = None, width: int = WIDTH) -> str:
    """The screen: at most HEIGHT lines of `width`. What is too long is cut at its longest paragraph."""
    kind = f"{word.kind} of {word.program}" if word.program else word.kind
    head = f"{clean(word.name, 200)}  ({kind})"
    parts = [
        (label, [clean(one, 1200) for one in paragraphs]) for label, paragraphs in rows(word, glossary, near)
    ]
    room = HEIGHT - 1
    cap = room
    while (len(body := _body(parts, width, cap))) > room and cap > 1:
        cap -= 1
    return "\n".join(line[:width] for line in [head, *body[:room]]) + "\n"


def _body(parts: Iterable[tuple[str, list[str]]], width: int, cap: int) -> list[str]:
    lines: list[str] = []
    for label, paragraphs in parts:
        for number, one in enumerate(paragraphs):
            lead = label if number == 0 else ""
            lead = f"  {lead:<{LABEL}}" if label else "  "
            hang = " " * (LABEL + 2) if label else "  "
            if label and len(paragraphs) > 1 and label in ("wrong", "matters"):
                lead, hang = f"{lead}- ", f"{hang}  "
            wrapped = textwrap.wrap(
                one, max(width, 40), initial_indent=lead, subsequent_indent=hang, break_on_hyphens=False
            )
            if len(wrapped) > cap:
                wrapped = wrapped[:cap]
                wrapped[-1] = f"{wrapped[-1][: width - 2].rstrip()} …"
            lines += wrapped
    return lines


def choice(text: str, found: Sequence[Word], width: int = WIDTH) -> str:
    """Several things that one word may mean, a line each."""
    lines = [f"{clean(text, 80)} may be:"]
    for word in found[: HEIGHT - 2]:
        line = f"  {word.name}: {word.what}"
        lines.append(line if len(line) <= width else f"{line[: width - 2].rstrip()} …")
    return "\n".join(lines) + "\n"


def contents(glossary: Glossary, width: int = WIDTH) -> str:
    """All words by group. Numbers of a family of codes stand behind its name."""
    lines: list[str] = []
    for group, names in glossary.groups().items():
        lines.append(group)
        paragraphs = ", ".join(names)
        lines += textwrap.wrap(
            paragraphs,
            width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines) + "\n"


# --- JSON ------------------------------------------------------------------------------------------


def data(word: Word, near: Near | None = None) -> dict[str, Any]:
    """The entry with the reader's own values."""
    found = {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(word).items()}
    if near is not None:
        found["here"] = [{"value": one.text, "nodes": list(one.nodes)} for one in _here(word, near)]
    return found
