"""Resource limits: how to raise one for the sessions that start a job."""

from collections.abc import Mapping
from typing import Any

from netdoctor.facts.host import HostFacts
from netdoctor.model import Command, Fix


def raise_limit(node: str, host: HostFacts, item: str, value: str, unit: str, flag: str) -> tuple[Fix, ...]:
    """Fixes that raise a hard limit. item: limits.conf's name; unit: systemd's; flag: the engine's."""
    if host.container:
        shell = f"docker run --ulimit {flag} ...   # Kubernetes: the container runtime's own unit"
        return (
            Fix(
                text=f"start the {host.container} container with a higher limit",
                commands=(Command(run_on="job", shell=shell),),
                effect="next launch",
                persistent=False,
            ),
        )
    # limits.conf(5): the wildcard does not reach root. A dash sets soft and hard.
    lines = f"* - {item} {value}\\nroot - {item} {value}\\n"
    folder = "/etc/systemd/system/slurmd.service.d"
    return (
        Fix(
            text="raise the limit of login sessions",
            commands=(
                Command(run_on=node, shell=f"printf '{lines}' > /etc/security/limits.d/90-{item}.conf"),
            ),
            root=True,
            effect="next login",
        ),
        Fix(
            text="and of the service that starts the job, which limits.conf does not reach (slurmd, "
            "containerd; sshd without PAM)",
            commands=(
                Command(
                    run_on=node,
                    shell=f"mkdir -p {folder} && "
                    f"printf '[Service]\\n{unit}\\n' > {folder}/90-{item}.conf && "
                    "systemctl daemon-reload && systemctl restart slurmd",
                ),
            ),
            root=True,
            risk="medium",
        ),
    )


def is_the_machines(hosts: Mapping[str, HostFacts], values: Mapping[str, Any], node: str) -> bool:
    """Whether a lab node's limit is that of the machine that carries the lab: all lab nodes have the same.

    Nobody inside the lab can raise it, so it stops no launch there; a node that differs is a fault.
    """
    return hosts[node].in_lab and len(values) > 1 and len(set(values.values())) == 1
