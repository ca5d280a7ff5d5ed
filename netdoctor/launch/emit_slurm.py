"""Slurm: a batch file with one torchrun a node, or one task a process. Ranks are read inside srun alone."""

import re

from netdoctor.errors import InputError
from netdoctor.inventory.nodeset import fold
from netdoctor.launch import shell
from netdoctor.launch.emit_torchrun import torchrun
from netdoctor.launch.model import LaunchPlan, Part, Parts, PlanNode
from netdoctor.launch.shell import comment
from netdoctor.text import quoted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def sbatch(plan: LaunchPlan) -> Parts:
    """One task a node, which is torchrun; nodes may have different numbers of processes."""
    lines = ["#!/bin/bash", f"#SBATCH --job-name={_word(plan.options.job)}"]
    lines += [f"#SBATCH {option}" for option in _shape(plan, tasks=1)]
    lines += [
        *shell.opening(plan),
        comment("partition, account and time are not known: add what your site asks for"),
    ]
    lines += ["set -eu", *_common(plan), *_first(plan, "SLURM_JOB_NODELIST"), "export MASTER_ADDR"]
    inside = [*_of_node(plan), _torchrun(plan)]
    lines += _function(
        "on_node", inside, "on every node, inside srun: only there is SLURM_NODEID the node's own"
    )
    # Not bound to one core, as a task of one CPU would be: torchrun's processes share the node.
    lines.append(
        shell.command(
            ["srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--cpu-bind=none", "bash -c on_node"]
        )
    )
    return [Part(name="job.sbatch", text=shell.text(lines), purpose="sbatch job.sbatch", runs=True)]


def srun(plan: LaunchPlan) -> Parts:
    """One task a process, for a shell or an allocation."""
    count = plan.even("srun --ntasks-per-node starts as many tasks on each")
    ranks = 'export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"'
    inside = [ranks, *_first(plan, "SLURM_STEP_NODELIST"), "export MASTER_ADDR", *_of_node(plan)]
    inside.append(shell.command(["exec", *shell.program(plan, plan.nodes[0])]))
    lines = ["#!/bin/bash", *shell.opening(plan), *_common(plan)]
    lines += _function("task", inside, "in every task, inside srun: only there are ranks known")
    options = map(quoted, _shape(plan, tasks=count))
    lines.append(shell.command(["srun", *options, "--kill-on-bad-exit=1", "bash -c task"]))
    return [Part(name="srun.sh", text=shell.text(lines), purpose="where srun works", runs=True)]


def _shape(plan: LaunchPlan, tasks: int) -> list[str]:
    """Nodes, tasks and GPUs, as options of sbatch and srun."""
    found = [f"--nodes={len(plan.nodes)}", f"--ntasks-per-node={tasks}", "--exclusive", "--mem=0"]
    names = _names(plan)
    if names:
        found.append(f"--nodelist={names}")
    if plan.is_even and all(node.gpus for node in plan.nodes):
        found.append(f"--gpus-per-node={plan.nodes[0].count}")
    return found


def _names(plan: LaunchPlan) -> str:
    """What Slurm calls the nodes, folded; empty where that is not known or not wanted."""
    names = [_name(node) for node in plan.nodes]
    return fold([n for n in names if n], None) if plan.options.nodelist and all(names) else ""


def _name(node: PlanNode) -> str:
    """The name as listed; where that is an address, what the node calls itself; empty where nobody knows."""
    for text in (node.id, node.host, node.name.text.partition(".")[0]):
        if _NAME.fullmatch(text) and not re.fullmatch(r"[0-9.]+", text):
            return text
    return ""


def _common(plan: LaunchPlan) -> list[str]:
    """Exports that hold on every node; MASTER_ADDR is the job's own matter."""
    env = {name: value for name, value in plan.env.items() if name != "MASTER_ADDR"}
    lines = [*shell.exports(env), *shell.left_out(plan)]
    if not _names(plan):
        lines.append(comment("Slurm takes any nodes: what is measured, was on those of the head line"))
    return lines


def _first(plan: LaunchPlan, nodelist: str) -> list[str]:
    """MASTER_ADDR: of the node that Slurm counts as the first, which need not be the first one listed."""
    address = plan.env["MASTER_ADDR"]
    if address.origin == "given":
        return [shell.commented(f"MASTER_ADDR={quoted(address.text)}", address.why)]
    lines = [f'first=$(scontrol show hostnames "${nodelist}" | head -n 1)']
    rows = [(node, f"MASTER_ADDR={quoted(node.address.text)}") for node in plan.nodes if node.address]
    table = shell.case("$first", rows, other='MASTER_ADDR="$first"') if rows else None
    if table is None:
        return [*lines, shell.commented('MASTER_ADDR="$first"', "guessed: the name of the first node")]
    return [
        *lines,
        comment("measured: the address that peers dial, by the node that Slurm counts first"),
        *table,
    ]


def _of_node(plan: LaunchPlan) -> list[str]:
    """What differs from node to node, by Slurm's name of it."""
    words = [shell.differing(plan, node) for node in plan.nodes]
    if not words[0]:
        return []
    table = shell.case("$SLURMD_NODENAME", zip(plan.nodes, map(shell.assignments, words), strict=True))
    if table is None:
        raise InputError(
            f"nodes differ in {', '.join(words[0])}, and what Slurm calls them is not known; list them by "
            "Slurm's names, or take --nproc N"
        )
    names = list(words[0])
    guard = f': "${{{names[0]}:?$SLURMD_NODENAME is not a node of this plan}}"'
    return [f"unset {' '.join(names)}", *table, guard, *(f"export {name}" for name in plan.nodes[0].env)]


def _torchrun(plan: LaunchPlan) -> str:
    """Static: Slurm says who is the first, and numbers the nodes."""
    words = {"node_rank": '"$SLURM_NODEID"'}
    words |= {name: f'"${name}"' for name in shell.differing(plan, plan.nodes[0])}
    return shell.command(["exec", *torchrun(plan, plan.nodes[0], words, rdzv="static")])


def _function(name: str, lines: list[str], remark: str) -> list[str]:
    # What is quoted may hold line ends of its own: only the beginnings are moved to the right.
    return [comment(remark), f"{name}() {{", *(f"    {line}" for line in lines), "}", f"export -f {name}"]


def _word(text: str) -> str:
    """A word of an #SBATCH line, where no quote is needed."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text) or "job"
