"""DeepSpeed, accelerate, Ray and MPI: their own traps."""

import re
from collections.abc import Iterator

from netdoctor.lint.files import Config, Hosts, Shell
from netdoctor.lint.launches import Launch, filled_in_early
from netdoctor.lint.model import Found, Kind, Position, Severity, rule
from netdoctor.lint.program import Text
from netdoctor.lint.rules.env import is_loopback, is_placeholder
from netdoctor.lint.values import text_value

DS = "DeepSpeed deepspeed/launcher/runner.py"
ACC = "accelerate src/accelerate/utils/launch.py"
RAY = "Ray python/ray/scripts/scripts.py, python/ray/_private/parameter.py"
OMPI = "https://docs.open-mpi.org/en/v5.0.x/launching-apps/index.html"
# What the pdsh launcher hands on: EXPORT_ENVS, and the accelerator's.
FORWARDED = ("NCCL", "PYTHON", "MLFLOW", "MV2", "UCX", "NEBULA")
JOB_VARIABLES = re.compile(
    r"(GLOO|TORCH|HF|CUDA|OMP|FI|WANDB|TRITON)_\w+|LD_LIBRARY_PATH|PATH|TOKENIZERS_PARALLELISM"
)
MPI_RANKS = frozenset(
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID"}
)
_DS_LINE = re.compile(r"^(\S+)\s+slots=(\d+)")


@rule(Severity.WARNING, Shell, Kind.SHELL, f"{DS} EXPORT_ENVS")
def deepspeed_env_forward(shell: Shell) -> Iterator[Found]:
    """Variables that DeepSpeed does not pass on are in .deepspeed_env.

    What happens:
        The pdsh launcher passes only variables whose names begin with NCCL, PYTHON, MLFLOW, MV2, UCX or
        NEBULA to the other nodes. GLOO_*, TORCH_*, HF_*, CUDA_*, OMP_* and LD_LIBRARY_PATH stay on the
        node where it was called.
    Write instead:
        A line NAME=value in ~/.deepspeed_env or ./.deepspeed_env.
    Wrong:
        export GLOO_SOCKET_IFNAME=bond0
        deepspeed --hostfile hostfile train.py
    Right:
        echo "GLOO_SOCKET_IFNAME=bond0" > .deepspeed_env
        deepspeed --hostfile hostfile train.py
    """
    if ".deepspeed_env" in shell.file.text:
        return
    reported: set[str] = set()
    for launch in shell.launches_of("deepspeed"):
        how = launch.get("launcher")
        local = launch.has("no-ssh") or launch.number("num-nodes") == 1
        if local or not launch.has("hostfile") or launch.level:
            continue
        if how is not None and (how.text or "slurm").lower() != "pdsh":
            continue
        for name, variable in launch.command.environment.items():
            if (
                variable.exported
                and variable.assigned
                and JOB_VARIABLES.fullmatch(name)
                and name not in reported
            ):
                reported.add(name)
                yield Found(
                    variable.assigned,
                    f"DeepSpeed takes {name} to no other node: it passes on only {', '.join(FORWARDED)}*",
                    f"{name}={variable.value} in .deepspeed_env",
                )


@rule(Severity.WARNING, Shell, Kind.SBATCH, f"{DS} fetch_hostfile, main")
def deepspeed_no_hostfile(shell: Shell) -> Iterator[Found]:
    """On several nodes deepspeed gets a list of them.

    What happens:
        Without a hostfile there is a warning, and training runs on the GPUs of the node where deepspeed was
        called. With --num_nodes above 1 it ends: "no extra nodes available via hostfile".
    Write instead:
        --hostfile FILE with a line for each node: node0 slots=8.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --gpus-per-node=8
        deepspeed --num_gpus 8 train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --gpus-per-node=8
        scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/$/ slots=8/' > hostfile
        deepspeed --hostfile hostfile train.py
    """
    for launch in shell.launches_of("deepspeed", closed=True):
        if launch.has("hostfile") or launch.starters:
            continue
        if "/job/hostfile" in shell.file.text or launch.command.function:
            continue
        nodes = launch.number("num-nodes")
        if nodes is not None and nodes > 1 and not launch.has("no-ssh"):
            yield Found(
                launch.position,
                f"--num_nodes {nodes} without --hostfile: unless there is a /job/hostfile DeepSpeed ends "
                "with 'no extra nodes available via hostfile'",
                "--hostfile FILE",
            )
        elif shell.batch and (shell.request.nodes or 0) > 1 and not launch.command.branch and nodes is None:
            yield Found(
                launch.position,
                f"no --hostfile: DeepSpeed trains on the first of {shell.request.nodes} nodes, with no more "
                "than a warning",
                "--hostfile FILE with a line NODE slots=GPUS for each node",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, f"{DS} main")
