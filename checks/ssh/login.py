"""Logging in over SSH and starting the interpreter."""

from collections.abc import Callable, Iterator

from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.text import is_host_name, quoted, title_text
from netdoctor.checks.ssh._control import TROUBLES
from netdoctor.checks.ssh._keys import auth, key_changed, key_revoked, key_unknown
from netdoctor.checks.ssh._login import by_hand, dialled, endpoint, more_startups, place
from netdoctor.facts.host import Login, Node, Session
from netdoctor.model import (
    CONTROL,
    SUSPECTED,
    Action,
    Cause,
    Finding,
    Fix,
    in_hosts,
    look,
    ok,
    run,
    seen,
    unknown,
)

# What is only suspected is our own trouble, and blames no node.
OUTCOMES: dict[str, Cause] = {
    Login.NAME: Cause("ssh-name", "This machine knows no address for some of the names"),
    Login.REFUSED: Cause("ssh-refused", "{nodes} refuse{s} connections on the SSH port"),
    Login.NO_ANSWER: Cause(
        "ssh-no-answer", "Nothing answers on the SSH port of {nodes}", action=Action.DRAIN
    ),
    Login.UNREACHABLE: Cause("ssh-unreachable", "There is no way from this machine to {nodes}"),
    Login.NOT_SSH: Cause("ssh-not-ssh", "Something else than SSH answers on the SSH port of {nodes}"),
    Login.TOO_MANY: Cause("ssh-too-many", "{nodes} turn{s} away logins because too many are open"),
    Login.KEX: Cause("ssh-kex", "{nodes} and netdoctor share no SSH algorithm"),
    Login.HOST_KEY_UNKNOWN: Cause("ssh-host-key-unknown", "The host key of {nodes} is not known here yet"),
    Login.HOST_KEY_CHANGED: Cause(
        "ssh-host-key-changed", "{nodes} show{s} another host key than the one remembered"
    ),
    Login.HOST_KEY_REVOKED: Cause("ssh-host-key-revoked", "{nodes} use{s} a revoked host key"),
    Login.AUTH: Cause("ssh-auth", "{nodes} accept{s} none of your keys"),
    Login.SHELL: Cause("ssh-shell", "The login shell of {nodes} ends without running a command"),
    Login.PROCESS_LIMIT: Cause("ssh-process-limit", "{nodes} let{s} the login user start no more processes"),
    Login.INTERPRETER: Cause("ssh-interpreter", "{nodes} {has} no Python at the place asked for"),
    Login.OLD_PYTHON: Cause("ssh-old-python", "The Python of {nodes} is too old for netdoctor"),
    Login.JUMP: Cause("ssh-jump", "The jump host VIA does not lead to {nodes}"),
    Login.CONTROL: TROUBLES[None][0],
    Login.TIMEOUT: Cause(
        "ssh-timeout",
        "netdoctor ran out of time with {nodes}",
        SUSPECTED,
        settle_by="scan it alone with a longer --timeout",
        action=Action.RETRY,
    ),
    Login.LOST: Cause(
        "ssh-lost",
        "netdoctor lost its connection to {nodes} after login",
        SUSPECTED,
        settle_by="scan it again: does it happen twice, and after the same time?",
        action=Action.RETRY,
    ),
}

DEAD = Cause("ssh-dead-address", "Some addresses that the names of {nodes} have here lead nowhere")


@check(after=(), via="ssh", source="https://man.openbsd.org/ssh_config")
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
    said = session.detail or session.outcome.replace("_", " ")
    if session.outcome == Login.OK:
        if session.passed_over:
            yield DEAD.warn(
                f"not every address of {node.host} answers: {session.passed_over}",
                observed=session.passed_over,
                expected="every address that the name has leads there",
                seen=seen(f"ssh {node.host}", f"{session.address} answered, after: {session.passed_over}"),
                fixes=look(
                    "take the address that leads nowhere out of the name's entry, or mend its way",
                    f"getent ahosts {quoted(node.host)}" if is_host_name(node.host) else "",
                    on=CONTROL,
                ),
            )
        if session.noise:
            yield ok(
                node.id,
                "login works; the shell prints text at start, which confuses scp and some launchers",
                evidence=(seen("shell start-up", session.noise),),
            )
        return
    if session.outcome not in OUTCOMES:
        yield unknown(node.id, f"login ended in a way that netdoctor does not know: {session.detail}")
        return
    ours = session.outcome == Login.CONTROL
    cause = TROUBLES[session.trouble][0] if ours else OUTCOMES[session.outcome]
    cause = cause.but(title=cause.title.replace("VIA", title_text(session.via or "")))
    say = cause.unknown if ours or cause.confidence is SUSPECTED else cause.fail
    there = endpoint(node, session)
    elsewhere = ours or session.outcome == Login.JUMP  # the same for many nodes, so that it is said once
    yield say(
        said if elsewhere or (session.address or node.host) in said else f"{there}: {said}",
        culprits=(CONTROL,) if session.outcome in (Login.CONTROL, Login.NAME) else (),
        observed=session.outcome.replace("_", " "),
        expected="a login and a Python that answers",
        seen=seen(f"ssh {there}" + (f", stage {session.stage}" if session.stage else ""), said),
        fixes=FIXES[session.outcome](node, session),
    )


def _name(node: Node, session: Session) -> Fix:
    ask = f"getent hosts {quoted(node.host)}" if is_host_name(node.host) else ""
    text = f"correct the name in {place(node)}, or give it a HostName in ~/.ssh/config"
    return look(text, ask, on=CONTROL)


def _other_port(node: Node) -> Fix:
    return in_hosts(f"if its sshd listens on another port, write port=NUMBER on {place(node)}")


