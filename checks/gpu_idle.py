"""Processes that already use the GPUs."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import Gpu, GpuFacts, GpuProcess
from netdoctor.facts.host import Node
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    skip,
    warn,
)
from netdoctor.rules.cuda import is_harmless, unseen_bytes

MIB = 1024 * 1024


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)
def gpu_idle(node: Node, gpu: GpuFacts) -> Iterator[Finding]:
    """Nothing else runs on the GPUs.

    Looks at:
        NVML's compute processes on each GPU, with process id, user and memory.

    Matters because:
        A process that a crashed job left behind keeps memory that the next job needs, and one that
        computes makes every rank wait for this node.

    Fix:
        End what is left over; leave alone what belongs to somebody's job.
    """
    if not gpu.devices:
        yield skip("no GPU on this node", node.id)
        return
    yield from _silent(node.id, gpu.devices)
    for device in gpu.devices:
        busy = [p for p in device.processes or () if not is_harmless(p)]
        if busy:
            yield _busy(node.id, device.index, busy)
        elif used := unseen_bytes(device) // MIB:
            yield warn(
                node.id,
                f"{used} MiB of GPU {device.index} are in use by processes that cannot be seen",
                observed=f"{used} MiB",
                expected="an idle GPU",
                expected_from=ExpectedFrom.CONSTANT,
                cause=CauseHint(
                    key="gpu-busy",
                    title="something already uses GPUs of {nodes}",
                    culprits=(node.id,),
                    fixes=(
                        Fix(
                            text="see who has the devices open, from outside any container",
                            commands=(Command(run_on=node.id, shell="fuser -v /dev/nvidia*"),),
                            root=True,
                        ),
                    ),
                ),
            )


def _silent(node: str, devices: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Not measured is not idle."""
    silent = [f"GPU {d.index}" for d in devices if d.error is None and d.processes is None]
    if silent:
        yield skip(f"NVML does not tell which processes use {listing(silent, 4)}", node)


def _busy(node: str, index: int, busy: list[GpuProcess]) -> Finding:
    who = [f"{p.name or 'process'} (pid {p.pid}, {p.user or 'user unknown'}{_memory(p)})" for p in busy]
    pids = " ".join(str(p.pid) for p in busy[:20])
    return warn(
        node,
        f"GPU {index} is in use by {listing(who, 3)}",
        observed=f"{len(busy)} process{'es' if len(busy) > 1 else ''}",
        expected="an idle GPU",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(Evidence(kind="probe", where=node, what=f"NVML, GPU {index}", output=listing(who)),),
        cause=CauseHint(
            key="gpu-busy",
            title="something already uses GPUs of {nodes}",
            culprits=(node,),
            fixes=(
                Fix(
                    text="see what they are; end them only if they are left over",
                    commands=(
                        Command(run_on=node, shell=f"ps -o pid,user,etime,args -p {pids}"),
                        Command(run_on=node, shell=f"kill {pids}"),
                    ),
                    root=True,
                    persistent=False,
                    risk="high",
                ),
            ),
        ),
    )


def _memory(process: GpuProcess) -> str:
    return f", {process.memory_bytes // MIB} MiB" if process.memory_bytes else ""
