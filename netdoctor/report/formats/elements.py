"""Elements of the HTML report, as a tree: no string of them is ever put together by hand."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from netdoctor.report import commands, summary

# Of cells and badges, by the letter of a status.
CLASSES = {".": "p", "!": "w", "X": "f", "b": "b", "-": "s", "?": "u"}

_BAR_WIDTH, _BAR_HEIGHT = 240, 14
_QUOTED = re.compile(r"(``|`)([^`]+)\1")


def add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    """Append an element with text; ``class_`` stands for class, ``aria_label`` for aria-label."""
    html_attributes = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    element = ET.SubElement(parent, tag, html_attributes)
    element.text = text or None
    return element


def prose(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    """An element with text in which what stands in backticks is code."""
    before, *rest = _QUOTED.split(text)
    element = add(parent, tag, before, **attributes)
    for code, after in zip(rest[1::3], rest[2::3], strict=True):
        add(element, "code", code).tail = after
    return element


def table(
    parent: ET.Element, caption: str, head: Sequence[str], *, class_: str = ""
) -> tuple[ET.Element, ET.Element]:
    """A table in a box that scrolls by itself, with a head of column names: (its head row, its body)."""
    box = add(parent, "div", class_="scroll", role="region", tabindex="0", aria_label=caption)
    element = add(box, "table", **({"class_": class_} if class_ else {}))
    add(element, "caption", caption)
    row = add(add(element, "thead"), "tr")
    for name in head:
        add(row, "th", name, scope="col")
    return row, add(element, "tbody")


def hidden(parent: ET.Element, text: str) -> None:
    """Text that is read aloud and not drawn: what a colour or a letter says."""
    add(parent, "i", text)


def badge(parent: ET.Element, status: str) -> None:
    """The word of a status, in its colour."""
    letter = next((letter for letter, known in summary.LETTERS.items() if known == status), "?")
    add(parent, "span", summary.word(status), class_=f"badge {CLASSES[letter]}")


def bar(parent: ET.Element, share: float, label: str, *, bad: bool = False) -> None:
    """A bar of 0 to 1 of its room. label: what is read aloud in its place."""
    size = f"0 0 {_BAR_WIDTH} {_BAR_HEIGHT}"
    box = add(parent, "svg", class_="bar", viewBox=size, role="img", aria_label=label)
    wide = str(round(_BAR_WIDTH * share, 1))
    kind = "rate f" if bad else "rate"
    add(box, "rect", x="0", y="0", width=wide, height=str(_BAR_HEIGHT), class_=kind)


def command(parent: ET.Element, shell: str) -> None:
    """One line to paste: one click selects it, and nothing around it."""
    add(add(parent, "pre", class_="command", tabindex="0"), "code", commands.display(shell))
