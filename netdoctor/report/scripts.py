"""Fixes that are too long for a line, as scripts beside the report, which a person reads and runs.

A script holds what the fix's commands say, a step on each line; joined by blanks they are the commands again.
"""

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from netdoctor.report import LAST
from netdoctor.report.commands import COMMAND_LIMIT, LONGEST, steps, to_paste
from netdoctor.report.describe import fix_label
from netdoctor.report.fmt import escaped, plain
from netdoctor.report.model import Cause, CommandRecord, FixRecord, Report

MOST = 100
# What a command names below /etc, but for what it keeps there to be taken back.
_FILES = re.compile(r"(?<![\w./])/etc/[\w./-]*\w(?![\w./-])(?<!before-netdoctor)")


def is_long(fix: FixRecord) -> bool:
    """Whether a fix is more than somebody would paste: a long line, or many."""
    lines = to_paste(fix.commands)
    return len(lines) > COMMAND_LIMIT or any(len(line) > LONGEST for line in lines)


def with_scripts(report: Report) -> tuple[Report, dict[str, str]]:
    """The report, its long fixes naming their scripts, and these by file name; the first hundred."""
    texts: dict[str, str] = {}

    def with_script(cause: Cause, fix: FixRecord) -> FixRecord:
        file = script(report, cause, fix) if len(texts) < MOST and is_long(fix) else None
        if file is None:
            return replace(fix, script="")
        texts[file[0]] = file[1]
        return replace(fix, script=str(LAST.parent / file[0]))

    causes = tuple(replace(c, fixes=tuple(with_script(c, fix) for fix in c.fixes)) for c in report.causes)
    return replace(report, causes=causes), texts


def script(report: Report, cause: Cause, fix: FixRecord) -> tuple[str, str] | None:
    """The name and the text of a script that does what the commands of a fix do, and takes it back.

    None for what is no command (a line for the job's script, a word to somebody), what is done on a console,
    and what holds something that cannot be seen.
    """
    if not fix.commands or any(one.via not in ("ssh", "control") for one in (*fix.commands, *fix.undo)):
        return None
    does, undoes = _part("fix", fix.commands), _part("undo", fix.undo)
    if does is None or undoes is None:
        return None
    check = cause.checks[0] if cause.checks else "cause"
    head = [
        "#!/bin/sh",
        f"# {plain(cause.title, 300)}",
        f"# fix: {fix_label(report, fix)}",
        "# undo: the same with --undo" if fix.undo else "# undo: none is known",
        f"# Of the check {plain(check, 60)}; netdoctor wrote this and never runs it.",
        "",
    ]
    helpers = [_QUOTED] if any("quoted " in line for _, calls in (does, undoes) for line in calls) else []
    body = [*helpers, *does[0], *undoes[0], "failed=0", 'case "${1-}" in', "'')", *_each(does[1])]
    if fix.undo:
        body += ["--undo)", *_each(undoes[1])]
    usage = f'echo "usage: sh $0{" [--undo]" if fix.undo else ""}" >&2'
    body += ["*)", f"    {usage}", "    exit 2", "esac"]
    failure = 'echo "not done: a command ended with $failed" >&2'
    text = "\n".join([*head, *body, f'[ "$failed" -eq 0 ] || {failure}', 'exit "$failed"', ""])
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = f"fix-{re.sub(r'[^a-z0-9.]', '-', check.lower())[:60]}-{mark}.sh"
    return name, text


def _each(calls: Iterable[str]) -> Iterator[str]:
    yield from (f"    {call}" for call in calls)
    yield "    ;;"


# A word for another shell of what a function writes.
_QUOTED = """\
quoted() {
    "$1" | sed "s/'/'\\\\\\\\''/g; s/.*/'&'/"
}
"""


def _part(name: str, commands: Sequence[CommandRecord]) -> tuple[list[str], list[str]] | None:
    """Functions that write what runs, and the lines that run it; None where a command cannot be shown so."""
    functions: list[str] = []
    calls: list[str] = []
    known: dict[str, str] = {}
    for record in commands:
        split = _split(record)
        if escaped(record.shell) != record.shell or split is None:
            return None
        before, inner, after = split
        words = _words(inner)
        sudo = words[:3] == ["sudo", "sh", "-c"] and len(words) == 4
        text = words[3] if sudo else inner
        if text not in known:
            known[text] = f"{name}_{len(known) + 1}"
            functions += _function(known[text], text)
        does = f'"sudo sh -c $(quoted {known[text]})"' if sudo else f'"$({known[text]})"'
        calls.append(f"{before}{does} || failed=$?{after}")
    return functions, calls


def _split(record: CommandRecord) -> tuple[str, str, str] | None:
    """What stands before a command, the command, and what stands behind it."""
    if record.via == "control":
        words = _words(record.shell)
        if words[:3] == ["sudo", "sh", "-c"] and len(words) == 4:
            return "sudo sh -c ", words[3], ""
        return "sh -c ", record.shell, ""
    for quoted in (shlex.quote(record.inner), f'"{record.inner}"'):
        before, found, after = record.shell.partition(f" {quoted}")
        if found and quoted not in after:
            return f"{before} ", record.inner, after
    return None


def _words(shell: str, *, posix: bool = True) -> list[str]:
    try:
        return shlex.split(shell, posix=posix)
    except ValueError:
        return []


def _function(name: str, text: str) -> Iterator[str]:
    """A function of the shell that writes a command, which then shows what it has changed in files."""
    lines = list(_showing(text))
    end = "END"
    while end in lines:
        end += "_"
    yield f"{name}() {{"
    yield f"    paste -sd ' ' - <<'{end}'"
    yield from lines
    yield from (end, "}", "")


def _showing(text: str) -> Iterator[str]:
    """The steps of a command, between what keeps the files that it names and what compares them."""
    commented = any(word.startswith("#") for word in _words(text, posix=False))
    files = [] if commented else list(dict.fromkeys(_FILES.findall(text)))[:3]
    yield from (f"was_{n}=$(cat {file} 2>/dev/null);" for n, file in enumerate(files, 1))
    *first, last = steps(text)
    yield from (*first, f"{last};" if files else last)
    if files:
        yield "status=$?;"
        for n, file in enumerate(files, 1):
            yield f"printf '%s\\n' \"$was_{n}\" | diff - {file} 2>/dev/null;"
        yield "exit $status"
