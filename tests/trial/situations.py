"""What a tried job is broken with, and what `try` has to say first: a table, and nothing else."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Situation:
    """faults: as `netdoctor lab break` takes them. do: what training.py does, and which rank. words: another
    command. env: of the job. seconds: how long the job may run.

    keys: the first cause, by any of these; none where the headline has it. text: in the headline. nodes:
    those that are named. parts: the nodes that have the job's module and data. often: also without
    NETDOCTOR_TEST_TRIALS. why: netdoctor is wrong here, and is known to be.
    """

    name: str
    faults: tuple[str, ...] = ()
    do: str = ""
    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    seconds: int = 40
    keys: tuple[str, ...] = ()
    text: str = ""
    nodes: tuple[str, ...] = ()
    parts: tuple[int, ...] = (0, 1, 2, 3)
    often: bool = False
    why: str = ""


PROGRAM = ("program_failed",)
ETH9 = {"GLOO_SOCKET_IFNAME": "eth9"}
FIREWALL = ("firewall_blocked", "firewall-inbound", "firewall-rendezvous-inbound")

SITUATIONS = (
    # The network of nodes, as in tests/truth.
    Situation(name="drop in", faults=("node2 drop",), keys=FIREWALL, nodes=("node2",), often=True),
    Situation(
        name="rendezvous port dropped", faults=("node0 drop ports=29500",), keys=FIREWALL, nodes=("node0",)
    ),
    Situation(
        name="rendezvous port rejected", faults=("node0 reject ports=29500",), keys=FIREWALL, nodes=("node0",)
    ),
    Situation(
        name="fabric drops to a node", faults=("node2 fabric-drop",), nodes=("node2",),
        keys=("firewall_blocked", "fabric-inbound"),
    ),
    Situation(
        name="MTU black hole", faults=("node2 mtu-blackhole",), do="large -1", nodes=("node2",),
        keys=("mtu_mismatch", "mtu-black-hole"),
    ),
    Situation(name="rendezvous port in use", faults=("node0 port-busy",),
              keys=("port_in_use",), nodes=("node0",)),
    Situation(
        name="rank 0's name missing", faults=("node2 peer-name-missing peer=node0",), nodes=("node2",),
        keys=("hostname_unresolvable", "peer-name-unknown"),
    ),
    Situation(
        name="rank 0's name wrong", faults=("node2 peer-name-wrong peer=node0",), nodes=("node2",),
        keys=("hostname_unresolvable", "master_addr_wrong", "peer-name-wrong"),
    ),
    Situation(
        name="every own name on loopback", nodes=(),
        faults=tuple(f"node{i} own-name-loopback address=127.0.0.1" for i in range(4)),
        keys=("hostname_resolves_loopback", "own-name-loopback"),
    ),
    Situation(name="no such interface", env=ETH9, keys=("socket_ifname_not_found",)),
    Situation(
        name="a session's own interface", faults=("node2 env GLOO_SOCKET_IFNAME=eth9",), nodes=("node2",),
        keys=("socket_ifname_not_found",),
    ),
    Situation(
        name="renamed interface that is named", faults=("node2 if-rename",), nodes=("node2",),
        env={"GLOO_SOCKET_IFNAME": "eth0"}, keys=("socket_ifname_not_found",),
    ),
    Situation(name="loopback named", env={"GLOO_SOCKET_IFNAME": "lo"}, keys=("wrong_socket_ifname",)),
    Situation(name="no SSH server", faults=("node2 sshd-down",), text="node2 went away", nodes=("node2",),
              keys=("ssh-refused",)),
    # The numbers of the launch.
    Situation(name="world too large", do="world 0", text="WORLD_SIZE is 5",
              keys=("rank_world_size_misconfig",)),
    Situation(name="one rank twice", do="same 2",
              keys=("rank_world_size_misconfig",), nodes=("node1", "node2")),
    Situation(name="a rank beyond the world", do="high 2",
              keys=("rank_world_size_misconfig",), nodes=("node2",)),
    Situation(name="RANK unset", do="unset 2", keys=("rank_world_size_misconfig",), nodes=("node2",)),
    Situation(name="another master port", do="port 2", keys=("rdzv_endpoint_mismatch",), text="goes to",
              nodes=("node2",)),
    Situation(name="a rank that comes late", do="late 2", text="no rank has joined", nodes=("node2",)),
    Situation(name="nccl without GPUs", do="nccl 0", keys=("software_missing",)),
    # What nodes have.
    Situation(
        name="module missing on one node", do="module 0", parts=(0, 1, 3), keys=("software_missing",),
        nodes=("node2",), often=True,
    ),
    Situation(
        name="data missing on one node", do="data 0", parts=(0, 1, 3), nodes=("node2",),
        keys=("shared_filesystem_missing",),
    ),
    Situation(name="program missing", words=("python3", "/var/tmp/nothere.py"),
              keys=("shared_filesystem_missing",)),
    Situation(name="a mount that fails on one node", do="mount 2", faults=("node2 mount-silent server=gone",),
              nodes=("node2",), keys=("storage_failing", "shared_filesystem_missing")),
    Situation(
        name="disk full", faults=("node2 full-disk",), do="disk 2", nodes=("node2",), keys=("disk_full",),
        often=True,
    ),
    Situation(name="few descriptors", faults=("node1 nofile soft=64",), do="files 1", nodes=("node1",),
              keys=("nofile_limit",)),
    Situation(name="small /dev/shm", faults=("node1 small-shm size=1m",), do="shm 1", nodes=("node1",),
              keys=("shm_too_small",)),
    Situation(name="no right to write", do="denied 2", nodes=("node2",),
              keys=("program_failed", "shared_filesystem_missing", "storage_failing")),
    # What ranks do.
    Situation(name="exception", do="raise 2", keys=PROGRAM, nodes=("node2",), often=True),
    Situation(name="shapes", do="shapes 2", keys=PROGRAM, nodes=("node2",)),
    Situation(name="index", do="index 1", keys=PROGRAM, nodes=("node1",)),
    Situation(name="KeyError", do="key 3", keys=PROGRAM, nodes=("node3",)),
    Situation(name="wrong JSON", do="json 0", keys=("file_damaged", "program_failed"), nodes=("node0",)),
    Situation(name="checkpoint damaged", do="damaged 1", keys=("file_damaged",), nodes=("node1",)),
    Situation(name="state does not fit", do="state 1", keys=PROGRAM, nodes=("node1",)),
    Situation(name="assertion", do="assert 1", keys=PROGRAM, nodes=("node1",)),
    Situation(name="cuda that is not there", do="cuda 1", nodes=("node1",),
              keys=("software_missing", "program_failed")),
    Situation(name="NaN", do="nan 2", keys=("loss_not_finite",), nodes=("node2",)),
    Situation(name="killed", do="killed 1", text="was killed by SIGKILL",
              keys=("host_oom_killed",), nodes=("node1",)),
    Situation(name="out of memory", do="memory 3", text="was killed by SIGKILL", keys=("host_oom_killed",),
              nodes=("node3",)),
    Situation(name="more memory than there is", do="address-space 1", nodes=("node1",),
              keys=("host_oom_killed",)),
    Situation(name="segmentation fault", do="segfault 3",
              keys=("native_crash",), nodes=("node3",), often=True),
    Situation(name="exit code", do="exit 2", text="ended with code 3", nodes=("node2",)),
    Situation(name="a rank that leaves", do="leave 1", text="ended with code 0", nodes=("node1",)),
    Situation(name="stopped", do="stopped 3", text="steps stopped", nodes=("node3",)),
    Situation(name="slow data loader", do="loader 2", text="steps stopped", nodes=("node2",)),
    Situation(name="other collectives", do="collective 1",
              keys=("mismatched_collectives",), nodes=("node1",)),
    Situation(name="one collective more", do="extra 1", keys=("mismatched_collectives",),
              nodes=("node1",)),
)  # fmt: skip
