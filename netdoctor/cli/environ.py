"""``NETDOCTOR_<FLAG>``: every option of a command from the environment. What is typed wins."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netdoctor.cli.parser import Joined, Listed
from netdoctor.errors import InputError
from netdoctor.text import clean, comma_words, did_you_mean

PREFIX = "NETDOCTOR_"
# Of the lab, of what gate tells the command it starts, of our own tests, and a secret.
FOREIGN = ("NETDOCTOR_LAB", "NETDOCTOR_DEMO", "NETDOCTOR_GATE", "NETDOCTOR_TEST", "NETDOCTOR_MEET_")
EPILOG = f"""
environment:
  {PREFIX}<FLAG> stands for --flag where that is not typed:
  {PREFIX}SSH_PORT=44222 {PREFIX}ONLY=net.*,ssh.* {PREFIX}STRICT=1
"""
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
# What takes back an option, and would not win over one from the environment by itself.
_AGAINST = {"no_save": ("--save",), "quiet": ("-v", "--verbose")}


def twins(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options of a command by the variable that stands for each."""
    found = {}
    for action in parser._actions:
        flag = next((name for name in action.option_strings if name.startswith("--")), None)
        if flag and action.dest not in ("help", "help_all"):
            found[PREFIX + flag[2:].replace("-", "_").upper()] = action
    return found


def take(parser: argparse.ArgumentParser, argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Make the environment the defaults of a command. Returns what to tell of it. Raises InputError.

    An empty variable counts as none.
    """
    known = twins(parser)
    used, remarks = [], []
    for name in sorted(name for name in environ if name.startswith(PREFIX) and environ[name]):
        action = known.get(name)
        if action is None:
            flags = [one.removeprefix(PREFIX) for one in known]
            if not name.startswith(FOREIGN) and did_you_mean(word := name.removeprefix(PREFIX), flags):
                hint = did_you_mean(word, flags).replace("mean ", f"mean {PREFIX}")
                remarks.append(f"{clean(name, 60)} is not an option{hint}")
        elif not _is_on_command_line(_AGAINST.get(action.dest, ()), argv):
            parser.set_defaults(**{action.dest: _value(name, action, environ[name])})
            if not _is_on_command_line(action.option_strings, argv):
                used.append(f"{name}={clean(environ[name], 100)}")
    return [*([f"from the environment: {', '.join(used)}"] if used else []), *remarks]


def _is_on_command_line(flags: Iterable[str], argv: Sequence[str]) -> bool:
    """Whether one of these options is on the command line, short ones also as ``-vv`` or ``-n1``."""
    return any(
        word.partition("=")[0] == flag or (len(flag) == 2 and word[:2] == flag)
        for flag in flags
        for word in argv
    )


def _value(name: str, action: argparse.Action, text: str) -> Any:
    if isinstance(action, argparse._CountAction):
        text = {"true": "1", "false": "0"}.get(text.lower(), text)
        if not text.isdecimal():
            raise InputError(f"{name}: {clean(text, 40)!r} is not a number")
        return int(text[:3])
    if action.nargs == 0:
        if text.lower() not in (*_YES, *_NO):
            raise InputError(f"{name}: {clean(text, 40)!r} is none of 1 and 0")
        return text.lower() in _YES
    if isinstance(action, Listed):
        found = [_one(name, action, word) for word in comma_words(text)]
        return [value for one in found for value in (one if isinstance(one, tuple) else (one,))]
    return text if isinstance(action, Joined) else _one(name, action, text)


def _one(name: str, action: argparse.Action, text: str) -> Any:
    if action.choices is not None and text not in action.choices:
        known = list(map(str, action.choices))
        hint = did_you_mean(text, known) or f"; there are: {', '.join(known)}"
        raise InputError(f"{name}: {clean(text, 40)!r} is not one of the choices{hint}")
    if action.type is None:
        return text
    try:
        return action.type(text)  # type: ignore[operator]  # the name of a registered type is not used here
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise InputError(f"{name}: {error}") from None
