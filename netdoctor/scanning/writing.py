"""A node's own facts, collected where its task runs, as the line that `scan --facts` reads."""

from typing import Any

from netdoctor import __version__
from netdoctor.check import Profile
from netdoctor.engine import registry
from netdoctor.engine.gathering import first_groups
from netdoctor.engine.registry import collectors
from netdoctor.errors import InputError
from netdoctor.factlines import now
from netdoctor.facts.host import Login, Session
from netdoctor.inventory import InventoryError, Target, expand
from netdoctor.inventory.names import host_fault, printable
from netdoctor.inventory.task import Task
from netdoctor.options import ScanRequest
from netdoctor.scanning import factfile, jobenv, packages
from netdoctor.transport.base import Limits, Request, SessionEvent
from netdoctor.transport.local import LocalTransport


def collected(node: str, task: Task, request: ScanRequest) -> tuple[bytes, bool]:
    """(the line, whether anything was found out). Raises InputError."""
    if fault := host_fault(node):
        raise InputError(f"{printable(node)}: {fault.message}; --name says what this node is called")
    profile = Profile(request.profile)
    known = registry.load(folders=request.checks_dir)
    checks = registry.select(known.checks, profile)
    needed = {p.info.group for check in checks for p in check.needs} | {"host"}
    job = jobenv.job(request, [node], packages.read_requirements(request.packages, request.requirements))
    here = Target(id=node, host=node, python=request.python)
    groups = first_groups(needed, _in_job(task, here), job, profile)
    transport = LocalTransport(Limits(node_budget_s=request.timeout))
    question = Request(op="facts", args={"groups": groups}, timeout_s=request.timeout)
    session, facts = _ask_agent(transport, here, question, needed)
    if facts is None:  # what there is to say goes to whoever judges
        why = {"why": "failed", "detail": f"netdoctor facts found nothing out: {session['detail']}"}
        facts = {group: {"missing": why} for group in groups}
        found = False
    else:
        found = True
    line = factfile.encode(
        node,
        version=__version__,
        collected_at=now(),
        task=task,
        job=job.env,
        session={"interpreter": session["interpreter"], "python": session["python"]},
        facts=facts,
    )
    return line, found


def _ask_agent(
    transport: LocalTransport, here: Target, request: Request, needed: set[str]
) -> tuple[dict[str, str], dict[str, Any] | None]:
    """(how the agent started, what it answered or None)."""
    session, result, detail = Session(outcome=Login.LOST), None, "it gave no answer"
    try:
        first = {here.id: request}
        for event in transport.start([here], first, keep_open=False, collectors=collectors(needed)):
            if isinstance(event, SessionEvent):
                session, detail = event.session, event.session.detail
            elif isinstance(event.result, dict):
                result = event.result
            elif event.missing is not None:
                detail = event.missing.detail
    finally:
        transport.close()
    started = {"interpreter": session.interpreter, "python": session.python_version or "", "detail": detail}
    return started, result


def _in_job(task: Task, here: Target) -> list[Target]:
    """The job's nodes, which this one looks up as the job will; itself where nobody names them."""
    try:
        names = expand(task.nodelist) if task.nodelist else []
    except InventoryError:
        names = []
    return [Target(id=name, host=name) for name in names] or [here]
