"""Fixes as lines to paste: over ssh, under sudo, in a loop, and quoted."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from netdoctor.engine.run import Outcome
from netdoctor.facts.host import Login, Session
from netdoctor.inventory import fold
from netdoctor.model import CONTROL, JOB, Fix
from netdoctor.report import words
from netdoctor.report.context import Context
from netdoctor.report.model import CommandRecord, FixRecord


def fix_records(fixes: Sequence[Fix], outcome: Outcome, context: Context) -> tuple[FixRecord, ...]:
    """The fixes of a cause; those that differ only in where they run are one."""
    by_text: dict[tuple[Any, ...], list[Fix]] = {}
    for fix in fixes:
        key = (fix.text, fix.root, fix.reboot, fix.effect, fix.persistent, fix.widens, fix.risk)
        by_text.setdefault(key, []).append(fix)
    return tuple(_record(alike, outcome, context) for alike in by_text.values())


def _record(fixes: Sequence[Fix], outcome: Outcome, context: Context) -> FixRecord:
    first = fixes[0]
    places: dict[str, list[str]] = {}
    for fix in fixes:
        for command in fix.commands:
            where = places.setdefault(command.shell, [])
            if command.run_on not in where:
                where.append(command.run_on)
    order: dict[str, None] = {}
    for where in places.values():
        order.update(dict.fromkeys(where))
    commands = [
        record
        for shell, where in places.items()
        for record in _commands(shell, where, first.root, outcome, context)
    ]
    return FixRecord(
        text=first.text,
        commands=tuple(commands),
        needs_root=first.root,
        needs_reboot=first.reboot,
        effect=first.effect,
        persistent=first.persistent,
        widens=first.widens,
        risk=first.risk,
        where=_where(tuple(order), outcome),
    )


def _where(places: Sequence[str], outcome: Outcome) -> str:
    if not places:
        return ""
    known = {CONTROL: "here", JOB: "in the job's environment or script"}
    nodes = [p for p in places if p not in known]
    parts = [known[p] for p in places if p in known]
    if nodes:
        sessions = [outcome.store.get("session", n) for n in nodes]
        away = all(isinstance(s, Session) and s.outcome != Login.OK for s in sessions)
        parts.insert(0, f"on {'the console of ' if away else ''}{fold(nodes, words.FOLD_LIMIT)}")
    return ", ".join(parts)


def _commands(
    shell: str, where: Sequence[str], root: bool, outcome: Outcome, context: Context
) -> list[CommandRecord]:
    """Lines to paste here: as they are for control and job, over ssh for nodes; a loop above three nodes."""
    records: list[CommandRecord] = []
    consoles: list[str] = []
    remote: dict[str, list[str]] = {}
    for place in where:
        session = outcome.store.get("session", place)
        user = session.user if isinstance(session, Session) else ""
        here = place == CONTROL or (isinstance(session, Session) and session.transport == "local")
        if here or place == JOB:
            line = _sudo(_login(shell, context), here and root and not context.root_here)
            records.append(CommandRecord(run_on=(place,), shell=line, inner=shell))
        elif isinstance(session, Session) and session.outcome != Login.OK:
            consoles.append(place)
        else:
            remote.setdefault(_sudo(shell, root and user != "root"), []).append(place)
    if consoles:
        # ssh does not get there: this is for the node's own console, so it is printed as it is typed there
        records.append(CommandRecord(run_on=tuple(consoles), shell=shell, inner=shell))
    ssh = shlex.join(context.remote.ssh)
    for inner, nodes in remote.items():
        alike: dict[str, dict[str, str]] = {}
        for node in nodes:
            *options, host = context.remote.destination.get(node, (node,))
            if host.startswith("-"):  # from a saved report only: an inventory has no such name
                options.append("--")
            alike.setdefault(" ".join([ssh, *map(shlex.quote, options)]), {})[node] = host
        for client, hosts in alike.items():
            if len(hosts) > words.LOOP_ABOVE:
                names = " ".join(shlex.quote(host) for host in hosts.values())
                line = f'for n in {names}; do {client} "$n" {_quote(inner)}; done'
                records.append(CommandRecord(run_on=tuple(hosts), shell=line, inner=inner))
                continue
            for node, host in hosts.items():
                line = f"{client} {shlex.quote(host)} {_quote(inner)}"
                records.append(CommandRecord(run_on=(node,), shell=line, inner=inner))
    return records


def _login(shell: str, context: Context) -> str:
    """A command that begins with ``ssh NODE`` logs in as this scan did."""
    client, _, rest = shell.partition(" ")
    node, _, rest = rest.partition(" ")
    if client != "ssh" or node not in context.remote.destination:
        return shell
    return f"{shlex.join((*context.remote.ssh, *context.remote.destination[node]))} {rest}"


_PLAIN = re.compile(r"[\w@%+=:,./ \"'{}*?\[\]-]*")
# What sudo cannot run, because only a shell knows it.
_SHELL_WORDS = (
    *(".", ":", "alias", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "hash"),
    *("read", "return", "set", "shift", "source", "sudo", "times", "trap", "type", "ulimit", "umask"),
    *("unalias", "unset", "wait", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done"),
    *("case", "esac", "function", "{", "}", "!", "[["),
)


def _sudo(shell: str, needed: bool) -> str:
    """The command under sudo: each simple part of an `&&` chain, anything else through one root shell."""
    if not needed:
        return shell
    parts = shell.split(" && ")
    if all(_is_simple(part) for part in parts):
        return " && ".join(f"sudo {part}" for part in parts)
    return f"sudo sh -c {_quote(shell)}"


def _is_simple(part: str) -> bool:
    """One program with its arguments: nothing that the shell itself does, no quotes torn by the split."""
    try:
        said = shlex.split(part)
    except ValueError:
        return False
    return bool(said) and bool(_PLAIN.fullmatch(part)) and said[0] not in _SHELL_WORDS


def _quote(text: str) -> str:
    """shlex.quote, with double quotes around single ones where those would expand nothing."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)
