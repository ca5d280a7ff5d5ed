"""`netdoctor scan`: from a host list to a verdict, an exit code and a saved report."""

import argparse
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from netdoctor import __version__
from netdoctor.cli import EXIT_BAD_INPUT, EXIT_BROKEN
from netdoctor.errors import DeadlineReached, InputError
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.check import Check
    from netdoctor.engine.registry import Registry
    from netdoctor.engine.run import Listener, Outcome, Scan
    from netdoctor.facts.bandwidth import Baseline
    from netdoctor.facts.software import Job
    from netdoctor.inventory import Inventory, Target
    from netdoctor.report.model import Report
    from netdoctor.report.output import Output
    from netdoctor.transport.base import Transport

LAST = Path(".netdoctor/last.json")

EPILOG = """\
examples:
  netdoctor scan hosts.txt
  netdoctor scan 'gpu[01-16]' --profile quick -o short
  netdoctor scan hosts.txt --env-file train.env -o text -o junit=report.xml
  netdoctor scan --last --only net.ports --node gpu03
"""


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no port; write 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0 < value <= 86400):
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no time; write seconds, such as 30")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{clean(text, 40)!r} is no count; write 1 to 4096")
    return int(text)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "scan",
        help="examine nodes over SSH, print the report, save it",
        description="Log in to every node, measure, and say whether a multi-node job will start and be fast.",
        epilog=EPILOG,
    )
    add_scan_arguments(
        parser, hosts="a file, '-', or names such as gpu[01-16] or user@host:port; several are joined"
    )
    parser.add_argument(
        "--facts", type=Path, metavar="REPORT", help="judge the facts of a saved report again, offline"
    )
    parser.add_argument("--tui", action="store_true", help="watch the scan, and its report, in the TUI")
    out = parser.add_argument_group("output")
    out.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="FORMAT[=FILE]",
        help="text, short, json, jsonl, junit, markdown, github, prom, none; repeatable",
    )
    out.add_argument(
        "--fail-on", choices=("fail", "warn", "never"), default="fail", help="what makes the exit code"
    )
    out.add_argument(
        "--strict", action="store_true", help="skip and unknown of required checks count as fail"
    )
    out.add_argument("--plan", action="store_true", help="print what would run where, and contact nothing")
    out.add_argument("--save", type=Path, metavar="FILE", help=f"save the report here (default: {LAST})")
    out.add_argument("--no-save", action="store_true", help="do not save the report")
    out.add_argument(
        "--redact",
        action="store_true",
        help="aliases for hosts, addresses and users in what is printed; the saved report keeps them",
    )
    out.add_argument("-v", "--verbose", action="count", default=0, help="passes too; twice: timings")
    out.add_argument("-q", "--quiet", action="store_true", help="causes only")
    out.add_argument("--all", action="store_true", help="all causes, not the first ten")
    out.add_argument(
        "--json-detail", choices=("problems", "all"), default="problems", help="how much JSON holds"
    )
    out.add_argument("--pretty", action="store_true", help="indented JSON")
    out.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour in text")
    out.add_argument("--width", type=_count, metavar="N", help="columns of the text report")
    out.add_argument("--export", type=Path, metavar="FILE", help="with --tui: where E writes fixes")
    out.add_argument(
        "--theme", choices=("auto", "dark", "light"), default="auto", help="with --tui: its background"
    )
    parser.set_defaults(run=run, parser=parser)


