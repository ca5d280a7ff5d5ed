"""`netdoctor try`: a scan, then the job's own command for a while, and whether it started."""

import argparse
import json
import os
import re
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from netdoctor.cli import environ
from netdoctor.cli.options import (
    add_save_arguments,
    add_scan_arguments,
    count,
    reader_of,
    request_fields,
    show_briefly,
)
from netdoctor.cli.parser import columns
from netdoctor.cli.running import prepared, request_of, scan_now, signals, standing_report
from netdoctor.cli.tui import no_terminal
from netdoctor.errors import InputError
from netdoctor.options import SECONDS
from netdoctor.report import LAST
from netdoctor.text import clean, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netdoctor.explain.model import Explanation
    from netdoctor.inventory import Target
    from netdoctor.launch import LaunchPlan
    from netdoctor.report.model import Report
    from netdoctor.scanning import Plan
    from netdoctor.trial.following import Follower
    from netdoctor.trial.judging import Ended, Judgement
    from netdoctor.trial.rendering import Cause, TrialResult
    from netdoctor.trial.running import Trial

# A saved report that says yes stands for a scan for so long.
RECENT_S = 3600.0
LOGS = Path(".netdoctor/try")
WIDTH = 100
EPILOG = """\
examples:
  netdoctor try hosts.txt -- torchrun train.py --lr 1e-4
  netdoctor try hosts.txt --for 300 --steps 50 -- accelerate launch train.py
  netdoctor try hosts.txt -- torchrun --nnodes {nnodes} --node-rank {rank} \\
    --master-addr {master} --master-port {port} --nproc-per-node 8 train.py
  netdoctor try --via slurm -- python train.py
  netdoctor try hosts.txt --ladder --for 60 -- torchrun train.py

What torchrun and accelerate need to know of the nodes is put in, unless COMMAND has it. {rank}, {node},
{master}, {port}, {nnodes}, {nproc} and {world} in COMMAND are each node's own.

exit codes:
  0 started   1 failed   3 undecided   2 bad input   5 netdoctor broke   130, 143 interrupted

netdoctor try --help-all shows all options.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "try",
        help="start the job for two minutes: do all ranks join, and does it make steps?",
        usage="netdoctor try [options] HOSTS... -- COMMAND...",
        description="Start COMMAND on all nodes as the job would be started, follow its ranks, end it after "
        "a while and leave no process; say STARTED, or FAILED with the cause. It is a trial before a "
        "launch, and no job manager.",
        epilog=EPILOG + environ.EPILOG,
    )
    add_scan_arguments(parser, hosts="as for scan: a file, '-', or names such as gpu[01-16]")
    before = {action.dest for action in parser._actions}
    _add_trial(parser)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="json[=FILE]", type=_output, help="the result for programs")
    out.add_argument("--width", type=count, metavar="N", help="columns (default: the terminal's)")
    out.add_argument("-q", "--quiet", action="store_true", help="the result alone, no progress")
    options = {action.dest for action in parser._actions} - before
    add_save_arguments(parser.add_argument_group("scan"))
    show_briefly(parser, [*options, "hosts", "last"])
    parser.set_defaults(run=run, parser=parser)


def _add_trial(parser: argparse.ArgumentParser) -> None:
    trial = parser.add_argument_group("the trial")
    add = trial.add_argument
    read_seconds = reader_of(SECONDS)
    add("--for", dest="seconds", type=read_seconds, default=120.0, metavar="S", help="how long (120)")
    add("--steps", type=count, metavar="N", help="end it after so many steps")
    add(
        "--step",
        type=_pattern,
        metavar="REGEX",
        help="how its log counts steps, group 1 the number; for jobs whose steps are not torch's",
    )
    add(
        "--ladder",
        action="store_true",
        help="1, 2, 4 and so on of the nodes, --for each: how it scales, and which node breaks it",
    )
    add("--tui", action="store_true", help="watch its ranks on a live page")
    add("--nproc", type=count, metavar="N", help="processes on each node (default: its GPUs, or slots=)")
    add(
        "--start",
        choices=("node", "process", "first"),
        help="COMMAND once a node, once a process, or on the first node alone, from where it reaches the "
        "others (default: by what COMMAND is)",
    )
    add("--chdir", metavar="DIR", help="folder to start in, on every node (default: this one)")
    add("--logs", type=Path, metavar="DIR", help=f"a new folder for what ranks print (default: in {LOGS})")
    add("--no-probe", action="store_true", help="put nothing into the job's Python that says how far it is")
    add("--no-scan", action="store_true", help="start by what the last report knows, or by guesses")
    add("--anyway", action="store_true", help="start also where the scan says NOT READY")


def _pattern(text: str) -> "re.Pattern[bytes]":
    try:
        found = re.compile(text.encode())
    except (re.error, UnicodeEncodeError) as error:
        raise argparse.ArgumentTypeError(
            f"{clean(text, 60)!r} is not a regular expression: {error}"
        ) from None
    if found.groups < 1:
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r} has no group; write 'step ([0-9]+)'")
    return found


def _output(text: str) -> "Path | None":
    name, equals, path = text.partition("=")
    if name != "json" or (equals and not path):
        raise argparse.ArgumentTypeError(f"{clean(text, 60)!r}; write json, or json=FILE")
    return Path(path) if path else Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What is known before the job starts. report: of the nodes, None where nobody looked."""

    plan: "Plan"
    report: "Report | None"
    path: Path
    refused: bool = False


