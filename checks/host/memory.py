"""Memory that is free before the job starts."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import size
from netdoctor.facts.host import HostFacts
from netdoctor.model import HERE, LIKELY, Cause, Finding, after_reboot, look, seen, skip, unknown

# MemAvailable is what can be had without swapping (proc(5)). An idle node has nine tenths of it; under a
# tenth somebody else's job, or a leak, is there already.
LEAST_SHARE = 0.10

USED = Cause("memory-used", "Most memory of {nodes} is in use already")
RESERVED = Cause("memory-kho", "the kernel of {nodes} keeps memory that RDMA cannot register", LIKELY)
# https://github.com/NVIDIA/NV-Kernels/pull/590 (2026-09): Kexec HandOver, on by itself in 7.0 kernels of DGX
# OS, has 9.3 GiB as pages to be moved, which pinned memory cannot be.
KHO_OFF = after_reboot("boot with kho=off, where no kdump is set up, or with the 6.17 kernel")


@check(source="https://man7.org/linux/man-pages/man5/proc_meminfo.5.html")
def host_memory(host: HostFacts) -> Iterator[Finding]:
    """Memory is free for the job.

    Looks at:
        MemAvailable and MemTotal of /proc/meminfo; and whether CmaFree is more than CmaTotal there.

    Matters because:
        Ranks lock host memory and load data before the first step. On a node that is nearly full the
        kernel kills one of them (exit code -9), and the others wait for it. Where the kernel keeps
        gigabytes for its own restart (Kexec HandOver), ibv_reg_mr fails with "Cannot allocate memory".

    Fix:
        End the processes that still use the memory.
    """
    total, available = host.memory_total_bytes, host.memory_available_bytes
    if host.shares_machine:
        yield skip("shares one machine and its memory with other nodes")
        return
    yield from _reserved(host)
    if total <= 0:
        yield unknown(HERE, "/proc/meminfo does not say how much memory there is")
    elif available < total * LEAST_SHARE:
        share = f"{size(available)} of {size(total)}"
        yield USED.warn(
            f"{share} memory is available",
            observed=share,
            expected=f"at least {LEAST_SHARE:.0%} of it",
            seen=seen("/proc/meminfo MemAvailable", share, "file"),
            fixes=look(
                "see which processes use it, and end leftover ones",
                "ps -eo rss,user,pid,etime,comm --sort=-rss | head",
            ),
        )


def _reserved(host: HostFacts) -> Iterator[Finding]:
    total, free = host.cma_total_bytes, host.cma_free_bytes
    if total is not None and free is not None and free > total:
        text = f"CmaTotal {size(total)}, CmaFree {size(free)}, kernel {host.kernel}"
        yield RESERVED.warn(
            f"{size(free)} are free of {size(total)} set aside: the kernel keeps the rest for its restart",
            observed=text,
            expected="CmaFree of at most CmaTotal",
            seen=seen("/proc/meminfo", text, "file"),
            fixes=KHO_OFF,
        )
