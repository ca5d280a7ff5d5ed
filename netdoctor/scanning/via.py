"""What reaches the nodes of a request, and names them where nobody did: SSH, Slurm or Ray.

The one place that chooses a transport. Each way is two functions of a request, imported when it is taken.
"""

from netdoctor.errors import InputError
from netdoctor.inventory import Inventory
from netdoctor.scanning.request import ScanRequest
from netdoctor.transport.base import Limits, SshOptions, Transport


def make_transport(request: ScanRequest) -> Transport:
    """What reaches the nodes of a request. Raises InputError where its settings cannot be used."""
    limits = Limits(
        parallel=request.parallel,
        login_timeout_s=min(15.0, request.timeout),
        node_budget_s=request.timeout,
    )
    if request.local:
        from netdoctor.transport.local import LocalTransport

        return LocalTransport(limits)
    match request.via:
        case "slurm":
            raise InputError("--via slurm is not here yet")
        case "ray":
            return _ray(request, limits)
    return _ssh(request, limits)


def nodes(request: ScanRequest, transport: Transport) -> Inventory | None:
    """The nodes that a request without hosts is about: those of the allocation, or of the Ray cluster.

    transport: of this request; what it connects to is asked once. None where the nodes have to be named.
    Raises InputError where they cannot be found out.
    """
    if request.via == "ray":
        from netdoctor.transport.ray import RayTransport

        if isinstance(transport, RayTransport):
            return transport.inventory()
    return None


def _ray(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.transport.ray import RayTransport
    from netdoctor.transport.rayhelper import AUTO, RayOptions

    address = request.ray_address or request.environ.get("RAY_ADDRESS") or AUTO
    return RayTransport(RayOptions(address, request.ray_python, request.environ), limits)


def _ssh(request: ScanRequest, limits: Limits) -> Transport:
    from netdoctor.transport.ssh import SshTransport

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
