"""Kernel, distribution and architecture, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._majority import majority
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.model import PEERS, SUSPECTED, Cause, Finding, after_reboot, seen, skip, unknown

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
        values: dict[str, str] = {node: getattr(host, attribute) for node, host in hosts.items()}
        for node, value in values.items():
            if not value:
                yield unknown(node, f"its {word} could not be read ({source})")
        spread = majority({node: value for node, value in values.items() if value})
        usual = spread.value
        odd = Cause(f"parity-{word}", f"{{nodes}} run{{s}} another {word} than most nodes")
        if spread.tie:
            odd = odd.but(
                title=f"The nodes ({{nodes}}) do not run one {word}",
                confidence=SUSPECTED,
                settle_by="as many nodes have one as the other: say which is meant",
            )
        for node, value in spread.minority.items():
            others = listing(one for one in spread.groups if one != value)
            say = odd.fail if attribute == "arch" else odd.warn
            yield say(
                f"{word} {value}; " + (f"most nodes have {usual}" if usual else f"others have {others}"),
                at=node,
                observed=value,
                expected=PEERS(usual or "the same everywhere"),
                seen=seen(source, value, "command"),
                fixes=after_reboot(advice),
            )
