"""`netdoctor explain log --scan` and `--ras`, and `explain hang`: what nodes say, to be joined and judged."""

import argparse
import base64
import os
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from netdoctor.errors import InputError
from netdoctor.explain.joining import Measured, Proof, join
from netdoctor.explain.knowledge import load
from netdoctor.explain.model import Explanation
from netdoctor.report.model import FixRecord, Report
from netdoctor.text import clean, comma_words

if TYPE_CHECKING:
    from netdoctor.scanning import ScanRequest
    from netdoctor.trial.hanging import Answer
    from netdoctor.trial.rendering import Cause

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

    request = replace(_request(comma_words(args.scan), args), only=tuple(checks))
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


# --- hang ---------------------------------------------------------------------------------------------------

# What a node needs to look at its ranks: two looks of py-spy at the most, what is between them, and RAS.
HANG_S = 60.0
RECORD_MAX = 8 << 20
NO_RANKS = "no Python process with a rank in its environment (RANK, SLURM_PROCID) that this user may look at"


def hang(names: Sequence[str], args: argparse.Namespace) -> int:
    """`netdoctor explain hang`: who holds a running job up. Raises InputError where no rank can be seen."""
    from netdoctor.cli.parser import columns
    from netdoctor.measure.common import read_as
    from netdoctor.scanning.asking import ask
    from netdoctor.trial import hang_output
    from netdoctor.trial.hanging import WAIT_S, Answer, judge, with_lines

    if args.scan is not None or args.ras or args.report is not None:
        raise InputError("explain hang: --scan, --ras and --report go with log FILE...")
    if args.output == "markdown":
        raise InputError("explain hang: -o text or -o json")
    if not names and args.via == "ssh":
        raise InputError("explain hang: which nodes? HOSTS, or --via slurm or --via ray")
    request = _request(tuple(names), args)
    answers: dict[str, Answer] = {}
    failures: dict[str, str] = {}
    for reply in ask(request, "hang", {"wait_s": WAIT_S}, HANG_S):
        if reply.missing is None and (answer := read_as(reply.result, Answer)) is not None:
            answers[reply.node] = answer
        else:
            why = reply.missing.detail if reply.missing is not None else "an answer that cannot be read"
            failures[reply.node] = clean(f"{reply.node}: {why}", 300)
    if not any(answer.ranks for answer in answers.values()):
        raise InputError("explain hang: " + "\n  ".join([NO_RANKS, *list(failures.values())[:8]]))
    found = with_lines(judge(answers, tuple(failures), WAIT_S), _lines_of(answers))
    found = replace(found, notes=(*found.notes, *list(failures.values())[:8]))
    if found.confidence is not None and found.nodes and not args.no_scan:
        found = replace(found, causes=_causes_on(found.nodes, request, args))
    if args.output == "json":
        sys.stdout.write(hang_output.json_text(found))
    else:
        sys.stdout.write(hang_output.text(found, columns(args.width) or 100))
    return 0 if found.confidence is not None else 3


def _request(hosts: tuple[str, ...], args: argparse.Namespace) -> "ScanRequest":
    from netdoctor.scanning import ScanRequest

    given = {name: getattr(args, name) for name in ("env_file", "ssh_config", "known_hosts")}
    fields = {name: value for name, value in given.items() if value is not None}
    return ScanRequest(hosts=hosts, via=args.via, environ=dict(os.environ), save=None, **fields)


def _lines_of(answers: "Mapping[str, Answer]") -> list[str]:
    """What NCCL's RAS and flight records say is wrong."""
    from netdoctor.explain import desync, flight, ras

    records = []
    for number, packed in (record for one in answers.values() for record in one.records):
        with suppress(ValueError, zlib.error):  # what is no record says nothing
            data = zlib.decompressobj().decompress(base64.b64decode(packed), RECORD_MAX)
            records.append(flight.read(data, f"rank_{number}"))
    status = next((one.ras[-1] for one in answers.values() if one.ras and one.ras[-1]), "")
    return [*(ras.lines(ras.read(status)) if status else ()), *(text for *_, text in desync.lines(records))]


def _causes_on(nodes: Sequence[str], request: "ScanRequest", args: argparse.Namespace) -> "tuple[Cause, ...]":
    """What a quick scan and one of ports find on these nodes; nothing where it is stopped."""
    from netdoctor import scanning
    from netdoctor.cli.running import scan_now
    from netdoctor.trial.rendering import causes_of_scan

    report = None
    with suppress(InputError, KeyboardInterrupt, SystemExit):
        quick = replace(request, profile="quick", also=("net.ports",))
        report = scan_now(args, scanning.prepare(quick))
    if report is None:
        return ()
    found = causes_of_scan(report, set(), measured_of(report).proofs)
    return tuple(cause for cause in found if set(cause.nodes) & set(nodes))
