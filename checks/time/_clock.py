"""Commands that put a clock right, by the time daemon that runs and the node's distribution."""

from collections.abc import Sequence
from functools import partial

from netdoctor.checks._shared.distribution import install_package, service
from netdoctor.facts.host import HostFacts
from netdoctor.model import Fix, run

# A step confuses what measures time by the wall clock: not under a running job.
_step = partial(run, root=True, risk="medium")
# Right after its start the daemon has no source to step to. waitsync ends once it follows one, and after two
# minutes at the latest. [chronyc(1)]
_STEP = "chronyc waitsync 60 0 0 2 && chronyc makestep"
CHRONY = _step("wait until chrony follows a source, and step the clock (sources: chronyc -n sources)", _STEP)
# The file is touched when a server has answered, and gone while the daemon starts. [systemd-timesyncd(8)]
TIMESYNCD = _step(
    "let timesyncd synchronise again, and wait until a server has answered",
    "timedatectl set-ntp true && systemctl restart systemd-timesyncd && "
    'timeout 120 sh -c "until [ -e /run/systemd/timesync/synchronized ]; do sleep 1; done"',
)
_NTPD = {"apt": "ntp", "dnf": "ntpd", "zypper": "ntpd"}
_CHRONY = {"apt": "chrony", "dnf": "chronyd", "zypper": "chronyd"}


def install(host: HostFacts | None) -> Fix:
    """A time daemon for a node that has none."""
    unit = service(host, _CHRONY)
    start = (
        f"systemctl enable --now {unit}"
        if unit
        else ("(systemctl enable --now chronyd || systemctl enable --now chrony)")
    )
    shell = f"{install_package(host, 'chrony')} && {start} && {_STEP}"
    return _step("install a time daemon, and set the clock once it follows a source", shell)


def restart(daemons: Sequence[str], host: HostFacts | None) -> Fix:
    """Reach a source and step the clock at once."""
    if "chronyd" in daemons:
        return CHRONY
    if "systemd-timesyncd" in daemons:
        return TIMESYNCD
    if not daemons:
        return install(host)
    # Started anew it steps once what it would not slew. [ntpd(8), -g, which the services are run with]
    text = "restart the daemon, which steps the clock (sources: ntpq -pn)"
    unit = service(host, _NTPD)
    shell = f"systemctl restart {unit}" if unit else "systemctl restart ntp || systemctl restart ntpd"
    return _step(text, shell)
