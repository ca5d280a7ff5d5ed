"""`netdoctor completion bash|zsh|fish`: static scripts, made from the parsers themselves."""

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdoctor.cli.parser import subcommands, tree

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
examples:
  netdoctor completion bash > ~/.local/share/bash-completion/completions/netdoctor
  netdoctor completion zsh > "${fpath[1]}/_netdoctor"
  netdoctor completion fish > ~/.config/fish/completions/netdoctor.fish
"""
# Words with commas between them, and what they are.
LISTS = {"only": "checks", "skip": "checks", "also": "checks", "require": "families", "family": "families"}


# What is completed with; these see the variables of the function that calls them.
BASH_WORDS = r"""_netdoctor_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_netdoctor_list() { mapfile -t COMPREPLY < <(compgen -P "${cur%"${cur##*,}"}" -W "$1" -- "${cur##*,}"); }
_netdoctor_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _netdoctor netdoctor
"""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command."""

    flags: tuple[str, ...]
    follows: str  # ``none``, ``file``, ``words`` (one of them), ``list`` (some, with commas) or ``text``
    words: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command line so far, ``checks list``: its own commands, its options, what stands there by itself."""

    path: str
    verbs: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    words: tuple[str, ...]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print the script that completes commands in a shell",
        description="Print the script that completes netdoctor's commands, options and checks in a shell.",
        epilog=EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    script = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell](list(commands()))
    sys.stdout.write("".join(f"{line}\n" for line in script))
    return 0


def commands() -> Iterator[Command]:
    """Every command there is, the shortest first."""
    from netdoctor import cli
    from netdoctor.engine import registry

    checks = registry.load().checks
    known = {"checks": tuple(checks), "families": tuple(dict.fromkeys(c.family for c in checks.values()))}
    yield _command(cli.build_parser(None), known)
    for command in cli.COMMANDS:
        for parser in tree(subcommands(cli.build_parser(command))[command]):
            yield _command(parser, known)


def _command(parser: argparse.ArgumentParser, known: dict[str, tuple[str, ...]]) -> Command:
    verbs: list[tuple[str, str]] = []
    options, words = [], list[str]()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = [(one.dest, one.help or "") for one in action._choices_actions]
        elif action.option_strings:
            options.append(_option(action, known))
        elif action.choices is not None:
            words = [str(choice) for choice in action.choices]
        elif action.dest == "id":
            words = list(known["checks"])
    path = parser.prog.removeprefix("netdoctor").strip()
    return Command(path, tuple(verbs), tuple(options), tuple(words))


def _option(action: argparse.Action, known: dict[str, tuple[str, ...]]) -> Option:
    flags, text = tuple(action.option_strings), " ".join((action.help or "").split())
    if action.nargs == 0:
        return Option(flags, "none", (), text)
    if action.dest in LISTS:
        return Option(flags, "list", known[LISTS[action.dest]], text)
    if action.dest == "output" and action.choices is None:
        from netdoctor.report.output import FORMATS

        return Option(flags, "words", tuple(FORMATS), text)
    if action.choices is not None:
        return Option(flags, "words", tuple(map(str, action.choices)), text)
    return Option(flags, "file" if action.type is Path else "text", (), text)


def _paths(found: Iterable[Command]) -> str:
    """A case pattern of all paths, each behind the one before it: ``' checks'|'checks list'``."""
    patterns = []
    for command in found:
        if command.path:
            before, _, last = command.path.rpartition(" ")
            patterns.append(shlex.quote(f"{before} {last}"))
    return "|".join(patterns)


def _at(command: Command, option: Option) -> str:
    return "|".join(shlex.quote(f"{command.path} {flag}") for flag in option.flags)


def bash(found: Sequence[Command]) -> Iterator[str]:
    yield "# netdoctor completion bash"
    yield "_netdoctor() {"
    yield "    local at='' word cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}"
    # Bash takes the equals sign of --profile=quick and of -o json=file for a word.
    yield "    [[ $cur == = ]] && cur=''"
    yield "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}"
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f'        case "$at $word" in {_paths(found)}) at="${{at:+$at }}$word" ;; esac'
    yield "    done"
    yield "    COMPREPLY=()"
    yield '    case "$at $prev" in'
    for command in found:
        for option in command.options:
            words = shlex.quote(" ".join(option.words))
            does = {
                "list": f"_netdoctor_list {words}; return",
                "words": f"_netdoctor_words {words}; return",
                "file": "_netdoctor_files; return",
                "text": "return",
            }.get(option.follows)
            if does:
                yield f"        {_at(command, option)}) {does} ;;"
    yield "    esac"
    yield '    case "$at" in'
    for command in found:
        flags = shlex.quote(" ".join(flag for option in command.options for flag in option.flags))
        words = " ".join([name for name, _ in command.verbs] or command.words)
        other = f"_netdoctor_words {shlex.quote(words)}" if words else "_netdoctor_files"
        yield f"        {shlex.quote(command.path)})"
        yield f"            if [[ $cur == -* ]]; then _netdoctor_words {flags}; else {other}; fi ;;"
    yield "    esac"
    yield "}"
    yield from BASH_WORDS.splitlines()


def zsh(found: Sequence[Command]) -> Iterator[str]:
    yield "#compdef netdoctor"
    yield "_netdoctor() {"
    yield "    local at='' word prev=${words[CURRENT-1]}"
    yield "    local -a known"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield f'        case "$at $word" in ({_paths(found)}) at="${{at:+$at }}$word" ;; esac'
    yield "    done"
    yield "    if [[ ${words[CURRENT]} == --*=* ]]; then prev=${words[CURRENT]%%=*}; compset -P '*='; fi"
    yield '    case "$at $prev" in'
    for command in found:
        for option in command.options:
            words = " ".join(map(shlex.quote, option.words))
            does = {
                "list": f"compset -P '*,'; compadd -q -S , -- {words}",
                "words": f"compset -P '*=' && _files || compadd -- {words}",
                "file": "_files",
                "text": "_message text",
            }.get(option.follows)
            if does:
                yield f"        ({_at(command, option)}) {does}; return ;;"
    yield "    esac"
    yield '    case "$at" in'
    for command in found:
        flags = _zsh((flag, option.help) for option in command.options for flag in option.flags)
        yield f"        ({shlex.quote(command.path)})"
        yield f"            if [[ ${{words[CURRENT]}} == -* ]]; then known=({flags})"
        yield "                _describe option known"
        if command.verbs:
            yield f"            else known=({_zsh(command.verbs)})"
            yield "                _describe command known"
        elif command.words:
            yield f"            else compadd -- {' '.join(map(shlex.quote, command.words))}"
        else:
            yield "            else _files"
        yield "            fi ;;"
    yield "    esac"
    yield "}"
    # Loaded by compinit the file is the function; sourced it only makes one.
    yield 'if [[ ${funcstack[1]} == _netdoctor ]]; then _netdoctor "$@"'
    yield "else compdef _netdoctor netdoctor; fi"


def _zsh(described: Iterable[tuple[str, str]]) -> str:
    return " ".join(shlex.quote(f"{word}:{text}") for word, text in described)


def fish(found: Sequence[Command]) -> Iterator[str]:
    yield "# netdoctor completion fish"
    yield "function __netdoctor_at --description 'Whether these commands were typed, and no further ones'"
    yield "    set -l at ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$at $word"'
    paths = " ".join(_fish(f"{' '.join(p.path.split()[:-1])} {p.path.split()[-1]}") for p in found if p.path)
    yield f"            case {paths}"
    yield '                set at (string trim "$at $word")'
    yield "        end"
    yield "    end"
    yield '    test "$at" = "$argv"'
    yield "end"
    for command in found:
        at = f"complete -c netdoctor -n {_fish(f'__netdoctor_at {command.path}'.strip())}"
        for name, text in command.verbs:
            yield f"{at} -f -a {_fish(name)} -d {_fish(text)}"
        if command.words:
            yield f"{at} -f -a {_fish(' '.join(command.words))}"
        for option in command.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
            )
            words = " ".join(option.words)
            follows = {
                "list": f"-x -a {_fish(f'(__fish_append , {words})')}",
                "words": f"-x -a {_fish(words)}",
                "file": "-r",
                "text": "-x",
            }.get(option.follows, "")
            yield f"{at} {flags} {follows} -d {_fish(option.help)}".replace("  ", " ")


def _fish(text: str) -> str:
    """A word in single quotes, in which fish knows two escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
