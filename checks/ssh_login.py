"""Logging in over SSH and starting the interpreter."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.checks._addresses import parse
from netdoctor.checks._words import is_host_name, quoted, title_text
from netdoctor.facts.host import Node, Session
from netdoctor.model import (
    CONTROL,
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    unknown,
)

# `Fix.effect` of a command that only looks.
LOOKS = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Words for one Session.outcome. ours: netdoctor's own trouble, which blames no node."""

    key: str
    title: str
    fixes: "Callable[[Node, Session], tuple[Fix, ...]]"
    ours: bool = False
    settle_by: str | None = None


@check(after=(), source="https://man.openbsd.org/ssh_config")
def ssh_login(node: Node, session: Session) -> Iterator[Finding]:
    """netdoctor logs in over SSH and gets the node's Python to answer.

    Looks at:
        One login per node with the user's own SSH configuration, host keys verified, and one Python started
        in it. Which stage failed: name, TCP, SSH banner, host key, authentication, shell, interpreter.

    Matters because:
        Launchers (pdsh, mpirun, deepspeed, ray) log in the same way and fail or hang on the first node that
        asks a question or does not answer; and nothing else can be said of a node that lets nobody in.

    Fix:
        Each class has its own: see the cause. A host key that changed is never accepted without comparing
        its fingerprint on the node's console.
    """
    if session.outcome == "ok":
        yield from _fine(node, session)
        return
    outcome = OUTCOMES.get(session.outcome)
    if outcome is None:
        yield unknown(node.id, f"login ended in a way that netdoctor does not know: {session.detail}")
        return
    culprit = CONTROL if session.outcome == "control" else node.id
    hint = CauseHint(
        key=outcome.key,
        title=outcome.title.replace("VIA", title_text(session.via or "")),
        culprits=(culprit,),
        confidence=Confidence.SUSPECTED if outcome.ours else Confidence.CERTAIN,
        fixes=outcome.fixes(node, session),
        settle_by=outcome.settle_by,
    )
    seen = Evidence(
        kind="probe",
        where=node.id,
        what=f"ssh {_endpoint(node, session)}" + (f", stage {session.stage}" if session.stage else ""),
        output=session.detail or session.outcome.replace("_", " "),
    )
    say = unknown if outcome.ours else fail
    yield say(
        node.id,
        _said(node, session),
        observed=session.outcome.replace("_", " "),
        expected="a login and a Python that answers",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(seen,),
        cause=hint,
    )


def _fine(node: Node, session: Session) -> Iterator[Finding]:
    if session.noise:
        yield ok(
            node.id,
            "login works; the shell prints text at start, which confuses scp and some launchers",
            evidence=(Evidence(kind="probe", where=node.id, what="shell start-up", output=session.noise),),
        )


def _said(node: Node, session: Session) -> str:
    """What happened, behind where, unless it says so itself: ``root@10.0.0.1 port 44222: …``."""
    said = session.detail or session.outcome.replace("_", " ")
    host = session.address or node.host
    return said if host in said else f"{_endpoint(node, session)}: {said}"


def _endpoint(node: Node, session: Session) -> str:
    """``root@10.0.0.1 port 44222``; the port only where it is not 22."""
    host = session.address or node.host
    user = f"{session.user}@" if session.user else ""
    return f"{user}{host}" + (f" port {session.port}" if session.port != 22 else "")


def _dialled(node: Node, session: Session) -> str:
    """Host for a command; empty when it is no plain name or address."""
    host = session.address or node.host
    return host if is_host_name(host) or parse(host) else ""


def _known_as(node: Node, session: Session) -> str:
    """The name under which known_hosts keeps the key, for a command; empty when it is none."""
    host = _dialled(node, session)
    if not session.known_as:
        return f"[{host}]:{session.port}" if host and session.port != 22 else host
    name = re.sub(r"^\[(.*)\]:\d+$", r"\1", session.known_as)
    return session.known_as if is_host_name(name) or parse(name) else ""


