"""Resource limits: how to raise one for the sessions that start a job."""

from collections.abc import Collection, Mapping

from netdoctor.checks._shared.job import ranks_on
from netdoctor.checks._shared.text import GIB, MIB, is_host_name
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Node, Session
from netdoctor.model import Fix, in_job, run

# Fleet preflights ask for 16 GiB (awsome-distributed-training, gpu-cluster-healthcheck) or 32 GiB (Primus),
# or unlimited. The kernel's own default is 64 KiB, 8 MiB since 5.16 (include/uapi/linux/resource.h): with
# either the first ibv_reg_mr of an NCCL buffer (4 MiB per channel and peer) ends in "Cannot allocate memory".
MEMLOCK_ADVISED_BYTES = 16 * GIB
MEMLOCK_LEAST_BYTES = 64 * MIB
# Of NCCL's: 32 ranks on 4 nodes met "Accept failed: Too many open files" at 1024, jobs on one node did not
# (https://github.com/goodfire-ai/spd/pull/957). That is 32 a peer; with more communicators it is more.
OF_A_PEER_NCCL = 64
FOLDER = "/etc/security/limits.d"
# Of limits.conf, where prlimit has bytes.
_UNIT_BYTES = {"memlock": 1024}
# The options of sh's ulimit for what limits.conf calls so.
_ULIMIT = {"memlock": "-l", "nofile": "-n", "nproc": "-u"}
SERVICE = "/etc/systemd/system/slurmd.service.d"


def raise_limit(
    host: HostFacts,
    item: str,
    value: str,
    in_script: str,
    session: Session | None,
    number: int | None = None,
    *,
    keeps: str = "",
) -> list[Fix]:
    """Fixes that raise a limit of login sessions, or of a raylet where the session is one of Ray's.

    item: limits.conf's name for it; value: in limits.conf's unit, or ``unlimited``; in_script: how a job
    raises it by itself, empty where the hard limit is in the way; number: what services and containers get,
    no limit when left out; keeps: the hard limit, or ``infinity``, where that is high enough and stays.
    """
    unit = f"Limit{item.upper()}={number or 'infinity'}" + (f":{keeps}" if keeps else "")
    most = {"": str(number), "infinity": "-1"}.get(keeps, keeps)
    flag = f"{item}={f'{number}:{most}' if number else '-1'}"
    itself = in_job("in the job script, where the hard limit allows it (logins do not change)", in_script)
    if host.container:
        larger = in_job(
            f"start the {host.container} container with a higher limit",
            f"docker run --ulimit {flag} ...   # Kubernetes: the container runtime's own unit",
        )
        return [itself, larger] if in_script else [larger]
    running = str(int(value) * _UNIT_BYTES.get(item, 1)) if value.isdecimal() else value
    running = f"{running}:" if keeps else f"{running}:{running}"  # without a second one the hard limit stays
    if session is not None and session.transport == "ray":
        return _of_raylet(item, running, unit, f"ulimit {_ULIMIT[item]} {value}")
    # limits.conf(5): the wildcard does not reach root, a line of the user's own wins over it and over groups,
    # and of files the last in order. A dash sets soft and hard. Only PAM reads it; without PAM a session has
    # the limits of the sshd that runs, so there that one gets them.
    user = session.user if session is not None and is_host_name(session.user) else "root"
    file = f"{FOLDER}/zz-netdoctor-{item}.conf"
    kind = "soft" if keeps else "-"
    lines = " ".join(f"'{who} {kind} {item} {value}'" for who in dict.fromkeys(("*", "root", user)))
    logins = run(
        "raise it for logins: in the file that PAM reads, or, if sshd does not use PAM, in the running sshd",
        f"mkdir -p {FOLDER} && printf '%s\\n' {lines} > {file}",
        f'sshd -T | grep -qix "usepam yes" || prlimit --pid $(pgrep -o -x sshd) --{item}={running}',
        undo=f"rm -f {file}",
        root=True,
        effect="next login",
    )
    service = slurmd_limit(
        "if a service starts the job, limits.conf has no effect: raise it for slurmd (or "
        "containerd, ssh), too",
        item,
        unit,
    )
    return [logins, itself if in_script else service]


def _of_raylet(item: str, value: str, unit: str, shell: str) -> list[Fix]:
    """Workers of Ray have the limits of the raylet that starts them. value: as prlimit takes it.

    Above a hard limit that takes CAP_SYS_RESOURCE (setrlimit(2)), which root of a container mostly lacks.
    """
    return [
        run(
            "raise it for the running raylet (needs CAP_SYS_RESOURCE); workers that it starts later have it",
            f"for pid in $(pgrep -x raylet); do prlimit --pid $pid --{item}={value}; done",
            root=True,
            effect="next launch",
            persistent=False,
        ),
        run(
            f"to keep it, or if that is not permitted: raise the limit where Ray is started ({unit} in its "
            f"unit; else {shell} before it, up to the hard limit of that shell), then ray stop and ray start",
            effect="next launch",
        ),
    ]


def slurmd_limit(text: str, item: str, unit: str) -> Fix:
    """A limit of slurmd's, which all steps have; jobs that run stay. unit: what a systemd unit says."""
    again = "systemctl daemon-reload && systemctl restart slurmd"
    file = f"{SERVICE}/zz-netdoctor-{item}.conf"
    return run(
        text,
        f'mkdir -p {SERVICE} && (echo "[Service]"; echo "{unit}") > {file} && {again}',
        undo=f"rm -f {file} && {again}",
        root=True,
        risk="medium",
    )


def is_machine_limit(hosts: Mapping[str, HostFacts], softs: Mapping[str, int | None], node: str) -> bool:
    """Whether a node that shares its machine has the machine's limit: none of those nodes has a higher one.

    Nobody inside can raise it, so it stops no launch there; a node below the others is a fault. One
    that is heard alone, as where a scan was stopped, is below nobody.
    """
    if not hosts[node].shares_machine:
        return False
    soft_here = softs[node]
    others = [soft for other, soft in softs.items() if other != node and other in hosts]
    return soft_here is not None and all(soft is not None and soft_here >= soft for soft in others)


def files_of_nccl(
    nodes: Collection[str], gpus: Mapping[str, GpuFacts], listed: Mapping[str, Node]
) -> int | None:
    """How many files a rank of NCCL's needs at most; None where it is not known how many ranks there are."""
    known = [(listed.get(node), gpus.get(node)) for node in nodes]
    if any(gpu is None for _, gpu in known):
        return None
    return OF_A_PEER_NCCL * sum(ranks_on(one, gpu) if one else len(gpu.devices) for one, gpu in known if gpu)
