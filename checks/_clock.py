"""Commands that put a clock right, by the time daemon that runs."""

from collections.abc import Sequence
from functools import partial

from netdoctor.model import Fix, run

# A step confuses what measures time by the wall clock: not under a running job.
_step = partial(run, root=True, risk="medium")
INSTALL = _step(
    "install a time daemon, and set the clock once",
    "(apt-get install -y chrony || dnf install -y chrony) && "
    "(systemctl enable --now chronyd || systemctl enable --now chrony) && chronyc makestep",
)
CHRONY = _step(
    "see whether chrony's sources answer, and step the clock", "chronyc -n sources; chronyc makestep"
)
TIMESYNCD = _step(
    "ask timesyncd to synchronise again",
    "timedatectl set-ntp true && systemctl restart systemd-timesyncd && timedatectl timesync-status",
)
OTHER = _step("step the clock, and see whether its sources answer", "ntpq -pn; systemctl restart ntp")


def restart(daemons: Sequence[str]) -> Fix:
    """Reach a source and step the clock at once."""
    if "chronyd" in daemons:
        return CHRONY
    if "systemd-timesyncd" in daemons:
        return TIMESYNCD
    return OTHER if daemons else INSTALL
