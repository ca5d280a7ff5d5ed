"""Batch files: what sbatch reads, and what runs where."""

import difflib
import re
from collections.abc import Iterator

from netdoctor.lint.files import Shell
from netdoctor.lint.launches import TORCH, Launch, filled_in_early
from netdoctor.lint.model import Found, Kind, Position, Severity, rule
from netdoctor.lint.names import SLURM
from netdoctor.lint.nested import SHELLS
from netdoctor.lint.options import PROGRAMS

SBATCH = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
TASK = frozenset({"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID"})
NODE = frozenset({"SLURM_NODEID", "SLURM_PROCID"})
LISTS = frozenset({"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"})
HEAD = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
OLD = frozenset({"cpu_bind", "mem_bind"})  # as older releases of srun spell them
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "MACHINE_RANK")


def alone(shell: Shell) -> bool:
    """Whether the job certainly has one task."""
    request = shell.request
    return request.tasks == 1 or (
        request.nodes == 1 and (request.ntasks_per_node or 1) == 1 and request.ntasks is None
    )


def starts_itself(shell: Shell) -> bool:
    """Whether the script is run again in each task, by ``srun bash "$0"`` or the like."""
    return any(
        launch.starter("srun") is not None
        and any(h.names & {"0", "BASH_SOURCE"} for word in launch.rest for h in word.value.holes)
        for launch in shell.launches_of("script")
    ) or bool(
        re.search(
            r"SLURM_(PROCID|LOCALID|NODEID)\W+(==|-eq|!=|-ne)|-z +\"?\$\{?SLURM_(PROCID|STEP)",
            shell.file.text,
        )
    )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SRUN)
def slurm_rank_in_batch(shell: Shell) -> Iterator[Found]:
    """Variables of a task are read inside of the task.

    What happens:
        srun sets SLURM_PROCID, SLURM_LOCALID and SLURM_NODEID for each task. The body of a batch file
        runs once, on the first node, and has 0 there: every task gets rank 0, and the group never forms.
    Write instead:
        srun bash -c '… $SLURM_PROCID …' in single quotes, a script of its own that srun starts, or c10d,
        which needs no node rank.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        export RANK=$SLURM_PROCID
        export LOCAL_RANK=$SLURM_LOCALID
        srun python train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'
    """
    if not shell.batch or alone(shell) or starts_itself(shell):
        return
    reported: set[Position] = set()
    for launch in shell.launches:
        starter = launch.starter("srun")
        if starter is None:
            continue
        # torchrun sets these for its workers, and reads none of them.
        for name in () if launch.program in TORCH else RANKS:
            variable = launch.exported(name)
            if variable is None or variable.assigned in reported:
                continue
            hole = filled_in_early(variable.value, launch, TASK)
            if hole is not None and variable.assigned is not None and launch.program != "script":
                reported.add(variable.assigned)
                source = next(iter(hole.names & TASK))
                yield Found(
                    variable.assigned,
                    f"{source} is expanded once, in the batch body, where it is 0: every task that srun "
                    f"starts has {name}=0, and the group never forms",
                    f"srun bash -c '{name}=${source} …'",
                )
        backend = launch.get("rdzv-backend")
        if backend is not None and backend.text != "static":
            continue  # c10d hands the numbers out, and does not look at this one
        for option in launch.options:
            if option.value is None or option.name not in ("node-rank", "machine-rank"):
                continue
            hole = filled_in_early(option.value.value, launch, NODE)
            if hole is not None and option.value.position not in reported:
                reported.add(option.value.position)
                source = next(iter(hole.names & NODE))
                yield Found(
                    option.value.position,
                    f"{source} is expanded once, in the batch body, where it is 0: every node that srun "
                    f"starts this on has --{option.name} 0, and the job hangs without a message",
                    f"srun bash -c '… --{option.name} ${source} …' in single quotes, or --rdzv-backend c10d",
                )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SBATCH)