def add_scan_arguments(parser: argparse.ArgumentParser, hosts: str) -> None:
    """What `scan` and `tui` have in common: the hosts, how to reach them, what to look at, bounds."""
    add = parser.add_argument
    add("hosts", nargs="*", metavar="HOSTS", help=hosts)
    add("--format", default="auto", metavar="FORMAT", help="how to read the host list (default: detect it)")
    add("--last", action="store_true", help="the hosts and options of the last saved report")
    add("--local", action="store_true", help="this machine only, without SSH")
    ssh = parser.add_argument_group("logging in")
    ssh.add_argument("--ssh-config", type=Path, metavar="FILE", help="instead of ~/.ssh/config")
    ssh.add_argument("--ssh-user", metavar="U", help="login user")
    ssh.add_argument("--ssh-port", type=_port, metavar="N", help="SSH port")
    ssh.add_argument("--ssh-key", type=Path, metavar="F", help="private key file")
    ssh.add_argument(
        "--known-hosts", type=Path, metavar="FILE", help="instead of the known_hosts of the config"
    )
    ssh.add_argument("--jump", metavar="H", help="jump host: [user@]host[:port], several with commas")
    ssh.add_argument("--accept-new", action="store_true", help="learn unknown host keys (never changed ones)")
    ssh.add_argument("--python", metavar="PATH", help="interpreter on the nodes (default: python3)")
    what = parser.add_argument_group("what to look at")
    what.add_argument(
        "-p",
        "--profile",
        choices=("quick", "launch", "full"),
        default="launch",
        help="quick: passive; launch (default): + ports, clock, path MTU; full: everything",
    )
    what.add_argument(
        "-c", "--only", action="append", default=[], metavar="GLOB", help="checks to run; repeatable"
    )
    what.add_argument(
        "--skip", action="append", default=[], metavar="GLOB", help="checks to leave out; repeatable"
    )
    what.add_argument(
        "-n", "--node", metavar="EXPR", help="judge only these nodes (their peers are still contacted)"
    )
    what.add_argument("--env-file", type=Path, metavar="F", help="environment that the job will get")
    what.add_argument(
        "--master-port", type=_port, metavar="N", help="rendezvous port (default: MASTER_PORT, 29500)"
    )
    what.add_argument(
        "--packages", metavar="LIST", default="", help="distributions that must be equal: torch,vllm"
    )
    what.add_argument(
        "--baseline", type=Path, metavar="REPORT", help="a saved report whose bandwidths to compare with"
    )
    what.add_argument(
        "--checks-dir", action="append", default=[], type=Path, metavar="DIR", help="more checks"
    )
    bounds = parser.add_argument_group("bounds")
    bounds.add_argument("-j", "--parallel", type=_count, default=64, metavar="N", help="logins at once (64)")
    bounds.add_argument("--timeout", type=_seconds, default=30.0, metavar="S", help="seconds per node (30)")
    bounds.add_argument("--deadline", type=_seconds, metavar="S", help="seconds for the whole run")
    bounds.add_argument(
        "--budget", type=_seconds, metavar="S", help="seconds for bandwidth experiments (launch 20, full 120)"
    )


def run(args: argparse.Namespace) -> int:
    """The whole command; bad input is told on stderr before anything is contacted."""
    try:
        return _run(args)
    except InputError as error:
        sys.stderr.write(_one_per_line(str(error)))
        return EXIT_BAD_INPUT


def _one_per_line(text: str) -> str:
    return "".join(f"netdoctor: {clean(line, 1000)}\n" for line in text.splitlines() if line.strip())


def _run(args: argparse.Namespace) -> int:
    from netdoctor.check import Profile
    from netdoctor.engine import registry
    from netdoctor.report.output import parse_outputs

    _apply_last(args)
    outputs = parse_outputs(args.output)
    _check_places(args, outputs)
    known = registry.load(folders=args.checks_dir)
    checks = registry.select(known.checks, Profile(args.profile), args.only, args.skip)
    if args.facts is not None:
        return _rejudge(args, known, checks, outputs)
    plan = prepare(args, known=known, checks=checks)
    if args.plan:
        _print_plan(args, plan.targets, plan.checks, plan.transport, plan.job)
        return 0
    if args.tui:
        from netdoctor.cli import tui

        code = tui.show(args, None, None)
        if args.output and args.shown is not None:
            _deliver(args, args.shown, outputs, saved=True)
        return code
    started = time.time()
    outcome, stopped = _scan(args, plan)
    with _signals_noted() as late:
        report = _report(args, outcome, known, plan.inventory, started, stopped, plan.targets)
        code = _deliver(args, report, outputs)
    return 128 + late[0] if late else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a scan needs, before anything is contacted. judged: node ids that get statuses, None for all."""

    known: "Registry"
    checks: "Sequence[Check]"
    inventory: "Inventory"
    targets: "tuple[Target, ...]"
    judged: tuple[str, ...] | None
    job: "Job"
    transport: "Transport"
    baseline: "Baseline | None" = None

    def scan(self, args: argparse.Namespace, listener: "Listener") -> "Scan":
        from netdoctor.check import Profile
        from netdoctor.engine.run import Options, Scan

        options = Options(
            profile=Profile(args.profile),
            timeout_s=args.timeout,
            judged=self.judged,
            budget_s=args.budget,
            baseline=self.baseline,
        )
        return Scan(self.targets, self.checks, self.job, options, listener)


def prepare(
    args: argparse.Namespace,
    *,
    known: "Registry | None" = None,
    checks: "Sequence[Check] | None" = None,
    inventory: "Inventory | None" = None,
    judged: tuple[str, ...] | None = None,
) -> Plan:
    """Read hosts, checks and the job's environment, and make the transport. Raises InputError and its kin."""
    from netdoctor.check import Profile
    from netdoctor.cli import jobenv
    from netdoctor.engine import registry
    from netdoctor.inventory import restrict

    if known is None:
        known = registry.load(folders=args.checks_dir)
    if checks is None:
        checks = registry.select(known.checks, Profile(args.profile), args.only, args.skip)
    if inventory is None:
        inventory = _inventory(args)
    targets = tuple(replace(t, python=t.python or args.python) for t in inventory.targets)
    if judged is None and args.node:
        judged = restrict(inventory, args.node)
    job = jobenv.job(
        env_file=args.env_file,
        environ=os.environ,
        master_port=args.master_port,
        packages=[p for p in args.packages.split(",") if p],
        nodes=[t.id for t in targets],
    )
    return Plan(
        known=known,
        checks=checks,
        inventory=inventory,
        targets=_contacted(targets, checks, judged),
        judged=judged,
        job=job,
        transport=_transport(args),
        baseline=_baseline(args, [t.id for t in targets], None if args.no_save else args.save or LAST),
    )


