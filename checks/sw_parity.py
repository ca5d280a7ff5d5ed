"""Versions of the packages asked for, compared across the cluster."""

import re
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._install import install
from netdoctor.checks._majority import majority
from netdoctor.checks._parity import as_others, differing
from netdoctor.checks._words import title_text
from netdoctor.facts.software import Job, SoftwareFacts
from netdoctor.model import CONFIG, Cause, Finding, Fix, skip, unknown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")  # PEP 508 names


@check(
    source="https://packaging.python.org/en/latest/specifications/core-metadata/",
)
def sw_parity(nodes: Mapping[str, SoftwareFacts], job: Job) -> Iterator[Finding]:
    """The packages asked for have the same version on every node.

    Looks at:
        Metadata of the distributions named with ``--packages``, in the job's interpreter.

    Matters because:
        A library that differs on one node (flash-attn, deepspeed, transformers) gives shapes,
        numbers or collectives that differ there: the job hangs, or trains something else.

    Fix:
        Install the majority's version on the nodes that differ.
    """
    if not job.packages:
        yield skip("no packages asked for (--packages)")
    for package in job.packages:
        yield from _compare(package, nodes)


def _compare(package: str, nodes: Mapping[str, SoftwareFacts]) -> Iterator[Finding]:
    word, shown = re.sub(r"[^a-z0-9]+", "-", package.lower()).strip("-"), title_text(package)
    follows = _follows(word)
    differ = Cause(f"package-{word}-version", shown + " differs between {nodes}", follows=follows)
    lacking = Cause(f"package-{word}-missing", "{nodes} {has} no " + shown, follows=follows)
    absent = Cause(f"package-{word}-absent", shown + " is installed on none of {nodes}")

    def fixes(node: str, wanted: str | None) -> tuple[Fix, ...]:
        return (install(nodes[node], package, wanted),) if _NAME.fullmatch(package) else ()

    versions: dict[str, str] = {}
    without: list[str] = []
    for node, software in nodes.items():
        if package not in software.packages:
            yield unknown(node, f"{package} was not looked for on this node")
        elif (version := software.packages[package]) is None:
            without.append(node)
        else:
            versions[node] = version
    usual = majority(versions).value
    for node in without:
        if not versions:
            yield absent.warn(
                f"{package} is on no node",
                at=node,
                observed="not installed",
                expected=CONFIG("installed"),
            )
        else:
            yield lacking.fail(
                f"{package} is not installed here, but is on other nodes",
                at=node,
                observed="not installed",
                expected=as_others(usual or "installed", versions, nodes),
                fixes=fixes(node, usual),
            )
    yield from differing(versions, package, differ, fixes=fixes)


def _follows(word: str) -> tuple[str, ...]:
    """The checks that speak of the same difference: torch's wheel brings NVIDIA's and triton's along."""
    if word == "torch":
        return ("sw.torch",)
    return ("sw.torch", "sw.nccl") if word.startswith(("nvidia-", "triton")) else ()
