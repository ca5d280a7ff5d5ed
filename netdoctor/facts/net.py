"""Facts about a node's IP network."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """What the driver of an interface says of itself; what it does not know is missing.

    version: the driver's own, ``in-kernel`` where it has none. features: by the names of ``ethtool -K``.
    sizes: ``ring rx``, ``channels combined`` and the like: what is set, and the most that can be.
    most_mbit_s: of the modes up to 56 Gbit/s that its port can have.
    """

    version: str | None = None
    firmware: str | None = None
    most_mbit_s: int | None = None
    features: Mapping[str, bool] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Netdev:
    """One network interface, from /sys/class/net and its flags.

    kind: ``physical``, ``loopback``, ``bridge``, ``veth``, ``tun``, ``bond``, ``vlan``, ``macvlan``,
    ``ipoib``, ``other``.
    speed_mbit_s: None where the driver does not say (virtio, veth without a rate).
    running: IFF_RUNNING; up: IFF_UP; carrier: None where unreadable (interface down).
    bond_mode, slaves: of a bond, ``802.3ad`` and its interfaces. mii_status, aggregator: of such an
    interface, ``up`` where the bond takes its link for good, and the group that LACP put it into.
    duplex: ``full`` or ``half``, of physical ones. model: PCI ids of device and board. nic: of those that
    have an address or are part of something that may.
    """

    name: str
    ifindex: int
    up: bool
    running: bool
    loopback: bool
    mtu: int
    operstate: str = "unknown"
    carrier: bool | None = None
    speed_mbit_s: int | None = None
    mac: str | None = None
    kind: str = "other"
    driver: str | None = None
    pci_address: str | None = None
    bond_mode: str = ""
    slaves: tuple[str, ...] = ()
    mii_status: str | None = None
    aggregator: int | None = None
    duplex: str | None = None
    model: str = ""
    nic: Nic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRow:
    """One getifaddrs() row. family: ``inet`` or ``inet6``; scope: ``global``, ``link``, ``host``.

    ifname: the label of an IPv4 address, mostly its interface's name. running: IFF_RUNNING of the row; None
    where the agent did not say.
    """

    ifname: str
    family: str
    address: str
    prefix_len: int
    scope: str = "global"
    running: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAddress:
    """An IPv4 address whose subnet other interfaces of the node are in, too.

    dev: the interface over which the kernel sends from it into that subnet; None where it did not say. The
    rest are the sysctls of the same names that the kernel goes by on `ifname`, None where unreadable.
    """

    ifname: str
    address: str
    prefix_len: int
    dev: str | None = None
    rp_filter: int | None = None
    arp_ignore: int | None = None
    arp_announce: int | None = None
    arp_filter: int | None = None


@fact("net")
@dataclass(frozen=True, slots=True, kw_only=True)
class NetFacts:
    """Interfaces and addresses. `addresses` keep getifaddrs() order, which NCCL's choice depends on.

    ephemeral_ports: net.ipv4.ip_local_port_range. reserved_ports: ``8080,29500-29509``, which the kernel
    does not pick from it. ports_taken: how many of those that it may pick have a socket, in whatever state;
    None where a look at the number of sockets says that it is less than a quarter. time_wait: sockets that
    wait for late packets; tw_reuse: net.ipv4.tcp_tw_reuse. default_devs: interfaces of default routes.
    routed: networks behind other routes over a router, of the main table; without an IPv4 default route there
    also those that other tables lead to. shared: IPv4 addresses of
    interfaces that are up, whose subnets overlap. conntrack, conntrack_max: connections that the packet
    filter keeps track of, None where it keeps none.
    """

    netdevs: tuple[Netdev, ...]
    addresses: tuple[AddressRow, ...]
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    reserved_ports: str = ""
    ports_taken: int | None = None
    time_wait: int | None = None
    tw_reuse: int | None = None
    default_devs: tuple[str, ...] = ()
    routed: tuple[str, ...] = ()
    ipv6_enabled: bool = True
    somaxconn: int | None = None
    shared: tuple[SharedAddress, ...] = ()
    conntrack: int | None = None
    conntrack_max: int | None = None

    def lacks(self) -> str:
        return "" if self.netdevs else "any interface"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One name looked up on a node with getaddrinfo(), in its order.

    error: None, or the gai error name and text. elapsed_ms: time the resolver took.
    """

    name: str
    addresses: tuple[str, ...] = ()
    canonical: str | None = None
    error: str | None = None
    elapsed_ms: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.error) or not self.addresses

    @property
    def asked(self) -> bool:
        """False where the node had no time left for it: nothing was learnt about the name."""
        return not (self.error or "").startswith("timed out: earlier")  # the agent's own words


