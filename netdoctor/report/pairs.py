"""Directed pairs as the report keeps them, one record for each that a check measured."""

from typing import Any

from netdoctor.engine.run import Outcome
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.report import bandwidth
from netdoctor.report.model import PairRecord


def pairs(outcome: Outcome) -> list[PairRecord]:
    """Directed pairs: ports by their worst outcome, path MTU by its own."""
    records: list[PairRecord] = []
    chosen = {c.id for c in outcome.judgement.checks}
    matrix = outcome.store.whole("ports")
    if isinstance(matrix, PortMatrix) and "net.ports" in chosen:
        # What could not be tried is worse than good and better than anything measured bad.
        order = ("open", "in_use", "error", "refused", "no_route", "rejected", "filtered")
        by_pair: dict[tuple[str, str], list[Any]] = {}
        for probe in matrix.probes:
            by_pair.setdefault((probe.src, probe.dst), []).append(probe)
        for (src, dst), probes in by_pair.items():
            worst = max((p.outcome for p in probes), key=lambda o: order.index(o) if o in order else 2)
            bad = tuple(sorted({p.port for p in probes if p.outcome == worst}))
            tried = worst in order and worst != "error"
            records.append(
                PairRecord(
                    check="net.ports",
                    from_=src,
                    to=dst,
                    status="unknown" if not tried else "pass" if worst in order[:2] else "fail",
                    class_=worst,
                    ports=bad,
                )
            )
    mtus = outcome.store.whole("path_mtu")
    if isinstance(mtus, PathMtus) and "net.path-mtu" in chosen:
        records += [
            PairRecord(
                check="net.path-mtu",
                from_=m.src,
                to=m.dst,
                status={"ok": "pass", "small": "fail", "black_hole": "fail"}.get(m.outcome, "unknown"),
                class_=m.outcome,
                value=m.largest_ok,
                unit="bytes",
            )
            for m in mtus.probes
        ]
    records += bandwidth.pairs(outcome)
    return records
