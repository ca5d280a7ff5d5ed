"""Faults of interfaces, links, and the packet filters on nodes and in the fabric."""

from __future__ import annotations

import ipaddress

from netdoctor.lab import guest, links
from netdoctor.lab import node as nodes
from netdoctor.lab.fault import Fault, end_guest, keep, require
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active, State
from netdoctor.lab.system import LabError, command

JUMBO_MTU = 9000
EXTRA = {
    "docker0": "172.17.0.1/16",
    "virbr0": "192.168.122.1/24",
    "tailscale0": "100.64.0.1/32",
    "cni0": "10.244.0.1/24",
}


# --- parameters ---------------------------------------------------------------------------------


def port_set(state: State, text: str) -> str:
    """nft words for a port selection: ``29500``, ``30000-60000``, several with commas, or all."""
    if text == "all":
        return f"!= {state.ssh_port}"
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not (low.isdigit() and (high.isdigit() or not high) and int(high or low) <= 65535):
            raise LabError(f"ports={text!r}: write 29500, 30000-60000, several with commas, or all")
    return "{ " + text.replace(",", ", ") + " }"


def addresses(state: State, text: str) -> list[str]:
    """Addresses for a list of node names, ``control``, addresses or networks."""
    found: list[str] = []
    for word in filter(None, text.split(",")):
        if word == "control":
            found.append(state.control_address())
        elif word in state.nodes:
            found += [state.address(word, net) for net in range(links.networks(state))]
        else:
            try:
                found.append(str(ipaddress.ip_network(word, False)))
            except ValueError:
                raise LabError(f"{word!r} is neither a node, an address nor 'control'") from None
    return found


def interface(state: State, node: str, name: str) -> str:
    """The present name of an interface, which a fault may have changed."""
    for active in state.active(node, "if-rename"):
        if active.params["if"] == name:
            return active.params["name"]
    return name


def network_of(state: State, name: str) -> int:
    known = [f"eth{net}" for net in range(links.networks(state))]
    if name not in known:
        raise LabError(f"no interface {name!r} on these nodes; they have {', '.join(known)}")
    return known.index(name)


def directions(text: str) -> set[str]:
    if text not in ("in", "out", "both"):
        raise LabError(f"dir={text!r}: write in, out or both")
    return {"in", "out"} if text == "both" else {text}


def nft_table(name: str, chains: dict[str, list[str]]) -> str:
    """What nft takes to replace a table; without chains the table goes. chains: their lines, by name."""
    lines = [f"table {name}", f"delete table {name}"]
    if chains:
        lines.append(f"table {name} {{")
        for chain, rules in chains.items():
            lines += [f"  chain {chain} {{", *(f"    {rule}" for rule in rules), "  }"]
        lines.append("}")
    return "\n".join(lines) + "\n"


# --- packet filter of a node ----------------------------------------------------------------------

REJECTIONS = {
    "admin-prohibited": "reject with icmpx type admin-prohibited",
    "port-unreachable": "reject with icmpx type port-unreachable",
    "reset": "reject with tcp reset",
}


def firewall(state: State, node: str) -> str:
    """The node's rule set, from every drop and reject in force."""
    rules: dict[str, list[str]] = {"in": [], "out": []}
    for active in state.active(node):
        if active.fault not in ("drop", "reject"):
            continue
        p = active.params
        verdict = "drop"
        if active.fault == "reject":
            if p["with"] not in REJECTIONS:
                raise LabError("with= is admin-prohibited, port-unreachable or reset")
            verdict = REJECTIONS[p["with"]]
        for way in sorted(directions(p["dir"])):
            field = "saddr" if way == "in" else "daddr"
            peers = "" if p["peers"] == "all" else (
                f"ip {field} {{ {', '.join(addresses(state, p['peers']))} }} "
            )  # fmt: skip
            protocols = "tcp" if p.get("with") == "reset" else "tcp, udp"
            rules[way].append(
                f"{peers}meta l4proto {{ {protocols} }} "
                f"th dport {port_set(state, p['ports'])} counter {verdict}"
            )
    chains = {}
    for way, hook, side in (("in", "input", "iifname"), ("out", "output", "oifname")):
        if rules[way]:
            chains[hook] = [
                f"type filter hook {hook} priority filter; policy accept;",
                f'{side} "lo" accept',
                "ct state established,related accept",
                *rules[way],
            ]
    return nft_table("inet site_firewall", chains)


