"""Kernel, distribution and architecture, compared across the cluster."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import unlike_expected
from netdoctor.checks._shared.text import listing
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.model import PEERS, SUSPECTED, Cause, Finding, Status, after_reboot, seen, skip, unknown

IMAGE = "install one kernel on all nodes, from the same image or package set"
RELEASE = "install one distribution release on all nodes"
PROPERTIES = (
    ("host.arch", "arch", "architecture", "uname -m", "run the job on nodes of one architecture"),
    ("host.kernel", "kernel", "kernel", "uname -r", IMAGE),
    ("host.distribution", "os_name", "distribution", "/etc/os-release", RELEASE),
)


@check(
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    expects={key: str for key, *_ in PROPERTIES},
)
def host_parity(hosts: Mapping[str, HostFacts], expect: Expectations | None = None) -> Iterator[Finding]:
    """All nodes run the same kernel and distribution on the same architecture.

    Looks at:
        ``uname`` and os-release of every node. What most nodes have is expected.

    Matters because:
        A wheel or container for one architecture does not start on another. A node with another kernel
        has other drivers, other defaults and other bugs: the usual reason why "one node is different".

    Fix:
        Install the odd node like the others, or leave it out.
    """
    if len(hosts) < 2 and not any(expect and expect.has(key) for key, *_ in PROPERTIES):
        yield skip("one node: nothing to compare with")
        # What it has is noted below all the same, to be expected of it later.
        if expect is None:
            return
    for key, attribute, word, source, advice in PROPERTIES:
        values: dict[str, str] = {node: getattr(host, attribute) for node, host in hosts.items()}
        for node, value in values.items():
            if not value:
                yield unknown(node, f"its {word} could not be read ({source})")
        cause = Cause(f"parity-{word}", f"{{nodes}} run{{s}} another {word} than most nodes")
        status, fix = Status.FAIL if attribute == "arch" else Status.WARN, after_reboot(advice)
        evidence = {node: seen(source, value, "command") for node, value in values.items()}
        expectations = expect.for_values(key, values) if expect else {}
        for node, one in expectations.items():
            if values[node] and not one.is_met_by(values[node]):
                details = {"seen": evidence[node], "fixes": fix}
                yield unlike_expected(one, node, values[node], word, cause, status, **details)
        spread = majority(
            {node: value for node, value in values.items() if value and node not in expectations}
        )
        typical = spread.value
        if spread.is_split:
            cause = cause.but(
                title=f"The {word} differs between the nodes ({{nodes}})",
                confidence=SUSPECTED,
                settle_by=f"choose one {word}: they differ, {spread.words}",
            )
        for node, value in spread.minority.items():
            others = listing(one for one in spread.groups if one != value)
            yield cause.say(
                status,
                f"{word} {value}; " + (f"most nodes have {typical}" if typical else f"others have {others}"),
                at=node,
                observed=value,
                expected=PEERS(typical or "the same everywhere"),
                seen=evidence[node],
                fixes=fix,
            )
