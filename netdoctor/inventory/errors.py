"""What is said when an inventory could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from netdoctor.errors import InputError
from netdoctor.inventory.names import masked, printable

SHOWN_MAX = 50
KEPT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to change in the input. All text is escaped on the way in."""

    source: str
    line: int | None
    token: str
    message: str
    hint: str = ""

    def __post_init__(self) -> None:
        # Here and not where it is printed, so that no consumer can forget it.
        source = printable(masked(self.source), 1000)
        if source.startswith(("::", "##")):  # a CI command, if it stood first on a line
            source = f"./{source}"
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "token", printable(masked(self.token)))
        object.__setattr__(self, "message", printable(masked(self.message), 400))
        object.__setattr__(self, "hint", printable(masked(self.hint), 400))

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        token = f" '{self.token}':" if self.token else ""
        hint = f"   ({self.hint})" if self.hint else ""
        return f"{where}:{token} {self.message}{hint}"


class InventoryError(InputError):
    """The input cannot be used. Lists all problems; nothing was contacted."""

    def __init__(self, problems: Iterable[Problem], total: int | None = None) -> None:
        self.problems = tuple(problems)
        self.total = len(self.problems) if total is None else total
        """How many there were; `problems` holds the first 1000."""
        super().__init__(self.problems, self.total)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN_MAX]]
        more = self.total - len(lines)
        if more > 0:
            lines.append(f"and {more} more {'problem' if more == 1 else 'problems'}")
        return "\n".join(lines)


class Problems:
    """Collects problems, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.total = 0

    def __bool__(self) -> bool:
        return self.total > 0

    def add(self, source: str, line: int | None, token: str, message: str, hint: str = "") -> None:
        """Note one problem; beyond 1000 they are only counted."""
        self.total += 1
        if len(self.found) < KEPT_MAX:
            self.found.append(Problem(source, line, token, message, hint))

    def raise_any(self) -> None:
        """Raise InventoryError if there was any problem."""
        if self:
            raise InventoryError(self.found, self.total)
