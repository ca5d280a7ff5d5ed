"""POSIX shell text. Every word that is not ours is quoted, every comment is one inert line."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from netdoctor.launch.model import LaunchPlan, Part, Parts, PlanNode, Value
from netdoctor.text import clean, quoted

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
COMMENT_AT = 44


def text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def file_name(node: PlanNode, ending: str) -> str:
    """A name for the node's file that no other node of the plan has."""
    return f"{node.rank:03d}-{re.sub(r'[^A-Za-z0-9._-]', '_', node.id)}.{ending}"


def node_scripts(plan: LaunchPlan, write: Callable[[LaunchPlan, PlanNode], str]) -> Parts:
    """A script for each node."""
    return [
        Part(name=file_name(node, "sh"), text=write(plan, node), purpose=f"on {node.id}", runs=True)
        for node in plan.nodes
    ]


def comment(text: str) -> str:
    return f"# {clean(text, 900)}"


def commented(line: str, why: str) -> str:
    """The line with its comment behind it, in a column."""
    return f"{line:<{COMMENT_AT}} {comment(why)}"


def exports(env: Mapping[str, Value]) -> list[str]:
    return [commented(f"export {name}={quoted(value.text)}", value.why) for name, value in env.items()]


def left_out(plan: LaunchPlan) -> list[str]:
    """What is not set, and why: those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in plan.left_out.items():
        by_reason.setdefault(why, []).append(name)
    return [comment(f"not set: {', '.join(names)}: {why}") for why, names in by_reason.items()]


def of_single_nodes(plan: LaunchPlan) -> list[str]:
    """Values of single nodes, as comments: for launchers that give all nodes the same."""
    lines = []
    for node in plan.nodes:
        for name, value in node.env.items():
            advice = "; write it into /etc/nccl.conf there" if name.startswith("NCCL_") else ""
            lines.append(comment(f"{name}={value.text} on {node.id} alone cannot be said here{advice}"))
    return lines


def opening(plan: LaunchPlan) -> list[str]:
    """The head line, remarks and arithmetic, as comments."""
    return [
        comment(text) for text in (plan.head, *plan.arithmetic, *(f"note: {one}" for one in plan.remarks))
    ]


def command(words: Sequence[str], indent: str = "") -> str:
    """Words that are quoted already, as one command over several lines of at most 100 columns."""
    lines = [indent]
    for word in words:
        if len(lines[-1]) + len(word) > 98 and lines[-1].strip():
            lines[-1] += "\\"
            lines.append(f"{indent}    ")
        lines[-1] += f"{word} "
    return "\n".join(line.rstrip(" ") for line in lines)


def differing(plan: LaunchPlan, node: PlanNode) -> dict[str, str]:
    """What differs from node to node, quoted, by the name of its variable; the same names for all of them."""
    found = {} if plan.is_even else {"nproc": str(node.count)}
    if plan.pythons_differ:
        found["python"] = python(node)
    return found | {name: quoted(value.text) for name, value in node.env.items()}


def assignments(words: Mapping[str, str]) -> str:
    return " ".join(f"{name}={word}" for name, word in words.items())


def script(plan: LaunchPlan) -> list[str]:
    """The words of the program, quoted."""
    return [quoted(word) for word in plan.options.script]


def is_python(plan: LaunchPlan) -> bool:
    """Whether it is a file or module for an interpreter, and no command."""
    return plan.options.script[0].endswith(".py") or plan.options.script[0] == "-m"


def python(node: PlanNode) -> str:
    return quoted(node.python.text) if node.python else "python3"


def program(plan: LaunchPlan, node: PlanNode) -> list[str]:
    """What runs as one process, quoted, its interpreter included."""
    return [*([python(node)] if is_python(plan) else []), *script(plan)]


def names_of(node: PlanNode) -> list[str]:
    """Patterns for `case` of what the node may call itself, short or with its domain."""
    names = dict.fromkeys(
        name
        for name in (node.name.text, node.id, node.host)
        if _PLAIN.fullmatch(name) and not re.fullmatch(r"[0-9.]+", name)
    )
    patterns = [quoted(name) for name in names]
    if node.name.origin != "measured":
        patterns += [f"{quoted(name)}.*" for name in names]
    return patterns


def case(word: str, rows: Iterable[tuple[PlanNode, str]], other: str = "") -> list[str] | None:
    """``case "$word" in``, with what each node does; None where a node's own name cannot be known.

    other: what anybody else does.
    """
    lines = [f'case "{word}" in']
    used: set[str] = set()
    for node, does in rows:
        patterns = names_of(node)
        if not patterns or used & set(patterns):
            return None
        used |= set(patterns)
        lines.append(f"{'|'.join(patterns)}) {does} ;;")
    return [*lines, *([f"*) {other} ;;"] if other else []), "esac"]
