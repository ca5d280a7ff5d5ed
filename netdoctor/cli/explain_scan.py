"""`netdoctor explain log --scan`: the checks that decide, run, and what they say for `explain.joining`."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from netdoctor.explain.joining import Measured, Proof, join
from netdoctor.explain.knowledge import load
from netdoctor.explain.model import Explanation
from netdoctor.report.model import FixRecord, Report
from netdoctor.text import clean, comma_words


def scanned(explanation: Explanation, args: argparse.Namespace) -> Explanation:
    """The explanation joined with a scan of --scan by the checks that decide it. Raises InputError.

    Nothing is contacted where no cause has a check.
    """
    checks = tuple(dict.fromkeys(check for reason in explanation.reasons for check in reason.known.checks))
    if not checks:
        sys.stderr.write("netdoctor explain: no check decides this; nothing was contacted\n")
        return explanation
    return joined(explanation, _scan(checks, args))


def joined(explanation: Explanation, report: Report) -> Explanation:
    """The explanation joined with a report."""
    return join(explanation, measured_of(report), load())


def measured_of(report: Report) -> Measured:
    """What a report says of causes and checks, in the words of `explain.joining`."""
    cells = {
        check: "".join(row) for check, row in zip(report.matrix.checks, report.matrix.cells, strict=False)
    }
    undecided: dict[str, str] = {}
    for result in report.results:
        if result.status in ("unknown", "blocked", "skip"):
            undecided.setdefault(result.check, result.summary)
    doubtful = {result.check for result in report.results if result.status != "pass"}
    doubtful |= {check for gap in report.verdict.gaps for check in gap.checks}
    part = report.verdict.part
    all_nodes = part is None or part.nodes == part.of_nodes
    return Measured(
        proofs=[
            Proof(
                key=cause.key,
                title=cause.title.replace("{nodes}", cause.nodes),
                check=", ".join(cause.checks[:2]),
                fixes=tuple(_fix(fix) for fix in cause.fixes[:3]),
                sure=cause.confidence == "certain",
                fails=cause.status == "fail",
            )
            for cause in report.causes
            if cause.status in ("fail", "warn")
        ],
        passed=frozenset(
            check
            for check, row in cells.items()
            if all_nodes and row and set(row) == {"."} and check not in doubtful
        ),
        open=undecided,
    )


def _fix(fix: FixRecord) -> str:
    return "\n".join([clean(fix.text), *(clean(command.shell, 2000) for command in fix.commands[:3])])


def _scan(checks: Sequence[str], args: argparse.Namespace) -> Report:
    from netdoctor import scanning
    from netdoctor.cli import running
    from netdoctor.scanning import ScanRequest

    request = ScanRequest(
        hosts=comma_words(args.scan), only=tuple(checks), via=args.via, environ=dict(os.environ), save=None
    )
    for name in ("env_file", "ssh_config", "known_hosts"):
        if getattr(args, name) is not None:
            request = replace(request, **{name: getattr(args, name)})
    plan = scanning.prepare(request)
    started = time.monotonic()
    outcome, stopped = running.scanned(args, plan, ())
    if stopped:
        raise KeyboardInterrupt
    code = 128 + signal.SIGINT
    return scanning.assemble(plan, outcome, time.monotonic() - started, interrupted_code=code)
