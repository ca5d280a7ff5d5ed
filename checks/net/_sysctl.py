"""Settings of the kernel: how a node gets them, now and after each boot."""

import shlex
from collections.abc import Mapping

from netdoctor.model import Fix, run


def set_to(text: str, values: Mapping[str, tuple[object, object]], name: str) -> tuple[Fix, Fix]:
    """The fixes that give these sysctls (``net/core/somaxconn``) their values; by each, what it is to be and
    what it is.

    Keys and values stand in commands: ours alone, and a node's only where a pattern has let them through.
    name: ``90-netdoctor-{name}.conf`` keeps them.
    """
    now, before = ([shlex.quote(f"{key}={pair[i]}") for key, pair in values.items()] for i in (0, 1))
    assignments, file = " ".join(now), f"/etc/sysctl.d/90-netdoctor-{name}.conf"
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
