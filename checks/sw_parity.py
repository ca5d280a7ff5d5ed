"""Versions of the packages asked for, compared across the cluster."""

import re
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._parity import differing, python_of, safe_version
from netdoctor.checks._words import title_text
from netdoctor.facts.software import Job, SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    warn,
)

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
        return
    for package in job.packages:
        versions = {node: s.packages.get(package) for node, s in nodes.items()}
        present = {node: version for node, version in versions.items() if version is not None}
        if not present:
            for node in nodes:
                yield warn(
                    node,
                    f"{package} is on no node",
                    observed="not installed",
                    expected="installed",
                    expected_from=ExpectedFrom.CONFIG,
                    cause=CauseHint(
                        key=f"package-{_word(package)}-absent",
                        title=title_text(package) + " is installed on none of {nodes}",
                        culprits=(node,),
                    ),
                )
            continue
        usual = majority(present).value
        for node in nodes:
            if node not in present:
                yield fail(
                    node,
                    f"{package} is not installed here, but is on other nodes",
                    observed="not installed",
                    expected=usual or "installed",
                    expected_from=ExpectedFrom.PEERS,
                    cause=CauseHint(
                        key=f"package-{_word(package)}-missing",
                        title="{nodes} {has} no " + title_text(package),
                        culprits=(node,),
                        fixes=_install(node, nodes[node], package, usual),
                        follows=_follows(package),
                    ),
                )
        yield from differing(
            present,
            package,
            f"package-{_word(package)}-version",
            # `package` is bound now: the loop goes on before the generator would look it up.
            fixes=lambda node, wanted, package=package: _install(  # type: ignore[misc]
                node, nodes[node], package, wanted
            ),
            follows=_follows(package),
        )


def _follows(package: str) -> tuple[str, ...]:
    """The checks that speak of the same difference: torch's wheel brings NVIDIA's and triton's along."""
    word = _word(package)
    if word == "torch":
        return ("sw.torch",)
    return ("sw.torch", "sw.nccl") if word.startswith(("nvidia-", "triton")) else ()


def _word(package: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", package.lower()).strip("-")


def _install(node: str, software: SoftwareFacts, package: str, wanted: str | None) -> tuple[Fix, ...]:
    if not _NAME.fullmatch(package):
        return ()
    version = safe_version(wanted)
    what = f"{package}=={version}" if version else package
    return (
        Fix(
            text=f"install {what} in the job's interpreter",
            commands=(Command(run_on=node, shell=f"{python_of(software)} -m pip install '{what}'"),),
            effect="next launch",
            risk="medium",
        ),
    )
