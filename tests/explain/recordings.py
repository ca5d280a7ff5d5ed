"""What `scripts/record_logs.py` records: real torch on three lab nodes, with one thing wrong, or nothing.

Every node runs one process, so rank N's log is what node N's terminal showed. `{node0}` to `{node2}` in a
value stand for the nodes' addresses, `{python}` for the interpreter with torch, `{other}` for one with
another release of it, `{job}` for the job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PORT = "29500"
TORCHRUN = ("{python}", "-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node=1")
C10D = (*TORCHRUN, "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400", "--rdzv-id=job")
QUICK = "--rdzv-conf=join_timeout=12,read_timeout=6,last_call_timeout=1"
STATIC = (*TORCHRUN, "--master-addr={node0}", "--master-port=29500", "--node-rank={rank}")
CHILD = "a rank that only loses its peer cannot know why the peer went: the peer's own log says it"
WAITS = "a rank that only waits cannot know why nobody came: the other log, or a scan, says it"
SILENT = "the process wrote nothing of it"
UNANSWERED = "a rank that was not answered does not see which address its peers told the others"
FAR = "from another node no answer, a refusal and a wrong address look alike: net.ports and rdzv.addr decide"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A fault and the log of each rank.

    label: the cause; "" is a healthy run. breaks: (node, lab fault, parameters). argv: the command of every
    rank; argv_of, env_of, delay_s: of one. args: the job's own. ranks: those that are started. prefix: what a
    launcher writes before every line. memory: MiB of a cgroup around the rank. hosts: lines for /etc/hosts of
    every node; late_hosts: that come when the ranks have been asking for a while.

    What a log can show is said here too. listed: rank, or "all", to why it can only name the cause among
    others. elsewhere: rank to why there is nothing of the cause in its log.
    """

    name: str
    label: str = ""
    breaks: tuple[tuple[str, str, Mapping[str, str]], ...] = ()
    argv: tuple[str, ...] = ("{python}", "{job}")
    argv_of: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    env_of: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    ranks: tuple[int, ...] = (0, 1, 2)
    listed: Mapping[int | str, str] = field(default_factory=dict)
    elsewhere: Mapping[int, str] = field(default_factory=dict)
    delay_s: Mapping[int, float] = field(default_factory=dict)
    prefix: str = ""
    memory: Mapping[int, int] = field(default_factory=dict)
    hosts: str = ""
    late_hosts: str = ""
    limit_s: float = 60


def job(*args: str) -> tuple[str, ...]:
    return ("--timeout=8", *args)


