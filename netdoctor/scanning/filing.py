"""What reaches the nodes of a request where they have written their facts: the files behind --facts."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from netdoctor.errors import InputError
from netdoctor.facts.host import FILED, Login, Session
from netdoctor.inventory import Inventory, Target, load
from netdoctor.inventory.task import task
from netdoctor.options import ScanRequest
from netdoctor.scanning.factfile import Written
from netdoctor.scanning.pool import SOURCE, Rules, pool_lines, read
from netdoctor.text import listing
from netdoctor.transport.filed import Answer, FiledTransport


@dataclass(frozen=True, slots=True)
class Filed:
    """job: MASTER_ADDR and MASTER_PORT as the tasks had them. run, began: as of Pool."""

    inventory: Inventory
    transport: FiledTransport
    job: Mapping[str, str]
    run: str
    began: float | None


def filed(request: ScanRequest) -> Filed:
    """The nodes, and what they have written. Raises InputError for files that are not there."""
    if not request.facts:
        raise InputError("say where the facts are: --facts FOLDER")
    if request.local or request.python:
        flag = "--local" if request.local else "--python"
        raise InputError(f"--facts judges what tasks have seen; say {flag} to netdoctor facts")
    rules = Rules(
        now=time.time(),
        max_age_s=request.facts_age,
        nodes=request.facts_nodes,
        own_task=task(request.environ),
        job=request.facts_job,
    )
    pool = pool_lines(read(request.facts, request.facts_uid), _by_hand(request), rules)
    inventory = Inventory(
        targets=pool.targets,
        format=FILED,
        source=listing(request.facts),
        notes=(*pool.notes, *request.remarks),
    )
    answers = {target.id: _answer(pool.lines[target.id]) for target in pool.targets}
    return Filed(inventory, FiledTransport(answers), pool.job, pool.run, pool.began)


def _by_hand(request: ScanRequest) -> tuple[Target, ...]:
    """The nodes that somebody listed; what files said before, they say again."""
    if request.hosts:
        return load(request.hosts, environ=request.environ, format=request.format).targets
    return tuple(target for target in request.targets or () if target.source != SOURCE)


def _answer(line: Written) -> Answer:
    if line.fault is not None:
        detail = line.detail if line.position in ("", SOURCE) else f"{line.position}: {line.detail}"
        return Answer(Session(outcome=Login.LOST, transport=FILED, stage=line.fault, detail=detail))
    interpreter, version = line.python
    session = Session(
        outcome=Login.OK,
        transport=FILED,
        stage="agent",
        interpreter=interpreter,
        python_version=version or None,
    )
    return Answer(session, line.facts)
