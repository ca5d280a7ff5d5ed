"""Commands that set a property of an interface."""

from netdoctor.checks._words import on_dev
from netdoctor.model import Fix, run


def set_mtu(name: str, mtu: int, was: int) -> tuple[Fix, ...]:
    """The MTU of an interface: now, and from each boot on."""
    now = run(
        "set the MTU of the others",
        on_dev(name, f"ip link set dev {{0}} mtu {mtu}"),
        undo=on_dev(name, f"ip link set dev {{0}} mtu {was}"),
        root=True,
        persistent=False,
        risk="medium",
    )
    connection = '"$(nmcli -g GENERAL.CONNECTION device show {0})"'
    lasting = run(
        "keep it where NetworkManager has the interface; else in its file (netplan, networkd, interfaces)",
        on_dev(name, f"nmcli connection modify {connection} 802-3-ethernet.mtu {mtu}"),
        root=True,
        effect="after reboot",
    )
    return now, lasting