def run(args: argparse.Namespace) -> int:
    if not args.started:
        args.parser.error("which command is to be tried? netdoctor try HOSTS -- COMMAND")
    if args.tui and (why := no_terminal()):
        raise InputError(f"--tui: {why}; without it progress is printed")
    request, _ = request_of(args, request_fields(args))
    plan = prepared(request, quiet=args.quiet)
    before = _look_at_nodes(args, plan)
    if before.refused:
        return 1
    targets = before.plan.inventory.targets
    folder = args.logs or LOGS / time.strftime("%Y%m%d-%H%M%S")
    try_on = _climb_ladder if args.ladder else _run_trial
    result, code = try_on(args, before, targets, folder)
    finished = time.time()
    report = before.report if before.path == before.plan.request.save else None
    if code in (1, 3) and (code == 1 or result.judgement.hangs):
        causes, now = _find_causes(args, before, result)
        result, report = replace(result, causes=causes), now or report
        result, code = _with_proof(result, code)
    result = replace(result, again=_next_command(args, result))
    _write_result(args, result, folder)
    if report is not None:
        _save_report(args, before.plan, report, result, finished)
    _show(args, result)
    return code


def _with_proof(result: "TrialResult", code: int) -> "tuple[TrialResult, int]":
    """A job that made no step, on nodes whose network is proved to be broken, has failed."""
    from netdoctor.trial.judging import State

    network = ("net.", "rdzv.", "gloo.", "nccl.", "path.")
    for cause in result.causes:
        checks = cause.source.removeprefix("scan, ")
        if code == 3 and cause.sure == "certain" and checks.startswith(network):
            nodes = cause.nodes or result.judgement.nodes
            judgement = replace(result.judgement, state=State.FAILED, nodes=nodes)
            return replace(result, judgement=judgement), 1
    return result, code


# --- before ------------------------------------------------------------------------------------------------


def _look_at_nodes(args: argparse.Namespace, plan: "Plan") -> _Before:
    """The nodes as a scan sees them: a recent one that is saved, or one now."""
    from netdoctor import scanning
    from netdoctor.report import summary
    from netdoctor.scanning.gate import Rules

    path = args.save or LAST
    if args.no_scan:
        newest = scanning.newest(plan.inventory.targets)
        report, path = newest or (None, path)
        return _Before(plan=plan, report=report, path=path)
    report = standing_report(plan, path, RECENT_S, Rules())[0] if path.exists() else None
    if report is None:
        report = _scan(args, plan)
    refused = report.verdict.state == "not_ready" and not args.anyway
    _say(args, f"the nodes are {summary.verdict_in_scope(report)}", refused)
    if refused:
        causes = [cause for cause in report.causes if cause.status == "fail"]
        for cause in causes[:5]:
            _say(args, f"[{cause.id}] {cause.title.replace('{nodes}', cause.nodes)}", True)
        _say(args, "not started; netdoctor report show has the fixes, --anyway starts it all the same", True)
    return _Before(plan=plan, report=report, path=path, refused=refused)


