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
            raise InputError("--via ray is not here yet")
    return _ssh(request, limits)


def nodes(request: ScanRequest) -> Inventory | None:
    """The nodes that a request without hosts is about: those of the allocation, or of the Ray cluster.

    None where they have to be named. Raises InputError where they cannot be found out.
    """
    return None


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
