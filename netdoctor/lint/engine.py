"""Files through the rules: findings, less what is ignored with a reason."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from netdoctor.lint.files import Config, Read, Shell
from netdoctor.lint.model import RULES, Finding, Found, Place, Rule, Severity
from netdoctor.lint.rules.groups import Together  # and with its package, all rules

MOST_PER_RULE = 50  # in one file
_IGNORE = re.compile(r"#\s*netdoctor:\s*ignore(?:\[([^\]]*)\])?[ \t]*:?[ \t]*(.*?)\s*$")
UNUSED, REASONLESS = "lint.unused-ignore", "lint.ignore-reason"
# Findings about the comments themselves; they have pages like rules.
OWN = {
    UNUSED: "an ignore that nothing needs hides the next mistake",
    REASONLESS: "an ignore says which rule, and why",
}


@dataclass(slots=True)
class _Ignore:
    """One comment. lines: those that it speaks of."""

    place: Place
    rules: tuple[str, ...]
    reason: str
    lines: range
    used: bool = False


def rules() -> dict[str, Rule]:
    """All rules by id."""
    return dict(sorted(RULES.items()))


def lint(files: Sequence[Read], wanted: Collection[str] | None = None) -> list[Finding]:
    """What the rules find in these files, by file, line and rule. wanted: ids of rules, None for all."""
    chosen = [rule for rule in rules().values() if wanted is None or rule.id in wanted]
    together = Together(
        shells=tuple(view for read in files for view in read.views if isinstance(view, Shell)),
        configs=tuple(view for read in files for view in read.views if isinstance(view, Config)),
    )
    across = [
        (found.path, _finding(found, rule, found.path))
        for rule in chosen
        if rule.reads is Together
        for found in rule.judge(together)
    ]
    findings: list[Finding] = []
    for read in files:
        path = read.file.path
        here = [finding for at, finding in across if at == path]
        for view in read.views:
            for rule in chosen:
                if type(view) is rule.reads:
                    made = (_finding(found, rule, path) for found in rule.judge(view))
                    here += [one for _, one in zip(range(MOST_PER_RULE), made, strict=False)]
        findings += _not_ignored(read, here, wanted)
    return sorted(dict.fromkeys(findings), key=lambda f: (f.path, f.place, f.rule))


def _finding(found: Found, rule: Rule, path: str) -> Finding:
    return Finding(path, found.place, rule.id, rule.severity, found.message, found.instead)


def _not_ignored(read: Read, findings: list[Finding], wanted: Collection[str] | None) -> Iterator[Finding]:
    ignores = list(_ignores(read))
    path = read.file.path
    for finding in findings:
        for ignore in ignores:
            if finding.rule in ignore.rules and finding.place.line in ignore.lines and ignore.reason:
                ignore.used = True
                break
        else:
            yield finding
    for ignore in ignores:
        named = ", ".join(ignore.rules)
        if not ignore.reason or not ignore.rules:
            text = "an ignore names a rule and gives a reason; without them it is not heeded"
            yield Finding(
                path,
                ignore.place,
                REASONLESS,
                Severity.WARNING,
                text,
                "# netdoctor: ignore[env.port] the port is free here",
            )
        elif unknown := [name for name in ignore.rules if name not in RULES]:
            text = f"no rule is called {unknown[0]}"
            yield Finding(path, ignore.place, UNUSED, Severity.WARNING, text, "netdoctor lint --list")
        elif not ignore.used and (wanted is None or set(ignore.rules) <= set(wanted)):
            text = f"nothing here is found by {named}: the comment can go"
            yield Finding(path, ignore.place, UNUSED, Severity.WARNING, text)


def _ignores(read: Read) -> Iterator[_Ignore]:
    if "netdoctor:" not in read.file.text:
        return
    ends: dict[int, int] = {}
    for view in read.views:
        if isinstance(view, Shell):
            for command in view.script.commands:
                start = command.place.line
                ends[start] = max(ends.get(start, start), command.end)
    lines = read.file.lines
    following = len(lines)  # the next line that is neither blank nor an ignore itself
    found: list[tuple[int, re.Match[str], int]] = []
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        match = _IGNORE.search(line)
        alone = match is not None and not line[: match.start()].strip()
        if match is not None:
            found.append((number, match, following if alone else number))
        if line.strip() and not alone:
            following = number
    for number, match, target in reversed(found):
        names = tuple(name.strip() for name in (match[1] or "").split(",") if name.strip())
        place = Place(number, match.start() + 1)
        yield _Ignore(place, names, match[2], range(target, ends.get(target, target) + 1))