def _scan(args: argparse.Namespace, plan: "Plan") -> "Report":
    """A scan now, saved as any other."""
    from netdoctor.report.save import save

    report = scan_now(args, plan)
    if plan.request.save is not None:
        try:
            report = save(report, plan.request.save)
        except OSError as error:
            _say(args, f"--save {plan.request.save}: {error.strerror or error}", True)
    return report


def _launch_plan(args: argparse.Namespace, before: _Before, targets: "Sequence[Target]") -> "LaunchPlan":
    from netdoctor import launch
    from netdoctor.cli.launch_evidence import evidence_of
    from netdoctor.rules.variables import RANKS

    plan = before.plan
    evidence = evidence_of(before.report, before.path) if before.report is not None else None
    options = launch.Options(
        script=tuple(args.started),
        nproc=args.nproc,
        port=plan.request.master_port,
        env={name: value for name, value in plan.job.env.items() if name not in RANKS},
        job="netdoctor-try",
    )
    return launch.plan(targets, evidence, options, hosts=plan.inventory.source)


# --- the trial ---------------------------------------------------------------------------------------------


def _climb_ladder(
    args: argparse.Namespace, before: _Before, targets: "Sequence[Target]", folder: Path
) -> "tuple[TrialResult, int]":
    """1, 2, 4 and so on of the nodes: the result of the last rung, with all rungs."""
    from netdoctor.trial.ladder import Rung, climb

    by_id = {target.id: target for target in targets}
    results: dict[tuple[str, ...], tuple[TrialResult, int]] = {}
    runs = 0

    def measure(nodes: "Sequence[str]") -> Rung:
        nonlocal runs
        runs += 1
        what = f"{len(nodes)} of {len(targets)} nodes"
        _say(args, what)
        logs = folder / f"{runs:02d}-{len(nodes)}"
        result, code = _run_trial(args, before, [by_id[node] for node in nodes], logs, what)
        results[tuple(nodes)] = result, code
        job, state = result.job, result.judgement.state
        return Rung(nodes=tuple(nodes), state=state, rate=job.rate(), ranks=job.world)

    ladder = climb([target.id for target in targets], measure)
    result, code = results[ladder.rungs[-1].nodes]
    return replace(result, ladder=ladder), code


def _run_trial(
    args: argparse.Namespace, before: _Before, targets: "Sequence[Target]", folder: Path, what: str = ""
) -> "tuple[TrialResult, int]":
    """Of a ladder `what` is the rung."""
    from netdoctor.cli.launching.watching import Watcher
    from netdoctor.launch.starting import Where, commands_of
    from netdoctor.trial import judging
    from netdoctor.trial.logs import Logs
    from netdoctor.trial.rendering import EXIT_CODES, TrialResult
    from netdoctor.trial.running import Terms, Trial

    launch_plan = _launch_plan(args, before, targets)
    where = Where(args.start) if args.start else None
    commands = commands_of(launch_plan, args.started, where, guessed=before.report is None)
    try:
        logs = Logs(folder, sum(map(len, commands.runs.values())))
    except OSError as error:
        raise InputError(f"--logs {folder}: {error.strerror}; name a new folder") from None
    env = {"NCCL_DEBUG": "INFO", **before.plan.job.env}
    terms = Terms(
        seconds=args.seconds,
        cwd=args.chdir or os.getcwd(),
        steps=args.steps,
        step=args.step,
        probe=not args.no_probe,
        env=env,
    )
    progress = Watcher(launch_plan, args.seconds, what) if args.tui else _Progress(args, launch_plan.world)
    with signals(None) as stopped:

        def update(job: "Follower", seconds: float) -> None:
            progress.update(job, seconds)
            if stopped:  # Python loses an exception that comes while it cleans up
                raise KeyboardInterrupt

        trial = Trial(before.plan.transport, targets, commands, terms, logs, update)
        ended = progress.run(trial, stopped)
    judgement = judging.judge(trial.follower, ended, trial.took)
    result = TrialResult(
        job=trial.follower,
        judgement=judgement,
        ended=ended,
        seconds=trial.took,
        command=tuple(args.started),
        added=commands.added,
        logs=str(folder),
        fault=logs.fault,
        planned={node.id: node.address.text for node in launch_plan.nodes if node.address},
    )
    code = EXIT_CODES[judgement.state]
    if judgement.state is judging.State.INTERRUPTED and stopped:
        code = 128 + stopped[0]
    return result, code


