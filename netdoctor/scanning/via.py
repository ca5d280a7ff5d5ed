"""What reaches the nodes of a request, and names them where nobody did: SSH, Slurm, Ray, or tasks that call.

The one place that chooses a transport. Each way is two functions of a request, imported when it is taken.
"""

from dataclasses import replace

from netdoctor.errors import InputError
from netdoctor.inventory import Inventory, expand, load, surroundings
from netdoctor.options import ScanRequest
from netdoctor.text import clean
from netdoctor.transport.base import Limits, SshOptions, Transport


def make_transport(request: ScanRequest) -> Transport:
    """What reaches the nodes of a request. Raises InputError where its settings cannot be used."""
    limits = Limits(
        parallel=request.parallel, login_timeout_s=min(15.0, request.timeout), node_budget_s=request.timeout
    )
    if request.local:
        from netdoctor.transport.local import LocalTransport

        return LocalTransport(limits)
    match request.via:
        case "facts":
            raise InputError("these nodes have written their facts, and nobody can be asked anything")
        case "meet":
            return _meet(request, limits)
        case "slurm":
            return _slurm(request, limits)
        case "ray":
            return _ray(request, limits)
    return _ssh(request, limits)


def nodes(request: ScanRequest, transport: Transport) -> Inventory | None:
    """The nodes that a request without hosts is about: those of the allocation, or of the Ray cluster.

    transport: of this request; what it connects to is asked once. None where the nodes have to be named.
    Raises InputError where they cannot be found out.
    """
    if request.via == "ray":
        from netdoctor.transport.ray.transport import RayTransport

        if isinstance(transport, RayTransport):
            return transport.inventory()
    if request.via == "meet":
        from netdoctor.transport.tasks.meet import MeetTransport

        if isinstance(transport, MeetTransport):
            return transport.inventory()
    if request.via != "slurm":
        return None
    names = surroundings.slurm_nodes(request.environ)
    if not names and request.partition:
        from netdoctor.transport.tasks.slurm import partition

        names = partition(request.partition, request.environ)
    if not names:
        raise InputError("--via slurm outside of an allocation: name the nodes, or --partition")
    found = load([f"{names},"], environ=request.environ, format="auto")
    return replace(
        found, source=f"partition {request.partition}" if request.partition else "Slurm's allocation"
    )


def _slurm(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.transport.tasks.slurm import SlurmOptions, SlurmTransport, missing
    from netdoctor.transport.tasks.slurm_output import cpus_of

    environ = request.environ
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if lacks := missing(environ):
        raise InputError(f"--via slurm: no {lacks} here; it runs where Slurm's commands are")
    if job is not None and not job.isdecimal():
        raise InputError(f"SLURM_JOB_ID={clean(job, 40)!r} is not a job")
    if job is not None and (parts := environ.get("SLURM_HET_SIZE", "")).isdecimal() and int(parts) > 1:
        groups = ",".join(map(str, range(min(int(parts), 128))))
        raise InputError(
            f"--via slurm: job {job} is heterogeneous, and one step of netdoctor's is not; let tasks write: "
            f"srun --het-group={groups} netdoctor facts -o FOLDER; netdoctor scan --facts FOLDER"
        )
    if job is not None and request.partition:
        raise InputError(f"--partition asks for nodes, and job {job} has some; leave it out")
    options = SlurmOptions(
        job=job,
        nodes=tuple(expand(surroundings.slurm_nodes(environ))) if job else (),
        cpus=cpus_of(environ.get("SLURM_JOB_CPUS_PER_NODE", "")) if job else 0,
        partition=request.partition,
        wait_s=request.timeout,
        environ=environ,
    )
    return SlurmTransport(limits, options)


def _meet(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.scanning.meeting import invite, wait_s
    from netdoctor.transport.tasks import meeting
    from netdoctor.transport.tasks.meet import MeetOptions, MeetTransport

    if not (request.tasks or request.hosts or request.targets):
        raise InputError("--meet: say how many tasks there are (--tasks N), or name the hosts")
    options = MeetOptions(
        rendezvous=meeting.parse_rendezvous(request.meet or ""),
        key=meeting.secret(request.environ, request.secret_file),
        tasks=request.tasks,
        wait_s=wait_s(request),
        invite=invite,
        are_members=request.are_members,
    )
    return MeetTransport(limits, options)


def _ray(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.transport.ray.raycluster import AUTO
    from netdoctor.transport.ray.rayhelper import RayOptions
    from netdoctor.transport.ray.transport import RayTransport

    address = request.ray_address or request.environ.get("RAY_ADDRESS") or AUTO
    return RayTransport(RayOptions(address, request.ray_python, request.environ), limits)


def _ssh(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.transport.ssh.transport import SshTransport

    options = SshOptions(
        ssh_config=request.ssh_config,
        user=request.ssh_user,
        port=request.ssh_port,
        key=request.ssh_key,
        known_hosts=request.known_hosts,
        jump=request.jump,
        accept_new=request.accept_new,
    )
    return SshTransport(options, limits)
