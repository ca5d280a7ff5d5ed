"""What the lab is broken with, and the job that then really starts: a table, and nothing else.

`why`: verdict and outcome differ on purpose, or may. Everything else where they differ is a defect.
"""

from dataclasses import dataclass

from tests.truth.job import Job

PLAIN = Job()


@dataclass(frozen=True, kw_only=True)
class Situation:
    """faults: as `netdoctor lab break` takes them. lab: ``one`` or ``two`` networks, or ``high``: in 192.168.

    In faults and in the job's master `{net}` and `{data}` begin the addresses of the first and last network.
    """

    name: str
    faults: tuple[str, ...] = ()
    job: Job = PLAIN
    lab: str = "one"
    why: str = ""


STATIC = Job(rdzv="static")
ETH0 = Job(env={"GLOO_SOCKET_IFNAME": "eth0"})
ETH1 = Job(env={"GLOO_SOCKET_IFNAME": "eth1"})
STATIC_ETH0 = Job(rdzv="static", env={"GLOO_SOCKET_IFNAME": "eth0"})
STATIC_ETH1 = Job(rdzv="static", env={"GLOO_SOCKET_IFNAME": "eth1"})
CONTAINERS = tuple(f"node{i} container" for i in range(4))
DATA_MASTER = Job(rdzv="static", master="{data}.10")

OTHER_LAUNCHERS = "a job that mpirun or pdsh starts needs this; this one was started without SSH"
# gloo, tcp/pair.cc, Pair::connect: of two ends the one with the larger address dials.
ONE_WAY = "gloo never dials in this direction, as the addresses are here; NCCL, and other addresses, do"
BY_ADDRESS = "127.0.1.1 is larger than 10.x, so that this end dials; in 192.168 it is dialled, and fails"
DIALS = "172.17.0.2 is larger than 10.x, so that the container dials; in 192.168 it is dialled, and fails"
RISK = "the job starts, and is slow or wrong later"

