"""Clock offsets from exchanges over sessions that are already open."""

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.clock import ClockSample
from netdoctor.measure.common import ask, reason
from netdoctor.measure.declare import Context, experiment
from netdoctor.transport.base import Reply

EXCHANGES = 8
ASKING_S = 10.0
# Exchanges take turns, or they would time each other; a healthy one takes some round trips.
TURN_S = 0.1
# No clock is off by more than it can show: 1e308 s of one node would make every difference infinite.
PLAUSIBLE_S = 1e11


def combine(
    first: ClockSample | Missing | None, second: ClockSample | Missing | None
) -> ClockSample | Missing:
    """The better of two bursts, with the step between them when it exceeds both error bounds.

    500 ppm is the most that a disciplined clock slews (adjtimex(2)): over a scan of a minute and a half, that
    stays under the 50 ms added here.
    """
    if not isinstance(second, ClockSample):
        return first if first is not None else Missing(Why.NOT_COLLECTED, "no clock exchange")
    if not isinstance(first, ClockSample):
        return second
    step = second.offset_s - first.offset_s
    bound = first.error_s + second.error_s + 0.05
    best = min(first, second, key=lambda s: s.error_s)
    return ClockSample(
        offset_s=second.offset_s if abs(step) > bound else best.offset_s,
        error_s=second.error_s if abs(step) > bound else best.error_s,
        round_trip_s=best.round_trip_s,
        exchanges=first.exchanges + second.exchanges,
        jumped_s=step if abs(step) > bound else 0.0,
    )


@experiment(bound_s=lambda nodes, _: ASKING_S + nodes * TURN_S, again=combine)
def clock(context: Context) -> dict[str, ClockSample | Missing]:
    """Offset of each node's wall clock, by the least round trip of eight."""
    args = {node: {"exchanges": EXCHANGES} for node in context.participants.nodes}
    return {reply.node: _sample(reply) for reply in ask(context.transport, "clock", args, ASKING_S)}


def _sample(reply: Reply) -> ClockSample | Missing:
    if reply.missing is not None:
        return reply.missing
    result = reply.result if isinstance(reply.result, dict) else {}
    best: tuple[float, float] | None = None
    samples = result.get("samples")
    count = 0
    for row in samples if isinstance(samples, list) else []:
        try:
            t0, t1, t2, t3 = (float(value) for value in row)
        except (TypeError, ValueError, OverflowError):
            continue
        # RFC 5905 section 8: offset = ((t1 - t0) + (t2 - t3)) / 2, delay = (t3 - t0) - (t2 - t1)
        delay = max((t3 - t0) - (t2 - t1), 0.0)
        offset = ((t1 - t0) + (t2 - t3)) / 2
        if not (delay < PLAUSIBLE_S and abs(offset) < PLAUSIBLE_S):
            continue  # NaN among them, for which no comparison is true
        count += 1
        if best is None or delay < best[0]:
            best = (delay, offset)
    if best is None:
        return Missing(Why.UNPARSABLE, f"clock: {reason(reply)}")
    return ClockSample(offset_s=best[1], error_s=best[0] / 2, round_trip_s=best[0], exchanges=count)
