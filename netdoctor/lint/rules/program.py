"""Python programs: devices, the rendezvous, samplers and checkpoints, as far as one file can tell."""

import ast
import re
from collections.abc import Iterator

from netdoctor.lint.files import Shell
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.program import Python, last_name
from netdoctor.lint.rules.env import LOOPBACK

DIST = "https://docs.pytorch.org/docs/stable/distributed.html"
DDP = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
DATA = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
# Words of programs that leave these matters to a framework, or decide them in another file.
FRAMEWORKS = (
    r"(?i)accelerat|deepspeed|lightning|fabric|megatron|horovod|trainer\Z|\Aray\Z|\Axla|fsdp|hybridparallel"
)
RANK = r"(?i)\A(global_?|world_?|dist_?|proc_?)?rank\Z|get_rank|is_?(main|master|primary|rank)|main_process"
SPAWNS = ("spawn", "Process", "start_processes", "mp_spawn")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _spawns(program: Python) -> bool:
    return any(program.calls(*SPAWNS))


def _local_addresses(program: Python) -> Iterator[tuple[ast.AST, str]]:
    """Where the rendezvous is put on the own machine, whatever the environment says."""
    for node in ast.walk(program.tree) if program.tree is not None else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Subscript) and isinstance(node, ast.Assign):
            address = _constant(node.value)
            is_conditional = any(isinstance(one, ast.If | ast.Try) for one in program.enclosing(node))
            is_address = last_name(target.value) == "environ" and _constant(target.slice) == "MASTER_ADDR"
            is_local = isinstance(address, str) and LOOPBACK.fullmatch(address) is not None
            if is_address and is_local and not is_conditional:
                yield node, f'os.environ["MASTER_ADDR"] = "{address}"'
    for call in program.calls("init_process_group"):
        method = _constant(_keyword(call, "init_method"))
        host = re.match(r"tcp://(\[?[\w.:]+?\]?):\d+\Z", method) if isinstance(method, str) else None
        if host is not None and LOOPBACK.fullmatch(host[1]):
            yield call, f'init_method="{method}"'


@rule(Severity.WARNING, Python, Kind.PYTHON, DIST)
def python_rendezvous(program: Python) -> Iterator[Found]:
    """A program takes address, rank and size from its launcher.

    What happens:
        Written into the program they win over what the launcher sets: every process is the same rank, or
        looks for rank 0 on its own machine, and all wait until their time is over. A timeout that is a number
        ends in a TypeError.
    Write instead:
        dist.init_process_group("nccl") without address, rank and size; timeout=timedelta(minutes=30).
    Wrong:
        import torch.distributed as dist
        dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29500", rank=0, world_size=2)
    Right:
        import torch.distributed as dist
        dist.init_process_group("nccl")
    """
    alone = any(_constant(_keyword(c, "world_size")) == 1 for c in program.calls("init_process_group"))
    if not (alone or _spawns(program) or _rank_is_given(program)) and (
        "WORLD_SIZE" not in program.assigned_variables()
    ):
        for node, text in _local_addresses(program) if program.mentions(r"\Ainit_process_group\Z") else ():
            yield Found(
                program.position(node),
                f"{text} wins over the launcher's: on each further node it is another machine, and all wait",
                "leave it out; torchrun sets it",
            )
    for call in program.calls("init_process_group"):
        rank, size = (_constant(_keyword(call, name)) for name in ("rank", "world_size"))
        if isinstance(rank, int) and isinstance(size, int) and size > 1:
            yield Found(
                program.position(call),
                f"rank={rank} is written here: every process that runs this is rank {rank} of {size}, and "
                "the others never come",
                "leave rank and world_size out; torchrun sets them",
            )
        if isinstance(seconds := _constant(_keyword(call, "timeout")), int | float):
            yield Found(
                program.position(call),
                f"timeout={seconds} is no timedelta: init_process_group ends with a TypeError",
                f"timeout=timedelta(seconds={seconds})",
            )


def _rank_is_given(program: Python) -> bool:
    """Whether a function that joins the group gets its rank as an argument: from whom is not known here."""
    for call in program.calls("init_process_group"):
        rank = _keyword(call, "rank")
        functions = [one for one in program.enclosing(call) if isinstance(one, ast.FunctionDef)]
        names = {one.arg for f in functions for one in (*f.args.args, *f.args.kwonlyargs)}
        if isinstance(rank, ast.Name) and rank.id in names:
            return True
    return False