def filter_node(site: Site, active: Active) -> None:
    nodes.do(site.state, active.node, ["nft", "-f", "-"], firewall(site.state, active.node))


# --- packet filter of the fabric: leaves no trace on the nodes ----------------------------------


def ends_of(active: Active) -> tuple[str, str]:
    """Sender and target of a fabric-drop; the broken node is the one that is not given."""
    sender, target = active.params["from"], active.params["to"]
    return sender or (active.node if target else "all"), target or active.node


def fabric_rules(state: State) -> str:
    rules = []
    for active in state.faults:
        p = active.params
        ends = [links.port(state, active.node, net) for net in range(links.networks(state))]
        cables = "{ " + ", ".join(f'"{end}"' for end in ends) + " }"
        if active.fault == "fabric-drop":
            sender, target = ends_of(active)
            pair = [
                f"ip {side} {{ {', '.join(addresses(state, text))} }} "
                for side, text in (("saddr", sender), ("daddr", target))
                if text != "all"
            ]
            ports = port_set(state, p["ports"])
            # Only what opens a connection: answers to the other direction still pass.
            rules += [
                f"ether type ip {''.join(pair)}tcp dport {ports} tcp flags & (syn | ack) == syn counter drop",
                f"ether type ip {''.join(pair)}udp dport {ports} counter drop",
            ]
        elif active.fault == "fabric-acl":
            # By port in both directions and without state: answers to a source port among them go, too.
            control = state.control_address()
            rules += [
                f"{side} {cables} ip saddr != {control} ip daddr != {control} "
                f"tcp dport {port_set(state, p['ports'])} counter drop"
                for side in ("iifname", "oifname")
            ]
        elif active.fault == "slow-pair":
            require(active, "mbyte_s", "0*[1-9][0-9]*", " is not a number of megabytes per second")
            near, far = (", ".join(addresses(state, name)) for name in (active.node, p["peer"]))
            limit = f"limit rate over {p['mbyte_s']} mbytes/second burst 256 kbytes counter drop"
            ways = {"out": (near, far), "in": (far, near)}
            rules += [
                f"ip saddr {{ {ways[way][0]} }} ip daddr {{ {ways[way][1]} }} {limit}"
                for way in sorted(directions(p["dir"]))
            ]
        elif active.fault == "loss":
            try:
                share = round(float(p["percent"]) * 100)
            except ValueError:
                raise LabError(f"percent={p['percent']!r} is not a number") from None
            for way in sorted(directions(p["dir"])):
                side = "oifname" if way == "in" else "iifname"
                rules.append(f"{side} {cables} numgen random mod 10000 < {share} counter drop")
        elif active.fault == "mtu-blackhole":
            for side in ("iifname", "oifname"):
                rules.append(f'{side} "{ends[0]}" meta length > {p["limit"]} counter drop')
    chain = ["type filter hook forward priority filter; policy accept;", *rules]
    return nft_table("bridge lab_fabric", {"forwarded": chain} if rules else {})


def filter_fabric(site: Site, _active: Active) -> None:
    links.in_fabric(site.state, ["nft", "-f", "-"], fabric_rules(site.state))


def fabric_drop(site: Site, active: Active) -> None:
    filter_fabric(site, active)
    active.undo["sender"], active.undo["target"] = ends_of(active)


def slow_pair(site: Site, active: Active) -> None:
    others = [name for name in site.state.nodes if name != active.node]
    active.params["peer"] = active.params["peer"] or (others[0] if others else "")
    if active.params["peer"] not in others:
        raise LabError(f"peer={active.params['peer']!r} is not another node of this lab")
    filter_fabric(site, active)
    way = {"out": "from {0} to {1}", "in": "from {1} to {0}"}.get(active.params["dir"], "between {0} and {1}")
    active.undo["way"] = way.format(active.node, active.params["peer"])


# --- speed, loss, packet size ---------------------------------------------------------------------


