"""What control groups, affinity and limits leave to the ranks of a node."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.limits import raise_limit
from netdoctor.checks._shared.text import GIB, size
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, LimitFacts, Node, Session
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Cause, Finding, Fix, look, seen

# Counted with torch 2.13 on the CPU: a rank over gloo has 6 threads; with a DataLoader of eight workers it
# makes 30 to 37 threads and processes. CUDA and NCCL add theirs (proxies, watchdog, heartbeat).
THREADS_ADVISED, THREADS_LEAST = 64, 6
# torch and its CUDA libraries take about as much of the host's memory, without a model.
MEMORY_PER_RANK = GIB

PROCESSES = Cause("limit-processes", "Sessions on {nodes} may start few processes")
MEMORY = Cause("limit-memory", "Sessions on {nodes} may use little memory")
CORES = Cause("limit-cores", "Sessions on {nodes} may use fewer processors than there are ranks")
GROUP = look(
    "see where it is set: by a scheduler, in a slice of systemd, or in the options of the container",
    "cat /proc/self/cgroup; systemctl show user-$(id -u).slice -p TasksMax,MemoryMax,CPUQuotaPerSecUSec",
)


@check(required=False, source="https://docs.kernel.org/admin-guide/cgroup-v2.html")
def host_cgroup(
    tuning: TuningFacts,
    limits: LimitFacts,
    host: HostFacts,
    node: Node,
    gpu: GpuFacts | None,
    session: Session | None = None,
) -> Iterator[Finding]:
    """The session may use the processors, memory and processes that its ranks need.

    Looks at:
        memory.max and memory.high, pids.max and cpu.max of the login session's control group and of all
        groups above it (cgroup v1, too), its processor affinity, and RLIMIT_NPROC. They are compared with
        the number of ranks: slots of the hosts file, else GPUs, else one.

    Matters because:
        In a container or a login slice with 2000 tasks, two processors or a few GiB a job starts, and
        then ends with "Resource temporarily unavailable" or a killed rank. Or it runs very slowly because
        all ranks share a core.

    Fix:
        Raise the limit where it is set, or start the job where the limit does not apply.
    """
    ranks = max(1, node.slots or node.gpus or (len(gpu.devices) if gpu else 0))
    cores = min([float(tuning.cpus_allowed or host.cpu_count), tuning.cores_limit or float(host.cpu_count)])
    if cores < ranks <= host.cpu_count:
        yield _low(CORES, f"{cores:g} of {host.cpu_count} processors", f"{ranks}, one for each rank")
    memory = tuning.memory_limit_bytes
    if memory is not None and memory < min(ranks * MEMORY_PER_RANK, host.memory_total_bytes):
        yield _low(MEMORY, f"{size(memory)} of memory", f"{size(ranks * MEMORY_PER_RANK)} for {ranks} ranks")
    left = tuning.processes_left if tuning.processes_left is not None else tuning.processes_limit
    if left is not None and left < ranks * THREADS_ADVISED:
        text, want = f"{left} more processes and threads", f"{ranks * THREADS_ADVISED} for {ranks} ranks"
        yield _low(PROCESSES, text, want, stops=left < ranks * THREADS_LEAST)
    nproc = limits.nproc_soft
    # Root is not held to it. [kernel/fork.c, CAP_SYS_RESOURCE]
    if nproc is not None and host.uid != 0 and nproc < ranks * THREADS_ADVISED:
        want = f"{ranks * THREADS_ADVISED} for {ranks} ranks"
        fixes = raise_limit(host, "nproc", "unlimited", "ulimit -u unlimited", session)
        text = f"{nproc} processes and threads (RLIMIT_NPROC)"
        yield _low(PROCESSES, text, want, *fixes, stops=nproc < ranks * THREADS_LEAST)


def _low(cause: Cause, has: str, wants: str, *fixes: Fix, stops: bool = False) -> Finding:
    return (cause.fail if stops else cause.warn)(
        f"the session may use {has}",
        observed=has,
        expected=f"at least {wants}",
        seen=seen("/proc/self/cgroup, limits of the session", has),
        fixes=fixes or (GROUP,),
    )
