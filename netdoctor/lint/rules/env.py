"""Variables of a job: names, values, and where they are set."""

import ipaddress
import re
from collections.abc import Iterator

from netdoctor.lint.files import Setting, Settings, Shell
from netdoctor.lint.launches import TORCH, Launch
from netdoctor.lint.model import Found, Kind, Severity, rule
from netdoctor.lint.names import GLOO, NCCL, nearest
from netdoctor.lint.values import Value
from netdoctor.rules import variables as nccl

NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
TORCH_DOC = "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization"
TORCHRUN_DOC = "https://docs.pytorch.org/docs/stable/elastic/run.html"
DEBUG_WORDS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
EPHEMERAL = range(32768, 61000)  # net.ipv4.ip_local_port_range as Linux ships it
PREFIXES = (
    "NCCL_", "NCC_", "NCLL_", "NNCL_", "GLOO_", "TORCH_", "PYTORCH_", "MASTER_", "WORLD", "LOCAL_", "CUDA_",
    "OMP_", "UCX_",
)  # fmt: skip
# A script may have variables of its own that begin so, and uses them then.
PERHAPS_OWN = ("MASTER_", "WORLD", "LOCAL_", "CUDA_", "TORCH_", "PYTORCH_", "OMP_", "UCX_")
# torch/csrc/distributed/c10d/debug.cpp: another word ends the job when the process group is made.
TORCH_DEBUG = ("OFF", "INFO", "DETAIL")
LOOPBACK = re.compile(r"localhost(\.localdomain)?|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0")
NO_DEVICE = re.compile(r"\^?=?((eth|ib|ens|eno|enp|bond)\d\S*|mlx\d_[OolI]\d*)")
DEVICE = re.compile(r"\^?=?mlx\d_\d+(:\d+)?")
# What guides have where an address belongs; no host may be called so.
PLACEHOLDER = re.compile(
    r"(?i)<[^<>]*>|\[[^\[\]:]*\]|(x{1,3}\.){3}x{1,3}|your[-_ ].*|.*[-_ ]here|"
    r"(the[-_])?(master|head|main|node_?0|rank_?0)_(node_)?(ip|addr|address|host|hostname)"
)
# torchrun and its like set them for what they start.
JOB = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


def is_loopback(value: Value) -> bool:
    """Whether an address, with or without a port, means the own machine on every node."""
    text = value.text if value.text is not None else value.head
    return LOOPBACK.fullmatch(re.sub(r":\d*$", "", text)) is not None