def _baseline(
    args: argparse.Namespace, nodes: Sequence[str], saved_to: Path | None = None
) -> "Baseline | None":
    """The report of --baseline. Raises InputError, also when this scan's own report would replace it."""
    if args.baseline is None:
        return None
    from netdoctor.report import baseline

    if saved_to is not None and saved_to.resolve() == args.baseline.resolve():
        raise InputError(
            f"--baseline {args.baseline}: this scan's report would replace it, and then be compared with "
            "itself; compare with a copy, or say --save or --no-save"
        )
    return baseline.read(args.baseline, nodes)


def _contacted(
    targets: "tuple[Target, ...]", checks: "Sequence[Check]", judged: tuple[str, ...] | None
) -> "tuple[Target, ...]":
    """All targets when a check compares nodes (its peers are needed), else only the judged ones."""
    if judged is None or any(check.scope == "cluster" for check in checks):
        return targets
    wanted = set(judged)
    return tuple(t for t in targets if t.id in wanted)


def _inventory(args: argparse.Namespace) -> "Inventory":
    from netdoctor.inventory import Inventory, Target, load

    if args.local:
        if args.hosts:
            raise InputError("--local examines this machine; leave the host list out")
        return Inventory(
            targets=(Target(id="localhost", host="localhost", source="--local"),),
            format="local",
            source="--local",
        )
    if args.last_targets is not None:
        return Inventory(targets=args.last_targets, format="last", source=str(LAST))
    if not args.hosts:
        raise InputError("no hosts: name a hosts file, hosts, or --last (see netdoctor scan -h)")
    return load(args.hosts, stdin=sys.stdin, environ=os.environ, format=args.format)


def _apply_last(args: argparse.Namespace) -> None:
    """Take hosts, and options that were not given now, from the last saved report."""
    args.last_targets = None
    if not args.last:
        return
    if args.hosts:
        raise InputError("--last takes the hosts of the last report; leave the host list out")
    from netdoctor.report.save import load

    path = args.save or LAST
    report = load(path)
    if path.stat().st_uid not in (os.geteuid(), 0):
        # It names an ssh config, and with that programs to run: only one's own is taken at its word.
        raise InputError(f"--last: {path} belongs to somebody else; name the hosts instead")
    apply_replay(args, report.run.replay, path)