def _known_hosts(session: Session) -> str:
    """The file to write a key to: the first that was read, without the number of a line in it."""
    first = (session.known_hosts or "").split(", ")[0]
    path = re.sub(r":\d+$", "", first)
    return quoted(path) if path.startswith("/") else "~/.ssh/known_hosts"


def _place(node: Node) -> str:
    """``line 3 of hosts.txt``: where the node was named."""
    return f"line {node.line} of {node.source}" if node.line and node.source else "its line of the hosts file"


def _control(text: str, *shells: str, **details: object) -> Fix:
    commands = tuple(Command(run_on=CONTROL, shell=one) for one in shells if one)
    return Fix(text=text, commands=commands, **details)  # type: ignore[arg-type]  # Fix checks them


def _console(node: Node, text: str, *shells: str, **details: object) -> Fix:
    """Nobody logs in there: commands of a node that was not reached are for its console."""
    commands = tuple(Command(run_on=node.id, shell=one) for one in shells)
    return Fix(text=text, commands=commands, root=True, **details)  # type: ignore[arg-type]


def _port(session: Session) -> str:
    return f"-p {session.port} " if session.port != 22 else ""


def _by_hand(node: Node, then: str) -> str:
    """A login as netdoctor does it; the report adds the options of this scan to ``ssh NODE``."""
    return f"ssh {quoted(node.id)} {then}" if is_host_name(node.id) else ""


def _name(node: Node, session: Session) -> tuple[Fix, ...]:
    ask = f"getent hosts {quoted(node.host)}" if is_host_name(node.host) else ""
    text = f"correct the name in {_place(node)}, or give it a HostName in ~/.ssh/config"
    return (_control(text, ask, effect=LOOKS),)


def _refused(node: Node, session: Session) -> tuple[Fix, ...]:
    return (
        _console(node, "start the SSH server", "systemctl enable --now ssh || systemctl enable --now sshd"),
        _control(f"if its sshd listens on another port, write port=NUMBER on {_place(node)}"),
    )


def _no_answer(node: Node, session: Session) -> tuple[Fix, ...]:
    host = _dialled(node, session)
    test = f"nc -vz -w 5 {quoted(host)} {session.port}" if host else ""
    if session.stage == "banner":  # connected, and then silence
        return (
            _console(
                node,
                "see what keeps it from answering (memory, load, a hung disk); if nothing answers there "
                "either, reset it",
                "uptime; free -m; systemctl --no-pager status ssh sshd",
                effect=LOOKS,
            ),
        )
    return (
        _control("see whether it is up, and whether a firewall drops this port", test, effect=LOOKS),
        _console(node, "see that it runs and that sshd listens", "ss -tlnp | grep sshd", effect=LOOKS),
    )


def _unreachable(node: Node, session: Session) -> tuple[Fix, ...]:
    address = parse(session.address) or parse(node.host)
    ask = f"ip route get {address}" if address else ""
    text = f"correct the address in {_place(node)}, or the route from this machine to it"
    return (_control(text, ask, effect=LOOKS),)


def _not_ssh(node: Node, session: Session) -> tuple[Fix, ...]:
    return (
        _console(
            node,
            "see who holds the port, and start sshd in its place",
            f"ss -tlnp 'sport = :{session.port}'",
            effect=LOOKS,
        ),
        _control(f"if its sshd listens on another port, write port=NUMBER on {_place(node)}"),
    )


def _too_many(node: Node, session: Session) -> tuple[Fix, ...]:
    return (
        _control(
            "wait a minute, then log in to fewer nodes at once",
            "netdoctor scan --last -j 8",
            effect=LOOKS,
        ),
        _console(
            node,
            "let sshd take more logins at once; launchers will need it too",
            "echo 'MaxStartups 100:30:200' > /etc/ssh/sshd_config.d/10-startups.conf && systemctl reload ssh",
        ),
    )