def is_placeholder(value: Value) -> bool:
    """Whether an address, with or without a port, is what a guide has in its place."""
    text = re.sub(r":[^:]*$", "", value.text or "")
    return PLACEHOLDER.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether a text is an IP address or a network."""
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True


def settings_of(settings: Settings, *names: str) -> Iterator[tuple[Setting, str]]:
    for item in settings.items:
        if item.name in names and item.value.text is not None:
            yield item, item.value.text


@rule(Severity.WARNING, Settings, Kind.ENV, NCCL_DOC)
def env_unknown_name(settings: Settings) -> Iterator[Found]:
    """A variable has a name that some program reads.

    What happens:
        NCCL, gloo and torch do not look at names that they do not know, and say nothing about them: the
        setting has no effect.
    Write instead:
        The name that is read. `netdoctor explain NAME` tells what it does.
    Wrong:
        NCCL_SOCKET_IFACE=bond0
        NCCL_IB_HCAS=mlx5_0
    Right:
        NCCL_SOCKET_IFNAME=bond0
        NCCL_IB_HCA=mlx5_0
    """
    reported: set[str] = set()
    for item in settings.items:
        if item.name in reported or not item.exported or not item.name.startswith(PREFIXES):
            continue
        correct = nearest(item.name)
        if correct and not item.name.startswith(PERHAPS_OWN):
            text = f"nothing reads {item.name}: it has no effect"
        elif correct and settings.file.text.count(item.name) < 2:
            text = f"nothing here reads {item.name}; what is read is called {correct}"
        else:
            continue
        reported.add(item.name)
        yield Found(item.position, text, f"{correct}={item.value}")


@rule(Severity.NOTE, Settings, Kind.ENV, "https://github.com/pytorch/pytorch/pull/114880")
def env_old_name(settings: Settings) -> Iterator[Found]:
    """A variable is set by the name that it has today.

    What happens:
        torch 2.2 and later read these by a new name; the old one is deprecated, and gone in some releases.
    Write instead:
        The name with TORCH_ in front.
    Wrong:
        NCCL_ASYNC_ERROR_HANDLING=1
    Right:
        TORCH_NCCL_ASYNC_ERROR_HANDLING=1
    """
    names = {item.name for item in settings.items}
    for item in settings.items:
        new = nccl.RENAMED.get(item.name)
        if new and new not in names:
            yield Found(item.position, f"since torch 2.2 {item.name} is called {new}", f"{new}={item.value}")


@rule(Severity.WARNING, Settings, Kind.ENV, "NCCL src/misc/param.cc ncclLoadParam")
def env_number(settings: Settings) -> Iterator[Found]:
    """A number is written as a number.

    What happens:
        NCCL reads these with strtoll: true, yes and on have no digits and count as 0 (since 2.32.3 as the
        default), so NCCL_IB_DISABLE=true leaves InfiniBand on. 010 is octal and means 8.
    Write instead:
        1 or 0.
    Wrong:
        NCCL_IB_DISABLE=true
    Right:
        NCCL_IB_DISABLE=1
    """
    for item in settings.items:
        text = item.value.text
        if item.name not in nccl.INTEGERS or not text or nccl.is_plain_number(text.strip()):
            continue
        correct = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}.get(text.lower())
        read = nccl.param(text, 0)
        if correct == "1":
            what = f"NCCL reads a number here, and {text!r} has no digits: it counts as 0, not as 1"
        elif correct == "0":
            what = f"NCCL reads a number here, and {text!r} has no digits: it counts as 0 only by accident"
        else:
            what = f"NCCL reads a number here, and takes {text!r} for {read}"
        yield Found(
            item.position,
            f"{item.name}={text}: {what}",
            f"{item.name}={correct}" if correct else "a plain number",
        )


@rule(Severity.WARNING, Settings, Kind.ENV, NCCL_DOC)
def env_word(settings: Settings) -> Iterator[Found]:
    """A word is one that the program knows.

    What happens:
        NCCL ignores words that it does not know and goes on with its default, without a message. A level of
        NCCL_DEBUG that does not exist prints nothing at all.
    Write instead:
        One of the words that exist: NCCL_DEBUG takes VERSION, WARN, INFO, ABORT, TRACE; NCCL_SOCKET_FAMILY
        takes AF_INET and AF_INET6; the levels are in capitals.
    Wrong:
        NCCL_DEBUG=verbose
        NCCL_SOCKET_FAMILY=ipv4
    Right:
        NCCL_DEBUG=INFO
        NCCL_SOCKET_FAMILY=AF_INET
    """
    for item in settings.items:
        text = item.value.text
        if not text:
            continue
        if item.name == "NCCL_DEBUG" and text.upper() not in DEBUG_WORDS:
            number = "the number " if text.isdecimal() else ""
            yield Found(
                item.position,
                f"NCCL_DEBUG knows {', '.join(DEBUG_WORDS)} and not {number}{text}: nothing is printed",
                "NCCL_DEBUG=INFO",
            )
        elif item.name == "TORCH_DISTRIBUTED_DEBUG" and text.upper() not in TORCH_DEBUG:
            yield Found(
                item.position,
                f"TORCH_DISTRIBUTED_DEBUG knows {', '.join(TORCH_DEBUG)} and not {text}: torch ends",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL",
            )
        elif item.name in nccl.CHOICES and (odd := nccl.unknown_choice(item.name, text, (2, 30))):
            known = ", ".join(nccl.CHOICES[item.name])
            yield Found(
                item.position,
                f"{item.name} knows {known} and not {odd!r}: NCCL 2.24 and newer end with an error",
                f"unset {item.name}",
            )
        elif item.name in nccl.WORDS and not nccl.is_known_word(item.name, text):
            known = ", ".join(nccl.WORDS[item.name])
            yield Found(
                item.position,
                f"{item.name} knows {known} and not {text}: the setting is ignored",
                f"one of {known}",
            )


@rule(
    Severity.ERROR,
    Settings,
    Kind.ENV,
    "NCCL src/misc/utils.cc parseStringList; gloo: torch ProcessGroupGloo.cpp",
)
def env_ifname(settings: Settings) -> Iterator[Found]:
    """A list of interfaces or HCAs is written as NCCL and gloo read it.

    What happens:
        NCCL_SOCKET_IFNAME takes names of interfaces, not addresses; nothing is trimmed, so a space after a
        comma belongs to the name; ^ and = count at the very start of the list only. What matches nothing ends
        the job with "no socket interface found". NCCL_IB_HCA takes names of RDMA devices, and one that
        matches none silently falls back to TCP. gloo takes exact names and knows no ^.
    Write instead:
        eth0, or ^docker,lo to leave some out; mlx5_0,mlx5_1 for HCAs.
    Wrong:
        NCCL_SOCKET_IFNAME=10.0.0.5
        NCCL_IB_HCA=ib0
    Right:
        NCCL_SOCKET_IFNAME=bond0
        NCCL_IB_HCA=mlx5_0,mlx5_1
    """
    for item, text in settings_of(
        settings, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_OOB_NET_IFNAME"
    ):
        name, entries = item.name, [e for e in text.split(",") if e.strip()]
        hca, gloo = name == "NCCL_IB_HCA", name == "GLOO_SOCKET_IFNAME"
        ends = "NCCL falls back to TCP" if hca else "the job ends at its start"
        if address := next((e.strip() for e in entries if is_address(e.strip("^= "))), None):
            yield Found(
                item.position,
                f"{name} takes names, and {address} is an address: no interface is called so, and {ends}",
                f"the name that `ip -br address` shows beside {address}",
            )
        elif any(entry != entry.strip() for entry in text.split(",")):
            yield Found(
                item.position,
                f"{name}={text!r}: the space becomes part of the name, and that entry matches nothing",
                f"{name}={','.join(e.strip() for e in entries)}",
            )
        elif text.startswith("=^"):
            yield Found(
                item.position,
                f"{name}={text}: = before ^ looks for a name that begins with ^",
                f"{name}=^={text[2:]}",
            )
        elif not hca and not text.startswith(("^", "=")) and entries[1:] and "lo" in entries:
            yield Found(
                item.position,
                f"{name}={text}: lo comes first on every node, and its address is another machine on each",
                f"{name}={','.join(e for e in entries if e != 'lo')}",
            )
        elif not gloo and any(entry.startswith(("^", "=")) for entry in entries[1:]):
            yield Found(
                item.position,
                f"{name}={text}: ^ and = are read at the start of the list only; later ones are part of a "
                "name",
                f"{name}={','.join((entries[0], *(e.lstrip('^=') for e in entries[1:])))}",
            )
        elif gloo and text.startswith(("^", "=")):
            yield Found(
                item.position,
                f"gloo takes exact names: it looks for an interface called {entries[0]} and ends the job",
                "the name of the interface itself",
            )
        elif not hca and (device := next((e for e in entries if DEVICE.fullmatch(e)), None)):
            yield Found(
                item.position,
                f"{name} takes network interfaces, and {device} is an RDMA device: {ends}",
                f"the interface that `rdma link` shows beside {device.strip('^=')}",
            )
        elif hca and (odd := next((e for e in entries if NO_DEVICE.fullmatch(e)), None)):
            what = "has a letter for a digit" if "mlx" in odd else "is a network interface"
            yield Found(
                item.position,
                f"NCCL_IB_HCA takes RDMA devices, and {odd} {what}: nothing matches, and NCCL falls back to "
                "TCP without a message",
                "the names that `ls /sys/class/infiniband` shows, such as mlx5_0",
            )


@rule(Severity.NOTE, Settings, Kind.SHELL, "https://systemd.io/PREDICTABLE_INTERFACE_NAMES/")
def env_ifname_guess(settings: Settings) -> Iterator[Found]:
    """The interface and the GID index were looked up, not copied.

    What happens:
        Current servers rarely have an eth0: their interfaces are named by their place, such as enp94s0f0.
        NCCL and gloo end at once if the name does not exist on a node. In containers with their own
        network, and on many cloud machines, eth0 is right. A GID index differs between adapters and drivers;
        NCCL 2.21 and later choose it.
    Write instead:
        Nothing, so that NCCL and gloo choose, or what `netdoctor scan` measured on the nodes.
    Wrong:
        export NCCL_SOCKET_IFNAME=eth0
        torchrun --nnodes 2 --node-rank "$NODE_RANK" --master-addr node0 train.py
    Right:
        export NCCL_SOCKET_IFNAME=enp94s0f0
        torchrun --nnodes 2 --node-rank "$NODE_RANK" --master-addr node0 train.py
    """
    guessed = [
        item
        for item, text in settings_of(settings, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        if text.lstrip("=") == "eth0"
        and not item.container
        and settings.file.kind in (Kind.SHELL, Kind.SBATCH, Kind.ENV)
    ]
    for item, text in settings_of(settings, "NCCL_IB_GID_INDEX"):
        if text.isdecimal() and not item.container:
            yield Found(
                item.position,
                f"GID index {text} of one adapter is another address, or none, on the next",
                "leave it out: since 2.21 NCCL chooses it",
            )
            break
    for item in guessed[:1]:
        names = " and ".join(dict.fromkeys(one.name for one in guessed))
        yield Found(
            item.position,
            f"{names}: eth0 is the name in guides; on a node without it the job ends at its start",
            "leave it out, or write what `netdoctor scan` found on these nodes",
        )


@rule(Severity.ERROR, Settings, Kind.ENV, "tcp(7); torch TCPStore")
def env_port(settings: Settings) -> Iterator[Found]:
    """MASTER_PORT is a port that a user may listen on.

    What happens:
        Outside of 1 to 65535 it is not a port. Below 1024 only root may listen, and rank 0 ends with
        "permission denied". The ports of ssh and Ray are taken where those run.
    Write instead:
        29500, or another one between 1024 and 32767.
    Wrong:
        MASTER_PORT=99999
    Right:
        MASTER_PORT=29500
    """
    for item, text in settings_of(settings, "MASTER_PORT"):
        if not text:
            continue
        number = int(text) if text.isdecimal() and len(text) < 10 else None
        if number is None:
            if re.fullmatch(r"[\w.:/ -]+", text):
                yield Found(
                    item.position,
                    f"MASTER_PORT={text} is not a number: the rendezvous ends at once",
                    "MASTER_PORT=29500",
                )
        elif not 0 < number < 65536:
            if number != 0:
                yield Found(item.position, f"{number} is not a port: they end at 65535", "MASTER_PORT=29500")
        elif number < 1024:
            yield Found(
                item.position, f"port {number} is root's: rank 0 may not listen there", "MASTER_PORT=29500"
            )


@rule(Severity.NOTE, Settings, Kind.ENV, "Linux Documentation/networking/ip-sysctl.rst ip_local_port_range")
def env_port_ephemeral(settings: Settings) -> Iterator[Found]:
    """MASTER_PORT is not one of the ports that Linux assigns by itself.

    What happens:
        The kernel may give the port to any outgoing connection of the node. Then rank 0 ends with
        "address already in use", in one of many starts.
    Write instead:
        A port below 32768.
    Wrong:
        MASTER_PORT=40000
    Right:
        MASTER_PORT=29500
    """
    for item in settings.items:
        row = "" if item.position.path else settings.file.text.split("\n")[item.position.line - 1][:500]
        line = row.replace(" ", "") if item.name == "MASTER_PORT" else ""
        spread = re.search(r"%(\d{1,5})\)?\+(\d{1,5})\b|\b(\d{1,5})\+[^+%]*%(\d{1,5})", line)
        if item.value.text is None and spread:
            count, first = map(int, (spread[1], spread[2]) if spread[1] else (spread[4], spread[3]))
            if first + count > EPHEMERAL.start and first < EPHEMERAL.stop:
                yield Found(
                    item.position,
                    f"ports {first} to {first + count - 1}: Linux gives those from {EPHEMERAL.start} to "
                    f"{EPHEMERAL.stop - 1} to outgoing connections, and one may be taken when the job starts",
                    "a range below 32768: $((SLURM_JOB_ID % 10000 + 20000))",
                )
    for item, text in settings_of(settings, "MASTER_PORT"):
        if text.isdecimal() and len(text) < 6 and int(text) in EPHEMERAL:
            yield Found(
                item.position,
                f"Linux gives ports {EPHEMERAL.start} to {EPHEMERAL.stop - 1} to outgoing connections: "
                f"{text} may be taken when the job starts",
                "MASTER_PORT=29500",
            )


@rule(Severity.ERROR, Settings, Kind.ENV, TORCH_DOC)
def env_address(settings: Settings) -> Iterator[Found]:
    """MASTER_ADDR is a name or an address, and nothing else.

    What happens:
        torch hands it to the resolver as it is. With a scheme or a port in it no name is found, and all ranks
        but rank 0 wait until "the client socket has timed out".
    Write instead:
        The name or address of rank 0's node; the port belongs into MASTER_PORT.
    Wrong:
        MASTER_ADDR=tcp://node0:29500
    Right:
        MASTER_ADDR=node0
        MASTER_PORT=29500
    """
    for item, text in settings_of(settings, "MASTER_ADDR"):
        if "://" in text:
            yield Found(
                item.position,
                f"MASTER_ADDR={text}: a name is expected, and a name has no scheme",
                "MASTER_ADDR=node0",
            )
        elif re.fullmatch(r"[^:\[\]]+:\d+", text):
            host, _, port = text.partition(":")
            yield Found(
                item.position,
                f"MASTER_ADDR={text}: the port is taken for a part of the name, which then does not resolve",
                f"MASTER_ADDR={host} and MASTER_PORT={port}",
            )
        elif " " in text.strip() or is_placeholder(item.value):
            yield Found(
                item.position,
                f"MASTER_ADDR={text!r} is several words, names or a placeholder: it does not resolve",
                "MASTER_ADDR=node0",
            )


@rule(Severity.ERROR, Shell, Kind.SBATCH, TORCH_DOC)
def env_master_addr(shell: Shell) -> Iterator[Found]:
    """On several nodes MASTER_ADDR is one node's address, the same for all.

    What happens:
        localhost is another machine on each node. Rank 0 listens on its node; the others connect to
        themselves and wait until they time out. $(hostname) inside each task does the same.
    Write instead:
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), in the batch body.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=localhost
        export MASTER_PORT=29500
        srun python train.py
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        export MASTER_PORT=29500
        srun python train.py
    """
    for launch in shell.launches_of("python"):
        address = launch.exported("MASTER_ADDR")
        if address is None or address.assigned is None or not _several(launch, shell):
            continue
        if is_loopback(address.value):
            yield Found(
                address.assigned,
                f"{address.value} is another machine on each of the nodes: only the ranks of rank 0's node "
                "find it",
                'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            )
        elif any(
            h.level >= launch.level and re.match(r"(/bin/)?hostname\b", h.command)
            for h in address.value.holes
        ):
            yield Found(
                address.assigned,
                "$(hostname) runs in each task here: every node takes itself for the master",
                "set MASTER_ADDR in the batch body, outside of srun",
            )


def _several(launch: Launch, shell: Shell) -> bool:
    """Whether a launch certainly starts on more than one node."""
    if (here := shell.step_of(launch)) is not None:
        return here.nodes is not None and here.nodes > 1
    mpirun = launch.starter("mpirun")
    hosts = mpirun.get("H", "host", "hosts") if mpirun is not None else None
    return hosts is not None and "," in (hosts.text or "")


@rule(Severity.WARNING, Shell, Kind.SHELL, TORCHRUN_DOC)
def env_shadowed(shell: Shell) -> Iterator[Found]:
    """Rank variables are left to the launcher that sets them.

    What happens:
        torchrun, accelerate and deepspeed set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE for each
        process that they start. What was exported before is overwritten; how many processes there are follows
        from the launcher's own options.
    Write instead:
        Nothing: the number of nodes is --nnodes, of processes on each --nproc-per-node, the node's number
        --node-rank.
    Wrong:
        export WORLD_SIZE=8
        export RANK=1
        torchrun --nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr node0 train.py
    Right:
        torchrun --nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr node0 train.py
    """
    reported: set[str] = set()
    for launch in shell.launches_of(*TORCH, "accelerate", "deepspeed"):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            variable = launch.exported(name)
            if variable is None or variable.assigned is None or name in reported or name in shell.script.used:
                continue
            if name in variable.value.names:  # export WORLD_SIZE=${WORLD_SIZE:-1}, or unknown
                continue
            reported.add(name)
            yield Found(
                variable.assigned,
                f"{launch.program} sets {name} for each process by itself: {name}={variable.value} is "
                "overwritten and has no effect",
                "leave it out; --nnodes and --nproc-per-node say how many processes there are",
            )


@rule(Severity.ERROR, Shell, Kind.SBATCH, TORCH_DOC)
def env_world_size(shell: Shell) -> Iterator[Found]:
    """WORLD_SIZE is the number of processes that are started.

    What happens:
        With env:// each process waits until WORLD_SIZE of them have come. If fewer are started, all wait
        until they time out; if more are, some ranks are refused. Guides that count nodes here start an
        eighth of the job.
    Write instead:
        WORLD_SIZE=$SLURM_NTASKS, which counts the tasks of the job.
    Wrong:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        export MASTER_PORT=29500
        export WORLD_SIZE=2
        srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'
    Right:
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --ntasks-per-node=8
        export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        export MASTER_PORT=29500
        export WORLD_SIZE=$SLURM_NTASKS
        srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'
    """
    for launch in shell.launches_of("python"):
        here, world = shell.step_of(launch), launch.exported("WORLD_SIZE")
        if world is None or world.assigned is None or here is None:
            continue
        world_size, tasks = world.value.number, here.tasks
        if world_size is not None and tasks is not None and world_size != tasks:
            what = "wait for ranks that nobody starts" if world_size > tasks else "refuse the ranks beyond it"
            yield Found(
                world.assigned,
                f"WORLD_SIZE is {world_size}, and srun starts {tasks} processes: they {what}",
                "WORLD_SIZE=$SLURM_NTASKS",
            )


@rule(Severity.ERROR, Shell, Kind.SHELL, "CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES")
def env_cuda_devices(shell: Shell) -> Iterator[Found]:
    """CUDA_VISIBLE_DEVICES shows as many GPUs as processes are started.

    What happens:
        A process whose local rank is beyond the list ends with "invalid device ordinal".
    Write instead:
        A list as long as --nproc-per-node, or none.
    Wrong:
        CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node 8 train.py
    Right:
        CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node 4 train.py
    """
    for launch in shell.launches_of(*TORCH):
        variable = launch.exported("CUDA_VISIBLE_DEVICES")
        text = (variable.value.text if variable is not None else "") or ""
        if variable is None or variable.assigned is None or not re.fullmatch(r"\d+(,\d+)*", text):
            continue
        visible, processes = len(text.split(",")), launch.number("nproc-per-node")
        if processes is not None and processes > visible:
            yield Found(
                variable.assigned,
                f"{processes} processes are started, and CUDA_VISIBLE_DEVICES={text} shows {visible} GPUs: "
                f"local rank {visible} ends with 'invalid device ordinal'",
                f"--nproc-per-node {visible}, or list {processes} GPUs",
            )
    for launch in shell.launches_of("python"):
        variable, here = launch.exported("CUDA_VISIBLE_DEVICES"), shell.step_of(launch)
        text = (variable.value.text if variable is not None else "") or ""
        each = (here.per_node if here is not None else None) or 1
        is_list = re.fullmatch(r"\d+(,\d+)*", text) is not None
        if variable is not None and variable.assigned and is_list and each > len(text.split(",")):
            yield Found(
                variable.assigned,
                f"each of {each} tasks on a node sees GPU {text} and no other: NCCL refuses two ranks on one "
                "GPU ('Duplicate GPU detected')",
                "leave it out; each task chooses by SLURM_LOCALID",
            )


@rule(Severity.WARNING, Settings, Kind.ENV, NCCL_DOC)
def env_contradiction(settings: Settings) -> Iterator[Found]:
    """InfiniBand is not selected and switched off at the same time.

    What happens:
        NCCL_IB_DISABLE=1 wins over a list of HCAs: the job runs over TCP. With NCCL_NET=IB it ends, because
        the only network that it may use is switched off.
    Write instead:
        One of the two.
    Wrong:
        NCCL_IB_DISABLE=1
        NCCL_IB_HCA=mlx5_0
    Right:
        NCCL_IB_HCA=mlx5_0
    """
    certain = [item for item in settings.items if item.value.text and item.certain]
    off = next((i for i in certain if i.name == "NCCL_IB_DISABLE" and nccl.param(i.value.text, 0) != 0), None)
    all_names = [item.name for item in settings.items]
    if off is None or all_names.count("NCCL_IB_DISABLE") > 1 or "unset NCCL_IB" in settings.file.text:
        return
    for item in certain:
        if item.name == "NCCL_NET" and (item.value.text or "").upper() == "IB":
            yield Found(
                off.position,
                "NCCL_NET=IB allows InfiniBand only, and NCCL_IB_DISABLE=1 forbids it",
                "one of the two",
            )
        elif item.name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX") and not (item.value.text or "").startswith(
            "^"
        ):
            yield Found(
                off.position,
                f"NCCL_IB_DISABLE={off.value} wins: {item.name} has no effect, the job runs over TCP",
            )
            return


@rule(Severity.WARNING, Shell, Kind.SHELL, "POSIX shell, export")
def env_not_exported(shell: Shell) -> Iterator[Found]:
    """A variable that the job reads is exported.

    What happens:
        An assignment on a line of its own stays in the shell. The program that is started does not see it:
        NCCL uses its default, torch says that the variable is expected and not set.
    Write instead:
        export NAME=value.
    Wrong:
        NCCL_DEBUG=INFO
        torchrun --nproc-per-node 8 train.py
    Right:
        export NCCL_DEBUG=INFO
        torchrun --nproc-per-node 8 train.py
    """
    script = shell.script
    programs = {launch.program for launch in shell.launches}
    if not programs & {*TORCH, "python", "accelerate", "deepspeed", "mpirun", "srun"}:
        return
    names = {a.name for a in script.assignments}
    by_launcher = programs & {*TORCH, "accelerate", "deepspeed", "docker", "script", "mpirun"}
    reads_job = "python" in programs and not by_launcher and {"MASTER_ADDR", "MASTER_PORT"} <= names
    exported = {a.name for a in script.assignments if a.exported}
    reported: set[str] = set()
    for a in script.assignments:
        relevant = a.name in NCCL | GLOO or (a.name in JOB and reads_job)
        if not relevant or a.exported or a.name in exported | reported | script.used or a.how or a.lost:
            continue
        reported.add(a.name)
        yield Found(
            a.position,
            f"{a.name} is not exported: the programs that are started here do not see it",
            f"export {a.name}={a.value}",
        )
