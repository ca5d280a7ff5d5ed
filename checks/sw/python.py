"""Python version of the job's interpreter, compared across the cluster."""

from collections.abc import Iterator, Mapping
from typing import Any

from netdoctor.check import check
from netdoctor.checks._shared.parity import differing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import Session
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Cause, Evidence, Finding, Fix, Status, look, ok, seen
from netdoctor.rules.versions import parse_version

# torch 2.5 was the last release with wheels for 3.8 (python_requires in its metadata, >=3.9 since).
LEAST = (3, 9)
UNNAMED = "python3"  # what is asked where nobody names an interpreter

VERSION = Cause("python-version", "Python differs between {nodes}")
IMPLEMENTATION = Cause("python-implementation", "Python implementation differs between {nodes}")
OLD = Cause("python-old", "{nodes} run{s} the job on a Python too old for a current torch")


@check(
    after=["sw.start"],
    source="https://docs.python.org/3/library/pickle.html#comparison-with-marshal",
    expects={"sw.python": str},
)
def sw_python(
    nodes: Mapping[str, SoftwareFacts],
    expect: Expectations | None = None,
    sessions: Mapping[str, Session] | None = None,
) -> Iterator[Finding]:
    """The job's interpreter is the same minor release of Python on every node.

    Looks at:
        ``sys.version`` of the interpreter that the job will use (``--python``, ``python=``). Patch
        releases may differ. If none was named, and the calling shell, the session or torchrun on PATH
        belongs to another environment with torch, the report says so: the job may use that one.

    Matters because:
        Object collectives, data loaders and checkpoints exchange pickles and code objects. These may fail
        to load in another minor release. Wheels of torch are built for one minor release. For Python
        before 3.9 there are no wheels of a current torch.

    Fix:
        Use the same interpreter for the job everywhere, best a virtual environment or container image
        that all nodes share.
    """

    def evidence(node: str) -> Evidence:
        python = nodes[node]
        text = f"{python.implementation} {python.version}"
        return seen(f"{python.executable} --version", text, "command")

    def use(_: str, release: str) -> Fix:
        text = f"use a Python {release} on this node, too (python= in the hosts file)"
        return look(text, f"command -v python{release}")

    for node, software in nodes.items():
        session = (sessions or {}).get(node)
        if software.torch and software.others and session and session.interpreter == UNNAMED:
            other = software.others[0]
            yield ok(
                node,
                f"{software.executable} with torch {software.torch.version} was tested; {other.python}, of "
                f"{other.origin}, has torch {other.torch}",
                gap="which Python the job uses; --python names it",
            )

    versions = {node: parse_version(software.version) or () for node, software in nodes.items()}
    minors = {node: ".".join(map(str, v[:2])) if len(v) > 1 else None for node, v in versions.items()}
    why = "pickled objects may not load"
    options: dict[str, Any] = {"key": "sw.python", "expect": expect, "status": Status.WARN, "why": why}
    yield from differing(minors, "Python", VERSION, evidence_of=evidence, fixes=use, **options)
    kinds = {node: software.implementation for node, software in nodes.items()}
    yield from differing(kinds, "Python implementation", IMPLEMENTATION, evidence_of=evidence)

    for node, software in nodes.items():
        if software.torch and minors[node] and versions[node] < LEAST:
            yield OLD.warn(
                f"Python {software.version} is too old for a current torch",
                at=node,
                observed=software.version,
                expected="3.9 or newer",
                seen=evidence(node),
                fixes=look(
                    "use a newer interpreter for the job (--python, python=)",
                    "ls /usr/bin/python3* /opt/*/bin/python3*",
                ),
            )