def deepspeed_include(shell: Shell) -> Iterator[Found]:
    """--include and --exclude stand without --num_nodes and --num_gpus.

    What happens:
        DeepSpeed refuses both together: "Cannot specify num_nodes/gpus with include/exclude".
    Write instead:
        One of the two.
    Wrong:
        deepspeed --hostfile hostfile --include node0@node1 --num_gpus 4 train.py
    Right:
        deepspeed --hostfile hostfile --include node0:0,1,2,3@node1:0,1,2,3 train.py
    """
    for launch in shell.launches_of("deepspeed"):
        if launch.has("include", "exclude") and launch.has("num-nodes", "num-gpus"):
            yield Found(
                launch.position,
                "DeepSpeed refuses --include or --exclude together with --num_nodes or --num_gpus",
                "one of them",
            )
        if launch.has("include") and launch.has("exclude"):
            yield Found(launch.position, "DeepSpeed refuses --include together with --exclude", "one of them")


@rule(Severity.ERROR, Text, Kind.DEEPSPEED_ENV, f"{DS} main, DEEPSPEED_ENVIRONMENT_NAME")
def deepspeed_env_file(file: Text) -> Iterator[Found]:
    """Each line of .deepspeed_env is NAME=value.

    What happens:
        DeepSpeed splits every line at its =. A blank line or a comment ends it with "ValueError: not enough
        values to unpack"; "export " becomes a part of the name.
    Write instead:
        NAME=value on each line, and nothing else.
    Wrong:
        # our network
        NCCL_SOCKET_IFNAME=bond0
    Right:
        NCCL_SOCKET_IFNAME=bond0
    """
    if file.kind is not Kind.DEEPSPEED_ENV:
        return
    lines = file.lines[:-1] if file.text.endswith("\n") else file.lines
    for number, line in enumerate(lines, 1):
        if "=" not in line and (line or number < len(file.lines)):
            what = (
                "a comment"
                if line.lstrip().startswith("#")
                else "a blank line"
                if not line.strip()
                else "no ="
            )
            yield Found(
                Position(number),
                f"{what}: DeepSpeed ends with 'not enough values to unpack'",
                "NAME=value on each line",
            )
        elif line.startswith("export "):
            yield Found(
                Position(number),
                "'export ' becomes a part of the variable's name",
                line.removeprefix("export ").strip(),
            )


@rule(Severity.ERROR, Hosts, Kind.HOSTFILE, f"{DS} _parse_hostfile; PRRTE src/util/hostfile/hostfile.c")
def deepspeed_hostfile(hosts: Hosts) -> Iterator[Found]:
    """A hostfile with slots is one that DeepSpeed reads.

    What happens:
        DeepSpeed takes lines "host slots=8" and nothing else: host:8, slots = 8 and a second line for a host
        end it with "Hostfile contains a bad entry" or "multiple entries". Open MPI adds the slots of repeated
        lines.
    Write instead:
        One line for each node: node0 slots=8.
    Wrong:
        node0 slots=8
        node1:8
    Right:
        node0 slots=8
        node1 slots=8
    """
    matched = [(number, line, _DS_LINE.match(line)) for number, line in hosts.lines]
    if any(re.search(r"\s(?!slots)\w+=|[<>]|\bx\.x|^[xX]+[.\s]", line) for _, line in hosts.lines):
        return  # another program's, or a template
    for_mpi = any("max_slots" in line or "max-slots" in line for _, line, _ in matched)
    if for_mpi or not any(match for _, _, match in matched):
        loose = [(n, line) for n, line, _ in matched if re.match(r"\S+\s+slots\s+=|\S+\s+slots=\s+\d", line)]
        if for_mpi or len(loose) != len(matched):
            return
    line_of: dict[str, int] = {}
    for number, line, match in matched:
        host = line.split()[0]
        if match is None:
            yield Found(
                Position(number), f"DeepSpeed refuses this line: {line}", f"{host.partition(':')[0]} slots=N"
            )
        elif host in line_of:
            yield Found(
                Position(number),
                f"{host} is already in line {line_of[host]}: DeepSpeed refuses the file",
                "one line for each node",
            )
        elif int(match[2][:9]) == 0:
            yield Found(Position(number), f"{host} has no slots: nothing is started there", f"{host} slots=8")
        line_of.setdefault(host, number)
    local = next((n for n, line, _ in matched if is_loopback_name(line.split()[0])), None)
    if local is not None and len(line_of) > 1:
        yield Found(
            Position(local), "localhost is another machine for each of the other nodes", "the node's own name"
        )


