"""Tables of how nodes were not reached: each outcome with its cause, and with the fixes that it names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netdoctor import tables
from netdoctor.checks._shared.text import title_text
from netdoctor.model import CONTROL, HERE, SUSPECTED, Cause, Finding, Fix, Status, in_hosts, look, run

# ``<host>`` in a text or a command: a word of the case, already quoted for a shell where it goes into one.
_WORD = re.compile(r"<([a-z_]+)>")
Words = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A fix before it is known which node it is for. Where a command's word is empty, the command goes."""

    text: str
    look: tuple[str, ...] | None = None  # commands that only look; none of them is words alone
    run: tuple[str, ...] = ()  # commands that heal
    hosts: bool = False  # an edit of the hosts file
    on: str = HERE
    undo: str = ""
    root: bool = False
    more: dict[str, Any] = field(default_factory=dict)  # further fields of Fix
    when: str = ""  # only where this word is not empty
    unless: str = ""  # only where this word is empty

    def fix(self, words: Words) -> Fix:
        text = _filled(self.text, words)
        if self.hosts:
            return in_hosts(text)
        make, commands = (run, self.run) if self.look is None else (look, self.look)
        shell = (_command(one, words) for one in commands)
        undo = _command(self.undo, words)
        return make(text, *shell, on=self.on, undo=undo, root=self.root, **self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How reaching a node ended. What is only suspected is `unknown`."""

    cause: Cause
    fixes: tuple[str, ...] = ()  # names of steps
    of_control: bool = False  # this machine is to blame, and no node


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """A table ``data/NAME`` beside a check."""

    outcome: dict[str, Outcome]
    fix: dict[str, Step]

    def fixes(self, name: str, words: Words) -> list[Fix]:
        steps = (self.fix[one] for one in self.outcome[name].fixes)
        return [
            step.fix(words)
            for step in steps
            if (not step.when or words[step.when]) and not (step.unless and words[step.unless])
        ]

    def finding(
        self, name: str, words: Words, summary: str, status: Status | None = None, **details: Any
    ) -> Finding:
        """What is said of a node that ended so. details: as of Cause.say."""
        one = self.outcome[name]
        title = _WORD.sub(lambda word: title_text(words[word[1]]), one.cause.title)
        return one.cause.but(title=title).say(
            status or (Status.UNKNOWN if one.cause.confidence is SUSPECTED else Status.FAIL),
            summary,
            culprits=(CONTROL,) if one.of_control else (),
            fixes=self.fixes(name, words),
            **details,
        )


def outcomes(family: str, name: str) -> Outcomes:
    """The table of a family of checks. Raises ValueError with the file and the key at fault."""
    return tables.table(f"netdoctor.checks.{family}", name, Outcomes)


def _filled(text: str, words: Words) -> str:
    return _WORD.sub(lambda word: words[word[1]], text)


def _command(shell: str, words: Words) -> str:
    return _filled(shell, words) if all(words[name] for name in _WORD.findall(shell)) else ""
