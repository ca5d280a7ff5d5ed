"""Fixes as lines to paste: over ssh, under sudo, in a loop, and quoted."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netdoctor.engine.assemble.context import Context
from netdoctor.engine.run import Outcome
from netdoctor.facts.host import WITHOUT_SSH, Login, Node, Session
from netdoctor.inventory import fold
from netdoctor.model import CONTROL, JOB, Command, Fix
from netdoctor.report import fmt
from netdoctor.report.commands import LOOP_ABOVE
from netdoctor.report.model import CommandRecord, FixRecord


def fix_records(fixes: Sequence[Fix], outcome: Outcome, context: Context) -> tuple[FixRecord, ...]:
    """The fixes of a cause; those that differ only in where they run are one."""
    by_text: dict[tuple[Any, ...], list[Fix]] = {}
    for fix in fixes:
        does = (fix.text, fix.kind, fix.root, fix.reboot, fix.effect)
        by_text.setdefault((*does, fix.persistent, fix.widens, fix.loses, fix.risk), []).append(fix)
    return tuple(_record(equal, outcome, context) for equal in by_text.values())


def _record(fixes: Sequence[Fix], outcome: Outcome, context: Context) -> FixRecord:
    first = fixes[0]
    commands = _lines([c for fix in fixes for c in fix.commands], first.root, outcome, context)
    run_on = dict.fromkeys(name for command in commands for name in command.run_on)
    return FixRecord(
        text=first.text,
        commands=commands,
        needs_root=first.root,
        needs_reboot=first.reboot,
        effect=first.effect,
        persistent=first.persistent,
        widens=first.widens,
        risk=first.risk,
        where=_where(tuple(run_on), outcome),
        kind=first.kind.value if first.kind else "",  # where the check does not say, its commands do
        undo=_lines([c for fix in fixes for c in fix.undo], first.root, outcome, context),
        loses=first.loses,
        needs=_needs(command.shell for fix in fixes for command in fix.commands),
    )


# Which package brings a tool that a bare Debian or RHEL has not; where the two name it differently, both.
_PACKAGES = {
    "lspci": "pciutils",
    "ibstat": "infiniband-diags",
    "sminfo": "infiniband-diags",
    "ibnetdiscover": "infiniband-diags",
    "ibv_devinfo": "ibverbs-utils or libibverbs-utils",
    "mlxlink": "NVIDIA's MFT, or mstlink of mstflint",
    "mlxfwmanager": "NVIDIA's MFT",
    "ethtool": "ethtool",
    "fuser": "psmisc",
    "nc": "netcat-openbsd or nmap-ncat",
    "ipmitool": "ipmitool",
    "systemctl enable --now opensm": "opensm",
}
_TOOLS = re.compile(rf"(?:^|[;&|] ?|\$\()({'|'.join(_PACKAGES)})(?= |;|$)")


def _needs(shells: Iterable[str]) -> tuple[str, ...]:
    """What must be installed before a fix can run: ``lspci (pciutils)``."""
    found = dict.fromkeys(tool for shell in shells for tool in _TOOLS.findall(shell))
    return tuple(f"{tool.rpartition(' ')[2]} ({_PACKAGES[tool]})" for tool in found)


def _lines(
    commands: Sequence[Command], root: bool, outcome: Outcome, context: Context
) -> tuple[CommandRecord, ...]:
    """Lines to paste for each command, wherever it runs."""
    run_on: dict[str, dict[str, None]] = {}
    for command in commands:
        run_on.setdefault(command.shell, {}).setdefault(command.run_on)
    return tuple(
        record
        for shell, where in run_on.items()
        for record in _commands(shell, tuple(where), root, outcome, context)
    )


def _where(run_on: Sequence[str], outcome: Outcome) -> str:
    if not run_on:
        return ""
    known = {CONTROL: "here", JOB: "in the job's environment or script"}
    nodes = [p for p in run_on if p not in known]
    parts = [known[p] for p in run_on if p in known]
    if nodes:
        sessions = [outcome.store.get("session", n) for n in nodes]
        away = all(isinstance(s, Session) and s.outcome not in _INSIDE for s in sessions)
        filed = all(isinstance(s, Session) and s.transport in WITHOUT_SSH for s in sessions)
        shell = "a shell of " if filed else "the console of " if away else ""
        parts.insert(0, f"on {shell}{fold(nodes, fmt.FOLD_LIMIT)}{' (not here)' if shell else ''}")
    return ", ".join(parts)


def _commands(
    shell: str, where: Sequence[str], root: bool, outcome: Outcome, context: Context
) -> list[CommandRecord]:
    """Lines to paste here: as they are for control and job, over ssh for nodes; a loop above three nodes."""
    records: list[CommandRecord] = []
    consoles: dict[str, tuple[str, ...]] = {}
    remote: dict[str, list[str]] = {}
    for target in where:
        session = outcome.store.get("session", target)
        user = session.user if isinstance(session, Session) else ""
        local = isinstance(session, Session) and session.transport == "local"
        if local or target in (CONTROL, JOB):
            here = local or target == CONTROL
            line = _sudo(_login(shell, context), here and root and not context.root_here)
            via = CONTROL if here else JOB
            records.append(CommandRecord(run_on=(target,), shell=line, inner=shell, via=via))
        elif isinstance(session, Session) and (
            session.outcome not in _INSIDE or session.transport in WITHOUT_SSH
        ):
            consoles[target] = _names(target, session, outcome)
        else:
            remote.setdefault(_sudo(shell, root and user != "root"), []).append(target)
    if consoles:
        # ssh does not get there, and pasted anywhere else it would change the wrong machine
        line = guarded(shell, consoles)
        records.append(CommandRecord(run_on=tuple(consoles), shell=line, inner=shell, via="console"))
    for inner, nodes in remote.items():
        # sudo may ask for a password, and asks on a terminal only
        ssh = shlex.join([*context.remote.ssh, *(["-t"] if inner.startswith("sudo ") else [])])
        by_client: dict[str, dict[str, str]] = {}
        for node in nodes:
            *options, host = context.remote.destination.get(node, (node,))
            if host.startswith("-"):  # from a saved report only: an inventory has no such name
                options.append("--")
            by_client.setdefault(" ".join([ssh, *map(shlex.quote, options)]), {})[node] = host
        for client, hosts in by_client.items():
            if len(hosts) > LOOP_ABOVE:
                names = " ".join(shlex.quote(host) for host in hosts.values())
                line = f'for n in {names}; do {client} "$n" {_quote(inner)}; done'
                records.append(CommandRecord(run_on=tuple(hosts), shell=line, inner=inner, via="ssh"))
                continue
            for node, host in hosts.items():
                line = f"{client} {shlex.quote(host)} {_quote(inner)}"
                records.append(CommandRecord(run_on=(node,), shell=line, inner=inner, via="ssh"))
    return records


def _names(node: str, session: Session, outcome: Outcome) -> tuple[str, ...]:
    """What a node may be called by itself: as it is listed, as it is dialled, and its addresses."""
    listed = outcome.store.get("node", node)
    host = listed.host if isinstance(listed, Node) else ""
    return tuple(dict.fromkeys(filter(None, (node, host, session.address))))


def guarded(shell: str, nodes: Mapping[str, Sequence[str]]) -> str:
    """A line that runs `shell` on these nodes, and on any other machine says so and does nothing.

    nodes: for each its names, with a domain or without, and addresses; all of them are text from outside.
    """
    patterns: dict[str, None] = {}
    few = len(nodes) <= LOOP_ABOVE  # the addresses of hundreds would fill the screen
    for name in (name for names in nodes.values() for name in (names if few else names[:1])):
        short, _, domain = name.partition(".")
        if _HERE.fullmatch(name) or not _NAME.fullmatch(name):
            continue  # what every machine calls itself tells none apart; what is no name is nobody's
        patterns[f"*' {name} '*"] = None
        if not _ADDRESS.fullmatch(name):
            # A machine may know itself by its short name, whatever it is listed as, but by no other domain.
            patterns[f"*' {short} '*" if domain else f"*' {name}.'*"] = None
    where = fmt.plain(fold(list(nodes), fmt.FOLD_LIMIT), 200)
    if not patterns:
        return f"# on the console of {where}: {shell}"
    # A comment in it would take what follows along.
    inside = f"sh -c {_quote(shell)}" if "#" in shell else shell
    other = f"echo {_quote(f'this is not {where}')} >&2; false"
    identity = '" $(uname -n) $(hostname -I) "'
    return f"case {identity} in {'|'.join(patterns)}) {inside};; *) {other};; esac"


_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_HERE = re.compile(r"localhost(\..*)?|127\..*|::1|0\.0\.0\.0|::")
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%\w]*")


def _login(shell: str, context: Context) -> str:
    """A command that begins with ``ssh NODE`` logs in as this scan did."""
    client, _, rest = shell.partition(" ")
    node, _, rest = rest.partition(" ")
    if client != "ssh" or node not in context.remote.destination:
        return shell
    return f"{shlex.join((*context.remote.ssh, *context.remote.destination[node]))} {rest}"


# Outcomes of a login that nobody gets further with: what is to be done there is done on the console.
_INSIDE = (Login.OK, Login.INTERPRETER, Login.BROKEN_PYTHON, Login.OLD_PYTHON)
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
        argv = shlex.split(part)
    except ValueError:
        return False
    return bool(argv) and bool(_PLAIN.fullmatch(part)) and argv[0] not in _SHELL_WORDS


def _quote(text: str) -> str:
    """shlex.quote, with double quotes around single ones where those would expand nothing."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)