def is_loopback_name(host: str) -> bool:
    return is_loopback(text_value(host.partition("@")[2] or host))


# --- accelerate -----------------------------------------------------------------------------------


@rule(Severity.ERROR, Shell, Kind.SHELL, f"{ACC} prepare_multi_gpu_env")
def accelerate_num_processes(shell: Shell) -> Iterator[Found]:
    r"""--num_processes counts the processes of all machines.

    What happens:
        accelerate starts num_processes / num_machines on each machine and drops the rest. With the GPUs of
        one node as num_processes most GPUs idle; a number that does not divide starts fewer than it says.
    Write instead:
        --num_processes $((NODES * GPUS)).
    Wrong:
        accelerate launch --num_machines 2 --num_processes 7 --machine_rank 0 \
            --main_process_ip node0 --main_process_port 29500 train.py
    Right:
        accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 \
            --main_process_ip node0 --main_process_port 29500 train.py
    """
    for launch in shell.launches_of("accelerate"):
        machines, word = launch.number("num-machines") or 1, launch.get("num-processes")
        if word is not None and machines > 1:
            gpus = (shell.step_of(launch) or shell.request).gpus_per_node
            yield from _divided(word.position, word.value.number, machines, gpus)


def _divided(position: Position, processes: int | None, machines: int, gpus: int | None) -> Iterator[Found]:
    if processes is None:
        return
    each, lost = divmod(processes, machines)
    if lost:
        many = "one is" if lost == 1 else f"{lost} are"
        yield Found(
            position,
            f"{processes} processes on {machines} machines: {each} start on each, {many} dropped without a "
            "message",
            "a multiple of the machines: num_processes counts those of all machines",
        )
    elif processes == gpus:
        yield Found(
            position,
            f"num_processes counts those of all machines: {each} start on each of {machines}, with {gpus} "
            "GPUs",
            f"{gpus * machines}",
        )


@rule(Severity.ERROR, Config, Kind.ACCELERATE, f"{ACC}, commands/config/config_args.py")
def accelerate_config(config: Config) -> Iterator[Found]:
    """A configuration of several machines names the main one, and its numbers divide.

    What happens:
        Without main_process_ip, or with localhost, each machine waits at its own address. num_processes
        counts those of all machines; machine_rank runs from 0 to num_machines - 1.
    Write instead:
        main_process_ip: node0, main_process_port: 29500, and num_processes: machines times GPUs.
    Wrong:
        compute_environment: LOCAL_MACHINE
        distributed_type: MULTI_GPU
        num_machines: 2
        num_processes: 16
        machine_rank: 2
        main_process_ip: node0
        main_process_port: 29500
    Right:
        compute_environment: LOCAL_MACHINE
        distributed_type: MULTI_GPU
        num_machines: 2
        num_processes: 16
        machine_rank: 1
        main_process_ip: node0
        main_process_port: 29500
    """
    for document in config.documents_of(Kind.ACCELERATE):
        machines = document.number_at("num_machines") or 1
        if machines < 2 or document.get("mpirun_config") is not None:
            continue
        rank, processes = document.get("machine_rank"), document.get("num_processes")
        address = document.get("main_process_ip")
        if rank is not None and rank.number is not None and rank.number >= machines:
            yield Found(
                rank.position,
                f"machine {rank.number} of {machines}: they are numbered from 0",
                f"0 to {machines - 1}",
            )
        if processes is not None:
            yield from _divided(processes.position, processes.number, machines, None)
        hostfile = document.get("deepspeed_config", "deepspeed_hostfile")
        main = rank is not None and rank.number == 0
        if not main and address is not None and address.text is not None and is_loopback_name(address.text):
            yield Found(
                address.position,
                f"{address.text} is another machine on each of {machines}: they wait for each other until "
                "the time is over",
                "the name of machine 0",
            )
        elif (address is None or address.text in ("", "null", "~", None)) and hostfile is None:
            position = (address or document.get("num_machines") or document).position
            yield Found(
                position,
                f"no main_process_ip for {machines} machines: accelerate ends with 'you need to specify the "
                "main process IP'",
                "main_process_ip: node0",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, ACC)
