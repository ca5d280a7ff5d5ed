"""Open files."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._limits import of_the_machine, raise_limit
from netdoctor.facts.host import HostFacts, LimitFacts
from netdoctor.model import Cause, Finding, seen

# 1024 is what every kernel starts with (INR_OPEN_CUR, include/uapi/linux/fs.h): less was set by somebody, and
# a rank with its sockets, shared-memory segments and data loaders does not fit. 4096 is the kernel's own hard
# limit (INR_OPEN_MAX); 65536 is what NCCL's larger jobs want (more than 32 Ki seen with 144 ranks).
LEAST = 1024
ADVISED = 4096
WANTED = 65536

LOW = Cause("nofile-low", "{nodes} let{s} sessions open too few files")


@check(source="https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor")
def host_nofile(limits: Mapping[str, LimitFacts], hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Sessions may open as many files as a rank needs.

    Looks at:
        RLIMIT_NOFILE of the login session, soft and hard.

    Matters because:
        Sockets to every peer, shared-memory segments and data-loader workers all take file descriptors;
        "Too many open files" comes hours into a run, or at start with many ranks.

    Fix:
        Raise the soft limit in the job script where the hard limit allows it, else the limit itself.
    """
    softs = {node: one.nofile_soft for node, one in limits.items()}
    for node, one in limits.items():
        soft, hard = one.nofile_soft, one.nofile_hard
        if soft is None or soft >= ADVISED:
            continue
        # What every kernel starts with is no fault of the lab, and less was set by somebody.
        if soft >= LEAST and of_the_machine(hosts, softs, node):
            continue
        value, own = WANTED, ""
        if hard is None or hard >= ADVISED:
            value = min(WANTED, hard or WANTED)
            own = f"ulimit -n {value}"
        unit, flag = f"LimitNOFILE={WANTED}", f"nofile={WANTED}:{WANTED}"
        say = LOW.fail if soft < LEAST else LOW.warn
        yield say(
            f"sessions may open {soft} files (ulimit -n)",
            at=node,
            observed=f"soft {soft}, hard {'unlimited' if hard is None else hard}",
            expected=f"at least {ADVISED}; {WANTED} for large jobs",
            seen=seen("ulimit -n", str(soft), "command"),
            fixes=raise_limit(hosts[node], "nofile", str(value), unit=unit, flag=flag, own=own),
        )
