"""`netdoctor gate`: a scan in front of a command, which then takes netdoctor's place, or does not start."""

import argparse
import errno
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdoctor.cli import environ
from netdoctor.cli.crash import broken
from netdoctor.cli.launching.gate_end import PREFIX, End, say
from netdoctor.cli.options import (
    add_option,
    add_options,
    add_save_arguments,
    add_scan_arguments,
    count,
    request_fields,
    show_briefly,
)
from netdoctor.cli.parser import Listed
from netdoctor.cli.running import examined, facts_asked, prepared, request_of, saved_report, standing_report
from netdoctor.errors import InputError
from netdoctor.options import Group
from netdoctor.report import LAST
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.inventory import Target
    from netdoctor.report.model import Report
    from netdoctor.report.output import Output
    from netdoctor.scanning import Plan, ScanRequest
    from netdoctor.scanning.gate import Decision, Rules

NOT_FOUND, NOT_RUN = 127, 126
# What verdicts end with, and --refuse-code stands for.
REFUSALS = (1, 3, 4)
# Linux takes no variable of more than 128 KiB: MAX_ARG_STRLEN in execve(2).
LONGEST = 100_000
EPILOG = """\
examples:
  netdoctor gate hosts.txt -- torchrun --nnodes 4 train.py
  netdoctor gate --max-age 10m --refuse-code 75 hosts.txt -- ./launch.sh
  netdoctor gate hosts.txt --exclude-bad --min-nodes 6 --hosts-out openmpi=good -- \\
    mpirun --hostfile good ./run
  netdoctor gate --facts /shared/facts -- mpirun ./run
  netdoctor gate --local --deadline 20 --on-crash run -- "$@"
  srun --ntasks-per-node=1 netdoctor gate --gang gpu01:29600 --tasks 8 -- ./launch.sh

exit codes: those of the command once it runs; where it does not:
  1 not ready   3 undecided   4 warnings (--fail-on warn): or --refuse-code
  2 bad input   5 netdoctor broke   126, 127 no command   130, 143 interrupted

netdoctor gate --help-all shows all options.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "gate",
        help="scan, then start a command on nodes that are ready, or refuse",
        usage="netdoctor gate [options] HOSTS... -- COMMAND...",
        description="Scan (profile launch unless told otherwise; quick for one node alone), then become "
        "COMMAND, with its own signals, terminal and exit code; or refuse, with the causes on stderr, and "
        "start nothing.",
        epilog=EPILOG + environ.EPILOG,
    )
    add_scan_arguments(parser, hosts="as for scan: a file, '-', or names such as gpu[01-16]")
    add_options(parser, Group.TASKS)
    before = {action.dest for action in parser._actions}
    _add_starting(parser)
    out = parser.add_argument_group("output")
    out.add_argument(
        "-o",
        "--output",
        action=Listed,
        default=[],
        metavar="FORMAT[=FILE]",
        help="as for scan, on stderr where no file is named (short, unless another one is there)",
    )
    add_option(out, "fail_on", "what keeps the command from starting")
    out.add_argument("-q", "--quiet", action="store_true", help="say nothing where the command starts")
    gate_options = {action.dest for action in parser._actions} - before
    scan = parser.add_argument_group("scan")
    add_option(scan, "strict", "gaps leave it UNDECIDED")
    add_option(scan, "require", "--strict for these families")
    scan.add_argument("--redact", action="store_true", help="aliases in what is printed")
    add_save_arguments(scan)
    show_briefly(parser, [*gate_options, "hosts", "last"])
    parser.set_defaults(run=run, parser=parser)


def _add_starting(parser: argparse.ArgumentParser) -> None:
    """What lets the command start, and on which nodes."""
    gate = parser.add_argument_group("starting")
    choice: dict[str, Any] = {"choices": ("run", "refuse"), "default": "refuse"}
    gate.add_argument("--on-undecided", **choice, help="where no problem is proven, and not all is known")
    gate.add_argument(
        "--on-crash", **choice, help="where netdoctor itself breaks, which is not a fault of a node"
    )
    gate.add_argument(
        "--max-age",
        type=_age,
        metavar="TIME",
        help="do not scan if the saved report allows the start, has the same hosts, checks and job, "
        "and is not older than this: 90, 10m, 2h",
    )
    gate.add_argument(
        "--exclude-bad", action="store_true", help="start on the usable nodes, after a scan of these alone"
    )
    gate.add_argument(
        "--min-nodes",
        type=count,
        metavar="N",
        help="with --exclude-bad: on no fewer (default: four fifths of those that are listed)",
    )
    gate.add_argument(
        "--hosts-out",
        type=_hosts_out,
        metavar="[FORMAT=]FILE",
        help="write the nodes that it starts on, for a program that reads them (netdoctor hosts convert -h)",
    )
    gate.add_argument(
        "--refuse-code", type=_code, metavar="N", help="exit code of a refusal, instead of 1, 3 and 4"
    )
    gate.add_argument(
        "--gang",
        metavar="HOST:PORT",
        help="every node of the job runs this same line: the first judges them there, and all start, or none",
    )
    gate.add_argument(
        "--rank",
        type=_rank,
        metavar="N",
        help="with --gang: which node this is, from 0 (default: its launcher's)",
    )
    gate.add_argument("--no-env", action="store_true", help="leave the command's environment as it is")
    gate.add_argument("--dry-run", action="store_true", help="print what would start, and start nothing")


def _age(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([smhd]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is not a time; write 90, 10m or 2h")
    return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def _rank(text: str) -> int:
    if not text.isdecimal() or len(text) > 8:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is not the number of a node; write 0, 1, …")
    return int(text)


def _hosts_out(text: str) -> tuple[str, Path]:
    from netdoctor.inventory.writers import WRITERS

    name, equals, path = text.partition("=")
    if not equals:
        return "plain", Path(text)
    if name not in WRITERS or not path:
        raise argparse.ArgumentTypeError(
            f"{clean(text, 60)!r}; write FILE or FORMAT=FILE: {', '.join(WRITERS)}"
        )
    return name, Path(path)


def _code(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 256:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is not an exit code; write 1 to 255")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """The whole command. It returns only where the command was not started."""
    if not args.started:
        args.parser.error("which command should start? netdoctor gate HOSTS -- COMMAND")
    if (code := _unfit(args.started[0])) is not None:
        return code
    if args.gang is not None:
        from netdoctor.cli.launching.gang import together

        end = together(args, lambda: _end(args))
    elif args.rank is not None:
        raise InputError("--rank goes with --gang")
    else:
        end = _end(args)
    return _become(args, end.variables) if end.code is None else end.code


def _end(args: argparse.Namespace) -> End:
    try:
        return _gate(args)
    except InputError:
        raise
    except Exception as error:
        if args.on_crash == "refuse":
            raise
        broken(error)
    say(f"{_starts(args)} all the same (--on-crash run)")
    return End(None, variables={f"{PREFIX}VERDICT": "crashed"})


def _gate(args: argparse.Namespace) -> End:
    from netdoctor import scanning
    from netdoctor.inventory.nodeset import fold
    from netdoctor.report import fmt
    from netdoctor.scanning.gate import Act

    if args.facts and args.max_age is not None:
        raise InputError("--max-age uses an earlier scan, --facts uses written facts; leave one out")
    if (saved := saved_report(args.facts)) is not None:
        return _by_report(args, saved)
    request, before = _request(args)
    outputs = _outputs(args, request)
    plan = prepared(request, quiet=args.quiet, profile_alone=_profile_alone(args))
    _hosts_text(args, _cluster(plan))  # what its format cannot carry is told before anybody is contacted
    rules = _rules(args)
    report = _saved(args, plan, rules, outputs)
    if report is None:
        look = _examined(args, plan, rules, outputs, before)
        if look.decision.act is Act.EXCLUDE and not look.late:
            targets = tuple(t for t in plan.inventory.targets if t.id in look.decision.nodes)
            bad = [t.id for t in plan.inventory.targets if t not in targets]
            who = fmt.number(len(bad), "node") if args.redact else fold(bad, 60)
            say(f"{look.decision.why} with {who}; scans the others alone")
            first = look
            try:
                plan = scanning.prepare(_alone(request, targets), profile_alone=_profile_alone(args))
                look = _examined(args, plan, replace(rules, exclude_bad=False), outputs, None)
            except InputError:
                raise
            except Exception as error:  # --on-crash run is for what nobody knows, and bad nodes are known
                broken(error)
                return _refused(args, first)
        if look.late:
            return End(look.late, "interrupted")
        if look.decision.act is not Act.START:
            return _refused(args, look)
        report, nodes = look.report, look.decision.nodes
    else:
        nodes = tuple(target.id for target in plan.inventory.targets)
    return _start(args, report, _cluster(plan), nodes)


def _by_report(args: argparse.Namespace, source: Path) -> End:
    """By a saved report alone, judged again. Nobody is contacted."""
    from netdoctor import scanning
    from netdoctor.facts.software import Job
    from netdoctor.report.kept import as_facts as facts_kept
    from netdoctor.report.save import load
    from netdoctor.scanning.gate import Act, Decision, decide, not_ours_now
    from netdoctor.scanning.pool import MAX_AGE_S

    if args.exclude_bad:
        raise InputError("--exclude-bad scans nodes again, and a report cannot; leave one out")
    fields, report = facts_asked(args, request_fields(args)), load(source)
    max_age_s = MAX_AGE_S if args.facts_age is None else args.facts_age
    if why := not_ours_now(report, now=time.time(), max_age_s=max_age_s):
        old = Decision(
            act=Act.REFUSE, code=3, why=f"{source} does not show the present state: {why} (--facts-age)"
        )
        return _refused(args, _Look(report, old, 0))
    request, job = scanning.kept_request(report, fields, source), facts_kept(report.facts).cluster_fact("job")
    outputs = _outputs(args, request)
    cluster = _Cluster(request.targets or (), job.env if isinstance(job, Job) else {}, source)
    _hosts_text(args, cluster)
    judged = scanning.judge_saved(report, fields, source)
    decision = decide(judged, _rules(args))
    if decision.act is Act.START and args.quiet:
        outputs = [output for output in outputs if output.path is not None]
    _deliver(args, lambda: (judged, judged), args.save, outputs)
    if decision.act is Act.START:
        return _start(args, judged, cluster, decision.nodes)
    return _refused(args, _Look(judged, decision, 0))


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What a command starts by. env: the job's own. path: of the report, for what is said of it."""

    targets: "tuple[Target, ...]"
    env: Mapping[str, str]
    path: Path