def _find_causes(
    args: argparse.Namespace, before: _Before, result: "TrialResult"
) -> "tuple[tuple[Cause, ...], Report | None]":
    """What the logs say, joined with a scan of the nodes as they are now; that scan."""
    from netdoctor.cli.explain_scan import joined, measured_of
    from netdoctor.explain.engine import explain
    from netdoctor.trial.rendering import causes_of_scan

    names = [str(path) for path in sorted(Path(result.logs).glob("*.log")) if path.stat().st_size]
    explanation = explain(names) if names else None
    report = None
    # An interrupt ends the search for causes, and not the result.
    with suppress(InputError, KeyboardInterrupt, SystemExit):
        _say(args, "looks at the nodes again, for what may have ended it")
        # A quick one tries nothing between the nodes.
        profile = "full" if before.plan.request.profile == "full" else "launch"
        request = replace(before.plan.request, save=None, profile=profile)
        report = _scan(args, prepared(request, quiet=args.quiet))
    if explanation is not None and report is not None:
        explanation = joined(explanation, report)
    proofs = measured_of(report).proofs if report is not None else ()
    by_key = {cause.key: cause.node_list for cause in report.causes} if report is not None else {}
    nodes = {f"{proof.check}: {proof.title}": by_key.get(proof.key, ()) for proof in proofs}
    found = [*_causes_of_ranks(result.judgement)]
    found += _causes_in_logs(explanation, result, nodes) if explanation is not None else []
    if report is not None:
        proved = {text for cause in found for text in cause.source.split("; ")}
        found += causes_of_scan(report, proved, proofs)
    return tuple(found), report


def _causes_of_ranks(judgement: "Judgement") -> "Iterator[Cause]":
    """What the ranks themselves show: their numbers, and where they are."""
    from netdoctor.explain.knowledge import load
    from netdoctor.trial.rendering import Cause

    if judgement.cause:
        known = load().causes[judgement.cause]
        source = "what the ranks say"
        yield Cause(
            title=known.title, sure="likely", source=source, fixes=known.fix[:2], nodes=judgement.nodes,
            key=known.label,
        )  # fmt: skip


def _causes_in_logs(
    explanation: "Explanation", result: "TrialResult", nodes: "Mapping[str, Sequence[str]]"
) -> "list[Cause]":
    """The causes that lines of the logs tell of. nodes: those of what the scan found, by check and title.

    What such a line merely admits is left to a process that was killed without a word, and to the exception
    of the one that ended first: of all others it is known how they ended.
    """
    from netdoctor.cli.explain import fix_texts
    from netdoctor.explain.model import Confidence
    from netdoctor.trial.judging import first_to_end
    from netdoctor.trial.rendering import Cause

    killed = any(one.is_killed for one in result.job.bad())
    first = first_to_end(result.job) if result.job.bad() else None
    found: list[Cause] = []
    for reason in explanation.reasons:
        possible = reason.confidence is Confidence.POSSIBLE
        if not reason.lines:
            continue
        line = reason.lines[0]
        begins = first is not None and first.raises and f"/{first.node}." in line.file
        if possible and (found or not (killed or begins)):
            continue
        where = f"{line.file.rpartition('/')[2]}:{line.line}: {line.text}"
        proved = reason.confidence is Confidence.CERTAIN and reason.proof
        by_scan = (node for text in (reason.proof if proved else ()) for node in nodes.get(text, ()))
        cause = Cause(
            title=reason.known.title,
            sure=str(reason.confidence),
            source="; ".join(reason.proof) if proved else where,
            fixes=tuple(fix_texts(reason)[:2]),
            key=reason.known.label,
            nodes=tuple(dict.fromkeys(by_scan)),
        )
        found.append(cause)
    return found