def accelerate_main_process(shell: Shell) -> Iterator[Found]:
    r"""On several machines accelerate gets the address of the main one.

    What happens:
        With localhost each machine waits at its own address for the others, until the time is over.
    Write instead:
        --main_process_ip with the name of machine 0, the same on all.
    Wrong:
        accelerate launch --num_machines 2 --num_processes 16 --machine_rank "$1" \
            --main_process_ip 127.0.0.1 --main_process_port 29500 train.py
    Right:
        accelerate launch --num_machines 2 --num_processes 16 --machine_rank "$1" \
            --main_process_ip node0 --main_process_port 29500 train.py
    """
    for launch in shell.launches_of("accelerate"):
        machines = launch.number("num-machines") or 1
        if machines < 2:
            continue
        address, rank = launch.get("main-process-ip"), launch.get("machine-rank")
        main = rank is not None and rank.value.number == 0  # it may call itself so
        if address is not None and is_placeholder(address.value):
            yield Found(address.position, f"{address.value} is a placeholder: no host is called so", "node0")
        elif address is not None and not main and is_loopback(address.value):
            yield Found(
                address.position,
                f"{address.value} is another machine on each of {machines}: they wait for each other until "
                "the time is over",
                "the name of machine 0",
            )
        if rank is not None and rank.value.number is not None and rank.value.number >= machines:
            yield Found(
                rank.position,
                f"machine {rank.value} of {machines}: they are numbered from 0",
                f"0 to {machines - 1}",
            )


# --- Ray ------------------------------------------------------------------------------------------


@rule(Severity.ERROR, Shell, Kind.SHELL, RAY)
def ray_port(shell: Shell) -> Iterator[Found]:
    """Each of Ray's ports is its own.

    What happens:
        Ray listens on its port (6379), 10001 for clients, 8265 for its page, and 10002 to 19999 for workers.
        Two of the same end ray start with a ValueError.
    Write instead:
        --port=6379.
    Wrong:
        ray start --head --port=10001
    Right:
        ray start --head --port=6379
    """
    for launch in shell.launches_of("ray"):
        word, port = launch.get("port"), launch.number("port")
        if word is None or port is None or not launch.has("head"):
            continue
        low, high = launch.number("min-worker-port"), launch.number("max-worker-port")
        moved = launch.has("min-worker-port", "max-worker-port", "worker-port-list") or launch.open
        workers = range(10002, 20000) if not moved else range(low, high + 1) if low and high else range(0)
        clients = launch.number("ray-client-server-port") if launch.has("ray-client-server-port") else 10001
        if port in workers:
            what = f"port {port} is among those of Ray's workers"
        elif port in (clients, 8265):
            what = f"port {port} is one that Ray uses itself"
        else:
            continue
        yield Found(word.position, f"{what}: ray start ends with a ValueError", "--port=6379")


@rule(Severity.ERROR, Shell, Kind.SHELL, RAY)
def ray_address(shell: Shell) -> Iterator[Found]:
    """One node is Ray's head, and the others name it.

    What happens:
        A worker that is given localhost looks for the head on its own machine and ends. --head in a command
        that srun runs on every node starts a cluster on each.
    Write instead:
        ray start --head on one node, ray start --address=HEAD:6379 on the others.
    Wrong:
        ssh node1 'ray start --address=127.0.0.1:6379'
    Right:
        ssh node1 'ray start --address=node0:6379'
    """
    for launch in shell.launches_of("ray"):
        word, here = launch.get("address"), shell.step_of(launch)
        nodes = (here.nodes if here is not None else None) or 1
        away = launch.starter("ssh", "pdsh", "clush") is not None or nodes > 1
        decided = launch.command.branch or launch.command.function
        if word is not None and (is_placeholder(word.value) or (away and is_loopback(word.value))):
            yield Found(
                word.position, f"{word.value} is not the head's address there", "the name of its node"
            )
        elif launch.has("head") and nodes > 1 and not decided:
            yield Found(
                launch.position,
                f"srun starts a head on each of {nodes} nodes: that many clusters of one",
                "srun --nodes=1 --ntasks=1 for the head, --address=HEAD:6379 for the rest",
            )


