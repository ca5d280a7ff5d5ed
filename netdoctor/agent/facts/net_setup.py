"""Group `net_setup`: what sets up the node's network interfaces, at the next boot too.

systemd-networkd says it in /run/systemd/netif/links, NetworkManager through nmcli.
[systemd src/network/networkd-state-file.c, NetworkManager src/nmcli/devices.c]
"""

import os

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MOST = 64
NMCLI_S = 5.0
# Where else interfaces are set up by name, and where the two keep what they do.
FOLDERS = (
    "/etc/netplan", "/etc/network", "/etc/network/interfaces.d", "/etc/sysconfig/network-scripts",
    "/etc/sysconfig/network", "/etc/systemd/network", "/run/systemd/network",
    "/usr/local/lib/systemd/network", "/etc/systemd/system", "/etc/NetworkManager/conf.d",
    "/etc/NetworkManager/dispatcher.d", "/etc/networkd-dispatcher", "/etc/udev/rules.d", "/etc/cron.d",
    "/etc/init.d", "/etc/local.d",
)  # fmt: skip
SINGLE = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/crontab", "/var/spool/cron/crontabs/root")
MAX_FILES, MAX_BYTES = 400, 65536
PROFILE = "802-3-ethernet.mtu,ipv4.method,ipv4.addresses,connection.autoconnect"


def fields(line: str) -> "list[str]":
    """Return the fields of a line of ``nmcli -t``: colons and backslashes inside them are escaped."""
    found = []  # type: list[str]
    text, escaped = "", False
    for letter in line:
        if not escaped and letter in "\\:":
            if letter == ":":
                found.append(text)
                text = ""
            else:
                escaped = True
            continue
        text += letter
        escaped = False
    return [*found, text]


def nmcli(words: "list[str]") -> "list[list[str]]":
    """Return the lines of nmcli's answer; none where it has none."""
    tool = runtime.find_tool("nmcli")
    if tool is None:
        return []
    try:
        done = runtime.run_tool([tool, "-t", *words], NMCLI_S)
    except OSError:
        return []
    return [fields(line) for line in done.out.splitlines()] if done.code == 0 else []


def profile_of(rows: "list[list[str]]") -> "dict[str, Any]":
    """Return what a profile sets. rows: of ``nmcli -t -f PROFILE connection show``."""
    values = {row[0]: ":".join(row[1:]) for row in rows if len(row) > 1}
    addresses = values.get("ipv4.addresses", "")
    mtu = values.get("802-3-ethernet.mtu", "")
    return {
        "method": values.get("ipv4.method", ""),
        "addresses": [one.strip().partition("/")[0] for one in addresses.split(",") if one.strip()],
        "mtu": int(mtu) if mtu.isdigit() else 0,
        "autoconnect": values.get("connection.autoconnect") != "no",
    }


def by_network_manager(names: "list[str]") -> "dict[str, dict[str, Any]]":
    """Return what NetworkManager says of these interfaces, without those that it does not manage."""
    found = {}
    for row in nmcli(["-f", "DEVICE,STATE,CON-UUID", "device", "status"]):
        if len(row) != 3 or row[0] not in names or row[1] == "unmanaged":
            continue
        one = {"by": "NetworkManager", "state": row[1][:60]}  # type: dict[str, Any]
        if row[2]:
            lines = nmcli(["-f", PROFILE, "connection", "show", "uuid", row[2]])
            if not lines:  # each further one would take its time, too
                break
            one.update(profile_of(lines))
        found[row[0]] = one
    return found


def networkd(name: str, root: str) -> "Optional[dict[str, Any]]":
    """Return what systemd-networkd says of an interface; None where it does not run."""
    index = files.number(files.under(root, "/sys/class/net/%s/ifindex" % name))
    text = files.text_or_none(files.under(root, "/run/systemd/netif/links/%s" % index), MAX_BYTES)
    if text is None:
        return None
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    state = values.get("ADMIN_STATE", "")
    found = {"by": "systemd-networkd", "state": state[:60]}  # type: dict[str, Any]
    path = values.get("NETWORK_FILE")
    content = files.text_or_none(files.under(root, path), MAX_BYTES) if path else None
    if content is not None:
        lines = [line.partition("=")[::2] for line in content.splitlines() if not line.startswith("#")]
        pairs = [(key.strip(), value.strip()) for key, value in lines]
        mtu = [value for key, value in pairs if key == "MTUBytes"]
        found["method"] = "auto" if any(key == "DHCP" and value != "no" for key, value in pairs) else "manual"
        found["addresses"] = [value.partition("/")[0] for key, value in pairs if key == "Address"]
        found["mtu"] = int(mtu[-1]) if mtu and mtu[-1].isdigit() else 0
        found["autoconnect"] = True
        found["file"] = path
    return found


def texts(root: str) -> "tuple[list[tuple[str, str]], bool]":
    """Return (files that may set an interface up, with their text), and whether some may not be read."""
    found = []  # type: list[tuple[str, str]]
    closed, count = False, 0
    paths = list(SINGLE)
    for folder in FOLDERS:
        paths += [folder + "/" + name for name in sorted(files.names(files.under(root, folder)))]
    for path in paths:
        here = files.under(root, path)
        if not os.path.isfile(here):
            continue
        count += 1
        if count > MAX_FILES:
            return found, True
        text = files.text_or_none(here, MAX_BYTES)
        if text is None:
            closed = True
        elif text:
            found.append((path, text))
    return found, closed


def has_word(text: str, name: str) -> bool:
    """Return whether a text has an interface's name, and not as part of another one. Without `re`, which
    takes longer to load than all else here."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before in ("_", ".", "-")) and not (
            after.isalnum() or after in ("_", "-")
        ):
            return True
        at = text.find(name, at + 1)
    return False


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.net_setup.NetSetupFacts."""
    hcas = files.under(root, "/sys/class/infiniband")
    of_hcas = [one for hca in files.names(hcas) for one in files.names("%s/%s/device/net" % (hcas, hca))]
    names = ["lo", *sorted(set(of_hcas))[:MOST]]
    manages = of_hcas and os.path.isdir(files.under(root, "/run/NetworkManager/devices"))
    managed = by_network_manager(names) if manages else {}
    written, closed = texts(root) if of_hcas else ([], False)
    rows = []
    for name in names:
        row = {"ifname": name}  # type: dict[str, Any]
        row.update(managed.get(name) or networkd(name, root) or {})
        # Its own file is no further one, nor what that was made from.
        file = row.pop("file", None) or "-"
        made_from = "/etc/netplan/" if "/10-netplan-" in file else file
        others = [path for path, _ in written if path != file and not path.startswith(made_from)]
        row["files"] = [path for path, text in written if path in others and has_word(text, name)][:8]
        rows.append(row)
    return {"interfaces": rows, "closed": closed, "mtu_elsewhere": any("MTUBytes" in t for _, t in written)}
