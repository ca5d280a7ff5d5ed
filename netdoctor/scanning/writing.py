"""A node's own facts, collected where its task runs, as the line that `scan --facts` reads."""

from collections.abc import Mapping
from pathlib import Path
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
from netdoctor.scanning import factfile, jobenv, packages
from netdoctor.transport.base import Limits, Request, SessionEvent
from netdoctor.transport.local import LocalTransport


def collected(
    node: str,
    own: Task,
    *,
    environ: Mapping[str, str],
    profile: str,
    python: str | None,
    env_file: Path | None,
    master_port: int | None,
    listed: str,
    requirements: Path | None,
    paths: tuple[str, ...],
    checks_dir: tuple[Path, ...],
    timeout_s: float,
) -> tuple[bytes, bool]:
    """(the line, whether anything was found out). Raises InputError."""
    if fault := host_fault(node):
        raise InputError(f"{printable(node)}: {fault.message}; --name says what this node is called")
    known = registry.load(folders=checks_dir)
    checks = registry.select(known.checks, Profile(profile))
    needed = {p.info.group for check in checks for p in check.needs} | {"host"}
    job = jobenv.job(
        env_file=env_file,
        environ=environ,
        master_port=master_port,
        packages=packages.asked(listed, requirements).packages,
        nodes=[node],
        paths=paths,
    )
    here = Target(id=node, host=node, python=python)
    asked = first_groups(needed, _in_job(own, here), job, Profile(profile))
    transport = LocalTransport(Limits(node_budget_s=timeout_s))
    request = Request(op="facts", args={"groups": asked}, timeout_s=timeout_s)
    session, facts = _asked(transport, here, request, needed)
    if facts is None:  # what there is to say goes to whoever judges
        why = {"why": "failed", "detail": f"netdoctor facts found nothing out: {session['detail']}"}
        facts = {group: {"missing": why} for group in asked}
        found = False
    else:
        found = True
    line = factfile.encode(
        node,
        version=__version__,
        taken=now(),
        task=own,
        job=job.env,
        session={"interpreter": session["interpreter"], "python": session["python"]},
        facts=facts,
    )
    return line, found


def _asked(
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
    told = {"interpreter": session.interpreter, "python": session.python_version or "", "detail": detail}
    return told, result


def _in_job(own: Task, here: Target) -> list[Target]:
    """The job's nodes, which this one looks up as the job will; itself where nobody names them."""
    try:
        names = expand(own.nodelist) if own.nodelist else []
    except InventoryError:
        names = []
    return [Target(id=name, host=name) for name in names] or [here]
