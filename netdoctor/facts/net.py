"""Facts about a node's IP network."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """What the driver of an interface says of itself; what it does not know is missing."""

    version: str | None = None  # the driver's own, ``in-kernel`` where it has none
    firmware: str | None = None
    most_mbit_s: int | None = None  # of the modes up to 56 Gbit/s that its port can have
    features: Mapping[str, bool] = field(default_factory=dict)  # by the names of ``ethtool -K``
    # ``ring rx``, ``channels combined`` and the like: what is set, and the most that can be.
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Netdev:
    """One network interface, from /sys/class/net and its flags."""

    name: str
    ifindex: int
    up: bool  # IFF_UP
    running: bool  # IFF_RUNNING
    loopback: bool
    mtu: int
    operstate: str = "unknown"
    carrier: bool | None = None  # None where unreadable (interface down)
    speed_mbit_s: int | None = None  # None where the driver does not say (virtio, veth without a rate)
    mac: str | None = None
    # ``physical``, ``loopback``, ``bridge``, ``veth``, ``tun``, ``bond``, ``vlan``, ``macvlan``, ``ipoib``,
    # ``other``.
    kind: str = "other"
    driver: str | None = None
    pci_address: str | None = None
    bond_mode: str = ""  # bond_mode, slaves: of a bond, ``802.3ad`` and its interfaces
    slaves: tuple[str, ...] = ()
    # mii_status, aggregator: of such an interface, ``up`` where the bond takes its link for good, and the
    # group that LACP put it into.
    mii_status: str | None = None
    aggregator: int | None = None
    duplex: str | None = None  # ``full`` or ``half``, of physical ones
    model: str = ""  # PCI ids of device and board
    nic: Nic | None = None  # of those that have an address or are part of something that may


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRow:
    """One getifaddrs() row."""

    ifname: str  # the label of an IPv4 address, mostly its interface's name
    family: str  # ``inet`` or ``inet6``
    address: str
    prefix_len: int
    scope: str = "global"  # ``global``, ``link``, ``host``
    running: bool | None = None  # IFF_RUNNING of the row; None where the agent did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAddress:
    """An IPv4 address whose subnet other interfaces of the node are in, too."""

    ifname: str
    address: str
    prefix_len: int
    # The interface over which the kernel sends from it into that subnet; None where it did not say. The rest
    # are the sysctls of the same names that the kernel goes by on `ifname`, None where unreadable.
    dev: str | None = None
    rp_filter: int | None = None
    arp_ignore: int | None = None
    arp_announce: int | None = None
    arp_filter: int | None = None


@fact("net")
@dataclass(frozen=True, slots=True, kw_only=True)
class NetFacts:
    """Interfaces and addresses. `addresses` keep getifaddrs() order, which NCCL's choice depends on."""

    netdevs: tuple[Netdev, ...]
    addresses: tuple[AddressRow, ...]
    ephemeral_ports: tuple[int, int] = (32768, 60999)  # net.ipv4.ip_local_port_range
    reserved_ports: str = ""  # ``8080,29500-29509``, which the kernel does not pick from it
    # How many of those that it may pick have a socket, in whatever state; None where a look at the number of
    # sockets says that it is less than a quarter.
    ports_taken: int | None = None
    time_wait: int | None = None  # sockets that wait for late packets
    tw_reuse: int | None = None  # net.ipv4.tcp_tw_reuse
    default_devs: tuple[str, ...] = ()  # interfaces of default routes
    # Networks behind other routes over a router, of the main table; without an IPv4 default route there also
    # those that other tables lead to.
    routed: tuple[str, ...] = ()
    ipv6_enabled: bool = True
    somaxconn: int | None = None
    shared: tuple[SharedAddress, ...] = ()  # IPv4 addresses of interfaces that are up, whose subnets overlap
    # conntrack, conntrack_max: connections that the packet filter keeps track of, None where it keeps none.
    conntrack: int | None = None
    conntrack_max: int | None = None

    def missing_field(self) -> str:
        return "" if self.netdevs else "any interface"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One name looked up on a node with getaddrinfo(), in its order."""

    name: str
    addresses: tuple[str, ...] = ()
    canonical: str | None = None
    error: str | None = None  # None, or the gai error name and text
    elapsed_ms: float = 0.0  # time the resolver took

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
    """What names mean on this node."""

    own: Lookup  # lookup of gethostname()
    # First address of `own` that bind() accepts here, which is the one gloo advertises when
    # GLOO_SOCKET_IFNAME is unset.
    first_bindable: str | None = None
    peers: tuple[Lookup, ...] = ()  # one lookup per name asked for
    # Lines of /etc/hosts that mention a name asked for or the node's own name (evidence).
    hosts_lines: tuple[str, ...] = ()

    def missing_field(self) -> str:
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
    """Routes to every peer's data address, asked on the node. Keys are peer node ids."""

    routes: dict[str, Route] = field(default_factory=dict)
    further: tuple[Route, ...] = ()  # to their addresses on the job's other paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """One firewall front end."""

    kind: str  # ``nftables``, ``iptables``, ``ip6tables``, ``firewalld``, ``ufw``
    active: bool  # has rules that can drop or reject
    # The drop/reject rules and non-accept policies, with table and chain, at most 50 lines.
    rules: tuple[str, ...] = ()
    error: str | None = None  # why it could not be read (``no permission`` …)


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
    """Who listens on the job's rendezvous port on this node. Empty: nobody."""

    port: int
    listeners: tuple[Listener, ...] = ()
    bind_error: str | None = None
    other_scan: bool = False  # another scan of netdoctor held it for the moment, which is none of `listeners`

    def missing_field(self) -> str:
        return "" if self.port else "the port"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortProbe:
    """One TCP connection attempt from `src` to a listener that netdoctor opened on `dst`."""

    src: str
    dst: str
    address: str
    port: int
    purpose: str  # ``rendezvous`` or ``ephemeral``; ``crossing`` of PortMatrix.crossings
    # ``open``, ``refused``, ``filtered`` (no answer in time), ``rejected`` (ICMP prohibited or unreachable,
    # or EPERM), ``no_route``, ``in_use`` (somebody else answers there), ``error``.
    outcome: str
    detail: str = ""
    elapsed_ms: float = 0.0
    source: str = ""  # the address that it was sent from, where that was not the kernel's choice: of a rail
    source_port: int | None = None  # from which it was tried
    # Where it was filtered, the source ports from which the same port answered afterwards, when source_port
    # was tried again.
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
    """

    probes: tuple[PortProbe, ...] = ()
    # From a rail of one node to another rail of another one, a few for each pair; on no path of the job. A
    # listener there is refused to what comes in by another interface, such as where neighbours answer for all
    # their addresses: RDMA does not arrive so.
    crossings: tuple[PortProbe, ...] = ()
    listeners: tuple[TestListener, ...] = ()
    timeout_s: float = 3.0  # how long silence lasted before it was called ``filtered``
    possible: int = 0
    # Nodes whose part did not run, with the reason.
    failed_nodes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtuProbe:
    """UDP datagrams with DF set from `src` to an echo on `dst`. Sizes are IP packet sizes in bytes."""

    src: str
    dst: str
    address: str
    dev: str | None
    dev_mtu: int  # MTU of the sending interface
    small_ok: bool  # a 576-byte packet was echoed
    largest_ok: int | None  # largest size echoed, None if none
    # ``ok`` (dev_mtu passed), ``black_hole`` (large packets vanish without an ICMP answer), ``small`` (the
    # path or the far end says it takes less), ``no_answer``, ``error``.
    outcome: str
    learned_mtu: int | None = None  # what the kernel learnt from ICMP (IP_MTU), or None
    detail: str = ""
    source: str = ""  # as in PortProbe


@fact("path_mtu", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class PathMtus:
    """No-fragment probes over directed pairs."""

    probes: tuple[MtuProbe, ...] = ()
    failed_nodes: dict[str, str] = field(default_factory=dict)