def set_offloads(site: Site) -> None:
    """Offloads of every node, as the faults in force need them.

    Off where packets must be as large on the wire as they look: super-packets pass any rule. On all nodes
    alike, or the odd one would be a fault of its own.
    """
    word = "off" if site.state.active(fault="mtu-blackhole") or site.state.active(fault="loss") else "on"
    options = ["tso", word, "gso", word, "gro", word]
    for node in site.state.nodes:
        for net in range(links.networks(site.state)):
            name = interface(site.state, node, f"eth{net}")
            nodes.do(site.state, node, ["ethtool", "-K", name, *options])
            links.in_fabric(site.state, ["ethtool", "-K", links.port(site.state, node, net), *options])
    if site.state.leg:  # what this machine sends to a node is filtered, too
        command(["ethtool", "-K", site.state.leg, *options])


def loss(site: Site, active: Active) -> None:
    filter_fabric(site, active)
    set_offloads(site)


def offload_off(site: Site, active: Active) -> None:
    feature = require(active, "feature", "rx|tx|sg|tso|gso|gro", ": write rx, tx, sg, tso, gso or gro")
    name = active.undo["name"] = interface(site.state, active.node, active.params["if"])
    nodes.do(site.state, active.node, ["ethtool", "-K", name, feature, "off"])


def heal_offload_off(site: Site, active: Active) -> None:
    name = interface(site.state, active.node, active.params["if"])
    nodes.do(site.state, active.node, ["ethtool", "-K", name, active.params["feature"], "on"])


def slow(site: Site, active: Active) -> None:
    p = active.params
    rate = require(active, "rate", r"[0-9.]+[kmg]?(bit|bps)", ": write 50mbit or 1gbit")
    net = network_of(site.state, p["if"])
    shape = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms"]
    ways = directions(p["dir"])
    if "out" in ways:
        name = interface(site.state, active.node, p["if"])
        nodes.do(site.state, active.node, ["tc", "qdisc", "replace", "dev", name, *shape])
    if "in" in ways:
        end = links.port(site.state, active.node, net)
        links.in_fabric(site.state, ["tc", "qdisc", "replace", "dev", end, *shape])


def heal_slow(site: Site, active: Active) -> None:
    p = active.params
    ways = directions(p["dir"])
    name = interface(site.state, active.node, p["if"])
    end = links.port(site.state, active.node, network_of(site.state, p["if"]))
    if "out" in ways:
        argv = ["tc", "qdisc", "delete", "dev", name, "root"]
        nodes.run(site.state, active.node, argv, capture_output=True)
    if "in" in ways:
        links.in_fabric(site.state, ["tc", "qdisc", "delete", "dev", end, "root"], check=False)


def set_mtus(site: Site) -> None:
    """Every interface of the lab, from the faults in force."""
    state = site.state
    base = JUMBO_MTU if state.active(fault="mtu-blackhole") else links.BASE_MTU
    # The fabric first when growing, last when shrinking: a sender's packet must always fit.
    links.fabric_batch(state, [f"link set {links.port(state, node)} mtu {base}" for node in state.nodes])
    for node in state.nodes:
        mtus = {"eth0": str(base)}
        mtus |= {active.params["if"]: active.params["mtu"] for active in state.active(node, "mtu")}
        for name, mtu in mtus.items():
            set_mtu(state, node, name, mtu)


def set_mtu(state: State, node: str, name: str, mtu: str) -> None:
    nodes.do(state, node, ["ip", "link", "set", interface(state, node, name), "mtu", mtu])


def mtu(site: Site, active: Active) -> None:
    p = active.params
    if not p["mtu"].isdigit() or not 576 <= int(p["mtu"]) <= 65535:
        raise LabError(f"mtu={p['mtu']!r}: write 576 to 65535")
    network_of(site.state, p["if"])
    set_mtu(site.state, active.node, p["if"], p["mtu"])


def heal_mtu(site: Site, active: Active) -> None:
    jumbo = active.params["if"] == "eth0" and site.state.active(fault="mtu-blackhole")
    set_mtu(site.state, active.node, active.params["if"], str(JUMBO_MTU if jumbo else links.BASE_MTU))


def blackhole(site: Site, active: Active) -> None:
    require(active, "limit", "[0-9]+", " is not a number of bytes")
    set_mtus(site)
    set_offloads(site)
    filter_fabric(site, active)


def heal_blackhole(site: Site, active: Active) -> None:
    filter_fabric(site, active)
    set_mtus(site)
    set_offloads(site)


