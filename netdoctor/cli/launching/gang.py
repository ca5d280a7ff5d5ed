"""`netdoctor gate --gang`: nodes that each run the same line, and start together or not at all."""

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from netdoctor.cli.crash import broken
from netdoctor.cli.launching.gate_end import PREFIX, End, say
from netdoctor.cli.options import option_fields
from netdoctor.errors import InputError
from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.options import ScanRequest
    from netdoctor.scanning.gang import Member

# What says which nodes, or how they are reached: here those that call, and by no older report.
_NOT_WITH = ("meet", "facts", "via", "local", "last", "max_age", "exclude_bad", "hosts_out")


def together(args: argparse.Namespace, judge: Callable[[], End]) -> End:
    """Judge all as the first of them, or hear how it ends. Raises InputError."""
    member, request = _member(args), _member_request(args)
    for number in (signal.SIGTERM, signal.SIGHUP):  # its agent ends with it
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    where = f"{member.rendezvous.host} port {member.rendezvous.port}"
    if not args.quiet:
        who = f"{member.name}, member {member.rank} of {member.count}"
        waits = f"within {request.timeout:g} s"
        first = f"judges all that call {where} {waits}"
        say(f"{who}, {f'calls member 0 at {where} {waits}' if member.rank else first}")
    if member.rank:
        return _end_of_member(args, member, request)
    return _end_of_judge(args, member, request, judge)


def _member_request(args: argparse.Namespace) -> "ScanRequest":
    from netdoctor.options import ScanRequest

    return ScanRequest(**option_fields(args), environ=dict(os.environ))


def _member(args: argparse.Namespace) -> "Member":
    """Which one this is. Raises InputError."""
    from netdoctor.cli.options import host_words
    from netdoctor.inventory.names import is_valid_host
    from netdoctor.inventory.task import node_name, task
    from netdoctor.scanning.gang import Member
    from netdoctor.transport.tasks import meeting

    if wrong := next((name for name in _NOT_WITH if getattr(args, name, None)), ""):
        raise InputError(f"--gang judges the nodes that call; leave --{wrong.replace('_', '-')} out")
    if host_words(args):
        raise InputError("--gang judges the nodes that call; leave the hosts out, and say --tasks N")
    this = task(os.environ)
    if this.local_rank:
        raise InputError("--gang: run it once on each node, not in every task (srun --ntasks-per-node=1)")
    rank, count = args.rank, args.tasks or this.nodes
    if rank is None:
        rank = this.node_rank if this.node_rank is not None else this.rank
    if rank is None:
        raise InputError("--gang: no launcher says which node this is; --rank N does, from 0")
    if not count:
        raise InputError("--gang: no launcher says how many nodes there are; --tasks N does")
    if rank >= count:
        raise InputError(
            f"--gang: of {count} nodes the last has number {count - 1}, and this would be {rank}"
        )
    rendezvous = meeting.parse_rendezvous(args.gang)
    if not rendezvous.host:
        raise InputError(f"--gang {clean(args.gang, 80)}: write HOST:PORT, of the first node")
    key = meeting.secret(os.environ, args.secret_file)
    if key is None:
        raise InputError(
            f"--gang asks for a secret that all nodes have: {meeting.SECRET} or --secret-file FILE"
        )
    node = os.environ.get("NODE_NAME", "")
    name = node if is_valid_host(node) else node_name(os.environ)
    return Member(rank=rank, count=count, name=name, rendezvous=rendezvous, key=key)


def _end_of_member(args: argparse.Namespace, member: "Member", request: "ScanRequest") -> End:
    from netdoctor.scanning.gang import take_part

    verdict = take_part(member, request)
    if verdict.code == 0:
        if not args.quiet:
            say(f"{verdict.why}, starts with {member.count - 1} other{'s' * (member.count != 2)}")
        variables = {name: text for name, text in verdict.variables.items() if _is_ours(name, text)}
        return End(None, verdict.why, variables)
    for line in verdict.lines:
        sys.stderr.write(f"{clean(line, 300)}\n")
    say(f"not started, {verdict.why}")
    return End(verdict.code, verdict.why)


def _end_of_judge(
    args: argparse.Namespace, member: "Member", request: "ScanRequest", judge: Callable[[], End]
) -> End:
    from netdoctor.scanning import gang

    args.meet, args.tasks = str(member.rendezvous.port), member.count
    args.no_env = args.are_members = True
    try:
        with gang.attendance(member, request):
            end = judge()
    except Exception as error:  # the others are to hear that, and not to wait for a verdict
        end = End(_code_of(error), f"member 0 could not judge: {clean(str(error), 200)}")
        if not isinstance(error, InputError):
            broken(error)
        else:
            say(clean(str(error), 300))
    verdict = gang.Verdict(end.code or 0, end.why, _lines(args, end), dict(end.variables))
    final = gang.tell(member, verdict, end.report.matrix.nodes if end.report is not None else None)
    if final.code and not verdict.code:
        say(f"not started, {final.why}")
        return replace(end, code=final.code, why=final.why)
    return end


def _is_ours(name: str, text: str) -> bool:
    """Whether a variable of the verdict is one of gate's, and holds names or numbers."""
    is_name = re.fullmatch(rf"{PREFIX}[A-Z]+", name) is not None
    return is_name and re.fullmatch(r"[A-Za-z0-9_.,:%-]*", text) is not None


def _code_of(error: Exception) -> int:
    return 2 if isinstance(error, InputError) else 5


def _lines(args: argparse.Namespace, end: End) -> tuple[str, ...]:
    """What the others print of a refusal."""
    from netdoctor.report.output import RenderOptions, render

    if end.code is None or end.report is None or args.redact:
        return ()
    text = render(end.report, "short", RenderOptions())
    return tuple((text if isinstance(text, str) else text.decode("utf-8", "replace")).splitlines())
