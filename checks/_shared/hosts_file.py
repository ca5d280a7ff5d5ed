"""Commands that put /etc/hosts right."""

from collections.abc import Iterable, Mapping

from netdoctor.checks._shared.addresses import is_loopback, parse
from netdoctor.checks._shared.text import is_host_name
from netdoctor.facts.host import HostFacts
from netdoctor.model import Fix, run

HOSTS = "/etc/hosts"
# The file as it was before any of our commands: pasting twice must not replace it by what the first one made.
BEFORE = f"{HOSTS}.before-netdoctor"
UNDO = f"cat {BEFORE} > {HOSTS} && rm {BEFORE}"


def rewrite(entries: Mapping[str, str], names: Iterable[str] = ()) -> str | None:
    """A shell command after which /etc/hosts maps each name of `entries` to its address, and nowhere else.

    names: further names (an FQDN) to take off their old lines; a line that has none left goes. Written in
    place, because a container mounts the file by itself and cannot have it replaced. None when a name or
    address is not plain.
    """
    lines = []
    for name, address in entries.items():
        if not is_host_name(name) or parse(address) is None:
            return None
        lines.append(f"{parse(address)} {name}")
    moved = dict.fromkeys([*entries, *(name for name in names if is_host_name(name))])
    # Double quotes inside, so that the whole can stand in single ones after `ssh NODE`.
    edits = [rf"s/[[:space:]]{name.replace('.', '[.]')}([[:space:]]|$)/\1/g" for name in moved]
    script = ";".join([*edits, "/^[[:space:]]*[0-9a-fA-F.:]+[[:space:]]*$/d"])
    added = " ".join(f'"{line}"' for line in lines)
    return (
        f'text=$(sed -E "{script}" {HOSTS}) && ([ -e {BEFORE} ] || cp -p {HOSTS} {BEFORE}) && '
        f'printf "%s\\n" "$text" {added} > {HOSTS}'
    )


def entries(text: str, addresses: Mapping[str, str]) -> Fix:
    """Give these names their addresses in /etc/hosts; by words alone where one is not plain, or not known."""
    return run(text, rewrite(addresses) or "", undo=UNDO, root=True, effect="next launch")


def own_name(name: str, host: HostFacts | None, address: str | None) -> Fix:
    """Give a node's own name its address. Checks that propose the same to the same node are shown one fix."""
    other = [host.fqdn] if host and host.fqdn and host.fqdn != name else []
    shell = rewrite({name: address}, other) if address and not is_loopback(address) else None
    again = "; cloud-init writes it back unless manage_etc_hosts is off" if host and host.cloud else ""
    text = f"give the own name its address in /etc/hosts{again}"
    return run(text, shell or "", undo=UNDO, root=True, effect="next launch")
