"""torchrun: one text for all nodes, or a script for each."""

from collections.abc import Mapping

from netdoctor.launch import shell
from netdoctor.launch.model import LaunchPlan, Parts, PlanNode
from netdoctor.launch.shell import comment
from netdoctor.text import quoted


def scripts(plan: LaunchPlan) -> Parts:
    """A script for each node."""
    return shell.node_scripts(plan, _script)


def printed(plan: LaunchPlan) -> str:
    """One text that is pasted on every node; where their own names are not known, a piece for each."""
    differing = [_differing(plan, node) for node in plan.nodes]
    lines = [*shell.opening(plan), *_counts(plan), *shell.exports(plan.env), *shell.left_out(plan)]
    if not differing[0]:
        return shell.text([*lines, _when(plan), shell.command(torchrun(plan, plan.nodes[0], {}))])
    table = shell.case("$(hostname)", zip(plan.nodes, map(shell.assignments, differing), strict=True))
    if table is not None:
        names = list(differing[0])
        lines += [_when(plan), f"unset {' '.join(names)}", *table]
        lines += [f"export {name}" for name in plan.nodes[0].env]
        words = {name: f'"${name}"' for name in names}
        # In the command itself: a shell that somebody types in goes on behind a line that failed.
        words[names[0]] = f'"${{{names[0]}:?$(hostname) is not a node of this plan}}"'
        return shell.text([*lines, shell.command(torchrun(plan, plan.nodes[0], words))])
    for node, words in zip(plan.nodes, differing, strict=True):
        lines += ["", comment(f"on {node.id} alone"), *shell.exports(node.env)]
        lines.append(shell.command(torchrun(plan, node, words)))
    return shell.text(lines)


def torchrun(
    plan: LaunchPlan, node: PlanNode, words: Mapping[str, str], rdzv: str | None = None
) -> list[str]:
    """The command on a node, its words quoted. words: those that differ from node to node, by name.

    rdzv: instead of the plan's.
    """
    command = ["torchrun"]
    if plan.has_python:
        command = [words.get("python", shell.python(node)), "-m torch.distributed.run"]
    command += [f"--nnodes={len(plan.nodes)}", f"--nproc-per-node={words.get('nproc', node.count)}"]
    if (rdzv or plan.options.rdzv) == "static":
        command += [f"--node-rank={words['node_rank']}", '--master-addr="$MASTER_ADDR"']
        command.append('--master-port="$MASTER_PORT"')
    else:
        command += ["--rdzv-backend=c10d", f"--rdzv-id={quoted(plan.options.job)}"]
        command.append('--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"')
        if "is_host" in words:
            command += [f"--rdzv-conf=is_host={words['is_host']}", f"--local-addr={words['own_addr']}"]
    return [*command, *([] if shell.is_python(plan) else ["--no-python"]), *shell.script(plan)]


def _script(plan: LaunchPlan, node: PlanNode) -> str:
    lines = ["#!/bin/sh", *shell.opening(plan), "set -eu", *shell.exports(plan.env_of(node))]
    lines += [*shell.left_out(plan), *_counts(plan, node), _when(plan)]
    return shell.text([*lines, shell.command(["exec", *torchrun(plan, node, _differing(plan, node))])])


def _differing(plan: LaunchPlan, node: PlanNode) -> dict[str, str]:
    """What differs from node to node, quoted, by the name of its variable; the same names for all of them."""
    found: dict[str, str] = {}
    if plan.options.rdzv == "static":
        found["node_rank"] = str(node.rank)
    elif plan.has_addresses and node.address:
        # Left to itself torchrun looks up the node's own name, for who serves the rendezvous and for the
        # address that the ranks are told: 127.0.1.1 on many machines.
        found["is_host"] = str(int(node.rank == 0))
        found["own_addr"] = quoted(node.address.text)
    return found | shell.differing(plan, node)


def _counts(plan: LaunchPlan, node: PlanNode | None = None) -> list[str]:
    """Where process counts and interpreters come from: of this node, or of all, equal ones once."""
    nodes = [node] if node else plan.nodes
    lines = dict.fromkeys(comment(f"{one.count} per node: {one.processes.why}") for one in nodes[:1])
    if not plan.is_even and node is None:
        lines = dict.fromkeys(comment(f"{one.count} on {one.id}: {one.processes.why}") for one in nodes)
    pythons = [one.python for one in nodes if one.python]
    lines |= dict.fromkeys(comment(f"{python.text}: {python.why}") for python in pythons)
    if not pythons:
        lines[comment("torchrun: guessed: the one in PATH")] = None
    return list(lines)


def _when(plan: LaunchPlan) -> str:
    what = "this" if plan.options.rdzv == "c10d" else "this, with its own node rank,"
    return comment(f"run {what} on every node, in any order, within 10 minutes")