def _key_unknown(node: Node, session: Session) -> tuple[Fix, ...]:
    host = _dialled(node, session)
    shown = f" It showed {session.fingerprint}." if session.fingerprint else ""
    if session.via or not host:
        return (
            _control(
                f"log in once by hand and compare the fingerprint it shows.{shown}",
                _by_hand(node, "true"),
                effect="next login",
                widens="trusts this key from now on",
            ),
        )
    return (
        _control(
            f"show the fingerprints that the server offers, and compare them with the node's own.{shown}",
            f"ssh-keyscan {_port(session)}{quoted(host)} 2>/dev/null | ssh-keygen -lf -",
            effect=LOOKS,
        ),
        _fingerprints(node, "show its real fingerprints"),
        _control(
            "when they are equal, remember the key",
            _remember(node, session, host),
            effect="next login",
            widens="trusts this key from now on",
        ),
    )


def _remember(node: Node, session: Session, host: str) -> str:
    """Appends the server's keys to known_hosts, under the name that is looked up there."""
    listed = _known_as(node, session)
    port = f"[{host}]:{session.port}" if session.port != 22 else host
    rename = "" if listed in ("", port) else f" | sed 's|^[^ ]*|{listed}|'"
    return f"ssh-keyscan {_port(session)}{quoted(host)} 2>/dev/null{rename} >> {_known_hosts(session)}"


def _fingerprints(node: Node, text: str) -> Fix:
    shell = "for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; done"
    return _console(node, text, shell, effect=LOOKS)


def _key_changed(node: Node, session: Session) -> tuple[Fix, ...]:
    host, listed = _dialled(node, session), _known_as(node, session)
    shown = f" (the server shows {session.fingerprint})" if session.fingerprint else ""
    forget = [f"ssh-keygen -R {quoted(listed)} -f {_known_hosts(session)}"] if listed else []
    if forget and host and not session.via:
        forget.append(_remember(node, session, host))
    return (
        _fingerprints(node, f"first compare: somebody else may answer in its place{shown}"),
        _control(
            "only when it is equal (the node was installed again): forget the old key, remember the new one",
            " && ".join(forget),
            effect="next login",
            widens="trusts the new key",
            risk="high",
        ),
    )


def _key_revoked(node: Node, session: Session) -> tuple[Fix, ...]:
    return (
        _console(
            node,
            "make new host keys, and publish them; a revoked key must not be used again",
            "rm /etc/ssh/ssh_host_*_key* && ssh-keygen -A && systemctl restart ssh",
            risk="medium",
        ),
    )


def _auth(node: Node, session: Session) -> tuple[Fix, ...]:
    host = _dialled(node, session)
    who = f"{session.user}@{host}" if session.user else host
    copy = f"ssh-copy-id {_port(session)}{quoted(who)}" if host else ""
    return (
        _control("install your public key there", copy, effect="next login", widens="lets your key in"),
        _control(
            f"or log in as somebody else (user@host on {_place(node)}, --ssh-user) or with another key "
            "(IdentityFile in ~/.ssh/config, --ssh-key)",
        ),
    )


def _shell(node: Node, session: Session) -> tuple[Fix, ...]:
    user = session.user if is_host_name(session.user) else ""
    give = [_console(node, "give the user a shell", f"usermod -s /bin/bash {user}", effect="next login")]
    refuses = "not available" in session.detail or "nologin" in session.detail
    return (
        *(give if user and refuses else ()),
        _control(
            "see what the login shell does instead of running a command",
            _by_hand(node, "true; echo $?"),
            effect=LOOKS,
        ),
    )


def _interpreter(node: Node, session: Session) -> tuple[Fix, ...]:
    install = Fix(
        text="install one",
        commands=(Command(run_on=node.id, shell="apt-get install -y python3 || dnf install -y python3"),),
        root=True,
    )
    name = _control(f"if there is one elsewhere, write python=PATH on {_place(node)}")
    return (name, install) if session.interpreter.startswith("/") else (install, name)


