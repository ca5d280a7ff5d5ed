"""Open MPI: a hostfile, and an mpirun whose ranks get the variables that torch reads."""

from netdoctor.launch import shell
from netdoctor.launch.model import LaunchPlan, Part, Parts
from netdoctor.launch.shell import comment
from netdoctor.text import quoted

# Open MPI's own names for what torch's env:// reads.
RANKS = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}


def parts(plan: LaunchPlan) -> Parts:
    return [
        # Without slots Open MPI takes the number of cores.
        Part(
            name="hostfile",
            text=shell.text([comment(plan.head), *(f"{n.host} slots={n.count}" for n in plan.nodes)]),
            purpose="for --hostfile",
        ),
        Part(
            name="run.sh",
            text=_run(plan),
            purpose="where ssh to every node works, and from node to node",
            runs=True,
        ),
    ]


def _run(plan: LaunchPlan) -> str:
    lines = ["#!/bin/sh", *shell.opening(plan), "set -eu", *shell.exports(plan.env), *shell.left_out(plan)]
    lines.append('here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)')
    lines += shell.of_single_nodes(plan)
    words = ["mpirun", '--hostfile "$here/hostfile"', f"-np {plan.world}", "--bind-to none"]
    words += [f"-x {name}" for name in plan.env]
    if plan.network:
        lines.append(comment(f"{plan.network}: measured: every node has an address in it"))
        words += [
            f"--mca {name} {quoted(plan.network)}" for name in ("btl_tcp_if_include", "oob_tcp_if_include")
        ]
    else:
        lines.append(comment("the network between the nodes is not known: Open MPI takes any that it finds"))
    ports = {node.port for node in plan.nodes} - {None}
    if len(ports) == 1:
        words.append(f"--mca plm_rsh_args '-p {ports.pop()}'")
    mapped = " ".join(f'{name}="${variable}"' for name, variable in RANKS.items())
    # The program's words stay arguments of their own: no shell reads them again.
    words += [f"sh -c 'export {mapped}; exec \"$@\"' sh", *shell.program(plan, plan.nodes[0])]
    return shell.text([*lines, shell.command(words)])