def _cluster(plan: "Plan") -> _Cluster:
    return _Cluster(plan.inventory.targets, plan.job.env, plan.request.save or LAST)


@dataclass(frozen=True, slots=True)
class _Look:
    """A scan, and what it lets happen. late: exit code where a signal came while it was written down."""

    report: "Report"
    decision: "Decision"
    late: int


def _request(args: argparse.Namespace) -> "tuple[ScanRequest, Report | None]":
    if args.min_nodes is not None and not args.exclude_bad:
        raise InputError("--min-nodes goes with --exclude-bad; without that the command starts on all nodes")
    if args.exclude_bad and args.meet is not None:
        raise InputError("--exclude-bad scans nodes again, and tasks connect only once; leave --meet out")
    if args.exclude_bad and args.fail_on == "never":
        raise InputError("--exclude-bad and --fail-on never contradict each other; leave one out")
    return request_of(args, request_fields(args))


def _profile_alone(args: argparse.Namespace) -> str | None:
    """The profile for one node alone, where none was named: what launch adds is mostly between nodes."""
    return None if args.profile or args.last or args.facts else "quick"


def _alone(request: "ScanRequest", targets: "tuple[Target, ...]") -> "ScanRequest":
    """The scan of these nodes alone. Where files name the nodes, these are the ones that are asked for."""
    if not request.facts:
        return replace(request, targets=targets)
    selected = tuple(replace(target, source="--exclude-bad") for target in targets)
    return replace(request, hosts=(), targets=selected, facts_nodes=None)