def slurm_no_srun(shell: Shell) -> Iterator[Found]:
    """In a job of several nodes the launcher is started on each of them.

    What happens:
        The body of a batch file runs on the first node only. torchrun waits there for the other nodes until
        its time is over, or trains on one node while the rest of the allocation idles.
    Write instead:
        srun before it, with one task on each node.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    """
    nodes = shell.request.nodes
    if not shell.batch or not nodes or nodes < 2 or starts_itself(shell):
        return
    for launch in shell.launches_of(*TORCH, "accelerate"):
        command = launch.command
        if launch.starters or command.function or command.branch or command.loop:
            continue
        if launch.program == "accelerate" and (launch.has("deepspeed-hostfile") or launch.has("config-file")):
            continue
        count = launch.number("nnodes", "num-machines")
        if count == 1 or launch.has("standalone"):
            what = f"trains on the first of {nodes} nodes, and the others idle"
        else:
            what = f"runs on the first of {nodes} nodes only and waits there for the others"
        yield Found(launch.position, f"no srun: {launch.program} {what}", f"srun {launch.program} …")


@rule(Severity.ERROR, Shell, Kind.SBATCH, SRUN)
def slurm_srun_launcher(shell: Shell) -> Iterator[Found]:
    """srun starts one launcher on a node.

    What happens:
        srun starts its command once for each task. torchrun starts a process for each GPU by itself: with
        eight tasks on a node there are eight torchruns and sixty-four processes for eight GPUs, or a port
        that is taken.
    Write instead:
        --ntasks-per-node=1 for launchers; or one task for each GPU and python without a launcher.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    """
    for launch in shell.launches_of(*TORCH, "accelerate", "deepspeed", "ray"):
        here = shell.step_of(launch)
        per_node = (here.per_node if here is not None else None) or 1
        if per_node > 1 and launch.number("nproc-per-node") != 1:
            yield Found(
                launch.position,
                f"srun starts {per_node} of these on each node, and each one starts the processes of a "
                "whole node",
                "#SBATCH --ntasks-per-node=1",
            )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SBATCH)
def slurm_late_directive(shell: Shell) -> Iterator[Found]:
    """#SBATCH lines stand before the first command.

    What happens:
        sbatch stops reading at the first line that is neither blank nor a comment. What is asked for below it
        is not asked for: the job gets the default, often one node and no GPU.
    Write instead:
        All #SBATCH lines right below #!/bin/bash.
    Wrong:
        #!/bin/bash
        #SBATCH --ntasks-per-node=1
        module load cuda
        #SBATCH --nodes=4
        srun hostname
    Right:
        #!/bin/bash
        #SBATCH --ntasks-per-node=1
        #SBATCH --nodes=4
        module load cuda
        srun hostname
    """
    if not shell.batch:
        return
    for late in shell.request.late[:5]:
        yield Found(
            late.position,
            f"below the first command (line {late.behind}): sbatch does not read it, and "
            f"{late.text[7:].strip()} is not asked for",
            "move it above",
        )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SBATCH)
def slurm_variable(shell: Shell) -> Iterator[Found]:
    """#SBATCH lines hold no variables.

    What happens:
        They are comments for the shell and are read by sbatch before any shell runs: $NODES stays as it is,
        and sbatch refuses it or makes a folder of that name.
    Write instead:
        The value itself, or sbatch --nodes="$NODES" on the command line; file names know %j, %x and %u.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=$NODES
        srun hostname
    Right:
        #!/bin/bash
        #SBATCH --nodes=4
        srun hostname
    """
    for option in shell.request.options:
        text = option.value.text if option.value is not None else None
        if shell.batch and text and re.search(r"\$[A-Za-z_{(]", text) and option.name != "wrap":
            yield Found(
                option.position,
                f"sbatch expands no variables: --{option.name} is the text {text} itself",
                "the value itself",
            )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SBATCH)