def _old_python(node: Node, session: Session) -> tuple[Fix, ...]:
    found = (
        f"{session.interpreter} is Python {session.python_version or 'too old'}; 3.6 is the oldest that works"
    )
    return (
        _control(f"{found}: write python=PATH of a newer one on {_place(node)}"),
        _control("see which are there", _by_hand(node, "'ls /usr/bin/python3*'"), effect=LOOKS),
    )


def _kex(node: Node, session: Session) -> tuple[Fix, ...]:
    return (
        _console(
            node,
            "allow a current key exchange, cipher and host key (curve25519-sha256, aes, ed25519)",
            "sshd -T | grep -iE '^(kex|cipher|macs|hostkeyalgorithms)'",
            effect=LOOKS,
        ),
    )


def _jump(node: Node, session: Session) -> tuple[Fix, ...]:
    via = session.via or ""
    host = via.rpartition("@")[2].partition(":")[0]
    return (
        _control(
            "log in to the jump host by hand, and see that it may forward",
            f"ssh {quoted(via)} true" if is_host_name(host) else "",
            effect=LOOKS,
        ),
    )


def _ours(node: Node, session: Session) -> tuple[Fix, ...]:
    return (_control("put this machine right, then scan again", "ulimit -n; ssh-add -l", effect=LOOKS),)


def _again(node: Node, session: Session) -> tuple[Fix, ...]:
    only = f" --node {quoted(node.id)}"
    shell = f"netdoctor scan --last{only} --timeout 120"
    return (_control("scan it again with more time", shell, effect=LOOKS),)


OUTCOMES = {
    "name": Outcome("ssh-name", "The name of {nodes} means nothing to this machine", _name),
    "refused": Outcome("ssh-refused", "{nodes} refuse{s} connections on the SSH port", _refused),
    "no_answer": Outcome("ssh-no-answer", "Nothing answers on the SSH port of {nodes}", _no_answer),
    "unreachable": Outcome("ssh-unreachable", "There is no way from this machine to {nodes}", _unreachable),
    "not_ssh": Outcome("ssh-not-ssh", "Something else than SSH answers on the SSH port of {nodes}", _not_ssh),
    "too_many": Outcome("ssh-too-many", "{nodes} turn{s} away logins because too many are open", _too_many),
    "host_key_unknown": Outcome(
        "ssh-host-key-unknown", "The host key of {nodes} is not known here yet", _key_unknown
    ),
    "host_key_changed": Outcome(
        "ssh-host-key-changed", "{nodes} show{s} another host key than the one remembered", _key_changed
    ),
    "host_key_revoked": Outcome("ssh-host-key-revoked", "{nodes} use{s} a revoked host key", _key_revoked),
    "auth": Outcome("ssh-auth", "{nodes} accept{s} none of your keys", _auth),
    "shell": Outcome("ssh-shell", "The login shell of {nodes} ends without running a command", _shell),
    "interpreter": Outcome("ssh-interpreter", "{nodes} {has} no Python at the place asked for", _interpreter),
    "old_python": Outcome("ssh-old-python", "The Python of {nodes} is too old for netdoctor", _old_python),
    "kex": Outcome("ssh-kex", "{nodes} and netdoctor share no SSH algorithm", _kex),
    "jump": Outcome("ssh-jump", "The jump host VIA does not lead to {nodes}", _jump),
    "control": Outcome(
        "ssh-control", "netdoctor could not log in because of this machine, not the nodes", _ours, ours=True
    ),
    "timeout": Outcome(
        "ssh-timeout",
        "netdoctor ran out of time with {nodes}",
        _again,
        ours=True,
        settle_by="scan it alone with a longer --timeout",
    ),
    "lost": Outcome(
        "ssh-lost",
        "netdoctor lost its connection to {nodes} after login",
        _again,
        ours=True,
        settle_by="scan it again: does it happen twice, and after the same time?",
    ),
}
