"""How machines of one model are set up."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks.host._setup import KEYS, alike, is_slowed_by_balancing, models, typed
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Cause, Finding, run, seen, skip

BALANCING = Cause("numa-balancing", "Automatic NUMA balancing slows the GPUs of {nodes} down")
OFF = run(
    "switch it off; kernel.numa_balancing=0 in a file of /etc/sysctl.d keeps it",
    "sysctl -w kernel.numa_balancing=0",
    undo="sysctl -w kernel.numa_balancing=1",
    root=True,
    persistent=False,
)


@check(
    required=False,
    source="https://docs.nvidia.com/grace-perf-tuning-guide/os-settings.html",
    expects=KEYS,
)
def host_tuning(
    tunings: Mapping[str, TuningFacts], hosts: Mapping[str, HostFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """Machines of one model have the same firmware, processors, memory and kernel settings.

    Looks at:
        Of nodes of one product with as many processors: BIOS, processors online, SMT, memory (what a lost
        module takes), parameters of the kernel that change how it computes, CPU governor, huge pages, kernel
        settings (sysctl), whether control groups limit the session; swap in use, and a slow clock
        source, where most nodes have neither. Of each node: automatic NUMA balancing beside AMD's GPUs and on
        Grace, where their makers say to switch it off.

    Matters because:
        A job is as fast as its slowest node, and a node that was set up in another way is the usual reason
        why one is slower though all its parts are well.

    Fix:
        Bring the odd node to the settings of the others.
    """
    for node, tuning in tunings.items():
        on = tuning.sysctls.get("kernel.numa_balancing", "0") != "0"
        if on and is_slowed_by_balancing(tuning):
            yield BALANCING.warn(
                "kernel.numa_balancing is on",
                at=node,
                observed="on",
                expected="off beside these GPUs",
                seen=seen("/proc/sys/kernel/numa_balancing", "1", "file"),
                fixes=OFF,
            )
    yield from typed(tunings, hosts, expect)
    alone = expect is not None and any(map(expect.has, KEYS))
    groups = models(tunings, hosts, least=1 if expect else 2)
    if not alone and all(len(nodes) < 2 for nodes in groups):
        yield skip("no two machines of one model: nothing to compare with")
    for nodes in groups:
        yield from alike(nodes, tunings, hosts, expect)