@fact("resolve")
@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveFacts:
    """What names mean on this node.

    own: lookup of gethostname(). first_bindable: first address of `own` that bind() accepts here, which is
    the one gloo advertises when GLOO_SOCKET_IFNAME is unset. peers: one lookup per name asked for.
    hosts_lines: lines of /etc/hosts that mention a name asked for or the own name (evidence).
    """

    own: Lookup
    first_bindable: str | None = None
    peers: tuple[Lookup, ...] = ()
    hosts_lines: tuple[str, ...] = ()

    def lacks(self) -> str:
        return "" if self.own.name else "its own name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The kernel's own answer for one destination: source address, interface, gateway, or an errno name."""

    destination: str
    source: str | None = None
    dev: str | None = None
    gateway: str | None = None
    error: str | None = None


@fact("routes", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """Routes to every peer's data address, asked on the node. Keys are peer node ids.

    further: to their addresses on the job's other paths.
    """

    routes: dict[str, Route] = field(default_factory=dict)
    further: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """One firewall front end. kind: ``nftables``, ``iptables``, ``ip6tables``, ``firewalld``, ``ufw``.

    active: has rules that can drop or reject. rules: the drop/reject rules and non-accept policies, with
    table and chain, at most 50 lines. error: why it could not be read (``no permission`` …).
    """

    kind: str
    active: bool
    rules: tuple[str, ...] = ()
    error: str | None = None


@fact("firewall", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class FirewallFacts:
    """Rule sets of a node; collected only from nodes at an end of a filtered connection."""

    rulesets: tuple[Ruleset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A socket in LISTEN state. pid, process, user, age_s are None where they could not be read."""

    port: int
    address: str
    uid: int | None = None
    user: str | None = None
    pid: int | None = None
    process: str | None = None
    age_s: float | None = None


@fact("port_holder")
@dataclass(frozen=True, slots=True, kw_only=True)
class PortHolderFacts:
    """Who listens on the job's rendezvous port on this node. Empty: nobody.

    other_scan: another scan of netdoctor held it for the moment, which is none of `listeners`.
    """

    port: int
    listeners: tuple[Listener, ...] = ()
    bind_error: str | None = None
    other_scan: bool = False

    def lacks(self) -> str:
        return "" if self.port else "the port"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortProbe:
    """One TCP connection attempt from `src` to a listener that netdoctor opened on `dst`.

    outcome: ``open``, ``refused``, ``filtered`` (no answer in time), ``rejected`` (ICMP prohibited or
    unreachable, or EPERM), ``no_route``, ``in_use`` (somebody else answers there), ``error``.
    purpose: ``rendezvous`` or ``ephemeral``. source: the address that it was sent from, where that was not
    the kernel's choice: of a rail. source_port: from which it was tried. open_from: where it was
    filtered, the source ports from which the same port answered afterwards, when source_port was tried again.
    """

    src: str
    dst: str
    address: str
    port: int
    purpose: str
    outcome: str
    detail: str = ""
    elapsed_ms: float = 0.0
    source: str = ""
    source_port: int | None = None
    open_from: tuple[int, ...] = ()

    @property
    def is_by_source(self) -> bool:
        """Whether it depends on the source port: answers to some of them are lost on the way."""
        return bool(self.open_from) and self.source_port not in (None, *self.open_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestListener:
    """A listener that netdoctor opened (or could not: `error`, e.g. ``EADDRINUSE``)."""

    __test__ = False  # the name is not a pytest class
    node: str
    address: str
    port: int
    purpose: str
    error: str | None = None


@fact("ports", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class PortMatrix:
    """Every directed pair, each over the rendezvous port and a sample of the ephemeral range.

    complete: False when pairs were sampled (`sampled` of `possible` directed pairs).
    timeout_s: how long silence lasted before it was called ``filtered``.
    failed_nodes: nodes whose part did not run, with the reason.
    """

    probes: tuple[PortProbe, ...] = ()
    listeners: tuple[TestListener, ...] = ()
    timeout_s: float = 3.0
    possible: int = 0
    failed_nodes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtuProbe:
    """UDP datagrams with DF set from `src` to an echo on `dst`. Sizes are IP packet sizes in bytes.

    dev_mtu: MTU of the sending interface. small_ok: a 576-byte packet was echoed. largest_ok: largest
    size echoed, None if none. outcome: ``ok`` (dev_mtu passed), ``black_hole`` (large packets vanish
    without an ICMP answer), ``small`` (the path or the far end says it takes less), ``no_answer``, ``error``.
    learned_mtu: what the kernel learnt from ICMP (IP_MTU), or None. source: as in PortProbe.
    """

    src: str
    dst: str
    address: str
    dev: str | None
    dev_mtu: int
    small_ok: bool
    largest_ok: int | None
    outcome: str
    learned_mtu: int | None = None
    detail: str = ""
    source: str = ""


@fact("path_mtu", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class PathMtus:
    """No-fragment probes over directed pairs."""

    probes: tuple[MtuProbe, ...] = ()
    failed_nodes: dict[str, str] = field(default_factory=dict)