FAULTS = (
    # Where the store is.
    Recording(
        name="master_addr_nobody",
        label="master_addr_wrong",
        env={"MASTER_ADDR": "192.168.77.99"},
        args=job(),
        listed=dict.fromkeys((1, 2), FAR),
    ),
    Recording(
        name="master_addr_other_node",
        label="master_addr_wrong",
        env={"MASTER_ADDR": "{node1}"},
        args=job(),
        listed=dict.fromkeys((1, 2), FAR),
    ),
    Recording(
        name="master_port_differs",
        label="master_addr_wrong",
        env_of={0: {"MASTER_PORT": "29501"}},
        args=job(),
        listed=dict.fromkeys((0, 1, 2, "all"), "no log says which port rank 0 serves on"),
    ),
    Recording(
        name="master_name_wrong_address",
        label="master_addr_wrong",
        env={"MASTER_ADDR": "node0"},
        breaks=(("node1", "peer-name-wrong", {"peer": "node0", "address": "192.168.77.99"}),),
        args=job(),
        listed={0: WAITS, 1: FAR, "all": FAR},
        elsewhere={2: WAITS},
    ),
    Recording(
        name="master_name_unknown",
        label="hostname_unresolvable",
        env={"MASTER_ADDR": "trainer-0"},
        args=job(),
    ),
    Recording(
        name="torchrun_name_unknown",
        label="hostname_unresolvable",
        argv=(*TORCHRUN, "--rdzv-backend=c10d", "--rdzv-endpoint=gpu-head.cluster:29400", QUICK),
        args=job(),
    ),
    Recording(
        name="master_name_ipv6_only",
        label="ipv6_address_family",
        env={"MASTER_ADDR": "store6"},
        hosts="fd77::10 store6\n",
        args=job(),
    ),
    Recording(
        name="port_taken",
        label="port_in_use",
        breaks=(("node0", "port-busy", {"port": PORT}),),
        args=job(),
        elsewhere=dict.fromkeys((1, 2), "they joined whoever listens there, and wait for ever"),
    ),
    Recording(
        name="torchrun_static_port_taken",
        label="port_in_use",
        breaks=(("node0", "port-busy", {"port": PORT}),),
        argv=STATIC,
        args=job(),
        elsewhere=dict.fromkeys((1, 2), "they joined whoever listens there, and wait for ever"),
        limit_s=45,
    ),
    Recording(
        name="endpoint_owned_by_nobody",
        label="rdzv_endpoint_mismatch",
        breaks=(("node0", "own-name-loopback", {}),),
        argv=(*TORCHRUN, "--rdzv-backend=c10d", "--rdzv-endpoint={node0}:29400", QUICK),
        args=job(),
        listed=dict.fromkeys(
            (0, 1, 2, "all"), "refused and unowned look alike from outside of the endpoint's node"
        ),
    ),
    Recording(
        name="endpoint_loopback_everywhere",
        label="rdzv_endpoint_mismatch",
        argv=(*TORCHRUN, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", QUICK),
        env={"LOGLEVEL": "INFO"},
        args=job(),
        listed=dict.fromkeys((0, 1, 2), WAITS),
    ),
    # Firewalls.
    Recording(
        name="firewall_drop_master_port",
        label="firewall_blocked",
        breaks=(("node0", "drop", {"dir": "in", "ports": PORT}),),
        args=job(),
        listed={0: WAITS},
    ),
    Recording(
        name="firewall_reject_master_port",
        label="firewall_blocked",
        breaks=(("node0", "reject", {"dir": "in", "ports": PORT}),),
        args=job(),
        listed={0: WAITS},
    ),
    Recording(
        name="firewall_only_master_port_open",
        label="firewall_blocked",
        breaks=tuple((f"node{n}", "drop", {"dir": "in", "ports": "30000-65535"}) for n in (0, 1, 2)),
        args=("--timeout=3",),
        limit_s=90,
    ),
    Recording(
        name="firewall_reject_between_ranks",
        label="firewall_blocked",
        breaks=tuple((f"node{n}", "reject", {"dir": "in", "ports": "30000-65535"}) for n in (0, 1, 2)),
        args=("--timeout=4",),
    ),
    Recording(
        name="fabric_drop_one_pair",
        label="firewall_blocked",
        breaks=(("node1", "fabric-drop", {"from": "node2", "to": "node1"}),),
        args=("--timeout=3",),
        listed={0: WAITS},
        limit_s=90,
    ),
    Recording(
        name="torchrun_agents_only_29400_open",
        label="firewall_blocked",
        breaks=(("node0", "drop", {"dir": "in", "ports": "30000-65535"}),),
        argv=(*C10D, QUICK),
        args=job(),
        listed={0: WAITS},
        limit_s=60,
    ),
    # Which interface and which address.
    Recording(
        name="ifname_not_there",
        label="socket_ifname_not_found",
        env_of={1: {"GLOO_SOCKET_IFNAME": "ens10f0"}},
        args=job(),
        listed={0: WAITS, 2: WAITS},
    ),
    Recording(
        name="ifname_is_an_address",
        label="socket_ifname_not_found",
        env={"GLOO_SOCKET_IFNAME": "192.168.77.0/24"},
        args=job(),
    ),
    Recording(
        name="ifname_loopback",
        label="wrong_socket_ifname",
        env={"GLOO_SOCKET_IFNAME": "lo"},
        args=job("--timeout=3"),
        listed=dict.fromkeys(
            (0, 1, 2, "all"), "an own name on 127.0.0.1 gives the same lines: gloo.ifname decides"
        ),
    ),
    Recording(
        name="ifname_docker_bridge",
        label="wrong_socket_ifname",
        breaks=tuple((f"node{n}", "if-extra", {"name": "docker0"}) for n in (0, 1, 2)),
        env={"GLOO_SOCKET_IFNAME": "docker0"},
        args=job("--timeout=3"),
        listed=dict.fromkeys((1, 2), UNANSWERED),
    ),
    Recording(
        name="own_name_loopback",
        label="hostname_resolves_loopback",
        breaks=tuple((f"node{n}", "own-name-loopback", {}) for n in (0, 1, 2)),
        args=job("--timeout=3"),
        listed={0: UNANSWERED},
    ),
    Recording(
        name="own_name_loopback_one_node",
        label="hostname_resolves_loopback",
        breaks=(("node2", "own-name-loopback", {}),),
        args=job("--timeout=3"),
        listed=dict.fromkeys((0, 1, 2), UNANSWERED),
    ),
    Recording(
        name="container_bridge_address",
        label="container_network_isolated",
        breaks=(
            ("node1", "if-extra", {"name": "docker0", "address": "172.17.0.2/16"}),
            ("node2", "if-extra", {"name": "docker0", "address": "172.17.0.3/16"}),
        ),
        env_of={1: {"GLOO_SOCKET_IFNAME": "docker0"}, 2: {"GLOO_SOCKET_IFNAME": "docker0"}},
        args=job("--timeout=3"),
        listed=dict.fromkeys(
            (0, 1, 2, "all"), "a container's bridge and a host's docker0 look alike from outside"
        ),
        limit_s=90,
    ),
    # Who takes part.
    Recording(
        name="world_size_too_large",
        label="rank_world_size_misconfig",
        env={"WORLD_SIZE": "4"},
        args=job(),
    ),
    Recording(
        name="node_missing",
        label="rank_world_size_misconfig",
        ranks=(0, 1),
        args=job(),
    ),
    Recording(
        name="rank_twice",
        label="rank_world_size_misconfig",
        env_of={2: {"RANK": "1"}},
        args=job(),
    ),
    Recording(
        name="rank_out_of_range",
        label="rank_world_size_misconfig",
        env_of={2: {"RANK": "3"}},
        args=job(),
        listed={0: WAITS, 1: WAITS},
    ),
    Recording(
        name="world_size_differs",
        label="rank_world_size_misconfig",
        env_of={2: {"WORLD_SIZE": "2"}},
        args=job(),
        listed={2: WAITS, 1: WAITS},
    ),
    Recording(
        name="started_without_launcher",
        label="rank_world_size_misconfig",
        env={"RANK": "", "WORLD_SIZE": ""},
        args=job(),
    ),
    Recording(
        name="torchrun_node_missing",
        label="rank_world_size_misconfig",
        ranks=(0, 1),
        argv=(*C10D, QUICK),
        args=job(),
    ),
    Recording(
        name="torchrun_rdzv_id_differs",
        label="rank_world_size_misconfig",
        argv=(*C10D, QUICK),
        argv_of={2: (*C10D, QUICK, "--rdzv-id=job2")},
        args=job(),
    ),
    Recording(
        name="torchrun_static_same_node_rank",
        label="rank_world_size_misconfig",
        argv=(*STATIC, "--rdzv-conf=timeout=8"),
        argv_of={1: (*STATIC[:-1], "--node-rank=0", "--rdzv-conf=timeout=8")},
        args=job(),
        listed=dict.fromkeys((0, 1, 2), WAITS),
    ),
    # A rank that goes, stops, is slow.
    Recording(
        name="rank_killed",
        label="host_oom_killed",
        args=job("--do=kill"),
        listed=dict.fromkeys((0, 2), CHILD),
        elsewhere={1: SILENT},
    ),
    Recording(
        name="torchrun_rank_killed",
        label="host_oom_killed",
        argv=(*C10D, QUICK),
        args=job("--do=kill"),
        listed={0: CHILD, 2: CHILD},
    ),
    Recording(
        name="torchrun_memory_cgroup",
        label="host_oom_killed",
        argv=(*C10D, QUICK),
        args=job("--do=eat"),
        memory={1: 700},
        listed={0: CHILD, 2: CHILD},
    ),
    Recording(
        name="memory_refused",
        label="host_oom_killed",
        argv=("prlimit", "--as=9000000000", "{python}", "{job}"),
        args=job("--do=memory"),
        listed={0: CHILD, 2: CHILD},
    ),
    Recording(
        name="rank_frozen",
        label="collective_timeout_slow_rank",
        args=job("--do=freeze"),
        elsewhere={1: "a stopped process writes nothing"},
    ),
    Recording(
        name="rank_slow",
        label="collective_timeout_slow_rank",
        args=job("--do=slow"),
        elsewhere={1: "the slow rank is well: what it writes is no failure"},
    ),
    # The program.
    Recording(
        name="collectives_shape",
        label="mismatched_collectives",
        args=job("--do=shape"),
        listed={0: CHILD, 2: CHILD},
    ),
    Recording(
        name="collectives_dtype",
        label="mismatched_collectives",
        args=job("--do=dtype"),
        listed={1: CHILD, 2: CHILD},
    ),
    Recording(
        name="collectives_op_detail",
        label="mismatched_collectives",
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        args=job("--do=op"),
    ),
    Recording(
        name="collectives_shape_detail",
        label="mismatched_collectives",
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        args=job("--do=shape"),
    ),
    Recording(
        name="collectives_one_skipped",
        label="mismatched_collectives",
        args=job("--do=skip"),
        listed=dict.fromkeys((0, 2, "all"), "a rank that has left looks like one that died"),
        elsewhere={1: SILENT},
    ),
    Recording(
        name="uneven_data",
        label="mismatched_collectives",
        args=job("--do=finish"),
        listed=dict.fromkeys((0, 2, "all"), "a rank that has left looks like one that died"),
        elsewhere={1: SILENT},
    ),
    Recording(
        name="index_on_one_node",
        label="shared_filesystem_missing",
        args=job("--do=read"),
        listed={0: CHILD, 2: CHILD},
    ),
    # A store of torch 2.4 drops clients of 2.13; the other way round they get along (see HEALTHY).
    Recording(
        name="torch_versions_differ_store",
        label="torch_version_mismatch",
        argv_of={0: ("{other}", "{job}")},
        args=job("--timeout=14"),
        listed=dict.fromkeys((1, 2), "a stranger on the port drops clients too"),
        elsewhere={0: WAITS},
        limit_s=100,
    ),
    # Limits of the host.
    Recording(
        name="small_shm",
        label="shm_too_small",
        breaks=(("node1", "small-shm", {"size": "64m"}),),
        args=job("--do=shm"),
        listed={0: CHILD, 2: CHILD},
    ),
    Recording(name="open_files", label="nofile_limit", args=job("--do=files"), listed={0: CHILD, 2: CHILD}),
    Recording(
        name="open_files_of_the_loader",
        label="nofile_limit",
        args=job("--do=loader-files"),
        listed={0: CHILD, 2: CHILD},
    ),
    # Paths.
    Recording(
        name="mtu_black_hole",
        label="mtu_mismatch",
        breaks=(("node1", "mtu-blackhole", {}),),
        args=job("--elements=4000000"),
        listed=dict.fromkeys(
            (0, 1, 2, "all"), "lost large packets look like a stopped peer; a scan's path MTU decides"
        ),
    ),
    Recording(
        name="other_network_no_route",
        label="subnet_or_route_config",
        breaks=(("node1", "if-extra", {"name": "ens9", "address": "10.99.1.2/24"}),),
        env_of={1: {"GLOO_SOCKET_IFNAME": "ens9"}},
        args=job("--timeout=3"),
        elsewhere={1: WAITS},
    ),
    # Launching over ssh.
    Recording(
        name="ssh_no_key",
        label="ssh_not_passwordless",
        breaks=(("node1", "wrong-key", {}),),
        argv_of={1: ("ssh", "-F", "{ssh_config}", "node1", "{python}", "{job}")},
        args=job(),
        elsewhere={0: WAITS, 2: WAITS},
    ),
    Recording(
        name="ssh_host_key_changed",
        label="ssh_not_passwordless",
        breaks=(("node1", "host-key", {}),),
        argv_of={1: ("ssh", "-F", "{ssh_config}", "node1", "{python}", "{job}")},
        args=job(),
        elsewhere={0: WAITS, 2: WAITS},
    ),
    Recording(
        name="ssh_name_unknown",
        label="hostname_unresolvable",
        argv_of={1: ("ssh", "worker-1", "{python}", "{job}")},
        args=job(),
        elsewhere={0: WAITS, 2: WAITS},
    ),
)

HEALTHY = (
    Recording(name="env_variables", args=job()),
    Recording(
        name="env_variables_ipv6_tried_first",
        env={"MASTER_ADDR": "node0", "TORCH_CPP_LOG_LEVEL": "INFO"},
        args=job(),
    ),
    Recording(name="rank0_starts_late", delay_s={0: 4}, args=job("--timeout=30")),
    Recording(
        name="name_resolves_late",
        env={"MASTER_ADDR": "store"},
        late_hosts="{node0} store\n",
        args=job("--timeout=40", "--steps=20"),
    ),
    Recording(name="torchrun_c10d", argv=C10D, args=job()),
    Recording(
        name="torchrun_c10d_info",
        argv=C10D,
        env={"LOGLEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO"},
        args=job(),
    ),
    Recording(name="torchrun_static", argv=STATIC, args=job()),
    Recording(
        name="torchrun_static_node0_late",
        argv=STATIC,
        delay_s={0: 4},
        args=job("--timeout=30"),
    ),
    Recording(
        name="torchrun_two_per_node",
        argv=tuple(word.replace("per-node=1", "per-node=2") for word in C10D),
        args=job(),
    ),
    Recording(
        name="torch_distributed_launch",
        argv=(
            "{python}",
            "-m",
            "torch.distributed.launch",
            "--nnodes=3",
            "--nproc-per-node=1",
            "--node-rank={rank}",
            "--master-addr={node0}",
            "--master-port=29500",
            "--use-env",
        ),
        args=job(),
    ),
    Recording(
        name="two_torch_releases",
        argv_of={2: ("{other}", "{job}")},
        args=job("--timeout=40", "--steps=20"),
    ),
    Recording(name="left_without_destroy", argv=C10D, args=job("--leave")),
    Recording(name="debug_detail", env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, args=job()),
    Recording(name="cpp_log_info", argv=C10D, env={"TORCH_CPP_LOG_LEVEL": "INFO"}, args=job()),
    Recording(name="ifname_given", env={"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"}, args=job()),
    Recording(name="without_libuv", env={"USE_LIBUV": "0"}, args=job()),
    Recording(name="data_loader", args=job("--do=shm", "--timeout=30")),
    Recording(name="srun_labels", prefix="{rank}: ", args=job()),
    Recording(name="mpirun_tags", prefix="[1,{rank}]<stdout>:", args=job()),
    Recording(name="ray_prefixes", prefix="(RayTrainWorker pid=41{rank}7, ip={address}) ", args=job()),
    Recording(
        name="kubectl_timestamps", prefix="2026-05-04T09:12:4{rank}.318204117Z ", argv=C10D, args=job()
    ),
    Recording(name="torchrun_tee", argv=(*C10D, "--tee=3", "--log-dir=/tmp/logs"), args=job()),
    Recording(name="pdsh_prefixes", prefix="node{rank}: ", argv=STATIC, args=job()),
)
