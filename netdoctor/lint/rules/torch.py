"""torchrun: its options, and what they mean on several nodes."""

import difflib
import re
from collections.abc import Iterator

from netdoctor.lint.files import Shell
from netdoctor.lint.launches import TORCH, Launch
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.options import PROGRAMS
from netdoctor.lint.rules.env import is_loopback, is_placeholder
from netdoctor.lint.rules.slurm import alone, starts_itself
from netdoctor.lint.values import Value

RUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
BY_ENVIRONMENT = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "PET_RDZV_BACKEND")
# Different each time that a shell fills them in.
_FRESH = re.compile(r"\b(uuidgen|date|openssl rand|mktemp|shuf)\b")
# torchrun's own, in front of the script; few scripts have options of these names.
_TORCHRUN_OPTION = re.compile(
    r"--(nproc[-_]per[-_]node|nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](addr|port))(=|$)"
)


def most_nodes(value: Value | None) -> int | None:
    """``2`` or ``1:4``: the most nodes that --nnodes allows, None where unknown."""
    if value is None or value.text is None:
        return None
    match = re.fullmatch(r"(?:\d+:)?(\d{1,6})", value.text)
    return int(match[1]) if match else None


def nodes_of(launch: Launch) -> int | None:
    """The most nodes of a launch; 1 where nothing is said, None where it cannot be told."""
    word = launch.get("nnodes")
    if word is None:
        return None if launch.open or launch.exported("PET_NNODES") else 1
    return most_nodes(word.value)


def several(launch: Launch) -> bool:
    nodes = nodes_of(launch)
    return nodes is not None and nodes > 1


def backend(launch: Launch) -> str | None:
    """The rendezvous backend, None where it cannot be told."""
    if launch.has("standalone"):
        return "c10d"
    word = launch.get("rdzv-backend")
    if word is None:
        return None if launch.open or launch.exported("PET_RDZV_BACKEND") else "static"
    return word.text.lower() if word.text is not None else None


