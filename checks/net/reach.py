"""URLs outside of the cluster that somebody named."""

import re
from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.outcomes import Words, outcomes
from netdoctor.checks._shared.text import is_host_name, listing, quoted
from netdoctor.facts.mesh import Reach, Reached
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONFIG, PEERS, Finding, Status, ok, seen, skip, unknown

OUTCOMES = outcomes("net", "reach.toml")
_HOST = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(?=[/]|$)")


def found(row: Reached) -> str | None:
    """What is wrong: a stage, ``status`` for a server's own trouble; None for an answer."""
    if row.stage in ("dns", "connect", "proxy", "tls", "http", "untried"):
        return row.stage
    if row.stage or row.status is None:
        return "silent"
    return "status" if row.status >= 500 else None


def words(row: Reached, good: Sequence[str]) -> Words:
    """good: nodes that reach it."""
    parts = _HOST.match(row.url)
    host, port = (parts[1].strip("[]"), parts[2] or "443") if parts else ("", "443")
    plain = host if is_host_name(host) or parse(host) else ""
    endpoint = quoted(f"[{plain}]:{port}" if ":" in plain else f"{plain}:{port}")
    return {
        "host": plain,
        "endpoint": endpoint,
        "as_others": f", as on {listing(good, 2)}" if good else "",
        "not_others": f", and not {listing(good, 2)}" if good else "",
    }


@check(
    profile="asked",
    required=False,
    source="https://docs.python.org/3/library/urllib.request.html#urllib.request.getproxies",
)
def net_reach(reach: Reach, job: Job) -> Iterator[Finding]:
    """Every node reaches the URLs that are named with ``--reach``.

    Looks at:
        For each URL and node: the name, the connection, the proxy of the job's environment or the login
        session (``no_proxy`` too), the certificate and the node's CAs (REQUESTS_CA_BUNDLE and similar),
        and the status of one HEAD request. Only these URLs are requested. A redirect counts as an answer
        and is not followed. No user, password or query is kept or sent.

    Matters because:
        If one node cannot reach a package mirror, a model hub or a code host, the job ends there, after
        all others have started. Causes are a missing proxy variable, a missing CA, or a wrong clock.

    Fix:
        Give the node the settings of the nodes that reach it: name server, proxy variables, CA
        certificates. Or add its address to the list that the server accepts.
    """
    if not job.reach:
        yield skip("no URL was named: --reach URL")
        return
    for node, why in reach.failed_nodes.items():
        yield unknown(node, f"URLs were not tried: {why}")
    for url in job.reach:
        rows = [row for row in reach.rows if row.url == url]
        good = [row.node for row in rows if found(row) is None]
        for row in rows:
            if row.stage == "untried":
                yield unknown(row.node, f"{url}: {row.detail}")
            elif found(row) is not None:
                yield _stopped(row, good)
        yield from _differing([row for row in rows if found(row) is None])


def _stopped(row: Reached, good: Sequence[str]) -> Finding:
    kind = found(row) or ""
    through = f" through the proxy {row.proxy}" if row.proxy else ""
    what = row.detail or f"the answer is {row.status}"
    elsewhere = [seen(f"HEAD {row.url}", "answered", at=good[0])] if good else []
    return OUTCOMES.finding(
        kind,
        words(row, good),
        f"{row.url}{through}: {what}",
        Status.WARN if kind == "status" else None,
        at=row.node,
        observed=what,
        expected=PEERS("an answer") if good else CONFIG("an answer"),
        seen=[seen(f"HEAD {row.url}{through}", what, at=row.node), *elsewhere],
    )


def _differing(rows: Sequence[Reached]) -> Iterator[Finding]:
    """One that is refused, and not by the answer that most get: as by a list of addresses."""
    statuses: Mapping[str, int] = {row.node: row.status or 0 for row in rows}
    spread = majority(statuses)
    most = spread.groups.get(spread.value, ()) if spread.value is not None else ()
    for row in rows:
        if spread.value is not None and statuses[row.node] != spread.value and statuses[row.node] >= 400:
            yield OUTCOMES.finding(
                "differs",
                words(row, most if spread.value < 400 else ()),
                f"{row.url} answers {row.status} here, {spread.value} on {listing(most, 4)}",
                Status.WARN,
                at=row.node,
                observed=str(row.status),
                expected=PEERS(str(spread.value)),
            )
    if rows:
        statuses_text = listing(str(status) for status in spread.groups)
        yield ok(CLUSTER, f"{rows[0].url} answers {statuses_text} on {len(rows)} nodes")