def slurm_option(shell: Shell) -> Iterator[Found]:
    """Directives, options and variables of Slurm are spelled correctly.

    What happens:
        "unrecognized option", and the job is not queued. A misspelt #SBATCH is a comment, and what stands
        there is not asked for; a misspelt variable is empty.
    Write instead:
        The option that exists; Slurm's have hyphens, torch's may have both.
    Wrong:
        #!/bin/bash
        #SBATCH --ntasks_per_node=8
        srun hostname
    Right:
        #!/bin/bash
        #SBATCH --ntasks-per-node=8
        srun hostname
    """
    every = PROGRAMS["sbatch"].all
    for number, line in enumerate(shell.file.lines[:200], 1) if shell.batch else ():
        word = line.split(maxsplit=1)[0] if re.match(r"#\w+\s+-", line) else "#SBATCH"
        if word != "#SBATCH" and difflib.get_close_matches(word.upper(), ["#SBATCH"], cutoff=0.85):
            yield Found(Position(number), f"{word} is a comment: sbatch does not read this line", "#SBATCH")
    for name in sorted(shell.script.used - SLURM):
        if name.startswith("SLURM_") and name not in {a.name for a in shell.script.assignments}:
            near = difflib.get_close_matches(name, SLURM, n=1, cutoff=0.92)
            rows = [
                n
                for n, line in enumerate(shell.file.lines, 1)
                if re.search(rf"\$(?:\{{{name}(?!\w|:?[-=])|{name}\b)", line)
            ]
            if near and rows:
                yield Found(Position(rows[0]), f"Slurm sets no {name}: it is empty here", near[0])
    lists = [(shell.request.options, "sbatch")] if shell.batch else []
    lists += [(launch.options, launch.program) for launch in shell.launches_of("srun", "salloc", "sbatch")]
    for words, program in lists:
        for one in words:
            written = re.match(r"--([A-Za-z][\w-]*)", one.word.raw or one.word.value.head)
            if written is None or written[1] in OLD:
                continue
            if any(name.startswith(written[1]) for name in every):  # getopt takes what is unique
                continue
            close = difflib.get_close_matches(written[1].replace("_", "-"), every, n=1, cutoff=0.88)
            if not close or close[0].startswith(written[1]):
                continue
            text = f"{program} has no option --{written[1]}: the job is not started"
            yield Found(one.position, text, f"--{close[0]}")


@rule(Severity.ERROR, Shell, Kind.SBATCH, "Slurm src/sbatch/sbatch.c, This does not look like a batch script")
def slurm_shebang(shell: Shell) -> Iterator[Found]:
    """A batch file begins with #! and a shell.

    What happens:
        sbatch refuses it: "This does not look like a batch script".
    Write instead:
        #!/bin/bash as the very first line, with no blank line above.
    Wrong:

        #SBATCH --nodes=2
        srun hostname
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        srun hostname
    """
    first = re.match(r"#![ \t]*(\S*)", shell.file.text)
    folder, _, program = first[1].rpartition("/") if first else ("/bin", "", "bash")
    near = difflib.get_close_matches(program, ["bash", "zsh", "dash"], n=1, cutoff=0.8)
    odd = program in SHELLS and folder in (
        "",
        "/usr",
        "bin",
        "usr/bin",
        "/usr/bin/bin",
        "/bin/bin",
        "/bin/usr",
    )
    if odd or (program not in (*SHELLS, "csh", "tcsh", "ash", "mksh") and near):
        yield Found(
            Position(1), f"no program is called {first[1] if first else ''}: 'bad interpreter'", "#!/bin/bash"
        )
    if shell.batch and shell.request.options and not shell.file.text.startswith("#!"):
        yield Found(
            Position(1), "the first line is no #!: sbatch refuses the file", "#!/bin/bash as the first line"
        )


