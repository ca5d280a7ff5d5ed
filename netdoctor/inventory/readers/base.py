"""What every reader is given, and how it says which hosts it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdoctor.inventory.errors import KEPT_MAX, Problems
from netdoctor.inventory.names import PORT_MAX, host_fault, printable, user_fault
from netdoctor.inventory.nodeset import TOO_MANY
from netdoctor.inventory.parsing import GPUS_MAX, SLOTS_MAX, Entry
from netdoctor.inventory.reading import Line

_BOUNDS = {"port": PORT_MAX, "slots": SLOTS_MAX, "gpus": GPUS_MAX}
_NOTED_MAX = 5


class Stop(Exception):
    """Nothing more is to be read from this source; why is among its problems."""


@dataclass(slots=True)
class Source:
    """One list to read. shown: its name, safe to print; room: how many hosts may still be listed."""

    display: str
    text: str
    lines: Sequence[Line]
    problems: Problems
    room: int
    path: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    document: Any = None
    """JSON or YAML, once it was read (`documents.read`)."""

    def refuse(self, line: int | None, token: str, message: str, hint: str = "") -> None:
        """Note a problem. Raises Stop when there are too many of them."""
        self.problems.add(self.display, line, token, message, hint)
        if self.problems.total >= KEPT_MAX:
            self.problems.add(
                self.display, line, "", f"reading stopped here, after {self.problems.total} problems"
            )
            raise Stop

    def note(self, text: str, names: Sequence[str] = ()) -> None:
        """Say something about the list, with the first of the names that it is about."""
        if names:
            more = f" and {len(names) - _NOTED_MAX} more" if len(names) > _NOTED_MAX else ""
            text = f"{text}: {', '.join(names[:_NOTED_MAX])}{more}"
        self.notes.append(f"{self.display}: {printable(text, 400)}")

    def raw(self) -> Iterator[tuple[int, str]]:
        """All lines with their numbers, where '#' does not mean everywhere what it means to us."""
        for number, line in enumerate(self.text.split("\n"), 1):
            yield number, line.removesuffix("\r")

    def take_room(self, count: int, line: int | None, token: str) -> None:
        """Make place for hosts before they are written out. Raises Stop."""
        self.room -= count
        if self.room < 0:
            self.refuse(line, token, TOO_MANY)
            raise Stop

    def host(  # every field of an entry, each checked by the rule for it
        self,
        name: str,
        line: int | None,
        *,
        address: object = None,
        port: object = None,
        user: object = None,
        slots: object = None,
        gpus: object = None,
        groups: Sequence[str] = (),
        text: str = "",
    ) -> None:
        """Add a host, or the problems that it has. address: where it is dialled instead of by its name."""
        self.take_room(1, line, name)
        before = self.problems.total
        text = text or name
        for what in (name, address):
            fault = None if what is None else host_fault(str(what))
            if fault:
                self.refuse(line, str(what), fault.message, fault.hint)
                break
        fault = None if user is None else user_fault(str(user))
        if fault:
            self.refuse(line, text, fault.message, fault.hint)
        counts = {"port": port, "slots": slots, "gpus": gpus}
        numbers = {
            key: self._number(key, value, line, text) for key, value in counts.items() if value is not None
        }
        if self.problems.total != before:
            return
        dialled = name if address is None else str(address)
        entry = Entry(
            dialled,
            self.display,
            line,
            text,
            user=None if user is None else str(user),
            name=None if dialled == name else name,
            groups=tuple(dict.fromkeys(groups)),
            port=numbers.get("port"),
            slots=numbers.get("slots"),
            gpus=numbers.get("gpus"),
        )
        self.entries.append(entry)

    def _number(self, key: str, value: object, line: int | None, text: str) -> int | None:
        digits = str(value)
        if isinstance(value, bool) or not (digits.isascii() and digits.isdecimal() and len(digits) <= 9):
            self.refuse(line, text, f"{key} '{printable(digits, 40)}' is not a number")
            return None
        low = 0 if key == "gpus" else 1
        if not low <= int(digits) <= _BOUNDS[key]:
            self.refuse(line, text, f"{key} {digits} is not between {low} and {_BOUNDS[key]}")
        return int(digits)


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of list. read: fills `Source.entries`; repeats: a host on several lines is no mistake."""

    name: str
    title: str
    read: Callable[[Source], None]