# --- interfaces -----------------------------------------------------------------------------------


def rename(site: Site, active: Active) -> None:
    old, new = active.params["if"], active.params["name"]
    network_of(site.state, old)
    _rename(site.state, active.node, old, new)


def _rename(state: State, node: str, old: str, new: str) -> None:
    lines = [f"link set {old} down", f"link set {old} name {new}", f"link set {new} up"]
    nodes.ip_batch(state, node, lines)


def heal_rename(site: Site, active: Active) -> None:
    _rename(site.state, active.node, active.params["name"], active.params["if"])


def if_down(site: Site, active: Active) -> None:
    name = active.params["if"] or f"eth{links.networks(site.state) - 1}"
    network_of(site.state, name)
    active.undo["if"] = interface(site.state, active.node, name)
    nodes.do(site.state, active.node, ["ip", "link", "set", active.undo["if"], "down"])


def heal_if_down(site: Site, active: Active) -> None:
    if "if" in active.undo:
        nodes.do(site.state, active.node, ["ip", "link", "set", active.undo["if"], "up"])


def flap(site: Site, active: Active) -> None:
    net = network_of(site.state, active.params["if"])
    port = links.port(site.state, active.node, net)
    request = {"kind": "flap", "name": "flapping", "interface": port, "every_s": 1.0}
    keep(site, active, guest.start(request, site.state.processes["fabric"].pid))
    active.undo["port"] = port


def heal_flap(site: Site, active: Active) -> None:
    end_guest(site, active)
    if "port" in active.undo:
        links.in_fabric(site.state, ["ip", "link", "set", active.undo["port"], "up"])


def extra(site: Site, active: Active) -> None:
    name = require(active, "name", r"[a-zA-Z][\w.-]{0,14}", " is not the name of an interface")
    address = active.params["address"] or EXTRA.get(name, "172.30.0.1/16")
    try:
        ipaddress.ip_interface(address)
    except ValueError:
        raise LabError(f"address={address!r}: write 172.17.0.1/16") from None
    state, node = site.state, active.node
    if name.startswith(("tailscale", "tun", "wg")):
        request = {"kind": "tun", "interface": name, "name": name.rstrip("0123456789") + "d"}
        keep(site, active, guest.start(request, nodes.pid(state, node)))
        lines = [f"address add {address} dev {name}", f"link set {name} mtu 1280 up"]
    else:
        lines = [
            f"link add {name} type bridge",
            f"address add {address} dev {name} brd +",
            "link add labx0 type veth peer name labx1",
            f"link set labx0 master {name} up",
            "link set labx1 up",
            f"link set {name} up",
        ]
        if active.params["containers"] != "0":
            active.undo["port"] = "labx0"
    active.undo["name"], active.undo["address"] = name, address
    nodes.ip_batch(state, node, lines)
    if "pid" not in active.undo:
        # A bridge that has lost its last port says DOWN, as docker0 does without containers; one
        # that never had any says UNKNOWN. The kernel notices either a moment late.
        script = (
            'is() { for _ in $(seq 150); do read -r now < "/sys/class/net/$1/operstate"; '
            '[ "$now" = "$2" ] && return; sleep 0.02; done; }; '
            'is "$1" up; [ -n "$2" ] || { ip link delete labx0; is "$1" down; }'
        )
        nodes.do(state, node, ["sh", "-c", script, "sh", name, active.undo.get("port", "")])


def heal_extra(site: Site, active: Active) -> None:
    end_guest(site, active)
    for key in ("name", "port"):
        if key in active.undo:
            argv = ["ip", "link", "delete", active.undo[key]]
            nodes.run(site.state, active.node, argv, capture_output=True)


# --- a container on a bridge ------------------------------------------------------------------------