def apply_replay(args: argparse.Namespace, replay: dict[str, Any], path: Path) -> None:
    """Take the hosts of a report, and those of its options that were not given now."""
    import msgspec

    from netdoctor.inventory import Target

    try:
        args.last_targets = msgspec.convert(replay["targets"], type=tuple[Target, ...])
        options: dict[str, Any] = dict(replay["options"])
    except (KeyError, msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{path}: does not say how it was made ({error}); name the hosts instead") from None
    _check_replay(args.last_targets, options, path)
    for name in _REPLAYED:
        if name in options and getattr(args, name) == args.parser.get_default(name):
            value = options[name]
            setattr(args, name, Path(value) if name in _PATHS and value else value)


def _check_replay(targets: "Sequence[Target]", options: dict[str, Any], path: Path) -> None:
    """Hold a report to the rules that a hosts file and the command line are held to. Raises InputError."""
    from netdoctor.inventory.names import host_fault, is_valid_port, leaf_fault, python_fault, user_fault

    def refuse(what: str, why: object) -> None:
        raise InputError(f"{path}: its {what} cannot be used ({why}); name the hosts instead")

    for target in targets:
        if fault := host_fault(target.host):
            refuse(f"host {clean(target.host, 60)!r}", fault.message)
        if target.user is not None and (fault := user_fault(target.user)):
            refuse(f"user {clean(target.user, 60)!r}", fault.message)
        if target.python is not None and (fault := python_fault(target.python)):
            refuse(f"interpreter {clean(target.python, 60)!r}", fault.message)
        if target.leaf is not None and (fault := leaf_fault(target.leaf)):
            refuse(f"leaf {clean(target.leaf, 60)!r}", fault.message)
        if target.port is not None and not is_valid_port(target.port):
            refuse("port", target.port)
    for name, value in options.items():
        numbers = {"timeout", "budget", "ssh_port", "master_port", "parallel"}
        wanted: type | tuple[type, ...] = str
        if name in numbers:
            wanted = (int, float)
        elif name == "local":
            wanted = bool
        if name in _REPLAYED and value is not None and not isinstance(value, wanted):
            refuse(f"option {clean(name, 40)}", "of the wrong type")
    if (user := options.get("ssh_user")) and (fault := user_fault(user)):
        refuse("option ssh_user", fault.message)
    if str(options.get("jump") or "").startswith("-"):
        refuse("option jump", "it begins with '-'")


# Not --checks-dir: code is loaded only from places that are named now; verify commands name it again.
_PATHS = ("ssh_config", "ssh_key", "known_hosts", "env_file", "baseline")
_REPLAYED = (
    *_PATHS, "ssh_user", "ssh_port", "jump", "python", "profile", "master_port", "packages", "parallel",
    "timeout", "budget", "local",
)  # fmt: skip


def _plain(name: str, value: Any) -> Any:
    """An option as the report keeps it: paths absolute, so that `--last` works from elsewhere."""
    return str(Path(value).absolute()) if name in _PATHS else value


def _transport(args: argparse.Namespace) -> "Transport":
    from netdoctor.transport.base import Limits, SshOptions

    limits = Limits(
        parallel=args.parallel,
        login_timeout_s=min(15.0, args.timeout),
        node_budget_s=args.timeout,
        agent_deadline_s=(args.deadline or 600.0) + 60.0,
    )
    if args.local:
        from netdoctor.transport.local import LocalTransport

        return LocalTransport(limits)
    from netdoctor.transport.ssh import SshTransport

    options = SshOptions(
        ssh_config=args.ssh_config,
        user=args.ssh_user,
        port=args.ssh_port,
        key=args.ssh_key,
        known_hosts=args.known_hosts,
        jump=args.jump,
        accept_new=args.accept_new,
    )
    return SshTransport(options, limits)


def _scan(args: argparse.Namespace, plan: Plan) -> "tuple[Outcome, int | None]":
    """(outcome, signal number that stopped the scan or None)."""
    from netdoctor.cli.progress import Progress

    quiet = args.quiet
    with (
        Progress(sys.stderr, len(plan.targets), enabled=not quiet) as progress,
        _signals(args.deadline) as stopped,
    ):
        outcome = plan.scan(args, progress.update).run(plan.transport)
    return outcome, stopped[0] if stopped else None


@contextmanager
def _signals(deadline_s: float | None) -> Iterator[list[int]]:
    """First SIGINT, SIGTERM or SIGHUP: stop and report what is known. Second: leave at once.

    The list yielded holds the number of the signal that came. --deadline arrives as SIGALRM.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)  # the SSH workers end by themselves when our pipes close
        came.append(number)
        raise KeyboardInterrupt

    def late(number: int, frame: FrameType | None) -> None:
        raise DeadlineReached

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, stop) for n in numbers}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, late)
    if deadline_s is not None:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        yield came
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """While the report is written a signal only counts: the report is whole first. A second one ends all."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(
    args: argparse.Namespace,
    outcome: "Outcome",
    known: "Registry",
    inventory: "Inventory",
    started: float,
    stopped: int | None,
    targets: "tuple[Target, ...]",
) -> "Report":
    import platform
    import uuid

    import msgspec

    from netdoctor.report.build import Context, Remote, build
    from netdoctor.report.model import Note, Run

    finished = time.time()
    ssh = _ssh_argv(args)
    run = Run(
        id=uuid.uuid4().hex,
        started=_rfc3339(started),
        finished=_rfc3339(finished),
        duration_ms=round((finished - started) * 1000),
        complete=outcome.ended_by == "end",
        ended_by=outcome.ended_by,
        profile=args.profile,
        selected=tuple(args.only) or ("*",),
        skipped=tuple(args.skip),
        hosts_source={"format": inventory.format, "path": inventory.source},
        control_host={"name": platform.node(), "python": platform.python_version()},
        ssh_command=shlex.join(ssh),
        replay={
            "targets": [msgspec.to_builtins(t) for t in targets],
            "options": {
                name: _plain(name, value) for name in _REPLAYED if (value := getattr(args, name)) is not None
            },
        },
    )
    notes = [Note(level="info", text=text) for text in inventory.notes]
    notes += [
        Note(level="warn", text=f"plug-in {p.name} is left out: {p.error}") for p in known.plugins if p.error
    ]
    if outcome.judgement.tracebacks and (place := _keep_tracebacks(outcome.judgement.tracebacks)):
        notes.append(Note(level="warn", text=f"part of netdoctor itself crashed; tracebacks: {place}"))
    context = Context(
        run=run,
        fail_on=args.fail_on,
        strict=args.strict,
        remote=Remote(ssh=ssh, destination={t.id: _destination(t) for t in targets}),
        root_here=os.geteuid() == 0,
        version=__version__,
        plugins=tuple({"name": p.name, "version": p.version} for p in known.plugins if not p.error),
        notes=tuple(notes),
        verify_prefix=_verify_prefix(args),
        interrupted_code=128 + (stopped or signal.SIGINT),
    )
    return build(outcome, context)


