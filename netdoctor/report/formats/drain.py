"""Commands that take nodes out of a scheduler, for what no setting heals. Printed, and run by nobody.

https://slurm.schedmd.com/scontrol.html,
https://kubernetes.io/docs/reference/kubectl/generated/kubectl_cordon/
"""

import re
import shlex
from collections.abc import Callable

from netdoctor.inventory.names import is_valid_host
from netdoctor.model import Action
from netdoctor.report import describe, fmt
from netdoctor.report.model import Cause, Report

# Until it is done no job should start there. The gravest last.
HEAVY: tuple[str, ...] = (Action.RESET_GPU, Action.REBOOT, Action.DRAIN, Action.REPLACE)
# What Kubernetes takes for the value of a label.
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
REASON_AT_MOST = 200


def slurm(report: Report) -> str:
    """Return a line of scontrol for each node that needs hands, a reset or a reboot."""
    return _lines(report, _scontrol)


def kubectl(report: Report) -> str:
    """Return a line of kubectl for each such node: no new pods, and a label that selects it."""
    return _lines(report, _cordon)


def _lines(report: Report, command: Callable[[str, Cause], str]) -> str:
    """Nodes go by the names that the hosts file has for them; the gravest cause of each is its reason.

    A suspicion takes nobody out, and neither does what a node is usable with: what `-o hosts` lists is not
    drained. A stranger's report, and a redacted one, give comments alone.
    """
    if report.run.redacted or report.run.foreign is not None:
        return "# no commands from a report that is redacted, or somebody else's\n"
    heavy = [
        cause
        for cause in report.causes
        if cause.action in HEAVY and cause.status in ("fail", "warn") and cause.confidence != "suspected"
    ]
    heavy.sort(key=lambda cause: HEAVY.index(cause.action or ""))
    worst = {node: cause for cause in heavy for node in cause.node_list}
    usable = worst.keys() & set(report.healthy_nodes)
    selected = [n for n in report.matrix.nodes if n in worst and n not in usable and is_valid_host(n)]
    rest = len(set(report.unhealthy_nodes) - set(selected))
    head = f"# {len(selected)} of {fmt.number(len(report.matrix.nodes), 'node')} to be taken out"
    others = [f"{rest} not usable, but can be fixed in place"] if rest else []
    others += [f"{len(usable)} usable, but in need of manual work"] if usable else []
    if others:
        head += f"; {', '.join(others)}: netdoctor report show"
    return "".join(f"{line}\n" for line in (head, *(command(node, worst[node]) for node in selected)))


def _scontrol(node: str, cause: Cause) -> str:
    # Slurm keeps the reason as it is; a quotation mark in it would end it in what Slurm writes.
    reason = fmt.plain(f"netdoctor {cause.key} ({cause.action}): {describe.title(cause)}", REASON_AT_MOST)
    reason = re.sub("[\"'\\\\]", "", reason)
    return f"scontrol update NodeName={shlex.quote(node)} State=DRAIN Reason={shlex.quote(reason)}"


def _cordon(node: str, cause: Cause) -> str:
    name, key = shlex.quote(node), cause.key if LABEL.fullmatch(cause.key) else "other"
    return f"kubectl cordon {name} && kubectl label node {name} --overwrite netdoctor/{cause.action}={key}"
