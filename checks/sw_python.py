"""Python version of the job's interpreter, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._parity import differing
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Status,
    warn,
)
from netdoctor.rules.versions import parse_version

# torch 2.5 was the last release with wheels for 3.8 (python_requires in its metadata, >=3.9 since).
LEAST = (3, 9)


@check(
    source="https://docs.python.org/3/library/pickle.html#comparison-with-marshal",
)
def sw_python(nodes: Mapping[str, SoftwareFacts]) -> Iterator[Finding]:
    """The job's interpreter is the same Python minor release on every node.

    Looks at:
        ``sys.version`` of the interpreter that the job will use (``--python``, ``python=``).
        Patch releases may differ.

    Matters because:
        Object collectives, data loaders and checkpoints exchange pickles and code objects; between
        minor releases they may fail to load, and wheels of torch are built for one minor release.
        Python before 3.9 has no wheels of a current torch.

    Fix:
        Point the job at the same interpreter everywhere, best a virtual environment or container
        image that all nodes share.
    """
    minors = {}
    for node, software in nodes.items():
        version = parse_version(software.version)
        if version and len(version) >= 2:
            minors[node] = f"{version[0]}.{version[1]}"

    def evidence(node: str) -> tuple[Evidence, ...]:
        software = nodes[node]
        text = f"{software.implementation} {software.version}"
        what = f"{software.executable} --version"
        return (Evidence(kind="command", where=node, what=what, output=text),)

    def fixes(node: str, wanted: str) -> tuple[Fix, ...]:
        return (
            Fix(
                text=f"use a Python {wanted} on this node too (python= in the hosts file)",
                commands=(Command(run_on=node, shell=f"command -v python{wanted}"),),
                effect="next launch",
            ),
        )

    yield from differing(
        minors,
        "Python",
        "python-version",
        status=Status.WARN,
        why="pickled objects may not load",
        fixes=fixes,
        evidence=evidence,
    )
    kinds = {node: software.implementation for node, software in nodes.items()}
    yield from differing(kinds, "Python implementation", "python-implementation", evidence=evidence)

    for node, software in nodes.items():
        version = parse_version(software.version)
        if software.torch and version and version[:2] < LEAST:
            yield warn(
                node,
                f"Python {software.version} is too old for a current torch",
                observed=software.version,
                expected="3.9 or newer",
                expected_from=ExpectedFrom.CONSTANT,
                evidence=evidence(node),
                cause=CauseHint(
                    key="python-old",
                    title="{nodes} run{s} the job on a Python too old for a current torch",
                    culprits=(node,),
                    fixes=(
                        Fix(
                            text="point the job at a newer interpreter (--python, python=)",
                            commands=(
                                Command(run_on=node, shell="ls /usr/bin/python3* /opt/*/bin/python3*"),
                            ),
                            effect="next launch",
                        ),
                    ),
                ),
            )
