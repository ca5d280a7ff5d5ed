"""`netdoctor explain log --scan` and `--ras`: what nodes say, for `explain.joining`."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from netdoctor.errors import InputError
from netdoctor.explain.joining import Measured, Proof, join
from netdoctor.explain.knowledge import load
from netdoctor.explain.model import Explanation
from netdoctor.report.model import FixRecord, Report
from netdoctor.text import clean, comma_words

PORT = 28028
# NCCL waits for its processes twice as long as it is told, and we for NCCL a little longer.
WAIT_S, ANSWER_S = 5, 25.0


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
    return running.scan_now(args, scanning.prepare(request))


def ask_ras(endpoints: Sequence[str], args: argparse.Namespace) -> dict[str, str]:
    """What RAS said, by the name that it is quoted under. Raises InputError where no node answers."""
    from netdoctor.scanning import ScanRequest
    from netdoctor.scanning.asking import ask

    found: dict[str, str] = {}
    failures: list[str] = []
    for endpoint in endpoints:
        host, port = split_endpoint(endpoint)
        request = ScanRequest(hosts=(host,), save=None)
        for name in ("ssh_config", "known_hosts"):
            if getattr(args, name) is not None:
                request = replace(request, **{name: getattr(args, name)})
        question = {"port": port, "wait_s": WAIT_S, "timeout_s": ANSWER_S - 2}
        for reply in ask(request, "ras", question, ANSWER_S):
            result = reply.result if isinstance(reply.result, dict) else {}
            text, error = result.get("text"), result.get("error")
            if reply.missing is not None:
                failures.append(f"{reply.node}: {reply.missing.detail}")
            elif isinstance(text, str) and text:
                found[f"RAS of {clean(reply.node, 80)}"] = text
                if result.get("cut"):
                    failures.append(f"{reply.node}: the answer is not whole: {result['cut']}")
            else:
                failures.append(f"{reply.node}: port {port}: {_meaning(str(error or 'no answer'))}")
    if not found:
        raise InputError("explain log: --ras: " + clean("; ".join(failures), 600))
    for one in failures:
        sys.stderr.write(f"netdoctor explain: --ras: {clean(one, 300)}\n")
    return found


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``node3``, ``node3:28029``, ``[fd00::1]:28029``. Raises InputError."""
    match = re.fullmatch(r"(\[[^\[\]]+\]|[^:]+|[0-9a-fA-F:]*::[0-9a-fA-F:]*)(?::(\d{1,5}))?", endpoint)
    port = int(match[2] or PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise InputError(
            f"explain log: --ras {clean(endpoint, 80)!r} is not a HOST or HOST:PORT, such as gpu03:28028"
        )
    return match[1].strip("[]"), port


def _meaning(error: str) -> str:
    if error == "ECONNREFUSED":
        return "nobody listens: no job with NCCL 2.24 or newer, NCCL_RAS_ENABLE=0, or another NCCL_RAS_ADDR"
    return error