def _next_command(args: argparse.Namespace, result: "TrialResult") -> str:
    """How to go on."""
    from netdoctor.trial.judging import State

    if result.judgement.state is not State.STARTED:
        return f"netdoctor explain log {shlex.quote(result.logs)}" if result.logs else ""
    hosts = shlex.join(args.hosts) or "--last"
    if result.added:
        at = next((i for i, word in enumerate(result.command) if word.endswith(".py")), len(result.command))
        launcher = "accelerate" if "accelerate" in " ".join(result.command[:3]) else "torchrun"
        script = shlex.quote(shlex.join(result.command[at:]))
        return f"netdoctor plan {hosts} --launcher {launcher} --script {script}"
    return f"netdoctor gate {hosts} -- {shlex.join(result.command)}"


# --- output -----------------------------------------------------------------------------------------------


class _Progress:
    """How far the ranks are, on stderr: a live line on a terminal, a line at each change elsewhere."""

    def __init__(self, args: argparse.Namespace, world: int) -> None:
        self.args = args
        self.world = world
        self.live = sys.stderr is not None and sys.stderr.isatty() and not args.quiet
        self.last = ""

    def update(self, job: "Follower", seconds: float) -> None:
        world = job.world or self.world
        words = [f"{len(job.joined)} of {world} ranks joined"]
        if job.steps_seen:
            rate = job.rate()
            words.append(f"step {job.steps()}" + (f", {rate:.3g} steps/s" if rate else ""))
        elif (waiting := sum(rank.waits_s is not None for rank in job.ranks.values())) and not job.joined:
            words = [f"{waiting} of {world} ranks wait for the others"]
        text = ", ".join(words)
        if self.live:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"\r\x1b[Ktry {seconds:4.0f} s of {self.args.seconds:.0f}  {text}"[:120])
                sys.stderr.flush()
        elif (key := f"{words[0]}{len(words)}") != self.last:
            self.last = key
            _say(self.args, f"{seconds:.0f} s: {text}")

    def run(self, trial: "Trial", stopped: list[int]) -> "Ended":
        """Run the trial; whatever signal ends it is in `stopped` already."""
        ended = trial.run()
        if self.live:
            with suppress(OSError, ValueError):
                sys.stderr.write("\r\x1b[K")
        return ended


def _say(args: argparse.Namespace, text: str, always: bool = False) -> None:
    if not args.quiet or always:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"netdoctor try: {clean(text, 2000)}\n")


def _write_result(args: argparse.Namespace, result: "TrialResult", folder: Path) -> None:
    """The result beside the folder of logs: inside, `explain log` would read it as one of them."""
    from netdoctor.report.save import write_whole
    from netdoctor.trial.rendering import to_json

    text = json.dumps(to_json(result), indent=1) + "\n"
    outputs = [args.output] if args.output is not None and str(args.output) != "-" else []
    for path in (Path(f"{folder}.json"), *outputs):
        try:
            write_whole(path, text.encode())
        except OSError as error:
            _say(args, f"{path}: {error.strerror or error}", True)


def _save_report(
    args: argparse.Namespace, plan: "Plan", report: "Report", result: "TrialResult", finished: float
) -> None:
    """The trial in the report of its nodes, which is what history and diff read."""
    from netdoctor.report.save import save
    from netdoctor.scanning.reporting import rfc3339
    from netdoctor.trial.rendering import to_record

    if (path := plan.request.save) is not None:
        try:
            record = to_record(result, rfc3339(finished), len(plan.inventory.targets))
            save(replace(report, trial=record), path)
        except OSError as error:
            _say(args, f"{path}: {error.strerror or error}", True)


def _show(args: argparse.Namespace, result: "TrialResult") -> None:
    from netdoctor.trial.rendering import lines, to_json

    if args.output is not None and str(args.output) == "-":
        sys.stdout.write(json.dumps(to_json(result), indent=1) + "\n")
        return
    width = columns(args.width) or columns_of(os.environ) or WIDTH
    sys.stdout.write("".join(f"{line}\n" for line in lines(result, width)))
