"""Hugging Face accelerate: a script for each node. Its number of processes is that of all nodes together."""

from netdoctor.errors import InputError
from netdoctor.launch import shell
from netdoctor.launch.model import LaunchPlan, Parts, PlanNode
from netdoctor.launch.shell import comment


def parts(plan: LaunchPlan) -> Parts:
    plan.even("accelerate divides --num_processes evenly over --num_machines")
    if any(node.gpus == 0 for node in plan.nodes):
        raise InputError("accelerate starts nodes without GPUs by MPI alone; take --launcher torchrun")
    return shell.node_scripts(plan, _script)


def _script(plan: LaunchPlan, node: PlanNode) -> str:
    lines = ["#!/bin/sh", *shell.opening(plan), "set -eu", *shell.exports(plan.env_of(node))]
    lines += [*shell.left_out(plan), comment(f"{node.count} processes a node: {node.processes.why}")]
    lines.append(
        comment(f"--num_processes is that of all nodes: {len(plan.nodes)} x {node.count} = {plan.world}")
    )
    words = [shell.python(node), "-m accelerate.commands.launch"] if node.python else ["accelerate launch"]
    if not node.python:
        lines.append(comment("accelerate: guessed: the one in PATH"))
    words += ["--multi_gpu", f"--num_machines={len(plan.nodes)}"]
    words += [f"--num_processes={plan.world}", f"--machine_rank={node.rank}", "--rdzv_backend=static"]
    words += ["--same_network", '--main_process_ip="$MASTER_ADDR"', '--main_process_port="$MASTER_PORT"']
    words += ["--mixed_precision=no", "--dynamo_backend=no"]
    script = shell.script(plan)
    if script[0] == "-m":
        words += ["--module", *script[1:]]
    else:
        words += [*([] if shell.is_python(plan) else ["--no_python"]), *script]
    lines.append(
        comment("precision is the program's own: set --mixed_precision if it leaves that to accelerate")
    )
    return shell.text([*lines, shell.command(["exec", *words])])
