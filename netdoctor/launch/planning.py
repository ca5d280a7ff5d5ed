"""From hosts, a report and options to a launch plan. Pure."""

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from netdoctor.errors import InputError
from netdoctor.inventory import Target
from netdoctor.inventory.names import is_python_path
from netdoctor.inventory.nodeset import fold
from netdoctor.launch.fit import fit_of
from netdoctor.launch.fit import lines as fit_lines
from netdoctor.launch.model import (
    Evidence,
    LaunchPlan,
    Options,
    Origin,
    PlanNode,
    Value,
    from_scan,
    from_user,
    guess,
)
from netdoctor.launch.values import PORT, ScanFacts, gpu_counts, settings
from netdoctor.rules.variables import RANKS
from netdoctor.text import age, clean, listing

# Values of a report this old may have been measured on other hardware.
OLD_S = 24 * 3600.0


def plan(
    targets: Sequence[Target],
    evidence: Evidence | None,
    options: Options,
    *,
    hosts: str,
    default_port: int = PORT,
) -> LaunchPlan:
    """What to launch on these nodes, in rank order. hosts: what names them, for people.

    Raises InputError for what cannot be launched: more processes than GPUs, sizes that do not multiply out.
    """
    remarks: list[str] = []
    for name in options.env.keys() & RANKS:
        raise InputError(f"--env {name}: the launcher sets it in each process, to another value")
    if options.only_good:
        targets = _good(targets, evidence, remarks)
    if not targets:
        raise InputError("no node is left to launch on")
    facts = ScanFacts([target.id for target in targets], evidence)
    gpus = gpu_counts(facts)
    found = settings(
        targets, evidence, port=options.port, default_port=default_port, env=options.env, debug=options.debug
    )
    nodes = tuple(
        _node(rank, target, facts, gpus.get(target.id), found.per_node.get(target.id, {}), options, evidence)
        for rank, target in enumerate(targets)
    )
    for target, node in zip(targets, nodes, strict=True):
        count = target.slots or target.gpus
        if node.processes.origin is Origin.MEASURED and count and count > node.count:
            remarks.append(f"{target.id}: {count} GPUs are listed, and {node.processes.source}")
    remarks += found.remarks
    if len(nodes) > 1 and _is_loopback(found.env["MASTER_ADDR"].text):
        text = f"MASTER_ADDR={found.env['MASTER_ADDR'].text} is each node itself: ranks on others never join"
        remarks.append(text)
    if evidence is not None and evidence.age_s > OLD_S:
        remarks.append(f"the report is {age(evidence.age_s)} old; scan again before a long job")
    if not options.script_is_given:
        remarks.append("the program is not known: --script 'train.py --its options'")
    launch_plan = LaunchPlan(
        options=options,
        nodes=nodes,
        env=found.env,
        left_out=found.left_out,
        head=_head(nodes, hosts, evidence),
        network=found.network,
    )
    arithmetic, warned = sizes(launch_plan)
    remarks += [*_numbering(launch_plan), *_leaves(targets, facts), *warned, *_fits(launch_plan)]
    fit = None
    if options.fit is not None:
        tp, pp = options.tp or options.fit.tp or 1, options.pp or options.fit.pp or 1
        dp = options.dp or max(launch_plan.world // (tp * pp), 1)
        fit = fit_of(options.fit, facts.group("gpu"), [node.id for node in nodes], (dp, tp, pp))
        arithmetic = [*arithmetic, *fit_lines(fit, options.fit)]
    cleaned = tuple(clean(text, 600) for text in dict.fromkeys(remarks))
    return replace(launch_plan, remarks=cleaned, arithmetic=tuple(arithmetic), fit=fit)


def _numbering(plan: LaunchPlan) -> list[str]:
    """Where the order of the list is not that of the ranks."""
    if not plan.is_numbered_by_address or len(plan.nodes) == 1:
        return []
    if not all(node.address for node in plan.nodes):
        by = "own names, which nobody looked at,"
    elif [node for node, _, _ in plan.ranked()] != list(plan.nodes):
        by = "addresses"
    else:
        return []
    return [
        f"torchrun's c10d numbers the nodes by their {by} sorted as text; --rdzv static as they are listed"
    ]


def _leaves(targets: Sequence[Target], facts: ScanFacts) -> list[str]:
    """Where nodes of one leaf are not neighbours, and so neither are their ranks."""
    order = [target.leaf for target in targets]
    if not any(order):
        nodes = facts.group("node")
        order = [nodes[target.id].leaf if target.id in nodes else None for target in targets]
    runs = [leaf for leaf, _ in groupby(order) if leaf is not None]
    again = [leaf for leaf, count in Counter(runs).items() if count > 1]
    if not again:
        return []
    return [
        f"nodes of leaf {again[0]} are not one after the other in the list, and neighbouring ranks are on "
        "different switches: `netdoctor hosts convert --topology FILE` orders it, FILE may be a report"
    ]


def environment(
    targets: Sequence[Target],
    evidence: Evidence | None = None,
    *,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Value]:
    """The variables that a job on these nodes should have everywhere, by name.

    Each Value says whether it was measured, given or guessed, and where it comes from; what differs from
    node to node, or is not known, is not among them. `targets` in rank order: the first is MASTER_ADDR's.
    evidence: of a report (cli/launch_evidence.py). port, env: what the user says, which wins.
    """
    if not targets:
        raise InputError("no node is left to launch on")
    return settings(targets, evidence, port=port, env=env).env


def _good(targets: Sequence[Target], evidence: Evidence | None, remarks: list[str]) -> list[Target]:
    if evidence is None:
        raise InputError("--only-good needs a report of these hosts: netdoctor scan first, or --report FILE")
    good = [target for target in targets if target.id in evidence.good]
    left = [target.id for target in targets if target.id not in evidence.good]
    if not good:
        raise InputError(f"the report calls none of the {len(targets)} nodes healthy")
    if left:
        remarks.append(f"left out, as the report does not call them healthy: {fold(left, 200)}")
    return good


def _node(
    rank: int,
    target: Target,
    facts: ScanFacts,
    gpus: Value | None,
    env: Mapping[str, Value],
    options: Options,
    evidence: Evidence | None,
) -> PlanNode:
    address = facts.addresses.get(target.id)
    return PlanNode(
        id=target.id,
        host=target.host,
        port=target.port or (evidence.ssh_port if evidence else None),
        user=target.user or (evidence.user if evidence else None),
        rank=rank,
        processes=_processes(target, gpus, options),
        name=_name(target, facts),
        address=from_scan(address, f"{target.id} has it") if address else None,
        gpus=int(gpus.text) if gpus else target.gpus or target.slots,
        python=_python(target, facts),
        env=env,
    )


def _processes(target: Target, gpus: Value | None, options: Options) -> Value:
    """How many processes a node runs. Raises InputError for more than it has GPUs, where it has some."""
    count = int(gpus.text) if gpus else None
    if options.nproc is not None:
        if count and options.nproc > count and gpus:
            raise InputError(f"--nproc {options.nproc}: {gpus.source}, and each process needs one of its own")
        return from_user(options.nproc, "--nproc")
    listed = target.slots or target.gpus
    if count and gpus and (listed is None or count < listed):
        return gpus
    if listed is not None:
        where = f"{target.source}, line {target.line}" if target.line else target.source
        return from_user(listed, where or "the host list")
    if gpus:
        return guess(1, f"{gpus.source}: one process")
    return guess(1, f"GPUs of {target.id} are not known: scan, write slots= behind the host, or --nproc N")


def _name(target: Target, facts: ScanFacts) -> Value:
    """What `hostname` prints on the node."""
    host = facts.group("host").get(target.id)
    if host is not None and host.hostname:
        return from_scan(host.hostname, "what it calls itself")
    return guess(target.host, "the host as listed")


def _python(target: Target, facts: ScanFacts) -> Value | None:
    """The interpreter that has torch there."""
    software = facts.group("software").get(target.id)
    measured = software.executable if software is not None and software.torch else ""
    if target.python and is_python_path(target.python) and target.python != measured:
        return from_user(target.python, target.source or "--python")
    if software is not None and software.torch and is_python_path(measured):
        return from_scan(measured, f"has torch {software.torch.version}")
    return None


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return text == "localhost"


# --- words ---------------------------------------------------------------------------------------


def _head(nodes: Sequence[PlanNode], hosts: str, evidence: Evidence | None) -> str:
    counts = [node.count for node in nodes]
    on_gpus = all(node.gpus for node in nodes)
    unit = "GPU" if on_gpus else "process"
    number = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    if len(set(counts)) == 1:
        many = "s" if on_gpus else "es"
        shape = f"{number} x {counts[0]} {unit}{many if counts[0] != 1 else ''}"
    else:
        shape = f"{number}, {' + '.join(map(str, counts[:16]))}{' + ...' if counts[16:] else ''}"
    words = [f"{shape} = world size {sum(counts)}"]
    origins = {node.processes.origin for node in nodes}
    if Origin.GUESSED in origins:
        words[0] += " (guessed)"
    if evidence is None:
        words.append(f"{hosts}; no report of these hosts, so nothing is measured")
    else:
        words.append(f"{hosts} + {evidence.source}, {age(evidence.age_s)} old: {verdict(evidence)}")
    return clean("; ".join(words), 600)


_STATES = {
    "ready": "READY",
    "not_ready": "NOT READY",
    "undecided": "UNDECIDED",
    "partial_pass": "only a part was looked at",
}


def verdict(evidence: Evidence) -> str:
    """``NOT READY: 2 problems stop the launch``."""
    word = _STATES.get(evidence.state, "UNDECIDED")
    if evidence.state == "ready":
        return word
    return f"{word}: {listing(evidence.causes, 3) or evidence.headline or 'see the report'}"


# --- arithmetic ----------------------------------------------------------------------------------


def sizes(plan: LaunchPlan) -> tuple[list[str], list[str]]:
    """(lines, warnings) of the parallel and batch sizes. Raises InputError where they do not multiply out."""
    o = plan.options
    if (o.dp, o.tp, o.pp, o.batch, o.accum) == (None,) * 5:
        return [], []
    tp, pp, world = o.tp or 1, o.pp or 1, plan.world
    have = " + ".join(str(node.count) for node in plan.nodes) if not plan.is_even else ""
    total = f"{have} = {world} processes" if have else f"{world} processes"
    dp = o.dp if o.dp is not None else world // (tp * pp)
    if dp * tp * pp != world:
        product = f"dp {dp} x tp {tp} x pp {pp} = {dp * tp * pp}"
        if o.dp is None:
            product = f"tp {tp} x pp {pp} = {tp * pp}"
            why = f"{total} are not a multiple of it"
        else:
            one = _single_node(plan, dp * tp * pp)
            why = f"there are {total}" + (f"; {dp * tp * pp} would fit on {one.id} alone" if one else "")
        raise InputError(f"{product}, but {why}")
    lines = [f"dp {dp} x tp {tp} x pp {pp} = world size {world}"]
    if o.batch is not None or o.accum is not None:
        batch, accum = o.batch or 1, o.accum or 1
        assumed = "" if o.batch else " (one sample per process is assumed)"
        product = f"{batch} per process x {accum} accumulation x dp {dp} = {batch * accum * dp}"
        lines.append(f"global batch = {product}{assumed}")
    warned = []
    if crossing := _crossing(plan, tp):
        warned.append(
            f"tensor parallel groups of {tp} cross nodes, first ranks {crossing[0]} to "
            f"{crossing[0] + tp - 1} on {listing(crossing[1], 4)}: every layer then waits for the network"
        )
    return lines, warned


def _crossing(plan: LaunchPlan, tp: int) -> tuple[int, list[str]] | None:
    """The first rank of the first group of consecutive ranks that has more than one node, and its nodes."""
    owner = [node.id for node, _, _ in plan.ranked() for _ in range(node.count)]
    for first in range(0, len(owner), tp):
        nodes = list(dict.fromkeys(owner[first : first + tp]))
        if len(nodes) > 1:
            return first, nodes
    return None


def _single_node(plan: LaunchPlan, processes: int) -> PlanNode | None:
    """A node of several that has as many GPUs alone."""
    found = (node for node in plan.nodes if node.gpus and node.gpus >= processes)
    return next(found, None) if len(plan.nodes) > 1 else None


def _fits(plan: LaunchPlan) -> list[str]:
    one = _single_node(plan, plan.world)
    text = f"{plan.world} processes would fit on {one.id} alone, which has {one.gpus} GPUs" if one else ""
    return [f"{text}, without a network"] if one else []


def rank_table(plan: LaunchPlan) -> str:
    """Node, node rank, GPU, local rank and global rank of every process."""
    rows = [("node", "node rank", "GPU", "local rank", "rank")]
    for node, rank, first in plan.ranked():
        for local in range(node.count):
            gpu = str(local) if node.gpus else "-"
            rows.append((node.id, str(rank), gpu, str(local), str(first + local)))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)
    return "".join(f"{line}\n" for line in lines)