@rule(Severity.ERROR, Shell, Kind.SBATCH, SBATCH)
def slurm_shape(shell: Shell) -> Iterator[Found]:
    """Nodes, tasks, GPUs and processes of a job fit together.

    What happens:
        More processes than GPUs end with "invalid device ordinal". A launcher that waits for another number
        of nodes than the job has waits until its time is over. More tasks than nodes and tasks per node allow
        are refused.
    Write instead:
        The same numbers everywhere; best from the variables that Slurm sets.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        #SBATCH --gres=gpu:4
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        #SBATCH --gres=gpu:4
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" train.py
    """
    request = shell.request
    if not shell.batch:
        return
    if request.nodes and request.ntasks and request.ntasks_per_node:
        most = request.nodes * request.ntasks_per_node
        option = request.get("ntasks")
        if request.ntasks > most and option is not None:
            yield Found(
                option.position,
                f"{request.ntasks} tasks do not fit on {request.nodes} nodes with at most "
                f"{request.ntasks_per_node} each",
                f"--ntasks={most}, or leave it out",
            )
    for launch in shell.launches:
        yield from _shape_of(shell, launch)


def _shape_of(shell: Shell, launch: Launch) -> Iterator[Found]:
    request, here = shell.request, shell.step_of(launch)
    if any(s.program not in ("srun", "docker") for s in launch.starters):
        return
    gpus, per_task = (here or request).gpus_per_node, (here or request).gpus_per_task
    if launch.program in TORCH:
        word, count = launch.get("nproc-per-node"), launch.number("nproc-per-node")
        if word is not None and count is not None:
            if per_task is not None and count > per_task and here is not None:
                yield Found(
                    word.position,
                    f"{count} processes, and --gpus-per-task shows torchrun's task {per_task} "
                    f"GPU{'s' * (per_task > 1)}: the rest end with 'invalid device ordinal'",
                    f"--gpus-per-node={count} in place of --gpus-per-task",
                )
            elif gpus is not None and count > gpus and per_task is None:
                yield Found(
                    word.position,
                    f"{count} processes on each node, and the job has {gpus} GPU{'s' * (gpus > 1)} there: "
                    f"local rank {gpus} ends with 'invalid device ordinal'",
                    f"--nproc-per-node {gpus}, or ask for {count} GPUs",
                )
        word, expected = launch.get("nnodes"), launch.number("nnodes")
        nodes = here.nodes if here is not None else None
        if word is not None and expected is not None and nodes is not None and expected != nodes:
            ends = (
                "waits for nodes that never come"
                if expected > nodes
                else "starts without the others, which wait outside"
            )
            yield Found(
                word.position,
                f"srun starts this on {nodes} node{'s' * (nodes > 1)}, and --nnodes says {expected}: the job "
                f"{ends}",
                "--nnodes $SLURM_NNODES",
            )
    elif launch.program == "python" and here is not None and launch.exported("MASTER_ADDR"):
        many = here.per_node or 0
        if gpus and many > gpus and per_task is None:
            yield Found(
                (request.get("ntasks-per-node") or launch).position,
                f"{many} tasks on each node share {gpus} GPU{'s' * (gpus > 1)}: NCCL refuses two ranks on "
                "one GPU ('Duplicate GPU detected')",
                f"--ntasks-per-node={gpus}",
            )