SITUATIONS = (
    # Whole: any finding here is a false alarm.
    Situation(name="whole, c10d"),
    Situation(name="whole, static", job=STATIC),
    Situation(name="whole, c10d over eth0", job=ETH0),
    Situation(name="whole, static over eth0", job=STATIC_ETH0),
    Situation(name="whole, another port", job=Job(port=31000)),
    Situation(name="whole, master by address", job=Job(rdzv="static", master="{net}.10")),
    Situation(name="whole, two networks", lab="two"),
    Situation(name="whole, two networks, static over eth1", lab="two", job=STATIC_ETH1),
    Situation(name="whole, two networks, c10d over eth1", lab="two", job=ETH1),
    Situation(name="whole, master on the second network", lab="two", job=DATA_MASTER),
    Situation(name="whole, docker0 on a node", faults=("node2 if-extra",)),
    Situation(name="whole, a node's interface renamed", faults=("node2 if-rename",)),
    # Firewalls of nodes.
    Situation(name="drop in", faults=("node2 drop",)),
    Situation(name="drop in, static", faults=("node2 drop",), job=STATIC),
    Situation(name="drop out", faults=("node2 drop dir=out",)),
    Situation(name="drop both", faults=("node2 drop dir=both",), job=STATIC_ETH0),
    Situation(name="drop from node0", faults=("node2 drop peers=node0",), why=ONE_WAY),
    Situation(name="drop from node1", faults=("node2 drop peers=node1",), why=ONE_WAY),
    Situation(name="drop from node3, static", faults=("node2 drop peers=node3",), job=STATIC, why=ONE_WAY),
    Situation(name="rendezvous port dropped", faults=("node0 drop ports=29500",)),
    Situation(name="rendezvous port dropped for one", faults=("node0 drop peers=node3 ports=29500",)),
    Situation(
        name="rendezvous port rejected, static", faults=("node0 reject ports=29500",), job=STATIC
    ),
    Situation(
        name="another port dropped", faults=("node0 drop ports=29500",), job=Job(port=31000),
    ),
    Situation(
        name="only the rendezvous port let in", faults=("node2 drop ports=32768-44221,44223-60999",)
    ),
    Situation(name="reject in", faults=("node2 reject",)),
    Situation(name="reject with reset", faults=("node2 reject with=reset",), job=STATIC),
    Situation(name="low ports dropped", faults=("node2 drop ports=1024-20000",)),
    # The network between nodes.
    Situation(name="fabric drops to a node", faults=("node2 fabric-drop",)),
    Situation(
        name="fabric drops everywhere", faults=("node2 fabric-drop from=all to=node0,node1,node2,node3",)
    ),
    Situation(
        name="fabric drops the rendezvous port", faults=("node0 fabric-drop from=all to=node0 ports=29500",)
    ),
    Situation(name="fabric drops node1 to node2", faults=("node2 fabric-drop from=node1 to=node2",),
              why=ONE_WAY),
    Situation(name="fabric drops node2 to node1", faults=("node2 fabric-drop from=node2 to=node1",),
              why=ONE_WAY),
    Situation(
        name="a switch ACL without state", faults=("node2 fabric-acl",),
        why="which connections pass depends on the source port, and changes from run to run",
    ),
    Situation(name="MTU of a node smaller", faults=("node2 mtu",), why=RISK),
    Situation(name="MTU of a node larger", faults=("node2 mtu mtu=9000",), why=RISK),
    Situation(name="MTU black hole", faults=("node2 mtu-blackhole",)),
    Situation(name="link at 50 Mbit/s", faults=("node2 slow-link",), why=RISK),
    Situation(name="2 % loss", faults=("node2 loss",), why=RISK),
    # Names.
    Situation(name="own name on loopback", faults=("node2 own-name-loopback",), why=BY_ADDRESS),
    Situation(
        name="own name on loopback, static", faults=("node2 own-name-loopback",), job=STATIC, why=BY_ADDRESS
    ),
    Situation(name="own name on loopback, in 192.168", faults=("node2 own-name-loopback",), lab="high"),
    Situation(
        name="own name on loopback, in 192.168, static", faults=("node2 own-name-loopback",), job=STATIC,
        lab="high",
    ),
    Situation(
        name="own name on loopback, static over eth0", faults=("node2 own-name-loopback",), job=STATIC_ETH0,
        why="the interface is set, so that gloo does not ask for the name; others do",
    ),
    Situation(name="rank 0's own name on loopback", faults=("node0 own-name-loopback",), why=BY_ADDRESS),
    Situation(
        name="rank 0's own name on loopback, static", faults=("node0 own-name-loopback",), job=STATIC,
        why=BY_ADDRESS,
    ),
    Situation(
        name="rank 0's own name on loopback, in 192.168", faults=("node0 own-name-loopback",), lab="high"
    ),
    Situation(
        name="every own name on loopback",
        faults=tuple(f"node{i} own-name-loopback address=127.0.0.1" for i in range(4)),
    ),
    Situation(name="rank 0's name missing", faults=("node2 peer-name-missing peer=node0",)),
    Situation(
        name="rank 0's name missing, static", faults=("node2 peer-name-missing peer=node0",), job=STATIC
    ),
    Situation(name="rank 0's name wrong", faults=("node2 peer-name-wrong peer=node0",), job=STATIC),
    Situation(name="a peer's name missing", faults=("node2 peer-name-missing peer=node1",), job=STATIC),
    Situation(name="a peer's name wrong", faults=("node2 peer-name-wrong peer=node3",), job=STATIC),
    # Ports in use, interfaces that are named.
    Situation(name="rendezvous port in use", faults=("node0 port-busy",)),
    Situation(name="rendezvous port in use, static", faults=("node0 port-busy",), job=STATIC),
    Situation(name="the same port in use elsewhere", faults=("node2 port-busy",), job=STATIC),
    Situation(name="renamed interface that is named", faults=("node2 if-rename",), job=ETH0),
    Situation(
        name="a bridge that one node has", faults=("node2 if-extra",),
        job=Job(env={"GLOO_SOCKET_IFNAME": "docker0"}),
    ),
    Situation(
        name="the same bridge on every node", faults=tuple(f"node{i} if-extra" for i in range(4)),
        job=Job(env={"GLOO_SOCKET_IFNAME": "docker0"}),
    ),
    Situation(
        name="the same bridge on every node, not named", faults=tuple(f"node{i} if-extra" for i in range(4)),
    ),
    Situation(name="no-such interface", job=Job(env={"GLOO_SOCKET_IFNAME": "eth9"})),
    Situation(name="no-such network: loopback named", job=Job(env={"GLOO_SOCKET_IFNAME": "lo"})),
    Situation(name="a session's own interface", faults=("node2 env GLOO_SOCKET_IFNAME=eth9",)),
    # Containers on bridges.
    Situation(name="one container on a bridge", faults=("node2 container",), why=DIALS),
    Situation(name="one container on a bridge, static", faults=("node2 container",), job=STATIC, why=DIALS),
    Situation(name="one container on a bridge, in 192.168", faults=("node2 container",), lab="high"),
    Situation(name="rank 0 in a container on a bridge", faults=("node0 container",)),
    Situation(name="rank 0 in a container on a bridge, static", faults=("node0 container",), job=STATIC),
    Situation(name="two containers on bridges", faults=("node1 container", "node2 container")),
    Situation(name="every node in a container on a bridge", faults=CONTAINERS),
    Situation(name="every node in a container on a bridge, static", faults=CONTAINERS, job=STATIC),
    Situation(
        name="a container on a bridge, two networks", lab="two", faults=("node2 container",), job=ETH0,
        why=DIALS,
    ),
    # Two networks.
    Situation(name="eth1 down and named", lab="two", faults=("node2 if-down",), job=ETH1),
    Situation(name="eth1 down and not used", lab="two", faults=("node2 if-down",)),
    Situation(name="eth1 dropped and named", lab="two", faults=("node2 drop peers={data}.0/24",), job=ETH1),
    Situation(
        name="eth1 dropped and named, static", lab="two", faults=("node2 drop peers={data}.0/24",),
        job=STATIC_ETH1,
    ),
    Situation(name="eth1 dropped and not used", lab="two", faults=("node2 drop peers={data}.0/24",)),
    Situation(name="eth0 dropped, eth1 named", lab="two", faults=("node2 drop peers={net}.0/24",), job=ETH1,
              why="torchrun reaches rank 0 from node2, and nobody dials node2 over eth0"),
    Situation(
        name="the master's second network dropped", lab="two", job=DATA_MASTER,
        faults=("node0 drop peers={data}.0/24 ports=29500",),
    ),
    Situation(
        name="fabric drops on the second network", lab="two", job=ETH1,
        faults=("node2 fabric-drop from={data}.0/24 to={data}.0/24",),
    ),
    Situation(name="the second network is slow", lab="two", job=ETH1, faults=("node2 slow-link if=eth1",),
              why=RISK),
    Situation(
        name="static over eth1, dropped one way", lab="two", job=STATIC_ETH1,
        faults=("node2 drop peers={data}.0/24 dir=out",),
    ),
    Situation(name="eth0 named on a node, eth1 elsewhere", lab="two", job=ETH1,
              faults=("node2 env GLOO_SOCKET_IFNAME=eth0",)),
    Situation(
        name="fabric drops both networks to a node", lab="two",
        faults=("node2 fabric-drop", "node2 fabric-drop from={data}.0/24 to={data}.0/24"), job=ETH1,
    ),
    Situation(name="the master's first network dropped, second named", lab="two", job=DATA_MASTER,
              faults=("node0 drop peers={net}.0/24 ports=29500",)),
    # The machine.
    Situation(name="clock off", faults=("node2 clock",), why="certificates and logs, not the start"),
    Situation(name="few descriptors", faults=("node2 nofile soft=64",)),
    Situation(name="256 descriptors", faults=("node2 nofile",)),
    Situation(name="little locked memory", faults=("node2 memlock",)),
    Situation(name="64 MB of /dev/shm", faults=("node2 small-shm",)),
    Situation(
        name="/tmp full", faults=("node2 full-disk",),
        why="this job writes nothing there; caches of compilers and logs do",
    ),
    Situation(name="shell noise", faults=("node2 shell-noise",)),
    Situation(name="no SSH server", faults=("node2 sshd-down",), why=OTHER_LAUNCHERS),
    Situation(name="our key not authorized", faults=("node2 wrong-key",), why=OTHER_LAUNCHERS),
)  # fmt: skip
