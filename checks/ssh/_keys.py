"""What to do about keys: the host's, which is never trusted unseen, and the user's, which was refused."""

from netdoctor.checks._shared.text import quoted
from netdoctor.checks.ssh._login import (
    authorize,
    by_hand,
    dialled,
    known_as,
    known_hosts,
    place,
    port,
    remember,
)
from netdoctor.facts.host import Node, Session
from netdoctor.model import CONTROL, Fix, in_hosts, look, run


def key_unknown(node: Node, session: Session) -> tuple[Fix, ...]:
    host = dialled(node, session)
    shown = f" It showed {session.fingerprint}." if session.fingerprint else ""
    listed = known_as(node, session)
    forget = f"ssh-keygen -R {quoted(listed)} -f {known_hosts(session)}" if listed else ""
    trust = {"on": CONTROL, "effect": "next login", "widens": "trusts this key from now on", "undo": forget}
    if session.via or not host:
        compare = f"log in once by hand and compare the fingerprint it shows.{shown}"
        return (run(compare, by_hand(node, "true"), risk="medium", **trust),)
    return (
        look(
            f"show the fingerprints that the server offers, and compare them with the node's own.{shown}",
            f"ssh-keyscan {port(session)}{quoted(host)} 2>/dev/null | ssh-keygen -lf -",
            on=CONTROL,
        ),
        _fingerprints("show its real fingerprints"),
        run("when they are equal, remember the key", remember(node, session, host), **trust),
    )


def _fingerprints(text: str) -> Fix:
    return look(text, "for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; done", root=True)


def key_changed(node: Node, session: Session) -> tuple[Fix, ...]:
    host, listed = dialled(node, session), known_as(node, session)
    shown = f" (the server shows {session.fingerprint})" if session.fingerprint else ""
    forget = [f"ssh-keygen -R {quoted(listed)} -f {known_hosts(session)}"] if listed else []
    if forget and host and not session.via:
        forget.append(remember(node, session, host))
    return (
        _fingerprints(f"first compare: somebody else may answer in its place{shown}"),
        run(
            "only when it is equal (the node was installed again): forget the old key, remember the new one",
            " && ".join(forget),
            on=CONTROL,
            effect="next login",
            widens="trusts the new key",
            risk="high",
        ),
    )


def key_revoked(node: Node, session: Session) -> Fix:
    return run(
        "make new host keys, and publish them; a revoked key must not be used again",
        "rm /etc/ssh/ssh_host_*_key* && ssh-keygen -A && "
        "(systemctl restart ssh 2>/dev/null || systemctl restart sshd)",
        root=True,
        risk="medium",
        loses="the keys by which everybody knows the node",
    )


def auth(node: Node, session: Session) -> tuple[Fix, ...]:
    let_in = authorize(session)
    copy = by_hand(node, quoted(let_in)) if let_in else ""
    install = {"effect": "next login", "widens": "lets your key in"}
    ways = (
        run("install your public key there, by the password that it takes", copy, on=CONTROL, **install),
        run("install your public key there", let_in, root=True, **install),
    )
    # A node that takes no key often takes no password either, and of root seldom (PermitRootLogin).
    there = ways[::-1] if session.user == "root" else ways
    return (
        *(there if let_in else ways[1:]),
        in_hosts(
            f"or log in as somebody else (user@host on {place(node)}, --ssh-user) or with another key "
            "(IdentityFile in ~/.ssh/config, --ssh-key)"
        ),
    )
