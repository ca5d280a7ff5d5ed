"""Commands that put /etc/hosts right."""

import re
from collections.abc import Iterable, Mapping

from netdoctor.checks._shared.addresses import is_loopback, parse
from netdoctor.checks._shared.text import is_host_name
from netdoctor.facts.host import HostFacts
from netdoctor.model import Fix, run

HOSTS = "/etc/hosts"
# The file as it was before any of our commands: pasting twice must not replace it by what the first one made.
BEFORE = f"{HOSTS}.before-netdoctor"
# Where it was taken back already, a redirection without the question would leave an empty file.
UNDO = f"[ ! -e {BEFORE} ] || (cat {BEFORE} > {HOSTS} && rm {BEFORE})"


# Names of the loopback addresses themselves: every program counts on them, so they are never moved.
LOOPBACKS = re.compile(r"(localhost[46]?|ip6-localhost|ip6-loopback|loopback)([.].*)?", re.IGNORECASE)


def rewrite(entries: Mapping[str, str], names: Iterable[str] = ()) -> str | None:
    """A shell command after which /etc/hosts maps each name of `entries` to its address, and nowhere else.

    names: further names (an FQDN) of all the entries, that move with them. A line that has no name left goes;
    nothing else of the file changes, comments neither. Written in place, because a container mounts the file
    by itself and cannot have it replaced. None when a name or address is not plain, or is loopback's.
    """
    others = [name for name in names if is_host_name(name) and not LOOPBACKS.fullmatch(name)]
    lines = []
    for name, address in entries.items():
        if not is_host_name(name) or LOOPBACKS.fullmatch(name) or parse(address) is None:
            return None
        lines.append(" ".join([str(parse(address)), *others, name]))
    moved = "|".join(name.replace(".", "[.]") for name in dict.fromkeys([*entries, *others]))
    # One name after the other, in front of a comment; a line that has lost its last one goes. Double quotes
    # inside, so that the whole can stand in single ones after `ssh NODE`.
    script = (
        rf":a;s/^([^#]*)[[:space:]]+({moved})([[:space:]#]|$)/\1\3/I;tb;b;:b;"
        "/^[[:space:]]*[^[:space:]#]+[[:space:]]*$/d;ba"
    )
    added = " ".join(f'"{line}"' for line in lines)
    return (
        f'text=$(sed -E "{script}" {HOSTS}) && ([ -e {BEFORE} ] || cp -p {HOSTS} {BEFORE}) && '
        f'printf "%s\\n" "$text" {added} > {HOSTS}'
    )


def entries(text: str, addresses: Mapping[str, str]) -> Fix:
    """Give these names their addresses in /etc/hosts; by words alone where one is not plain, or not known."""
    return run(text, rewrite(addresses) or "", undo=UNDO, root=True, effect="next launch")


def own_name(name: str, host: HostFacts | None, address: str | None) -> Fix:
    """Give a node's own name its address. Checks that propose the same to the same node are shown one fix.

    Its full name moves with it; what else getfqdn() says is another name of the line, and stays.
    """
    if LOOPBACKS.fullmatch(name):
        return run("every machine is called localhost: give this one its own name (hostnamectl set-hostname)")
    fqdn = host.fqdn if host and host.fqdn and host.fqdn != name else ""
    is_full = fqdn.partition(".")[0].lower() == name.partition(".")[0].lower()
    shell = (
        rewrite({name: address}, [fqdn] if is_full else []) if address and not is_loopback(address) else None
    )
    again = "; cloud-init writes it back unless manage_etc_hosts is off" if host and host.cloud else ""
    text = f"give the host name its address in /etc/hosts{again}"
    return run(text, shell or "", undo=UNDO, root=True, effect="next launch")
