"""Versions of the packages asked for, compared across the cluster."""

import re
from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.install import install
from netdoctor.checks._shared.majority import majority, of_majority
from netdoctor.checks._shared.parity import differing, expected_of_lacking
from netdoctor.checks._shared.text import slug, title_text
from netdoctor.facts.software import BY_HAND, Job, Requested, SoftwareFacts
from netdoctor.model import CONFIG, Cause, Finding, Fix, Status, skip, unknown
from netdoctor.rules.packages import fits

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")  # PEP 508 names


@check(after=["sw.start"], source="https://packaging.python.org/en/latest/specifications/core-metadata/")
def sw_parity(nodes: Mapping[str, SoftwareFacts], job: Job) -> Iterator[Finding]:
    """The packages that the job needs have the same version on every node.

    Looks at:
        Metadata of the packages named with ``--packages`` or in ``--requirements``, in the job's
        interpreter. Versions that the job requires are checked by ``sw.wanted``.

    Matters because:
        A library that differs on one node (flash-attn, deepspeed, transformers) may give other shapes,
        numbers or collectives there. The job hangs, or trains something else.

    Fix:
        Install the version of most nodes on the nodes that differ.
    """
    if not job.packages:
        yield skip("no packages requested (--packages)")
    for package in job.packages:
        yield from _compare(package, nodes, [one for one in job.requested if one.name == package])


def _compare(
    package: str, nodes: Mapping[str, SoftwareFacts], requests: Sequence[Requested]
) -> Iterator[Finding]:
    word, title = slug(package), title_text(package)
    follows = _follows(word)
    differ = Cause(f"package-{word}-version", title + " differs between {nodes}", follows=follows)
    lacking = Cause(f"package-{word}-missing", "{nodes} {has} no " + title, follows=follows)
    absent = Cause(f"package-{word}-absent", title + " is not installed on {nodes}")

    def fixes(node: str, version: str | None) -> tuple[Fix, ...]:
        return (install(nodes[node], package, version),) if _NAME.fullmatch(package) else ()

    versions: dict[str, str] = {}
    without: list[str] = []
    for node, software in nodes.items():
        if package not in software.packages:
            yield unknown(node, f"{package} was not searched on this node")
        elif (version := software.packages[package]) is None:
            without += [] if requests else [node]
        elif not version or all(fits(one.specifier, version) for one in requests):  # else sw.wanted tells it
            versions[node] = version
    typical = majority(versions).value
    for node in without:
        if not versions:
            yield absent.warn(
                f"{package} is on no node", at=node, observed="not installed", expected=CONFIG("installed")
            )
        else:
            yield lacking.fail(
                f"{package} is not installed here, but is on other nodes",
                at=node,
                observed="not installed",
                expected=expected_of_lacking(typical or "installed", versions, nodes),
                fixes=fixes(node, typical),
            )
    # A requirements file leaves open what it does not pin.
    fails = not requests or any(one.origin == BY_HAND for one in requests)
    torches = {node: software.torch.version for node, software in nodes.items() if software.torch}
    counted = of_majority(torches, "torch") if "sw.torch" in follows else {}
    status = Status.FAIL if fails else Status.WARN
    yield from differing(versions, package, differ, status=status, counted=counted, fixes=fixes)


def _follows(word: str) -> tuple[str, ...]:
    """The checks that speak of the same difference: torch's wheel brings NVIDIA's and triton's along."""
    if word == "torch":
        return ("sw.torch",)
    return ("sw.torch", "sw.nccl") if word.startswith(("nvidia-", "triton")) else ()
