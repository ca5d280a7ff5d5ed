"""docs/options.md and docs/facts.md: what netdoctor.options and netdoctor.facts say. See gen_docs."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import netdoctor.facts
from netdoctor.check import DERIVED_FACTS
from netdoctor.engine.registry import load_builtin
from netdoctor.facts.base import FACT_TYPES, FactInfo
from netdoctor.measure.declare import EXPERIMENTS
from netdoctor.options import OPTIONS, Option, ScanRequest

OPTIONS_HEAD = """\
<!-- Generated from netdoctor/options.py by `make docs`. -->

# Options of a scan

Options of `netdoctor scan`, `gate` and `tui`; `netdoctor scan -h` shows those of every day,
here in bold. `NETDOCTOR_<FLAG>` stands for an option that is not typed (`NETDOCTOR_SSH_PORT=44222`, lists
with commas, switches `1` and `0`), and what is typed wins. A saved report keeps the options of its scan,
and `--last` asks for them again; the command that verifies a fix repeats them where no report was saved.
Exceptions are in the last column.
"""
FACTS_HEAD = """\
<!-- Generated from netdoctor/facts/ by `make docs`. -->

# Facts

What checks judge. Each group is a frozen dataclass; the end of a field's name is its unit (`_bytes`, `_s`,
`_ms`, `_mbit_s`, `_gbit_s`, `_c` degrees Celsius, `_w` watts, `_mhz`, `_mib`). `None` where a node does not
say. A fact that could not be had is a `Missing` with its reason instead, and the checks that need it say
so.
"""


def options_page() -> str:
    """docs/options.md."""
    parts = [OPTIONS_HEAD.rstrip()]
    for group, members in groupby(OPTIONS.values(), key=lambda one: one.group):
        rows = ["| option | default | what it says | not kept, not repeated |", "|---|---|---|---|"]
        rows += [_option_row(one) for one in members]
        parts += [f"## {group.capitalize()}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _option_row(one: Option) -> str:
    value = f" {one.metavar or '{' + ','.join(one.choices) + '}'}" if one.rule else ""
    name = ", ".join(filter(None, [one.short, one.flag]))
    shown = f"`{name.replace(', ', '`, `')}{value}`".replace("|", "\\|")
    default = getattr(ScanRequest(), one.name)
    said = "" if default in (None, (), "", False) else f"`{default}`"
    why = [f"not kept: {one.not_kept}"] if one.not_kept else []
    why += [f"not repeated: {one.not_repeated}"] if one.not_repeated else []
    text = one.help.replace("|", "\\|").replace("<", "\\<")
    return f"| {f'**{shown}**' if one.everyday else shown} | {said} | {text} | {'; '.join(why)} |"


def facts_page() -> str:
    """docs/facts.md."""
    load_builtin()
    for module in pkgutil.iter_modules(netdoctor.facts.__path__):  # also those that no check judges yet
        importlib.import_module(f"netdoctor.facts.{module.name}")
    rows = ["| group | what it is | of | who collects it |", "|---|---|---|---|"]
    known = sorted(FACT_TYPES.items(), key=lambda item: item[1].group)
    for cls, info in known:
        first = _doc(cls).split("\n\n")[0].split(". ")[0].replace("\n", " ").rstrip(".")
        rows.append(
            f"| [{info.group}](#{info.group}) | {_cell(first)} | {info.scope} | {_origin(cls, info)} |"
        )
    parts = [FACTS_HEAD.rstrip(), "\n".join(rows)]
    for cls, info in known:
        parts += [f"## {info.group}", f"`{cls.__module__}.{cls.__name__}`. {_text(cls)}"]
        judges = _judges(cls)
        parts += [f"Judged by: {judges}."] if judges else []
        parts += [_fields(cls)]
        for part in _parts(cls):
            parts += [f"### {info.group}: {part.__name__}", _text(part), _fields(part)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _doc(cls: type) -> str:
    text = inspect.getdoc(cls) or ""
    return "" if text.startswith(f"{cls.__name__}(") else text


def _text(cls: type) -> str:
    return _doc(cls).replace("``", "`").replace("<", "\\<")


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("<", "\\<")


def _origin(cls: type, info: FactInfo) -> str:
    if info.origin == "agent":
        return f"the agent: `netdoctor/agent/facts/{info.group}.py`"
    if info.origin == "measure":
        makers = [e.function.__module__ for e in EXPERIMENTS.values() if info.group in e.groups]
        return "an experiment: " + ", ".join(f"`{one.replace('.', '/')}.py`" for one in sorted(set(makers)))
    if info.origin == "derived":
        module = DERIVED_FACTS[cls].function.__module__
        return f"worked out of other facts: `{module.removeprefix('netdoctor.').replace('.', '/')}.py`"
    return {"control": "the machine that scans", "transport": "the session itself"}[info.origin]


def _judges(cls: type) -> str:
    checks = sorted(c.id for c in load_builtin().values() if any(p.fact is cls for p in c.needs))
    return ", ".join(f"[{one}](checks/{one}.md)" for one in checks)


def _fields(cls: type) -> str:
    rows = ["| field | type | |", "|---|---|---|"]
    hints, remarks = typing.get_type_hints(cls), _remarks(cls)
    for name in (one.name for one in dataclasses.fields(cls)):
        rows.append(f"| `{name}` | `{_type(hints[name])}` | {_cell(remarks.get(name, ''))} |")
    return "\n".join(rows) if len(rows) > 2 else ""


def _remarks(cls: type) -> dict[str, str]:
    """By field of a class, the comment behind it, or in the lines above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        code, _, comment = line.partition("# ")
        if comment and not code.strip():
            above.append(comment)
            continue
        if name := re.match(r"    (\w+): ", line):
            found[name[1]] = " ".join(above) or comment
        above = []
    return found


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return re.sub(r"(?:[a-z_0-9]+\.)+(?=[A-Za-z])", "", text).replace("|", "\\|")


def _parts(cls: type) -> Iterator[type]:
    """Dataclasses inside a fact, each once, in the order met."""
    seen, todo = {cls}, [cls]
    while todo:
        for hint in typing.get_type_hints(todo.pop(0)).values():
            for one in _classes(hint):
                if dataclasses.is_dataclass(one) and one not in seen and one not in FACT_TYPES:
                    seen.add(one)
                    todo.append(one)
                    yield one


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for one in typing.get_args(hint):
        yield from _classes(one)
