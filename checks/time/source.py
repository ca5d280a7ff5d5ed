"""Where nodes get the time from, compared across the cluster."""

import re
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.facts.clock import TimeFacts, TimeReport
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.model import PEERS, Cause, Finding, Status, look, seen, skip

OTHER = Cause("time-other-source", "{nodes} {has} another time source than most nodes")
# ``2.debian.pool.ntp.org``: any number leads to the same pool.
_POOL = re.compile(r"[0-3]\.(?=.*pool)")


@check(required=False, source="https://developers.google.com/time/smear", expects={"time.source": str})
def time_source(
    times: Mapping[str, TimeFacts], hosts: Mapping[str, HostFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """All nodes get the time from one source.

    Looks at:
        The source that each node's time daemon follows, and all its configured sources. Nodes with the
        same daemon are compared; the source of most nodes is expected. A node that has this source
        configured, but follows another one at the moment, counts as equal. If servers come from a pool,
        there is no majority, and nothing is reported.

    Matters because:
        Sources differ. A public server that smears a leap second is up to half a second away from one
        that does not, and a forgotten server may be far off. Each node still says that it is
        synchronised.

    Fix:
        Give the node the time servers of the others.
    """
    local = {node: one for node, one in times.items() if not (hosts[node].container if node in hosts else "")}
    reports: dict[str, dict[str, TimeReport]] = {}
    for node, time in local.items():
        for report in time.reports:
            if report.source:
                reports.setdefault(report.daemon, {})[node] = report
    follows = {node: report.source for nodes in reports.values() for node, report in nodes.items()}
    yield from differing(
        follows, "source of time", OTHER, key="time.source", expect=expect, status=Status.WARN, peers=False
    )
    if expect:
        judged = expect.for_nodes("time.source", follows)
        reports = {d: {n: one for n, one in nodes.items() if n not in judged} for d, nodes in reports.items()}
    if not any(len(nodes) > 1 for nodes in reports.values()):
        yield skip("no two nodes report the source of the same time daemon")
    for daemon, nodes in reports.items():
        followed = {node: _POOL.sub("", report.source) for node, report in nodes.items()}
        spread = majority(followed)
        if spread.value is None:
            continue
        for node, source in spread.minority.items():
            if spread.value in {_POOL.sub("", one) for one in nodes[node].sources}:
                continue
            text = f"{daemon} follows {source}"
            yield OTHER.warn(
                f"{text}, and does not know {spread.value}, as {listing(spread.groups[spread.value], 3)} do",
                at=node,
                observed=source,
                expected=PEERS(spread.value),
                seen=seen(f"sources of {daemon}", listing(nodes[node].sources, 8), "command"),
                fixes=look(
                    "give it the time servers of the others",
                    "grep -rsE '^ *(server|pool|peer|NTP)' /etc/chrony* /etc/ntp* /etc/systemd/timesyncd*",
                ),
            )