BOX_MARK, BOX_PID = "/.dockerenv", "/run/lab-container.pid"
# $1 its address, $2 its length, $3 that of the bridge, $4 the port of sshd
BOX = f"""
set -eu
ip link add docker0 type bridge
ip address add "$3/$2" dev docker0
ip link set docker0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
setsid unshare -n -m sleep 1000000 >/dev/null 2>&1 &
own=$!
echo $own >{BOX_PID}
until [ "$(readlink /proc/$own/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add vethbox type veth peer name eth0 netns $own
ip link set vethbox master docker0 up
nsenter -t $own -n -m sh -euc '
  mount -t sysfs sysfs /sys
  ip link set lo up
  ip address add "$1/$2" dev eth0
  ip link set eth0 up
  ip route add default via "$3"
  /usr/sbin/sshd -f /etc/ssh/sshd_config -o PidFile=none
' sh "$1" "$2" "$3"
nft -f - <<END
table ip lab_container {{
  chain in {{ type nat hook prerouting priority -100; iifname "eth*" tcp dport $4 dnat to $1:$4; }}
  chain out {{ type nat hook postrouting priority 100; oifname "eth*" ip saddr $3/$2 masquerade; }}
}}
END
: >{BOX_MARK}
"""
UNBOX = f"""
nft delete table ip lab_container 2>/dev/null
ip link delete docker0 2>/dev/null
rm -f {BOX_MARK}
ns=$(readlink "/proc/$(cat {BOX_PID})/ns/net") || exit 0
for one in /proc/[0-9]*; do
  [ "$(readlink "$one/ns/net")" != "$ns" ] || kill -9 "${{one#/proc/}}"
done
rm -f {BOX_PID}
"""


def container(site: Site, active: Active) -> None:
    """As docker run -p 44222:44222 makes it: its own network, a bridge, the address translated both ways."""
    state, node = site.state, active.node
    try:
        inner = ipaddress.ip_interface(active.params["address"])
    except ValueError:
        raise LabError(f"address={active.params['address']!r}: write 172.17.0.2/16") from None
    gateway = str(inner.network[1])
    words = [str(inner.ip), str(inner.network.prefixlen), gateway, str(state.ssh_port)]
    nodes.do(state, node, ["sh", "-c", BOX, "sh", *words])
    active.undo["address"] = str(inner)


def heal_container(site: Site, active: Active) -> None:
    nodes.run(site.state, active.node, ["sh", "-c", UNBOX], capture_output=True)


# --- two interfaces in one subnet -------------------------------------------------------------------

JOIN = ("join0", "join1")
# What a fault may set of each interface; the kernel takes the higher of that and `all`.
ARP = ("rp_filter", "arp_ignore", "arp_announce", "arp_filter")


def same_subnet(site: Site, active: Active) -> None:
    """Both networks are one wire, and this node's prefixes so short that its addresses are in one subnet."""
    state, node, p = site.state, active.node, active.params
    if links.networks(state) < 2:
        raise LabError("same-subnet needs two networks: start the lab with --data-net")
    if not all(value.isdigit() for value in p.values()):
        raise LabError("same-subnet: the settings are numbers, such as arp_ignore=1")
    settings = {f"net/ipv4/conf/{dev}/{key}": p[key] for dev in ("eth0", "eth1") for key in ARP}
    settings |= {f"net/ipv4/conf/all/{key}": "0" for key in ARP}
    active.undo["sysctls"] = {key: nodes.do(state, node, ["sysctl", "-n", key]).strip() for key in settings}
    if len(state.active(fault="same-subnet")) == 1:  # the first of its kind joins the bridges
        ends = zip(JOIN, links.BRIDGES, strict=True)
        lines = [f"link set {end} master {bridge} up" for end, bridge in ends]
        links.fabric_batch(state, [f"link add {JOIN[0]} type veth peer name {JOIN[1]}", *lines])
    one, other = (int(ipaddress.ip_address(state.address(node, net))) for net in (0, 1))
    _prefixes(state, node, 32 - (one ^ other).bit_length())
    nodes.do(state, node, ["sysctl", "-qw", *(f"{key}={value}" for key, value in settings.items())])


def _prefixes(state: State, node: str, length: int) -> None:
    lines = []
    for net in (0, 1):
        name, address = interface(state, node, f"eth{net}"), state.address(node, net)
        lines += [
            f"address flush dev {name} scope global",
            f"address add {address}/{length} dev {name} brd +",
        ]
    nodes.ip_batch(state, node, lines)


