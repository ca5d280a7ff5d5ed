"""What the programs that start a job take on their command lines.

Written after torch 2.15 (torch/distributed/run.py), Slurm 26.05 (src/common/slurm_opt.c), DeepSpeed 0.19
(deepspeed/launcher/runner.py), accelerate 1.15 (commands/launch.py), Ray 2.60 (scripts/scripts.py), Open MPI
5.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one program, without dashes, ``_`` as ``-``.

    valued: those that take a value; flags: those that do not; short: single letters, with what they stand
    for. single: long options have one dash only.
    """

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    short: dict[str, str] = field(default_factory=dict)
    single: bool = False

    @property
    def all(self) -> frozenset[str]:
        return self.valued | self.flags


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TORCHRUN = Options(
    valued=_names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval "
        "start-method event-log-handler role log-dir redirects tee local-ranks-filter "
        "duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr "
        "logs-specs numa-binding signals-to-handle shutdown-timeout"
    ),
    flags=_names("standalone module no-python run-path virtual-local-rank help"),
    short={"m": "module", "r": "redirects", "t": "tee", "h": "help"},
)
# python -m torch.distributed.launch adds one.
TORCH_LAUNCH = Options(TORCHRUN.valued, TORCHRUN.flags | {"use-env"}, TORCHRUN.short)

# One table for sbatch, srun and salloc.
_SLURM_VALUED = _names(
    "account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment "
    "constraint container container-id context core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu "
    "cpus-per-task deadline delay-boot dependency distribution environment epilog error exclude export "
    "export-file external-launcher extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node "
    "gpus-per-socket gpus-per-task gres gres-flags hint input job-name jobid kill-on-bad-exit "
    "kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu "
    "mincpus mpi msg-timeout network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile prolog "
    "propagate qos relative reservation resv-ports segment signal slurmd-debug sockets-per-node switches "
    "task-epilog task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp "
    "tres-bind tres-per-task treewidth uid wait wait-all-nodes wckey wrap het-group pack-group accel-bind "
    "bcast-exclude oom-kill-step tres-per-job consolidate-segments spread-segments "
    # those of the pyxis plug-in
    "container-image container-mounts container-workdir container-name container-save container-env "
    "auto-resume"
)
_SLURM_FLAGS = _names(
    "contiguous disable-status exact exclusive get-user-env hold ignore-pbs immediate interactive "
    "kill-command no-allocate no-bell no-kill no-requeue no-shell nice overcommit overlap oversubscribe "
    "parsable preserve-env pty quiet quit-on-interrupt reboot requeue spread-job stepmgr test-only "
    "unbuffered use-min-nodes verbose version help usage whole bcast compress send-libs multi-prog label "
    "external autocomplete wait-for-children bell share"
)
_SLURM_SHORT = {
    "A": "account", "a": "array", "b": "begin", "B": "extra-node-info", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus",
    "i": "input", "J": "job-name", "K": "kill-on-bad-exit", "k": "no-kill", "L": "licenses",
    "l": "label", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit",
    "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "r": "relative", "S": "core-spec",
    "s": "oversubscribe", "t": "time", "T": "threads", "u": "unbuffered", "v": "verbose",
    "V": "version", "W": "wait", "w": "nodelist", "x": "exclude", "X": "disable-status",
    "Z": "no-allocate", "H": "hold", "h": "help",
}  # fmt: skip
SLURM = Options(_SLURM_VALUED - {"label", "kill-on-bad-exit", "resv-ports"}, _SLURM_FLAGS, _SLURM_SHORT)

