"""Settings of the kernel: how a node gets them, now and after each boot."""

import shlex
from collections.abc import Mapping

from netdoctor.model import Fix, run


def set_to(text: str, values: Mapping[str, tuple[object, object]], name: str) -> tuple[Fix, Fix]:
    """Return fixes that set these sysctls, now and from each boot on.

    values: by ``net/core/somaxconn``, what it is to be and what it is. They stand in commands: text of a node
    has to match a pattern before. name: of ``zz-netdoctor-{name}.conf``, which keeps them (the last wins).
    """
    now, before = ([shlex.quote(f"{key}={pair[i]}") for key, pair in values.items()] for i in (0, 1))
    assignments, file = " ".join(now), f"/etc/sysctl.d/zz-netdoctor-{name}.conf"
    undo = f"sysctl -qw {' '.join(before)}"
    return (
        run(text, f"sysctl -qw {assignments}", undo=undo, root=True, persistent=False),
        run(
            "the same after each boot",
            f"printf '%s\\n' {assignments} > {file}",
            undo=f"rm -f {file}",
            root=True,
            effect="after reboot",
        ),
    )