def _rules(args: argparse.Namespace) -> "Rules":
    from netdoctor.scanning.gate import Rules

    return Rules(
        on_undecided=args.on_undecided == "run",
        on_crash=args.on_crash == "run",
        exclude_bad=args.exclude_bad,
        min_nodes=args.min_nodes,
    )


def _outputs(args: argparse.Namespace, request: "ScanRequest") -> "list[Output]":
    """Where the report goes; what would go to stdout goes to stderr, as stdout is the command's."""
    from netdoctor.report.output import parse_outputs
    from netdoctor.report.places import check, keep_apart, opened
    from netdoctor.scanning import reads

    outputs = parse_outputs(args.output or ["short"])
    if all(output.path is not None for output in outputs):  # who wants a file wants to know why all the same
        outputs = [*outputs, *parse_outputs(["short"])]
    if args.hosts_out is not None:
        hosts_file = (f"--hosts-out {args.hosts_out[1]}", args.hosts_out[1])
        others = [(f"-o {o.format}={o.path}", o.path) for o in outputs if o.path is not None]
        others += [(f"--save {request.save}", request.save)] if request.save is not None else []
        keep_apart([hosts_file], [*reads(request), *others])
        check(*hosts_file)
    return opened(outputs, request.save, reads(request))


def _saved(
    args: argparse.Namespace, plan: "Plan", rules: "Rules", outputs: "Sequence[Output]"
) -> "Report | None":
    """The report that is saved, where --max-age lets it stand for a scan and it lets the command start."""
    path = args.save or LAST
    if args.max_age is None or not path.exists():
        return None
    report, why = standing_report(plan, path, args.max_age, rules)
    if report is None:
        if not args.quiet:
            say(f"{path} does not stand for a scan: {why}")
        return None
    found = report
    _deliver(args, lambda: (found, None), None, outputs)
    if not args.quiet:
        say(f"by {path}, begun {report.run.started}")
    return report