DEEPSPEED = Options(
    valued=_names(
        "hostfile include exclude num-nodes min-elastic-nodes max-elastic-nodes num-gpus num-accelerators "
        "master-port master-addr node-rank launcher launcher-args enable-each-rank-log autotuning comment "
        "account bind-core-list ssh-port venv-script log-level"
    ),
    flags=_names(
        "module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid elastic-training "
        "bind-cores-to-rank quiet help"
    ),
    short={"H": "hostfile", "i": "include", "e": "exclude", "h": "help", "q": "quiet"},
)
ACCELERATE = Options(
    valued=_names(
        "config-file mixed-precision num-processes num-machines num-cpu-threads-per-process dynamo-backend "
        "dynamo-mode gpu-ids machine-rank main-process-ip main-process-port tee log-dir role rdzv-backend "
        "rdzv-conf max-restarts monitor-interval vm env main-training-function deepspeed-config-file "
        "zero-stage offload-optimizer-device offload-param-device offload-optimizer-nvme-path "
        "offload-param-nvme-path gradient-accumulation-steps gradient-clipping zero3-init-flag "
        "zero3-save-16bit-model deepspeed-hostfile deepspeed-exclusion-filter deepspeed-inclusion-filter "
        "deepspeed-multinode-launcher deepspeed-moe-layer-cls-names fsdp-version fsdp-offload-params "
        "fsdp-min-num-params fsdp-sharding-strategy fsdp-reshard-after-forward fsdp-auto-wrap-policy "
        "fsdp-transformer-layer-cls-to-wrap fsdp-backward-prefetch fsdp-state-dict-type "
        "fsdp-forward-prefetch fsdp-use-orig-params fsdp-cpu-ram-efficient-loading fsdp-sync-module-states "
        "fsdp-activation-checkpointing megatron-lm-tp-degree megatron-lm-pp-degree "
        "megatron-lm-num-micro-batches megatron-lm-sequence-parallelism megatron-lm-recompute-activations "
        "megatron-lm-use-distributed-optimizer megatron-lm-gradient-clipping fp8-backend fp8-margin "
        "fp8-interval fp8-format fp8-amax-history-len fp8-amax-compute-algo fp8-override-linear-precision "
        "fp8-opt-level aws-access-key-id aws-secret-access-key mpirun-hostfile mpirun-ccl "
        "parallelism-config-dp-replicate-size parallelism-config-dp-shard-size parallelism-config-tp-size "
        "parallelism-config-cp-size"
    ),
    flags=_names(
        "quiet cpu multi-gpu tpu ipex use-xpu enable-cpu-affinity dynamo-use-fullgraph dynamo-use-dynamic "
        "dynamo-use-regional-compilation use-deepspeed use-fsdp use-parallelism-config use-megatron-lm "
        "same-network module no-python tpu-cluster no-tpu-cluster tpu-use-sudo downcast-bf16 debug help"
    ),
    short={"t": "tee", "q": "quiet", "m": "module", "h": "help"},
)
RAY_START = Options(
    valued=_names(
        "node-ip-address address port node-name redis-username redis-password redis-shard-ports "
        "object-manager-port node-manager-port gcs-server-port min-worker-port max-worker-port "
        "worker-port-list ray-client-server-port memory object-store-memory num-cpus num-gpus resources "
        "include-dashboard dashboard-host dashboard-port dashboard-agent-listen-port "
        "dashboard-agent-grpc-port dashboard-grpc-port runtime-env-agent-port plasma-directory "
        "autoscaling-config system-config temp-dir metrics-export-port labels labels-file "
        "tracing-startup-hook ray-debugger-external-host log-style log-color redis-max-memory"
    ),
    flags=_names("head block no-monitor no-redirect-output disable-usage-stats enable-usage-stats "
                 "ray-debugger-external "
                 "enable-object-reconstruction verbose log-to-stderr help"),
    short={"v": "verbose"},
)  # fmt: skip
# One table for Open MPI, MPICH and Intel MPI; -x and its like take one value, --mca takes two.
MPIRUN = Options(
    valued=_names(
        "np n c N npernode ppn hostfile machinefile f host hosts H x map-by bind-to rank-by "
        "output-filename wdir wd path prefix report-uri genv-list envlist iface rsh app launcher bootstrap "
        "timeout output report-state-on-timeout default-hostfile display rmaps personality dvm-uri "
        "rankfile rf"
    ),
    flags=_names(
        "oversubscribe allow-run-as-root tag-output q quiet v verbose report-bindings display-map "
        "display-allocation nooversubscribe use-hwthread-cpus genvall genvnone nolocal no-local bynode "
        "byslot bind-to-core bind-to-none xterm do-not-launch timestamp-output merge-stderr-to-stdout novm "
        "l enable-recovery"
    ),
    short={},
    single=True,
)
MPI_PAIRS = frozenset({"mca", "gmca", "genv", "env", "prtemca", "pmixmca"})
DOCKER_RUN = Options(
    valued=_names(
        "add-host annotation attach blkio-weight cap-add cap-drop cgroup-parent cgroupns cidfile "
        "cpu-period cpu-quota cpu-shares cpus cpuset-cpus cpuset-mems device device-cgroup-rule dns "
        "dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd "
        "hostname ip ip6 ipc isolation label label-file link log-driver log-opt mac-address memory "
        "memory-reservation memory-swap memory-swappiness mount name network net network-alias "
        "oom-score-adj pid pids-limit platform publish pull restart runtime security-opt shm-size "
        "stop-signal stop-timeout storage-opt sysctl tmpfs ulimit user userns uts volume volume-driver "
        "volumes-from workdir"
    ),
    flags=_names(
        "detach disable-content-trust init interactive no-healthcheck oom-kill-disable privileged "
        "publish-all quiet read-only rm sig-proxy tty use-api-socket"
    ),
    short={
        "a": "attach", "c": "cpu-shares", "d": "detach", "e": "env", "h": "hostname",
        "i": "interactive", "l": "label", "m": "memory", "p": "publish", "P": "publish-all",
        "q": "quiet", "t": "tty", "u": "user", "v": "volume", "w": "workdir",
    },
)  # fmt: skip

# Programs that only start another one, with their options that take a value.
WRAPPERS: dict[str, Options] = {
    "exec": Options(_names("a"), single=True),
    "command": Options(),
    "time": Options(_names("f o"), single=True),
    "nohup": Options(),
    "setsid": Options(),
    "stdbuf": Options(_names("input output error"), short={"i": "input", "o": "output", "e": "error"}),
    "sudo": Options(
        _names("user group host prompt"), short={"u": "user", "g": "group", "h": "host", "p": "prompt"}
    ),
    "env": Options(_names("unset chdir"), short={"u": "unset", "C": "chdir"}),
    "nice": Options(_names("adjustment"), short={"n": "adjustment"}),
    "ionice": Options(_names("class classdata"), short={"c": "class", "n": "classdata"}),
    "timeout": Options(_names("kill-after signal"), short={"k": "kill-after", "s": "signal"}),
    "numactl": Options(
        _names("cpunodebind membind physcpubind interleave preferred localalloc"),
        short={"N": "cpunodebind", "m": "membind", "C": "physcpubind", "i": "interleave"},
    ),
    "taskset": Options(_names("cpu-list"), short={"c": "cpu-list"}),
}
POSITIONAL = {"timeout": 1, "taskset": 0}  # words of its own before the program