@rule(Severity.ERROR, Shell, Kind.SBATCH, "https://slurm.schedmd.com/scontrol.html")
def slurm_nodelist(shell: Shell) -> Iterator[Found]:
    """The first node is taken from the expanded list.

    What happens:
        SLURM_JOB_NODELIST is folded: node[01-04]. Its first line, or what stands before its first comma, is
        node[01-04] again, or node[01: no host is called so, and every rank waits for it until the time is
        over.
    Write instead:
        scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=4
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=$(echo $SLURM_JOB_NODELIST | head -n 1)
        srun python train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=4
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun python train.py
    """
    if shell.request.nodes == 1:
        return
    for a in shell.script.assignments:
        if a.name not in ("MASTER_ADDR", "MASTER_NODE", "HEAD_NODE", "head_node", "master_addr"):
            continue
        for hole in a.value.holes:
            if not hole.names & LISTS and not hole.command.startswith("scontrol"):
                continue
            times = sum(one.name == a.name for one in shell.script.assignments)
            if (
                a.name == "MASTER_ADDR"
                and times == 1
                and re.fullmatch(r"scontrol\s+show\s+hostnames?(\s+[^|\s]+)?", hole.command)
            ):
                text = "scontrol prints a line for each node: MASTER_ADDR is all of their names, and no host"
                yield Found(a.position, text, HEAD)
                break
            simple = re.fullmatch(
                r"(echo|printf)\s(?:\s*\S+)??\s*\"?\$\{?\w+\}?\"?\s*\|\s*(head\s+-n?\s*1|cut\s+-d\s*['\"]?,['\"]?\s+-f\s*1)",
                hole.command,
            )
            if (
                simple
                or (hole.plain and len(a.value.pieces) == 1)
                or re.fullmatch(r"\$\{\w+%%,\*\}", hole.command)
            ):
                yield Found(
                    a.position,
                    f"the node list is folded, as node[01-04]: {a.name} becomes no host's name, and nobody "
                    "finds rank 0",
                    HEAD,
                )
                break


@rule(Severity.ERROR, Shell, Kind.SBATCH, f"{SRUN}#OPT_export")
def slurm_export(shell: Shell) -> Iterator[Found]:
    """srun passes the variables of the job on.

    What happens:
        --export with a list, or NONE, leaves everything else behind: the tasks do not see what the batch body
        exported, and torch ends with "environment variable MASTER_ADDR expected, but not set".
    Write instead:
        --export=ALL,NAME=value.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun --export=NONE python train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun --export=ALL python train.py
    """
    for launch in shell.launches_of(*TORCH, "python", "accelerate", "script"):
        srun = launch.starter("srun")
        word = srun.get("export") if srun is not None else None
        passed = [part.partition("=")[0] for part in (word.text or "ALL").split(",")] if word else ["ALL"]
        environment = srun.command.environment if srun is not None else {}
        lost = [
            name
            for name, variable in environment.items()
            if variable.exported and variable.assigned and re.match(r"(MASTER|NCCL|GLOO)_", name)
        ]
        missing = [name for name in lost if name not in passed]
        if word is not None and "ALL" not in passed and missing:
            what = f"the tasks do not see {', '.join(missing[:3])}"
            yield Found(word.position, f"--export={word.text} passes nothing else: {what}", "--export=ALL")


@rule(Severity.WARNING, Shell, Kind.SBATCH, SRUN)
def slurm_gpu_per_task(shell: Shell) -> Iterator[Found]:
    """A task that sees only one GPU does not select it by its local rank.

    What happens:
        With --gpus-per-task=1 each task sees its own GPU, as number 0. A program that chooses device
        LOCAL_RANK ends on all tasks but the first with "invalid device ordinal".
    Write instead:
        --gpus-per-node for the job, so that every task sees all GPUs of its node; or LOCAL_RANK=0.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        #SBATCH --gpus-per-task=1
        srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        #SBATCH --gpus-per-node=8
        srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'
    """
    for launch in shell.launches_of("python"):
        here, local = shell.step_of(launch), launch.exported("LOCAL_RANK")
        if here is None or local is None or local.assigned is None:
            continue
        if here.gpus_per_task == 1 and "SLURM_LOCALID" in local.value.names and here.per_node != 1:
            yield Found(
                local.assigned,
                "with --gpus-per-task=1 each task sees one GPU, number 0: device LOCAL_RANK ends with "
                "'invalid device ordinal' on every task but the first",
                "--gpus-per-node in place of --gpus-per-task, or LOCAL_RANK=0",
            )