def _examined(
    args: argparse.Namespace,
    plan: "Plan",
    rules: "Rules",
    outputs: "Sequence[Output]",
    before: "Report | None",
) -> _Look:
    from netdoctor import scanning
    from netdoctor.scanning.gate import Act, decide

    with examined(args, plan, ()) as (report, outcome, late):
        decision = decide(report, rules)
        if decision.act is Act.EXCLUDE:  # files are written once, of the scan that decides
            outputs = [output for output in outputs if output.path is None]
        elif decision.act is Act.START and args.quiet:
            outputs = [output for output in outputs if output.path is not None]

        def reports() -> "tuple[Report, Report | None]":
            return (report, report) if before is None else scanning.into(before, plan, outcome, report)

        _deliver(args, reports, plan.request.save, outputs)
    return _Look(report, decision, 128 + late[0] if late else 0)


def _deliver(
    args: argparse.Namespace,
    reports: "Callable[[], tuple[Report, Report | None]]",
    save: Path | None,
    outputs: "Sequence[Output]",
) -> None:
    """Save and print. What could not be written is told; the decision is that of what was measured.

    reports: gives what is shown, and what is saved, None for nothing.
    """
    from netdoctor.report.output import RenderOptions, deliver

    failures: list[str] = []
    try:
        with redirect_stdout(sys.stderr):
            report, saved = reports()
            path = save if saved else None
            _, failures = deliver(
                report, outputs, RenderOptions(), save=path, saved=saved, redact=args.redact
            )
    except Exception as error:  # a defect here must neither start nor stop a job
        failures = [f"the report could not be shown: {type(error).__name__}: {error}"]
    for failure in failures:
        say(failure)


def _refused(args: argparse.Namespace, look: _Look) -> End:
    code = look.decision.code
    if args.refuse_code is not None and code in REFUSALS:
        code = args.refuse_code
    saved = look.report.run.saved_to or (None if args.no_save else args.save or LAST)
    more = "" if saved is None else "; netdoctor report show" + (f" {saved}" if Path(saved) != LAST else "")
    say(f"not started, {look.decision.why}{f'{more} has the fixes' if more else ''}")
    return End(code, look.decision.why, report=look.report)


