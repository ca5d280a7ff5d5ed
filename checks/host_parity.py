"""Kernel, distribution and architecture, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.model import (
    CauseHint,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    warn,
)

PROPERTIES = (
    ("arch", "architecture", "uname -m", "run the job on nodes of one architecture"),
    ("kernel", "kernel", "uname -r", "bring the nodes to one kernel, from the same image or package set"),
    ("os_name", "distribution", "/etc/os-release", "bring the nodes to one distribution release"),
)


@check(source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def host_parity(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """All nodes run the same kernel and distribution on the same architecture.

    Looks at:
        ``uname`` and os-release of every node; what most nodes have is what is expected.

    Matters because:
        A wheel or container for one architecture does not start on another. A node with its own kernel has
        its own drivers, its own defaults and its own bugs: the usual reason why "one node is different".

    Fix:
        Install the odd node like the others, or leave it out.
    """
    if len(hosts) < 2:
        yield skip("one node: nothing to compare with")
        return
    for attribute, word, source, advice in PROPERTIES:
        values = {node: str(getattr(host, attribute)) for node, host in hosts.items()}
        values = {node: value for node, value in values.items() if value}
        found = majority(values)
        if found.equal:
            continue
        usual = found.value
        say = fail if attribute == "arch" else warn
        title = (
            f"{{nodes}} run{{s}} another {word} than most nodes"
            if usual
            else f"The nodes ({{nodes}}) do not run one {word}"
        )
        for node, value in found.minority.items():
            others = [one for one in found.groups if one != value]
            yield say(
                node,
                f"{word} {value}; "
                + (f"most nodes have {usual}" if usual else f"others have {listing(others)}"),
                observed=value,
                expected=usual or "the same everywhere",
                expected_from=ExpectedFrom.PEERS,
                evidence=(Evidence(kind="command", where=node, what=source, output=value),),
                cause=CauseHint(
                    key=f"parity-{word}",
                    title=title,
                    culprits=(node,),
                    confidence=Confidence.CERTAIN if usual else Confidence.SUSPECTED,
                    fixes=(Fix(text=advice, root=True, reboot=True, effect="after reboot", risk="medium"),),
                    settle_by=None if usual else "as many nodes have one as the other: say which is meant",
                ),
            )
