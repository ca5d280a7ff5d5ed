"""`netdoctor scan --plan`: what would run where, within the width of the terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from netdoctor.facts.host import FILED
from netdoctor.inventory.nodeset import fold
from netdoctor.scanning import Plan
from netdoctor.text import clean, hung

# What differs from node to node though they are logged in to alike.
_PER_NODE = ("host", "address", "known_as")


def lines(plan: Plan, width: int | None) -> Iterator[str]:
    """The plan as lines of at most `width` columns, None for as long as they are."""
    request, targets, scan = plan.request, plan.targets, plan.scan()
    many = f"{len(targets)} node{'s' if len(targets) != 1 else ''}"
    bounds = f"at most {request.parallel} at a time, at most {request.timeout:g} s each"
    first = f"would log in to {many}, once each, {bounds}"
    if request.via == FILED:
        first = f"would judge what was written on {many}, and reach nobody"
    yield from hung(first, "", width)
    yield ""
    yield from _logins(plan, width)
    yield ""
    questions = "passive questions to each node (nothing is written, no CUDA context, no listener):"
    yield from hung("facts that are judged:" if request.via == FILED else questions, "", width)
    yield from hung(", ".join(next(iter(scan.first_requests().values())).args["groups"]), "  ", width)
    if scan.plan:
        yield ""
        yield from hung(
            "experiments between nodes, in order (listeners on the job's addresses, closed at the end, on "
            f"rendezvous port {plan.job.master_port} and some ephemeral ports):",
            "",
            width,
        )
    for step in scan.plan:
        one = step.experiment
        title = "again" if step.again else clean(one.title)
        lead = f"  {clean(one.name):<10} {one.cost:<10} at most {step.limit_s:>4.0f} s  "
        yield from _two_columns(lead, title, width)
    yield ""
    yield "checks, in order:"
    for check in plan.checks:
        yield from _two_columns(f"  {check.id:<18} ", clean(check.title), width)
    if request.via == FILED:
        return
    yield ""
    last = f"leaves the nodes after {scan.bound_s(plan.transport):.0f} s at the latest, whatever they do"
    yield from hung(last, "", width)


def _two_columns(lead: str, text: str, width: int | None) -> list[str]:
    return hung(text, lead, width, " " * len(lead))


def _logins(plan: Plan, width: int | None) -> Iterator[str]:
    """The nodes, those that are logged in to alike together."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[str, dict[str, Any]]]] = {}
    for target in plan.targets:
        how = plan.transport.describe(target)
        login = tuple(
            (k, _word(v)) for k, v in how.items() if k not in _PER_NODE and v not in (None, "", [], ())
        )
        if how.get("known_as") not in (None, how.get("host"), f"[{how.get('host')}]:{how.get('port')}"):
            login = (*login, ("known_as", _word(how.get("known_as"))))
        groups.setdefault(login, []).append((target.id, how))
    for login, members in groups.items():
        nodes, hosts = [node for node, _ in members], [str(how.get("host", "")) for _, how in members]
        parts = [f"{k} {v}" for k, v in (*_where(nodes, hosts), *login) if v]
        yield from hung(clean(fold(nodes, None), 100_000), "  ", width, "    ")
        yield from hung(", ".join(parts), "    ", width)


def _where(nodes: Sequence[str], hosts: Sequence[str]) -> list[tuple[str, str]]:
    return [] if list(nodes) == list(hosts) else [("host", clean(fold(hosts, None), 100_000))]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value), 2_000)
