"""Commands that put /etc/hosts right."""

from collections.abc import Iterable, Mapping

from netdoctor.checks._addresses import parse
from netdoctor.checks._words import is_host_name


def rewrite(entries: Mapping[str, str], names: Iterable[str] = ()) -> str | None:
    """A shell command after which /etc/hosts maps each name of `entries` to its address, and nowhere else.

    names: further names (an FQDN) to take off their old lines. Written through a copy, because a container
    mounts the file by itself and cannot have it replaced. None when a name or address is not plain.
    """
    lines = []
    for name, address in entries.items():
        if not is_host_name(name) or parse(address) is None:
            return None
        lines.append(f"{parse(address)} {name}")
    taken = dict.fromkeys([*entries, *(name for name in names if is_host_name(name))])
    # Double quotes inside, so that the whole can stand in single ones after `ssh NODE`.
    edits = ";".join(rf"s/[[:space:]]{name.replace('.', '[.]')}([[:space:]]|$)/\1/g" for name in taken)
    added = " && ".join(f'echo "{line}" >> /etc/hosts' for line in lines)
    return f'cp -p /etc/hosts /etc/hosts.orig && sed -E "{edits}" /etc/hosts.orig > /etc/hosts && {added}'