def _all_here(shell: Shell, nodes: int | None) -> bool:
    """Whether one script starts the agent of every node: they are processes of one machine."""
    ranks = {one.number("node-rank") for one in shell.launches_of(*TORCH)} - {None}
    return nodes is not None and ranks == set(range(nodes))


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_endpoint(shell: Shell) -> Iterator[Found]:
    """On several nodes the rendezvous is at one node's address.

    What happens:
        With localhost, or with no address at all, which is the same, each node makes a rendezvous of its own
        and waits there for the others: after ten minutes all of them give up. torchrun does not read
        MASTER_ADDR from the environment; it has --master-addr, which is 127.0.0.1 if not given.
    Write instead:
        --rdzv-backend c10d --rdzv-endpoint node0:29500, or --master-addr node0 with --node-rank; the same on
        each.
    Wrong:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint localhost:29500 train.py
    Right:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 train.py
    """
    for launch in shell.launches_of(*TORCH):
        if launch.has("standalone") or not several(launch):
            continue
        how, endpoint, main = backend(launch), launch.get("rdzv-endpoint"), launch.get("master-addr")
        nodes = nodes_of(launch)
        if "".join(launch.texts("nnodes")).startswith("1:") or _all_here(shell, nodes):
            continue  # it starts with one node, or all of them are this machine
        if how == "static" and endpoint is None and launch.number("node-rank") == 0:
            continue  # its own store listens on all addresses; what the others dial stands in their scripts
        address = endpoint if endpoint is not None else main if how == "static" else None
        if address is not None:
            here = shell.step_of(launch)
            is_own = (
                here is not None
                and (here.nodes or 0) > 1
                and any(
                    h.level >= launch.level and re.match(r"(/bin/)?hostname\b", h.command)
                    for h in address.value.holes
                )
            )
            port = (address.text or "").rpartition(":")[2] if address is endpoint else ""
            if port.isdecimal() and not 0 < int(port[:9]) < 65536:
                yield Found(address.position, f"{port[:20]} is no port: torchrun ends at once", "node0:29500")
            elif is_placeholder(address.value):
                yield Found(
                    address.position, f"{address.value} is a placeholder: no host is called so", "node0"
                )
            elif is_loopback(address.value) or is_own:
                yield Found(
                    address.position,
                    f"{address.value} is another machine on each of {nodes} nodes: every node waits at its "
                    "own for the others, and all give up after ten minutes",
                    "the name of one node, the same on all",
                )
        elif how is not None and not launch.open and not any(map(launch.exported, BY_ENVIRONMENT)):
            option = "--master-addr" if how == "static" else "--rdzv-endpoint"
            unread = launch.exported("MASTER_ADDR") if main is None else None
            more = "; MASTER_ADDR of the environment is not read" if unread is not None else ""
            yield Found(
                launch.position,
                f"no {option} for {nodes} nodes: each node takes itself{more}, so they never find each other",
                f'{option} "$MASTER_ADDR"' + ("" if how == "static" else ":29500"),
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_standalone(shell: Shell) -> Iterator[Found]:
    """--standalone is for one node.

    What happens:
        It makes a rendezvous on a free port of its own machine and ignores --rdzv-*. Every node starts a
        separate job, or waits for nodes that cannot come.
    Write instead:
        --rdzv-backend c10d --rdzv-endpoint node0:29500.
    Wrong:
        torchrun --standalone --nnodes 2 --nproc-per-node 8 train.py
    Right:
        torchrun --standalone --nproc-per-node 8 train.py
    """
    for launch in shell.launches_of(*TORCH):
        if launch.has("standalone") and several(launch):
            yield Found(
                launch.position,
                f"--standalone works on one machine only: {nodes_of(launch)} nodes never find each other",
                "--rdzv-backend c10d --rdzv-endpoint node0:29500",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_node_rank(shell: Shell) -> Iterator[Found]:
    """With the static rendezvous each node has a number of its own, below --nnodes.

    What happens:
        Without --node-rank each node is number 0. All wait, without a message, until their time is over; so
        they do when the same number stands in a command that srun runs on every node.
    Write instead:
        --node-rank with another number on each, or --rdzv-backend c10d, which hands the numbers out.
    Wrong:
        torchrun --nnodes 2 --nproc-per-node 8 --master-addr node0 train.py
    Right:
        torchrun --nnodes 2 --nproc-per-node 8 --node-rank "$1" --master-addr node0 train.py
    """
    for launch in shell.launches_of(*TORCH):
        if not several(launch) or backend(launch) != "static" or launch.exported("PET_NODE_RANK") is not None:
            continue
        word, nodes = launch.get("node-rank"), nodes_of(launch) or 0
        number = word.value.number if word is not None else None
        if word is None:
            if not launch.open and (not shell.batch or launch.starter("srun")):
                yield Found(
                    launch.position,
                    f"no --node-rank: each of {nodes} nodes takes itself for number 0, and all wait without "
                    "a message",
                    "--node-rank, or --rdzv-backend c10d --rdzv-endpoint node0:29500",
                )
        elif number is not None and number >= nodes:
            yield Found(
                word.position,
                f"--node-rank {number} of {nodes} nodes: they are numbered 0 to {nodes - 1}, and number "
                f"{nodes - 1} never comes",
                f"0 to {nodes - 1}",
            )
        elif number is not None and not alone(shell) and not starts_itself(shell):
            here, command = shell.step_of(launch), launch.command
            is_followed = any(
                one.number("node-rank") == 1 and not one.starters and str(one.rest[0]) == str(launch.rest[0])
                for one in shell.launches_of(*TORCH)
                if number == 0 and one.rest and launch.rest
            )
            if is_followed and not (
                launch.starters or command.background or command.branch or command.function
            ):
                yield Found(
                    word.position,
                    "this waits here for node rank 1, which is started below only when it has ended",
                    "& behind it and wait at the end, or a script for each node",
                )
            if here is not None and (here.nodes or 0) > 1:
                yield Found(
                    word.position,
                    f"srun starts this on {here.nodes} nodes, all with --node-rank {number}: they wait for "
                    "each other for ever",
                    "srun bash -c '… --node-rank $SLURM_NODEID …', or --rdzv-backend c10d",
                )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_backend(shell: Shell) -> Iterator[Found]:
    """--rdzv-backend names a rendezvous and not a network.

    What happens:
        nccl and gloo are backends of the process group; as a rendezvous torchrun does not know them and ends
        at once.
    Write instead:
        c10d.
    Wrong:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend nccl --rdzv-endpoint node0:29500 train.py
    Right:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node0:29500 train.py
    """
    for launch in shell.launches_of(*TORCH):
        word = launch.get("rdzv-backend")
        if word is not None and (word.text or "").lower() in ("nccl", "gloo", "mpi", "ucc", "tcp", "env"):
            yield Found(
                word.position,
                f"torchrun knows no rendezvous called {word.text}, and ends at once",
                "--rdzv-backend c10d",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_nproc(shell: Shell) -> Iterator[Found]:
    """--nproc-per-node and --nnodes are numbers that torchrun reads.

    What happens:
        --nproc-per-node takes a number, gpu, cpu or auto, --nnodes a number or MIN:MAX, timeouts of
        --rdzv-conf seconds without a unit; anything else ends torchrun.
    Write instead:
        --nproc-per-node gpu starts one process for each GPU.
    Wrong:
        torchrun --nproc-per-node all train.py
    Right:
        torchrun --nproc-per-node gpu train.py
    """
    words = ("gpu", "cpu", "auto", "xpu", "npu", "mps", "hpu", "mtia")
    for launch in shell.launches_of(*TORCH):
        conf = launch.get("rdzv-conf")
        for part in ((conf.text if conf else "") or "").split(","):
            name, _, seconds = part.partition("=")
            if conf and name.strip().endswith("timeout") and seconds and not seconds.strip().isdecimal():
                yield Found(
                    conf.position, f"{name} is a number of seconds, and not {seconds}", f"{name}=1800"
                )
        processes, nodes = launch.get("nproc-per-node"), launch.get("nnodes")
        if processes is not None and (text := processes.text) and not text.isdecimal() and text not in words:
            yield Found(
                processes.position,
                f"--nproc-per-node takes a number, gpu, cpu or auto, and not {text}",
                "gpu",
            )
        elif processes is not None and processes.value.number == 0:
            yield Found(processes.position, "--nproc-per-node 0 starts nothing", "the number of GPUs, or gpu")
        if nodes is not None and nodes.text and most_nodes(nodes.value) in (None, 0):
            yield Found(
                nodes.position,
                f"--nnodes takes a number or MIN:MAX, and not {nodes.text}",
                "the number of nodes",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_option(shell: Shell) -> Iterator[Found]:
    """Options of torchrun are spelled correctly.

    What happens:
        "unrecognized arguments", or the option is taken for the script's: torchrun ends, or starts one
        process.
    Write instead:
        torchrun's own name. accelerate says --num_processes and --num_machines, Lightning --num_nodes.
    Wrong:
        torchrun --num_nodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node0:29500 train.py
    Right:
        torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node0:29500 train.py
    """
    others = {
        "num-nodes": "nnodes", "num-machines": "nnodes", "num-processes": "nproc-per-node",
        "num-gpus": "nproc-per-node", "nproc": "nproc-per-node", "gpus-per-node": "nproc-per-node",
        "machine-rank": "node-rank", "rank": "node-rank", "main-process-ip": "master-addr",
        "main-process-port": "master-port", "master-address": "master-addr",
        "rdzv-address": "rdzv-endpoint", "use-env": "",
    }  # fmt: skip
    for launch in shell.launches_of(*TORCH):
        every = PROGRAMS[launch.program].all
        for option in launch.options:
            head = option.word.value.head  # of an option from a variable the text that stands there is $NAME
            raw = head if head.startswith("--") else option.word.raw or head
            if (
                option.name in every
                or option.behind_any
                or not raw.startswith("--")
                or any(name.startswith(option.name) for name in every)
            ):
                continue
            close = difflib.get_close_matches(option.name, every, n=1, cutoff=0.86)
            correct = others.get(option.name, close[0] if close else None)
            if correct is None:
                continue
            yield Found(
                option.position,
                f"torchrun has no option {raw.partition('=')[0]}, and ends with 'unrecognized arguments'",
                f"--{correct}" if correct else "leave it out; torchrun always sets the environment",
            )


@rule(Severity.WARNING, Shell, Kind.SHELL, RUN)
def torch_behind_script(shell: Shell) -> Iterator[Found]:
    """Options of torchrun stand before the script.

    What happens:
        What stands behind the script is the script's own: torchrun starts one process on one node, and the
        script gets options that it does not know.
    Write instead:
        All options of torchrun before the script's name.
    Wrong:
        torchrun train.py --nproc_per_node 8 --nnodes 1
    Right:
        torchrun --nproc_per_node 8 --nnodes 1 train.py
    """
    for launch in shell.launches_of(*TORCH, closed=True):
        names = {option.name for option in launch.options}
        for word in launch.rest[1:]:
            match = _TORCHRUN_OPTION.match(word.value.head)
            if match and match[1].replace("_", "-") not in names and match[1].replace("_", "-") != "nnodes":
                yield Found(
                    word.position,
                    f"behind the script, so --{match[1]} is the script's: torchrun itself starts "
                    f"{launch.number('nproc-per-node') or 1} process on each node",
                    f"--{match[1]} before {launch.rest[0]}",
                )
                break


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_python(shell: Shell) -> Iterator[Found]:
    """torchrun is given a script and not a command.

    What happens:
        torchrun puts python before what it is given: python -u python train.py ends with "can't open file
        'python'". --nnodes and the rest work; each process dies at once.
    Write instead:
        torchrun train.py, -m for a module, --no-python for a program.
    Wrong:
        torchrun --nproc-per-node 8 python train.py
    Right:
        torchrun --nproc-per-node 8 train.py
    """
    for launch in shell.launches_of(*TORCH):
        if not launch.rest or launch.has("no-python", "module"):
            continue
        text = launch.rest[0].text or ""
        if re.fullmatch(r"python[\d.]*", text):
            yield Found(
                launch.rest[0].position,
                f"torchrun starts `python {text} …`: each process ends with \"can't open file '{text}'\"",
                "leave the word out, or give --no-python",
            )


@rule(
    Severity.WARNING,
    Shell,
    Kind.SHELL,
    "https://docs.pytorch.org/docs/stable/distributed.html#launch-utility",
)
def torch_launch(shell: Shell) -> Iterator[Found]:
    """Jobs are started with torchrun.

    What happens:
        torch.distributed.launch is deprecated. Without --use_env it gives the script --local-rank=N, since
        torch 2.0 with a hyphen: scripts that declare --local_rank end with "unrecognized arguments".
    Write instead:
        torchrun with the same options but --use_env; the script reads LOCAL_RANK from the environment.
    Wrong:
        python -m torch.distributed.launch --nproc_per_node 8 --use_env train.py
    Right:
        torchrun --nproc_per_node 8 train.py
    """
    for launch in shell.launches_of("torch.distributed.launch"):
        more = ", and gives the script --local-rank, which older ones do not know"
        joined = [option.word.raw for option in launch.options if "=" in option.word.raw][:4]
        yield Found(
            launch.position,
            f"torch.distributed.launch is deprecated{'' if launch.has('use-env') else more}",
            " ".join(["torchrun", *joined, "…"]) + ", and LOCAL_RANK from the environment in the script",
        )


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_rdzv_id(shell: Shell) -> Iterator[Found]:
    r"""The rendezvous id is the same on every node.

    What happens:
        $RANDOM, a time or a new uuid gives each node another id. They connect to the same port, and wait
        for nodes with their own id until they time out.
    Write instead:
        A fixed word, or $SLURM_JOB_ID.
    Wrong:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-id $RANDOM \
            --rdzv-backend c10d --rdzv-endpoint node0:29500 train.py
    Right:
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-id run1 \
            --rdzv-backend c10d --rdzv-endpoint node0:29500 train.py
    """
    for launch in shell.launches_of(*TORCH):
        word = launch.get("rdzv-id")
        if word is None or not several(launch):
            continue
        for hole in word.value.holes:
            fresh = "RANDOM" in hole.names or "SRANDOM" in hole.names or _FRESH.search(hole.command)
            # In a batch body it is filled in once, before srun copies the command to the nodes.
            once = hole.level < launch.level or shell.batch or bool(launch.starters)
            if fresh and not once:
                yield Found(
                    word.position,
                    f"{word.value} is another text on each of {nodes_of(launch)} nodes: they wait for peers "
                    "of their own id",
                    "--rdzv-id with a fixed word",
                )
                break


@rule(Severity.ERROR, Shell, Kind.SHELL, RUN)
def torch_port(shell: Shell) -> Iterator[Found]:
    """Two jobs that run on one machine at once have a port each.

    What happens:
        The store of the first listens on --master-port; the second one ends with "address already in use".
    Write instead:
        Another port for each, or --standalone, which takes a free one.
    Wrong:
        torchrun --nproc-per-node 4 --master-port 29501 a.py &
        torchrun --nproc-per-node 4 --master-port 29501 b.py &
    Right:
        torchrun --nproc-per-node 4 --master-port 29501 a.py &
        torchrun --nproc-per-node 4 --master-port 29502 b.py &
    """
    ports: set[str] = set()
    for launch in shell.launches_of(*TORCH, closed=True):
        word, command = launch.get("master-port"), launch.command
        if (
            word is None
            or not word.text
            or nodes_of(launch) != 1
            or launch.has("standalone", "rdzv-endpoint")
        ):
            continue
        if launch.starters or command.branch or command.function or command.loop:
            continue
        if word.text in ports:
            yield Found(
                word.position, f"port {word.text} is that of a job above, which runs still", "another port"
            )
        if command.background:
            ports.add(word.text)


@rule(Severity.ERROR, Shell, Kind.SHELL, "torch/distributed/rendezvous.py _env_rendezvous_handler")
def torch_init_alone(shell: Shell) -> Iterator[Found]:
    """A program that joins a process group gets its rank from a launcher.

    What happens:
        init_process_group reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Plain python sets none of
        them: it ends at once with "environment variable RANK expected, but not set", which says nothing about
        the network.
    Write instead:
        torchrun --standalone --nproc-per-node 2 with the same lines in a file; or `netdoctor scan`.
    Wrong:
        python -c "import torch.distributed as d; d.init_process_group('nccl')"
    Right:
        export RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500
        python -c "import torch.distributed as d; d.init_process_group('nccl')"
    """
    for launch in shell.launches_of("python"):
        if launch.starters or len(launch.rest) < 2 or launch.rest[0].text != "-c":
            continue
        text = launch.rest[1].text or ""
        has_rank = "init_method" in text or "store=" in text or "environ" in text or "rank=" in text
        if "init_process_group(" in text and not has_rank and launch.variable("RANK") is None:
            yield Found(
                launch.rest[1].position,
                "nothing sets RANK here: it ends at once with 'environment variable RANK expected, but not "
                "set', whatever the network is like",
                "torchrun --standalone --nproc-per-node 2 FILE, or netdoctor scan",
            )