@rule(Severity.NOTE, Shell, Kind.SHELL, RAY)
def ray_master_port(shell: Shell) -> Iterator[Found]:
    """MASTER_PORT is not the port on which Ray listens.

    What happens:
        A program that makes a process group by itself on the head's node finds the port taken. What Ray Train
        or verl start is given another port, and does not mind.
    Write instead:
        MASTER_PORT=29500.
    Wrong:
        export MASTER_PORT=6379
        ray start --head --port=6379
        python train.py
    Right:
        export MASTER_PORT=29500
        ray start --head --port=6379
        python train.py
    """
    for launch in shell.launches_of("ray", closed=True):
        word, master = launch.get("port"), launch.exported("MASTER_PORT")
        port = 6379 if word is None else word.value.number
        if master is None or master.assigned is None or port is None or not launch.has("head"):
            continue
        if master.value.number == port:
            yield Found(
                master.assigned,
                f"Ray listens on {port} itself: a job that does finds it taken",
                "MASTER_PORT=29500",
            )


@rule(
    Severity.ERROR,
    Config,
    Kind.RAY,
    "https://docs.ray.io/en/latest/cluster/vms/references/ray-cluster-configuration.html",
)
def ray_yaml(config: Config) -> Iterator[Found]:
    """The workers of a Ray cluster are within its limits, are not the head, and join it.

    What happens:
        Ray refuses a configuration with more min_workers than max_workers. A head that is listed as a worker
        is started twice. Workers whose commands do not name the head start clusters of their own.
    Write instead:
        ray start --address=$RAY_HEAD_IP:6379 among worker_start_ray_commands.
    Wrong:
        cluster_name: train
        min_workers: 4
        max_workers: 2
        provider:
          type: local
          head_ip: node0
          worker_ips: [node1, node2]
    Right:
        cluster_name: train
        min_workers: 2
        max_workers: 2
        provider:
          type: local
          head_ip: node0
          worker_ips: [node1, node2]
    """
    for document in config.documents_of(Kind.RAY):
        most = document.number_at("max_workers")
        least = document.get("min_workers")
        if least is not None and least.number is not None and most is not None and least.number > most:
            yield Found(
                least.position,
                f"min_workers is {least.number}, max_workers {most}: Ray refuses the file",
                f"at most {most}",
            )
        for name, kind in document.pairs("available_node_types"):
            low, high = kind.get("min_workers"), kind.number_at("max_workers")
            if low is not None and low.number is not None and high is not None and low.number > high:
                yield Found(
                    low.position,
                    f"{name}: min_workers is {low.number}, max_workers {high}: Ray refuses the file",
                )
        head = document.text_at("provider", "head_ip")
        for worker in document.list("provider", "worker_ips"):
            if head and worker.text == head:
                yield Found(
                    worker.position, f"{head} is the head already: it would be started twice", "leave it out"
                )
        for command in document.list("worker_start_ray_commands"):
            text = command.text or ""
            if "ray start" not in text:
                continue
            if "--head" in text:
                yield Found(
                    command.position,
                    "--head on a worker: it starts a separate cluster",
                    "--address=$RAY_HEAD_IP:6379",
                )
            elif "--address" not in text and "RAY_ADDRESS" not in text:
                yield Found(
                    command.position,
                    "no --address: ray start ends on the workers",
                    "--address=$RAY_HEAD_IP:6379",
                )


# --- MPI ------------------------------------------------------------------------------------------