def _keep_tracebacks(tracebacks: Sequence[str]) -> str | None:
    """Where the tracebacks of checks and experiments that crashed were written; None when nowhere."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="netdoctor-", suffix=".traceback", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write("\n".join(tracebacks))
            return file.name
    except OSError:
        return None


def _rfc3339(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ssh_argv(args: argparse.Namespace) -> tuple[str, ...]:
    """The ssh client with the options of this scan, as a person would type it."""
    argv = ["ssh"]
    pairs = (("-F", args.ssh_config), ("-l", args.ssh_user), ("-p", args.ssh_port), ("-i", args.ssh_key),
             ("-J", args.jump))  # fmt: skip
    for flag, value in pairs:
        if value is not None:
            argv += [flag, str(value)]
    if args.known_hosts is not None:
        argv += ["-o", f"UserKnownHostsFile={args.known_hosts}"]
    return tuple(argv)


def _destination(target: "Target") -> tuple[str, ...]:
    port = ("-p", str(target.port)) if target.port else ()
    return (*port, f"{target.user}@{target.host}" if target.user else target.host)


def _verify_prefix(args: argparse.Namespace) -> tuple[str, ...]:
    """What to type to look again: --last where a report is saved, else the same hosts and options."""
    argv = ["netdoctor", "scan"]
    if not args.no_save:
        argv.append("--last")
        if args.save is not None:
            argv += ["--save", str(args.save)]
    else:
        argv += ["--last"] if args.last else list(args.hosts)
        for name in (*_PATHS, "ssh_user", "ssh_port", "jump", "python"):
            value = getattr(args, name)
            if value is not None:
                argv += [f"--{name.replace('_', '-')}", str(value)]
        if args.local:
            argv.append("--local")
    for folder in args.checks_dir:
        argv += ["--checks-dir", str(folder)]
    return tuple(argv)


def _check_places(args: argparse.Namespace, outputs: "Sequence[Output]") -> None:
    """Refuse output files that cannot be written, before anything is contacted."""
    places = [("-o", o.path) for o in outputs if o.path is not None]
    if args.save is not None:
        places.append(("--save", args.save))
    for flag, path in places:
        folder = path.parent
        if path.is_dir():
            raise InputError(f"{flag} {path}: is a folder; name a file")
        if not folder.is_dir():
            raise InputError(f"{flag} {path}: no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise InputError(f"{flag} {path}: no permission to write in {folder}")


def _rejudge(
    args: argparse.Namespace,
    known: "Registry",
    checks: "Sequence[Check]",
    outputs: "Sequence[Output]",
) -> int:
    from netdoctor import store
    from netdoctor.engine.run import rejudge
    from netdoctor.report.build import Context, Remote, build
    from netdoctor.report.save import load

    if args.hosts or args.last:
        raise InputError("--facts judges a saved report; leave the host list out")
    saved = load(args.facts)
    if not saved.facts:
        raise InputError(f"{args.facts}: holds no facts; use {LAST}, or save with --json-detail all")
    known_store = store.load(saved.facts)
    if (before := _baseline(args, list(known_store.node.get("node", {})))) is not None:
        known_store.cluster["baseline"] = before
    outcome = rejudge(known_store, checks, ended_by=saved.run.ended_by)
    context = Context(
        run=replace(saved.run, profile=args.profile, selected=tuple(args.only) or ("*",)),
        fail_on=args.fail_on,
        strict=args.strict,
        remote=Remote(ssh=tuple(shlex.split(saved.run.ssh_command))),
        root_here=os.geteuid() == 0,
        version=__version__,
        verify_prefix=(
            *("netdoctor", "scan", "--facts", str(args.facts)),
            *(("--baseline", str(args.baseline)) if args.baseline is not None else ()),
        ),
        interrupted_code=3,  # that scan was interrupted, this command was not: undecided
    )
    args.no_save = args.save is None
    return _deliver(args, build(outcome, context), outputs)


def _deliver(
    args: argparse.Namespace, report: "Report", outputs: "Sequence[Output]", *, saved: bool = False
) -> int:
    """Save and print. What could not be written turns READY into exit 5, and hides no worse verdict."""
    from netdoctor.report.output import RenderOptions, emit
    from netdoctor.report.save import save

    options = RenderOptions(
        width=args.width,
        color=args.color,
        verbosity=-1 if args.quiet else args.verbose,
        all_causes=args.all,
        json_detail=args.json_detail,
        pretty=args.pretty,
    )
    troubles: list[str] = []

    def attempt(what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            troubles.append(f"{what}: {error.strerror or error}")

    path = None if args.no_save or saved else (args.save or LAST)
    if path is not None:
        attempt(f"the report was not saved to {path}", partial(save, report, path))
        if not troubles:
            report = replace(report, run=replace(report.run, saved_to=str(path)))
    if args.redact:
        from netdoctor.report.redact import redact

        report = redact(report)  # after saving: --last has to find the nodes again
    for output in outputs:
        attempt(
            f"-o {output.format}{f'={output.path}' if output.path else ''}",
            lambda output=output: emit(report, output, options),  # type: ignore[misc]  # bound now
        )
    for trouble in troubles:
        try:
            sys.stderr.write(f"netdoctor: {clean(trouble, 400)}\n")
        except OSError:
            break
    code = report.verdict.exit_code
    return code if code or not troubles else EXIT_BROKEN


def _print_plan(
    args: argparse.Namespace,
    targets: "tuple[Target, ...]",
    checks: "Sequence[Check]",
    transport: "Transport",
    job: "Job",
) -> None:
    from netdoctor.check import Profile
    from netdoctor.engine.run import Options, Scan

    scan = Scan(targets, checks, job, Options(profile=Profile(args.profile), timeout_s=args.timeout))
    out = sys.stdout.write
    out(
        f"would log in to {len(targets)} node{'s' if len(targets) != 1 else ''}, once each, "
        f"at most {args.parallel} at a time, at most {args.timeout:g} s each\n\n"
    )
    for target in targets:
        how = transport.describe(target)
        words = "  ".join(
            f"{clean(str(k))}={clean(str(v))}" for k, v in how.items() if v not in (None, "", [], ())
        )
        out(f"  {target.id}  {words}\n")
    out("\npassive questions to each node (nothing is written, no CUDA context, no listener):\n")
    out(f"  {', '.join(next(iter(scan.first_requests().values())).args['groups'])}\n")
    experiments = scan.experiments()
    if experiments:
        out("\nexperiments between nodes (listeners on the job's addresses, closed at the end):\n")
        out(f"  {', '.join(experiments)}; rendezvous port {job.master_port} and some ephemeral ports\n")
    out("\nchecks, in order:\n")
    for check in checks:
        out(f"  {check.id:<18} {check.title}\n")
    bound = math.ceil(len(targets) / args.parallel) * args.timeout + (120 if experiments else 0)
    out(f"\nends within {min(bound, args.deadline or bound):g} s, whatever the nodes do\n")