def heal_same_subnet(site: Site, active: Active) -> None:
    state, node = site.state, active.node
    if "sysctls" in active.undo:
        before = [f"{key}={value}" for key, value in active.undo["sysctls"].items()]
        nodes.do(state, node, ["sysctl", "-qw", *before])
        _prefixes(state, node, state.prefix_length)
    if not state.active(fault="same-subnet"):
        links.in_fabric(state, ["sh", "-c", f"ip link delete {JOIN[0]} 2>/dev/null || true"])


FILTER = {"dir": "in", "peers": "all", "ports": "all"}
FILTER_KEY = ("dir", "peers", "ports")
FILTER_TEXT = "ports, direction {dir}, peers {peers}"

FAULTS = (
    Fault(
        "drop", "the node's firewall drops packets",
        f"{{node}}: nftables table inet site_firewall will drop {{ports}} {FILTER_TEXT}",
        filter_node, params=FILTER, key=FILTER_KEY,
    ),
    Fault(
        "reject", "the node's firewall rejects connections",
        f"{{node}}: nftables table inet site_firewall will reject {{ports}} {FILTER_TEXT}",
        filter_node, params={**FILTER, "with": "admin-prohibited"}, key=FILTER_KEY,
    ),
    Fault(
        "fabric-drop", "the network between nodes drops new connections",
        "fabric: new connections from {sender} to {target}, ports {ports}, vanish",
        fabric_drop, params={"from": "", "to": "", "ports": "all"}, key=("from", "to", "ports"),
    ),
    Fault(
        "fabric-acl", "a switch ACL drops ports to and from the node, without state",
        "fabric: an ACL without state drops ports {ports} to and from {node}",
        filter_fabric, params={"ports": "40000-54000"},
    ),
    Fault(
        "slow-link", "the node's link is slow", "{node}: {if} carries {rate}, direction {dir}",
        slow, heal_slow, {"rate": "50mbit", "dir": "both", "if": "eth0"}, ("if",),
    ),
    Fault(
        "slow-pair", "the network between two nodes is slow", "fabric: {mbyte_s} MB/s pass {way}",
        slow_pair, filter_fabric, {"peer": "", "mbyte_s": "6", "dir": "both"}, ("peer",),
    ),
    Fault(
        "loss", "the network loses packets of the node",
        "fabric: {percent} % of packets are lost, direction {dir} of {node}",
        loss, params={"percent": "2", "dir": "both"},
    ),
    Fault(
        "offload-off", "an offload of the node's interface is off", "{node}: {feature} of {name} is off",
        offload_off, heal_offload_off, {"feature": "tso", "if": "eth0"}, ("feature", "if"),
    ),
    Fault(
        "mtu", "the node's MTU differs from its peers'",
        f"{{node}}: MTU of {{if}} is {{mtu}}, the others' {links.BASE_MTU}",
        mtu, heal_mtu, {"mtu": "1400", "if": "eth0"}, ("if",),
    ),
    Fault(
        "mtu-blackhole", "all at MTU 9000, and the network drops large packets of the node",
        f"all nodes: MTU {JUMBO_MTU}\nfabric: packets above {{limit}} bytes to and from {{node}} vanish",
        blackhole, heal_blackhole, {"limit": "1500"},
    ),
    Fault(
        "if-rename", "an interface has another name", "{node}: {if} is called {name} now",
        rename, heal_rename, {"if": "eth0", "name": "ens10f0np0"}, ("if",),
    ),
    Fault(
        "if-flap", "the link of an interface goes down and up",
        "{node}: the other end of {if} goes down and up", flap, heal_flap, {"if": "eth0"}, ("if",),
    ),
    Fault(
        "if-down", "an interface is down", "{node}: {if} is down",
        if_down, heal_if_down, {"if": ""}, ("if",),
    ),
    Fault(
        "if-extra", "an interface that peers cannot reach", "{node}: there is also {name} with {address}",
        extra, heal_extra, {"name": "docker0", "address": "", "containers": "0"}, ("name",),
    ),
    Fault(
        "container", "logins end in a container on a bridge",
        "{node}: logins end in a container with {address} on docker0",
        container, heal_container, {"address": "172.17.0.2/16"},
    ),
    Fault(
        "same-subnet", "two interfaces of the node are in one subnet",
        "{node}: eth0 and eth1 are in one subnet", same_subnet, heal_same_subnet, dict.fromkeys(ARP, "0"),
    ),
)  # fmt: skip