@rule(Severity.ERROR, Shell, Kind.SHELL, OMPI)
def mpi_slots(shell: Shell) -> Iterator[Found]:
    """mpirun has a slot for each process.

    What happens:
        Open MPI counts one slot for each time that a host is named: -np 16 -H node0,node1 ends with "There
        are not enough slots available in the system".
    Write instead:
        -H node0:8,node1:8.
    Wrong:
        mpirun -np 16 -H node0,node1 -x NCCL_DEBUG python train.py
    Right:
        mpirun -np 16 -H node0:8,node1:8 -x NCCL_DEBUG python train.py
    """
    for launch in shell.launches_of("mpirun"):
        hosts, processes = launch.get("H", "host"), launch.number("np", "n", "c")
        if hosts is None or hosts.text is None or processes is None:
            continue
        if shell.batch or not _is_openmpi(launch) or "oversubscribe" in shell.file.text.lower():
            continue
        pairs = [part.partition(":")[::2] for part in hosts.text.split(",")]
        if any(count and not count.isdecimal() for _, count in pairs):
            continue
        slots = sum(int(count[:6] or 1) for _, count in pairs)
        if processes > slots and launch.get("hostfile", "machinefile") is None:
            each = -(-processes // len(pairs))
            yield Found(
                hosts.position,
                f"{processes} processes and {slots} slots: Open MPI ends with 'not enough slots available'",
                ",".join(f"{host}:{each}" for host, _ in pairs),
            )


def _is_openmpi(launch: Launch) -> bool:
    return bool(launch.pairs) or launch.has(
        "x", "allow-run-as-root", "map-by", "bind-to", "H", "npernode", "tag-output"
    )


@rule(Severity.ERROR, Shell, Kind.SHELL, OMPI)
def mpi_rank_outside(shell: Shell) -> Iterator[Found]:
    """Ranks of MPI are read inside of the process.

    What happens:
        OMPI_COMM_WORLD_RANK exists in the processes that mpirun starts. On mpirun's own command line the
        shell that calls it fills in nothing, and every process has an empty RANK.
    Write instead:
        mpirun … bash -c 'RANK=$OMPI_COMM_WORLD_RANK … python train.py' in single quotes.
    Wrong:
        mpirun -np 16 -H node0:8,node1:8 -x RANK=$OMPI_COMM_WORLD_RANK python train.py
    Right:
        mpirun -np 16 -H node0:8,node1:8 bash -c 'RANK=$OMPI_COMM_WORLD_RANK python train.py'
    """
    for launch in shell.launches_of("mpirun"):
        for word in launch.all("x"):
            if any(h.names & MPI_RANKS for h in word.value.holes):
                yield _early(word.position)
    for launch in shell.launches_of("python"):
        for name in ("RANK", "LOCAL_RANK") if launch.starter("mpirun") is not None else ():
            variable = launch.exported(name)
            if variable and variable.assigned and filled_in_early(variable.value, launch, MPI_RANKS):
                yield _early(variable.assigned)


def _early(position: Position) -> Found:
    return Found(
        position,
        "filled in before mpirun starts anything, where there are no ranks yet: every process gets an "
        "empty value",
        "mpirun … bash -c 'RANK=$OMPI_COMM_WORLD_RANK …'",
    )


@rule(Severity.WARNING, Shell, Kind.SHELL, OMPI)
def mpi_env_forward(shell: Shell) -> Iterator[Found]:
    """Open MPI passes the job's variables to the other nodes.

    What happens:
        mpirun passes only OMPI_* to other nodes. Exported NCCL_* variables apply to the node where it was
        called, and not to the others: these choose other interfaces, and the job hangs or is slow.
    Write instead:
        -x NAME for each.
    Wrong:
        export NCCL_SOCKET_IFNAME=bond0
        mpirun -np 16 -H node0:8,node1:8 -x LD_LIBRARY_PATH python train.py
    Right:
        export NCCL_SOCKET_IFNAME=bond0
        mpirun -np 16 -H node0:8,node1:8 -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME python train.py
    """
    reported: set[str] = set()
    for launch in shell.launches_of("mpirun", closed=True):
        if shell.batch or not launch.has("x"):
            continue
        hosts = launch.get("H", "host")
        if not (launch.has("hostfile", "machinefile") or (hosts is not None and "," in (hosts.text or ""))):
            continue
        if any("mca_base_env_list" in (name.text or "") for name, _ in launch.pairs):
            continue
        forwarded = {word.value.head.partition("=")[0] for word in launch.all("x")}
        if any(word.text is None and not word.value.head for word in launch.all("x")):
            continue
        for name, variable in launch.command.environment.items():
            relevant = re.match(r"(NCCL|GLOO|TORCH_NCCL)_|MASTER_(ADDR|PORT)$", name)
            if relevant and variable.exported and variable.assigned and name not in forwarded | reported:
                reported.add(name)
                yield Found(variable.assigned, f"mpirun takes {name} to no other node", f"-x {name}")