def _start(args: argparse.Namespace, report: "Report", cluster: _Cluster, nodes: Sequence[str]) -> End:
    from netdoctor.report import fmt, summary

    if args.hosts_out is not None and not args.dry_run:
        from netdoctor.report.save import READABLE, write_whole

        try:
            write_whole(args.hosts_out[1], _hosts_text(args, cluster).encode(), READABLE)
        except OSError as error:
            raise InputError(f"--hosts-out {args.hosts_out[1]}: {error.strerror or error}") from None
    planned = {} if args.no_env or args.local else _planned(report, cluster)
    # What --env-file names is the job's own, also where the command reads it only later.
    environment = {**cluster.env, **os.environ}
    new = {name: value for name, value in planned.items() if name not in environment}
    overridden = [name for name, value in planned.items() if environment.get(name, value) != value]
    # Nothing of the cluster is told of by name where the report is not to either.
    printed, here = (
        dict.fromkeys(found, "...") if args.redact else found for found in (planned, environment)
    )
    parts = [f"{summary.verdict_in_scope(report)}, {_starts(args)} on {fmt.number(len(nodes), 'node')}"]
    parts += [f"sets {' '.join(f'{name}={printed[name]}' for name in new)}"] if new else []
    parts += (
        [f"keeps your {', '.join(f'{name}={here[name]} (measured: {printed[name]})' for name in overridden)}"]
        if overridden
        else []
    )
    variables = {"VERDICT": report.verdict.state, "NODES": ",".join(nodes), "NNODES": str(len(nodes))}
    if len(variables["NODES"]) > LONGEST:
        del variables["NODES"]
        parts.append(f"{PREFIX}NODES would be too long for an environment; take --hosts-out")
    if not args.quiet:
        say("; ".join(parts))
    more = {f"{PREFIX}{name}": value for name, value in variables.items()}
    return End(None, summary.verdict_in_scope(report), {**new, **more}, report)


def _hosts_text(args: argparse.Namespace, cluster: _Cluster) -> str:
    """The nodes as --hosts-out has them. Raises InputError where its format cannot carry one."""
    from netdoctor.inventory.writers import write

    return write(cluster.targets, args.hosts_out[0])[0] if args.hosts_out is not None else ""


def _planned(report: "Report", cluster: _Cluster) -> dict[str, str]:
    """What the job is to have in its environment by what was measured; what would be guessed stays away."""
    from netdoctor import launch
    from netdoctor.cli.launch_evidence import evidence_of

    found = launch.environment(cluster.targets, evidence_of(report, cluster.path))
    return {name: one.text for name, one in found.items() if one.origin is not launch.Origin.GUESSED}


def _become(args: argparse.Namespace, more: Mapping[str, str]) -> int:
    """Let the command take the place of this process. Returns only where it cannot, or with --dry-run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment = {**inherited, **more}
    if args.dry_run:
        sys.stdout.write(shlex.join(["env", *(f"{n}={v}" for n, v in more.items()), *args.started]) + "\n")
        return 0
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # Python ignores these, and what is ignored stays so in the command: `yes | head` would not end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execvpe(args.started[0], args.started, environment)  # noqa: S606  # this is what gate is for
        except OSError as error:
            # A script without a first line is the shell's, as for env, nice and timeout.
            script = shutil.which(args.started[0]) if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            os.execve("/bin/sh", ["/bin/sh", script, *args.started[1:]], environment)  # noqa: S606  # the same
    except OSError as error:
        say(f"{args.started[0]}: {error.strerror}")
        return NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_RUN


def _unfit(name: str) -> int | None:
    """The exit code where the command cannot be run, found out before anybody is contacted."""
    if shutil.which(name) is not None:
        return None
    exists = os.path.exists(name) if os.sep in name else shutil.which(name, os.F_OK) is not None
    unknown = "no such command; what a shell knows by itself needs sh -c"
    say(f"{name}: {'cannot be run' if exists else unknown}")
    return NOT_RUN if exists else NOT_FOUND


def _starts(args: argparse.Namespace) -> str:
    return "would start" if args.dry_run else "starts"