@rule(Severity.WARNING, Python, Kind.PYTHON, DIST)
def python_device(program: Python) -> Iterator[Found]:
    """Each process works on a GPU of its own.

    What happens:
        cuda() without a number is GPU 0 until torch.cuda.set_device chose another: all processes of a node
        share it, and NCCL ends with "Duplicate GPU detected". A global rank as number is no device on the
        second node: "invalid device ordinal". A barrier before the choice works on GPU 0, too.
    Write instead:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group.
    Wrong:
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        model = torch.nn.Linear(8, 8).cuda()
    Right:
        import os, torch, torch.distributed as dist
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = torch.nn.Linear(8, 8).cuda()
    """
    inits = list(program.calls("init_process_group"))
    nccl = [call for call in inits if "nccl" in map(_constant, (*call.args[:1], _keyword(call, "backend")))]
    chosen = r"(?i)local_?rank|localid|set_device|\Adevice_ids?\Z|visible_devices|device_count|\Alocal"
    if nccl and not program.mentions(FRAMEWORKS) and not program.mentions(chosen):
        plain = [c for c in program.calls("cuda") if not c.args and not c.keywords]
        plain += [c for c in program.calls("to", "device") if [_constant(a) for a in c.args] == ["cuda"]]
        if plain and "cuda:" not in program.file.text and not any(c.args for c in program.calls("cuda")):
            yield Found(
                program.position(min(plain, key=lambda call: call.lineno)),
                "nothing here chooses a GPU by the local rank: all processes of a node use GPU 0, and NCCL "
                "ends with 'Duplicate GPU detected'",
                'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            )
    for call in program.calls("set_device"):
        if call.args and program.is_global_rank(call.args[0]):
            yield Found(
                program.position(call),
                "the global rank is no device's number on a second node: 'invalid device ordinal'",
                'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            )
        for one in program.calls("barrier", "all_reduce", "broadcast") if nccl else ():
            body = next(program.enclosing(call), None), next(program.enclosing(one), None)
            scopes = [next(program.enclosing(b), None) if b is not None else None for b in body]
            if scopes[0] is scopes[1] is not None and any(c.lineno < one.lineno < call.lineno for c in nccl):
                yield Found(
                    program.position(one),
                    "a collective before set_device: every process of the node runs it on GPU 0",
                    "torch.cuda.set_device above init_process_group",
                )
                break


@rule(Severity.WARNING, Python, Kind.PYTHON, DATA)
def python_sampler(program: Python) -> Iterator[Found]:
    """Each rank of a data parallel program reads a part of the data.

    What happens:
        Without a DistributedSampler every rank reads all of it: an epoch takes as long as on one GPU.
    Write instead:
        DataLoader(data, sampler=DistributedSampler(data)), and sampler.set_epoch(epoch) in each epoch.
    Wrong:
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
        for batch in DataLoader(data, batch_size=8, shuffle=True):
            model(batch).backward()
    Right:
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model)
        for batch in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
            model(batch).backward()
    """
    loaders = [c for c in program.calls("DataLoader") if _constant(_keyword(c, "shuffle")) is True]
    parts = r"(?i)sampler|shard|(?<!random_)split|subset|num_replicas|iterable|webdataset|partition"
    if not any(program.calls("DistributedDataParallel", "DDP")) or not any(program.calls("backward")):
        return
    by_rank = (any(re.search(RANK, last_name(one)) for one in ast.walk(node)) for node in program.inputs())
    if len(loaders) == 1 and not program.mentions(f"{FRAMEWORKS}|{parts[4:]}") and not any(by_rank):
        yield Found(
            program.position(loaders[0]),
            "no DistributedSampler: every rank reads all of the data, in an order of its own",
            "sampler=DistributedSampler(…) in place of shuffle=True",
        )


@rule(Severity.WARNING, Python, Kind.PYTHON, DDP)
def python_checkpoint(program: Python) -> Iterator[Found]:
    """One rank writes a checkpoint.

    What happens:
        All ranks write one file at the same time: on a shared file system it is torn, and cannot be loaded.
    Write instead:
        if dist.get_rank() == 0: torch.save(…), and a barrier behind it.
    Wrong:
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        torch.save(model.state_dict(), "model.pt")
    Right:
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), "model.pt")
    """
    if not any(program.calls("init_process_group")) or program.mentions(FRAMEWORKS):
        return
    for call in program.calls("save"):
        if not isinstance(call.func, ast.Attribute) or last_name(call.func.value) != "torch":
            continue
        path = _constant(call.args[1]) if len(call.args) > 1 else None
        # Who decides may stand anywhere: where nobody asks for the rank, all write.
        undecided = not any(isinstance(one, ast.If | ast.FunctionDef) for one in program.enclosing(call))
        if isinstance(path, str) and undecided and not program.mentions(RANK):
            yield Found(
                program.position(call),
                f"every rank writes {path}: on a shared file system the file is torn",
                "if dist.get_rank() == 0:",
            )


@rule(Severity.WARNING, Shell, Kind.SBATCH, DDP)
def python_nodes(shell: Shell) -> Iterator[Found]:
    """A program that is started on several nodes knows of more than its own.

    What happens:
        DataParallel, and mp.spawn with the GPUs of one machine as world_size, know one node only: each node
        trains a model of its own, and the result is that of one.
    Write instead:
        DistributedDataParallel, and torchrun to start it.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=1
        cat > train.py <<EOF
        import torch
        model = torch.nn.DataParallel(torch.nn.Linear(8, 8).cuda())
        EOF
        srun python train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=1
        #SBATCH --ntasks-per-node=1
        cat > train.py <<EOF
        import torch
        model = torch.nn.DataParallel(torch.nn.Linear(8, 8).cuda())
        EOF
        srun python train.py
    """
    for launch, program in shell.programs:
        here = shell.step_of(launch)
        nodes = launch.number("nnodes") or (here.nodes if here is not None else None) or 1
        if nodes < 2 or program.mentions(FRAMEWORKS):
            continue
        joins = program.mentions(r"\Ainit_process_group\Z|\ADDP\Z|Distributed")
        for call in () if joins else program.calls("DataParallel"):
            yield Found(
                program.position(call),
                f"{launch.program} starts this on {nodes} nodes, and DataParallel knows the GPUs of one: "
                "each node trains a model of its own",
                "DistributedDataParallel",
                program.file.path,
            )
        for node, text in _local_addresses(program) if _spawns(program) else ():
            yield Found(
                program.position(node),
                f"{launch.program} starts this on {nodes} nodes, and {text}: each makes a group of its own",
                "the address of rank 0's node, and torchrun in place of mp.spawn",
                program.file.path,
            )
