"""Ray: head and workers with all their ports; and the two frameworks on top of it that bring own numbers."""

from dataclasses import replace

from netdoctor.launch import shell
from netdoctor.launch.emit_deepspeed import job_env
from netdoctor.launch.model import LaunchPlan, Part, Parts, PlanNode
from netdoctor.launch.shell import comment
from netdoctor.rules.addresses import parse
from netdoctor.text import quoted

PORT = 6379
# Ray leaves these to chance; fixed, they can be let through a firewall. Beside them: workers at 10002-19999,
# the client server at 10001 and the agent's page at 52365 (python/ray/_private/ray_constants.py).
PORTS = {
    "node-manager-port": 6380,
    "object-manager-port": 6381,
    "runtime-env-agent-port": 6382,
    "dashboard-agent-grpc-port": 6383,
    "metrics-export-port": 6384,
}
WORKERS = {"min-worker-port": 10002, "max-worker-port": 19999}


def ray(plan: LaunchPlan) -> Parts:
    """A `ray start` for each node, the head first, and how the program is started."""
    return [*_nodes(plan), _program(plan, [])]


def verl(plan: LaunchPlan) -> Parts:
    """Ray, and verl's trainer with the numbers of this cluster."""
    count = plan.even("verl wants the same trainer.n_gpus_per_node everywhere")
    numbers = [f"trainer.nnodes={len(plan.nodes)}", f"trainer.n_gpus_per_node={count}"]
    o = plan.options
    if o.tp:
        numbers.append(f"actor_rollout_ref.rollout.tensor_model_parallel_size={o.tp}")
    if o.pp:
        numbers.append(f"actor_rollout_ref.actor.megatron.pipeline_model_parallel_size={o.pp}")
    return [*_nodes(plan), _program(plan, numbers)]


def roll(plan: LaunchPlan) -> Parts:
    """ROLL starts Ray by itself: it runs on every node, and its RANK and WORLD_SIZE count machines."""
    from yaml import safe_dump

    count = plan.even("ROLL wants the same num_gpus_per_node everywhere")
    everything = f"list(range(0,{plan.world}))"
    roles = ("actor_train", "actor_infer", "reference")
    data = {"num_gpus_per_node": count, **{role: {"device_mapping": everything} for role in roles}}
    lines = [
        *shell.opening(plan),
        comment("for the pipeline's own file: every role on all GPUs, which is a guess"),
    ]
    return [
        *shell.node_scripts(plan, _roll),
        Part(
            name="values.yaml",
            text=shell.text(lines) + safe_dump(data, sort_keys=False),
            purpose="values for the pipeline's own file",
        ),
    ]


def _nodes(plan: LaunchPlan) -> list[Part]:
    head, *others = shell.node_scripts(plan, _start)
    return [replace(head, purpose=f"{head.purpose}, first"), *others]


def _start(plan: LaunchPlan, node: PlanNode) -> str:
    env = {name: value for name, value in plan.env_of(node).items() if not name.startswith("MASTER_")}
    lines = ["#!/bin/sh", *shell.opening(plan), "set -eu"]
    lines.append(comment("what is set before `ray start` reaches every actor of this node"))
    lines += [*shell.exports(env), *shell.left_out(plan), *_head(plan)]
    words = ["ray start"]
    if node.address:
        words.append(f"--node-ip-address={quoted(node.address.text)}")
        lines.append(comment(f"{node.address.text}: {node.address.why}"))
    elif node.rank == 0 and parse(plan.env["MASTER_ADDR"].text) is not None:
        words.append('--node-ip-address="$head"')
    if node.rank == 0:
        words += ["--head", '--port="$port"']
    else:
        words.append('--address="$head:$port"')
    lines.append(comment(f"{node.count} processes: {node.processes.why}"))
    if node.gpus is not None:
        words.append(f"--num-gpus={node.count if node.gpus else 0}")
    words += [f"--{name}={number}" for name, number in (PORTS | WORKERS).items()]
    lines.append(
        comment("ports that Ray would choose by chance are fixed; nobody looked whether they are free")
    )
    return shell.text([*lines, shell.command(words)])


def _head(plan: LaunchPlan) -> list[str]:
    """Address and port of the head."""
    head, port = plan.env["MASTER_ADDR"], plan.env["MASTER_PORT"]
    host = f"[{head.text}]" if ":" in head.text else head.text
    return [
        shell.commented(f"head={quoted(host)}", head.why),
        shell.commented(f"port={quoted(port.text)}", port.why),
    ]


def _program(plan: LaunchPlan, numbers: list[str]) -> Part:
    lines = ["#!/bin/sh", *shell.opening(plan), "set -eu", *_head(plan), *shell.exports(job_env(plan))]
    lines.append(comment("on the first node, when `ray status` shows all of them"))
    words = ['RAY_ADDRESS="$head:$port"', *shell.program(plan, plan.nodes[0]), *map(quoted, numbers)]
    return Part(
        name="run.sh",
        text=shell.text([*lines, shell.command(words)]),
        purpose="last, on the first node",
        runs=True,
    )


def _roll(plan: LaunchPlan, node: PlanNode) -> str:
    lines = [
        "#!/bin/sh",
        *shell.opening(plan),
        "set -eu",
        *shell.exports(plan.env_of(node)),
        *shell.left_out(plan),
    ]
    lines.append(comment("of machines, and not of processes: ROLL starts a Ray of its own by them"))
    lines.append(f"export RANK={node.rank} WORLD_SIZE={len(plan.nodes)}")
    return shell.text([*lines, shell.command(["exec", *shell.program(plan, node)])])