def _refused(node: Node, session: Session) -> tuple[Fix, ...]:
    start = "systemctl enable --now ssh 2>/dev/null || systemctl enable --now sshd"
    return run("start the SSH server", start, root=True), _other_port(node)


def _no_answer(node: Node, session: Session) -> tuple[Fix, ...]:
    host = dialled(node, session)
    test = f"nc -vz -w 5 {quoted(host)} {session.port}" if host else ""
    if session.stage == "banner":  # connected, and then silence
        return (
            look(
                "see what keeps it from answering (memory, load, a hung disk); if nothing answers there "
                "either, reset it",
                "uptime; free -m; systemctl --no-pager status ssh sshd",
                root=True,
            ),
        )
    return (
        look("see whether it is up, and whether a firewall drops this port", test, on=CONTROL),
        look("see that it runs and that sshd listens", "ss -tlnp | grep sshd", root=True),
    )


def _unreachable(node: Node, session: Session) -> Fix:
    address = parse(session.address) or parse(node.host)
    # On a network of this machine's own the kernel says so of an address that nobody answers to (ARP).
    text = (
        "on a network of this machine's own, see that it is switched on and its cable is in; else "
        f"correct the address in {place(node)}, or the route from this machine to it"
    )
    return look(text, f"ip route get {address}" if address else "", on=CONTROL)


def _not_ssh(node: Node, session: Session) -> tuple[Fix, ...]:
    holder = f"ss -tlnp 'sport = :{session.port}'"
    return (look("see who holds the port, and start sshd in its place", holder, root=True), _other_port(node))


def _too_many(node: Node, session: Session) -> tuple[Fix, ...]:
    more, back = more_startups()
    return (
        look("wait a minute, then log in to two nodes at a time", "netdoctor scan --last -j 2", on=CONTROL),
        run("let sshd take more logins at once; launchers will need it too", more, undo=back, root=True),
    )


def _shell(node: Node, session: Session) -> list[Fix]:
    fixes = []
    if is_host_name(session.user) and ("not available" in session.detail or "nologin" in session.detail):
        give = f"usermod -s /bin/bash {session.user}"
        fixes = [run("give the user a shell", give, root=True, effect="next login")]
    text = "see what the login shell does instead of running a command"
    return [*fixes, look(text, by_hand(node, "true; echo $?"), on=CONTROL)]


def _process_limit(node: Node, session: Session) -> tuple[Fix, ...]:
    user = quoted(session.user or "root")
    list_them = f"ps -u {user} -o pid,nlwp,lstart,args --sort=lstart"
    limits = (
        "grep -sH nproc /etc/security/limits.conf /etc/security/limits.d/*; "
        f"systemctl show -p TasksCurrent,TasksMax user-$(id -u {user}).slice"
    )
    return (
        look(
            "see what the user runs there (ranks of an earlier job?), and end what nobody needs",
            list_them,
            root=True,
        ),
        look("see how many processes and threads it may have, and raise that", limits, root=True),
    )


def _interpreter(node: Node, session: Session) -> tuple[Fix, ...]:
    install = run(
        "install one",
        "apt-get install -y python3 || dnf install -y python3 || zypper --non-interactive install python3",
        root=True,
    )
    name = in_hosts(f"if there is one elsewhere, write python=PATH on {place(node)}")
    return (name, install) if session.interpreter.startswith("/") else (install, name)


def _old_python(node: Node, session: Session) -> tuple[Fix, ...]:
    found = f"{session.interpreter} is Python {session.python_version or 'too old'}"
    return (
        in_hosts(f"{found}; 3.6 is the oldest that works: write python=PATH of a newer one on {place(node)}"),
        look("see which are there", by_hand(node, "'ls /usr/bin/python3*'"), on=CONTROL),
    )


def _kex(node: Node, session: Session) -> Fix:
    return look(
        "allow a current key exchange, cipher and host key (curve25519-sha256, aes, ed25519)",
        "sshd -T | grep -iE '^(kex|cipher|macs|hostkeyalgorithms)'",
        root=True,
    )


def _jump(node: Node, session: Session) -> Fix:
    via = session.via or ""
    is_host = is_host_name(via.rpartition("@")[2].partition(":")[0])
    there = f"ssh {quoted(via)} true" if is_host and not via.startswith("-") else ""
    return look("log in to the jump host by hand, and see that it may forward", there, on=CONTROL)


def _ours(node: Node, session: Session) -> tuple[Fix, ...]:
    return TROUBLES[session.trouble][1]


def _again(node: Node, session: Session) -> Fix:
    shell = f"netdoctor scan --last --node {quoted(node.id)} --timeout 120"
    return look("scan it again with more time", shell, on=CONTROL)


# Nobody logs in there: commands on a node that was not reached are for its console.
FIXES: dict[str, Callable[[Node, Session], Fix | tuple[Fix, ...] | list[Fix]]] = {
    Login.NAME: _name,
    Login.REFUSED: _refused,
    Login.NO_ANSWER: _no_answer,
    Login.UNREACHABLE: _unreachable,
    Login.NOT_SSH: _not_ssh,
    Login.TOO_MANY: _too_many,
    Login.KEX: _kex,
    Login.HOST_KEY_UNKNOWN: key_unknown,
    Login.HOST_KEY_CHANGED: key_changed,
    Login.HOST_KEY_REVOKED: key_revoked,
    Login.AUTH: auth,
    Login.SHELL: _shell,
    Login.PROCESS_LIMIT: _process_limit,
    Login.INTERPRETER: _interpreter,
    Login.OLD_PYTHON: _old_python,
    Login.JUMP: _jump,
    Login.CONTROL: _ours,
    Login.TIMEOUT: _again,
    Login.LOST: _again,
}
