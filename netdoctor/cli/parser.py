"""How a command line is read: errors that say what was meant, and help within the width of the terminal."""

import argparse
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

from netdoctor.text import did_you_mean, hung

EXIT_BAD_INPUT = 2
# For what is no verdict, with --exit-style nagios.
NAGIOS_UNKNOWN = 3
# What people type who know other tools, or look for a command below another one.
CORRECTIONS = {"netdoctor report diff": "netdoctor diff", "netdoctor report tui": "netdoctor tui"}

_TWO_COLUMNS = re.compile(r"( *\S.*?)  +(\S.*)")


class Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions are wrapped; lines of examples stay as they are while they fit."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(piece for line in text.splitlines() for piece in fitting(line, width))


def fitting(line: str, width: int) -> list[str]:
    """A line in pieces of at most `width`; what stands in a second column goes to lines of its own first."""
    if len(line) <= width:
        return [line]
    lead = line[: len(line) - len(line.lstrip(" "))]
    columns = _TWO_COLUMNS.fullmatch(line) if lead else None
    if columns:
        return [*fitting(columns[1], width), *hung(columns[2], f"{lead}    ", width)]
    return hung(line.strip(" "), lead, width, f"{lead}  " if lead else "")


def columns(requested: int | None) -> int | None:
    """How wide lines may be: as asked for, as the terminal is, or None where they go to a file or program.

    There an exported COLUMNS says nothing: whatever has loaded readline gives one to all that it starts.
    """
    import os

    if requested is not None or not sys.stdout.isatty():
        return requested
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, 40)
    except (OSError, ValueError):
        return 80


class Listed(argparse.Action):
    """An option with a list, ``a,b``, that may be given again; the first one replaces the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        new = list(values) if isinstance(values, tuple | list) else [values]
        setattr(namespace, self.dest, new if before is self.default else [*(before or ()), *new])


class Joined(argparse.Action):
    """As Listed, for what is read as one text with commas."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is self.default else f"{before},{values}")


class Parser(argparse.ArgumentParser):
    """Errors in one line with the way to help, exit 2; no abbreviations, because each becomes a promise.

    leftover: takes what looks like an option and is none of the command's, or returns False.
    """

    leftover: Callable[[Any, list[str]], bool] | None = None
    # What -h shows of the options, by `dest`; None for all.
    everyday: Collection[str] | None = None

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", Help)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through

    def format_help(self) -> str:
        """The help. What is not of every day is left out where a command says what is."""
        rare = [one for one in self._actions if self.everyday is not None and one.dest not in self.everyday]
        before = [(one, one.help) for one in rare]
        for one in rare:
            one.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for one, text in before:
                one.help = text

    def error(self, message: str) -> NoReturn:
        from netdoctor.text import clean

        verbs = subcommands(self)
        if verbs and message.startswith("the following arguments are required:"):
            message = f"say which: {', '.join(verbs)}"
        sys.stderr.write(f"{self.prog}: {clean(message)}\n{self.prog} -h shows how to use it\n")
        sys.exit(EXIT_BAD_INPUT)

    def parse_args(  # type: ignore[override]  # of the overloads the one with an own namespace is not kept
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """The options, or an error of the command that was typed. Names what was probably meant."""
        found, left = self.parse_known_args(args, namespace)
        if not left:
            return found
        parser: argparse.ArgumentParser = self
        while action := _subparsers(parser):
            parser = action.choices.get(getattr(found, action.dest), parser)
            if parser.prog == self.prog:
                break
        if isinstance(parser, Parser) and parser.leftover is not None and parser.leftover(found, left):
            return found
        word = next((word for word in left if word.startswith("-")), left[0]).partition("=")[0]
        if not word.startswith("-"):
            parser.error(f"one word too many: {word!r}")
        known = [name for action in parser._actions for name in action.option_strings]
        parser.error(f"there is no option {word}{did_you_mean(word, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, with the choice that was probably meant."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        every = f"; there are: {', '.join(known)}"
        if not isinstance(action, argparse._SubParsersAction):
            hint = did_you_mean(str(value), known) or every
            raise argparse.ArgumentError(action, f"{value!r} is not one of the choices{hint}")
        correction = CORRECTIONS.get(f"{self.prog} {value}")
        hint = f"; did you mean {correction}?" if correction else did_you_mean(str(value), known)
        self.error(f"no command is called {value!r}{hint or every}")


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's own commands, by name."""
    action = _subparsers(parser)
    return dict(action.choices) if action else {}


def _subparsers(
    parser: argparse.ArgumentParser,
) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    return next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)


def tree(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its commands."""
    yield parser
    for one in subcommands(parser).values():
        yield from tree(one)
