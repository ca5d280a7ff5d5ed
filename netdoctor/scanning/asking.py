"""One question to the agents of some nodes, outside of a scan."""

from collections.abc import Iterator, Mapping
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login
from netdoctor.options import ScanRequest
from netdoctor.scanning.plan import inventory_of
from netdoctor.scanning.via import make_transport
from netdoctor.transport.base import Reply, Request


def ask(request: ScanRequest, op: str, args: Mapping[str, Any], timeout_s: float) -> Iterator[Reply]:
    """The answer of each node of the request, or why there is none. Raises InputError."""
    transport = make_transport(request)
    targets = inventory_of(request, transport).targets
    first = {target.id: Request(op=op, args=args, timeout_s=timeout_s) for target in targets}
    try:
        bound_s = transport.bound_s(targets) + timeout_s
        for event in transport.start(targets, first, keep_open=False, collectors={}, deadline_s=bound_s):
            if isinstance(event, Reply):
                yield event
            elif event.session.outcome is not Login.OK:
                why = f"login: {event.session.outcome}: {event.session.detail}"
                yield Reply(node=event.node, missing=Missing(Why.FAILED, why))
    finally:
        transport.close()
