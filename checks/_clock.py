"""Commands that put a clock right, by the time daemon that runs."""

from collections.abc import Sequence

from netdoctor.model import Command, Fix


def install(node: str) -> Fix:
    shell = (
        "(apt-get install -y chrony || dnf install -y chrony) && "
        "(systemctl enable --now chronyd || systemctl enable --now chrony) && chronyc makestep"
    )
    return _fix(node, "install a time daemon, and set the clock once", shell)


def restart(node: str, daemons: Sequence[str]) -> Fix:
    """Reach a source and step the clock at once."""
    if "chronyd" in daemons:
        return _fix(
            node,
            "see whether chrony's sources answer, and step the clock",
            "chronyc -n sources; chronyc makestep",
        )
    if "systemd-timesyncd" in daemons:
        shell = (
            "timedatectl set-ntp true && systemctl restart systemd-timesyncd && timedatectl timesync-status"
        )
        return _fix(node, "ask timesyncd to synchronise again", shell)
    if daemons:
        return _fix(
            node, "step the clock, and see whether its sources answer", "ntpq -pn; systemctl restart ntp"
        )
    return install(node)


def _fix(node: str, text: str, shell: str) -> Fix:
    # A step confuses what measures time by the wall clock: not under a running job.
    return Fix(text=text, commands=(Command(run_on=node, shell=shell),), root=True, risk="medium")
