"""How long nodes run, and whether one waits for a restart."""

from collections.abc import Iterator, Mapping
from statistics import median

from netdoctor.check import check
from netdoctor.facts.host import HostFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import Cause, Finding, after_reboot, ok, seen, skip

NO_MODULES = Cause("kernel-modules-gone", "The running kernel of {nodes} has no modules on disk any more")
HOUR_S, DAY_S = 3600.0, 86400.0


@check(required=False, source="https://man7.org/linux/man-pages/man8/modprobe.8.html")
def host_boot(tunings: Mapping[str, TuningFacts], hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """The running kernel is the one that is installed.

    Looks at:
        /lib/modules, /run/reboot-required and /proc/uptime. The long report notes, and no fault is, that
        a package asks for a restart, or that a node was started within the hour while most have run for a
        day.

    Matters because:
        An upgrade may remove the modules of the running kernel. Then nothing more can be loaded: no
        nvidia-peermem, no driver after a reset, no firewall table.

    Fix:
        Restart the node when it is free.
    """
    typical = median([t.uptime_s for t in tunings.values() if t.uptime_s is not None] or [0.0])
    for node, tuning in tunings.items():
        host = hosts.get(node)
        if host and (host.container or host.shares_machine):
            yield skip("its kernel is the machine's", node)
        elif tuning.modules_gone:
            release = host.kernel if host else "the running kernel"
            yield NO_MODULES.warn(
                f"/lib/modules has nothing for {release}",
                at=node,
                observed="modules of other kernels only",
                expected=f"those of {release}",
                seen=seen("/lib/modules", f"no {release}", "file"),
                fixes=after_reboot("restart it with the installed kernel"),
            )
        elif tuning.reboot_wanted:
            yield ok(node, "a package requests a restart (/run/reboot-required)")
        elif tuning.uptime_s is not None and tuning.uptime_s < HOUR_S and typical > DAY_S:
            yield ok(node, f"started {tuning.uptime_s / 60:.0f} minutes ago; most nodes run for days")
