"""A login as commands say it: host, port, and the name under which known_hosts keeps a key."""

import re

from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.edits import append
from netdoctor.checks._shared.text import is_host_name, quoted
from netdoctor.facts.host import Node, Session


def dialled(node: Node, session: Session) -> str:
    """Host for a command; empty when it is no plain name or address."""
    host = session.address or node.host
    return host if is_host_name(host) or parse(host) else ""


def known_as(node: Node, session: Session) -> str:
    """The name under which known_hosts keeps the key, for a command; empty when it is none."""
    host = dialled(node, session)
    if not session.known_as:
        return f"[{host}]:{session.port}" if host and session.port != 22 else host
    name = re.sub(r"^\[(.*)\]:\d+$", r"\1", session.known_as)
    return session.known_as if is_host_name(name) or parse(name) else ""


def known_hosts(session: Session) -> str:
    """The file to write a key to: the first that was read, without the number of a line in it."""
    first = (session.known_hosts or "").split(", ")[0]
    path = re.sub(r":\d+$", "", first)
    return quoted(path) if path.startswith("/") else "~/.ssh/known_hosts"


def listed_at(node: Node) -> str:
    """``line 3 of hosts.txt``: where the node was named."""
    return f"line {node.line} of {node.source}" if node.line else "its line of the hosts file"


def port_option(session: Session) -> str:
    return f"-p {session.port} " if session.port != 22 else ""


_PUBLIC_KEY = re.compile(r"[a-z][a-z0-9@.-]{2,60} [A-Za-z0-9+/]{20,16000}={0,2}")


def authorize(session: Session) -> str:
    """Lets the offered key in, typed on the node by root or the user; empty where it is not known.

    A second time it does nothing.
    """
    if not _PUBLIC_KEY.fullmatch(session.offered) or not is_host_name(session.user):
        return ""
    add = append('"$key"', f"~{session.user}/.ssh/authorized_keys")
    return (
        f"(key='{session.offered}'; umask 077; mkdir -p ~{session.user}/.ssh; {add}; "
        f"chown -R {session.user}: ~{session.user}/.ssh)"
    )


def of_sshd(name: str, *lines: str, then: str = "") -> tuple[str, str]:
    """A drop-in of these settings for sshd, and what takes it out. Open sessions stay.

    then: what else is changed, where the drop-in could be written.
    """
    path = f"/etc/ssh/sshd_config.d/{name}.conf"
    reload = "(systemctl reload ssh 2>/dev/null || systemctl reload sshd)"
    text = "".join(f"{line}\\n" for line in lines)
    # A server that reloads what it cannot read ends, and nobody logs in any more.
    steps = (f"printf '{text}' > {path}", then, "/usr/sbin/sshd -t", reload)
    return " && ".join(filter(None, steps)), f"rm -f {path} && {reload}"


_MAIN = "/etc/ssh/sshd_config"


def more_startups() -> tuple[str, str]:
    """Lets sshd take more logins at once, and what takes that back.

    Of this setting the last line counts (servconf.c): a later drop-in's, or the main file's own, which stands
    behind all that it includes.
    """
    off = f"sed -i 's/^[[:space:]]*MaxStartups/#netdoctor &/I' {_MAIN}"
    more, back = of_sshd("zz-netdoctor-startups", "MaxStartups 100:30:200", then=off)
    return more, f"sed -i 's/^#netdoctor //' {_MAIN} && {back}"


def endpoint(node: Node, session: Session) -> str:
    """``root@10.0.0.1 port 44222``; the port only where it is not 22."""
    host = session.address or node.host
    user = f"{session.user}@" if session.user else ""
    return f"{user}{host}" + (f" port {session.port}" if session.port != 22 else "")


def forget(node: Node, session: Session) -> str:
    """Takes the server's key out of known_hosts; empty where its name should stand in no command."""
    listed = known_as(node, session)
    return f"ssh-keygen -R {quoted(listed)} -f {known_hosts(session)}" if listed else ""


def remember(node: Node, session: Session) -> str:
    """Appends the key that the server showed to known_hosts, under the name that is looked up there.

    That one and no other: who asks the server again may be shown another one than was compared. A second time
    it does nothing. Empty where the key or the name should stand in no command.
    """
    listed, key, file = known_as(node, session), session.host_key, known_hosts(session)
    if not listed or not _PUBLIC_KEY.fullmatch(key):
        return ""
    add = append('"$key"', file)
    return f"key='{listed} {key}'; {add}"


def replace_key(node: Node, session: Session) -> str:
    """Forgets the old key and, where nothing stands between, remembers the new one."""
    old, new = forget(node, session), "" if session.via else remember(node, session)
    return f"{old}; {new}" if old and new else old
