"""Files through the rules: findings, less what is ignored with a reason."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from netdoctor.lint.files import Config, Read, Shell
from netdoctor.lint.model import RULES, Finding, Found, Kind, Position, Rule, Severity
from netdoctor.lint.program import Text
from netdoctor.lint.rules.groups import Together  # and with its package, all rules

MOST_PER_RULE = 50  # in one file
_IGNORE = re.compile(r"#\s*netdoctor:\s*ignore(?:\[([^\]]{0,1000})\])?[ \t]*:?(.*)$")
UNUSED, REASONLESS = "lint.unused-ignore", "lint.ignore-reason"
# Findings about the comments themselves; they have pages like rules.
IGNORE_RULES = {
    UNUSED: "an ignore that nothing needs hides the next mistake",
    REASONLESS: "an ignore says which rule, and why",
}


@dataclass(slots=True)
class _Ignore:
    """One comment."""

    position: Position
    rules: tuple[str, ...]
    reason: str
    lines: range  # that it is about
    used: bool = False


def rules() -> dict[str, Rule]:
    """All rules by id."""
    return dict(sorted(RULES.items()))


def lint(files: Sequence[Read], selected: Collection[str] | None = None) -> list[Finding]:
    """What the rules find in these files, by file, line and rule. selected: ids of rules, None for all."""
    chosen = [rule for rule in rules().values() if selected is None or rule.id in selected]
    together = Together(
        shells=tuple(view for read in files for view in read.views if isinstance(view, Shell)),
        configs=tuple(view for read in files for view in read.views if isinstance(view, Config)),
    )
    hits = [
        _finding(found, rule, found.path)
        for rule in chosen
        if rule.reads is Together
        for found in rule.judge(together)
    ]
    for read in files:
        for view in read.views:
            path = getattr(view, "file", read.file).path
            for rule in chosen:
                if type(view) is rule.reads:
                    first = islice(rule.judge(view), MOST_PER_RULE)
                    hits += [_finding(found, rule, found.path or path) for found in first]
    here: dict[str, list[Finding]] = defaultdict(list)
    for finding in hits:
        here[finding.path].append(finding)
    findings = [one for read in files for one in _not_ignored(read, here.pop(read.file.path, []), selected)]
    texts = {path: text for read in files for path, text in read.started.items()}
    for path, some in here.items():  # of files that were started, and not given: their own ignores count
        started = Read(Text(path, Kind.SHELL, texts.get(path, "")))
        findings += [one for one in _not_ignored(started, some, selected) if one.rule not in IGNORE_RULES]
    return sorted(dict.fromkeys(findings), key=lambda f: (f.path, f.position, f.rule))


def _finding(found: Found, rule: Rule, path: str) -> Finding:
    position = Position(found.position.line, found.position.col)
    return Finding(path, position, rule.id, rule.severity, found.message, found.instead)


def _not_ignored(read: Read, findings: list[Finding], selected: Collection[str] | None) -> Iterator[Finding]:
    ignores = list(_ignores(read))
    path = read.file.path
    for finding in findings:
        for ignore in ignores:
            if finding.rule in ignore.rules and finding.position.line in ignore.lines and ignore.reason:
                ignore.used = True
                break
        else:
            yield finding
    for ignore in ignores:
        advice = ""
        name = REASONLESS if not ignore.reason or not ignore.rules else UNUSED
        if name == REASONLESS:
            text = "an ignore names a rule and gives a reason; otherwise it has no effect"
            advice = "# netdoctor: ignore[env.port] the port is free here"
        elif unknown := [rule for rule in ignore.rules if rule not in RULES]:
            text, advice = f"no rule is called {unknown[0]}", "netdoctor lint --list"
        elif not ignore.used and (selected is None or set(ignore.rules) <= set(selected)):
            text = f"nothing here is found by {', '.join(ignore.rules)}: remove the comment"
        else:
            continue
        yield Finding(path, ignore.position, name, Severity.WARNING, text, advice)


def _ignores(read: Read) -> Iterator[_Ignore]:
    if "netdoctor:" not in read.file.text:
        return
    ends: dict[int, int] = {}
    for view in read.views:
        if isinstance(view, Shell):
            for command in view.script.commands:
                start = command.position.line
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
        position = Position(number, match.start() + 1)
        yield _Ignore(position, names, match[2].strip(), range(target, ends.get(target, target) + 1))
