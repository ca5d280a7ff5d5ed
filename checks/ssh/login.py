"""Logging in over SSH and starting the interpreter."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.addresses import parse
from netdoctor.checks._shared.outcomes import Words, outcomes
from netdoctor.checks._shared.text import is_host_name, quoted
from netdoctor.checks.ssh._login import (
    authorize,
    dialled,
    endpoint,
    forget,
    listed_at,
    more_startups,
    port_option,
    remember,
    replace_key,
)
from netdoctor.facts.host import HostFacts, Login, Node, Session, fewer_at_once, is_crowd
from netdoctor.model import CONTROL, PEERS, Cause, Finding, Status, at, look, ok, seen, unknown

# A start that takes so long, and so many times as long as that of any other node, does not come to an end.
PATIENCE_MS, TIMES_SLOWEST = 10_000.0, 5.0

# How a login ends whose connection stands, and whose server then falls silent, whatever keeps it.
SILENT = ((Login.NO_ANSWER, "banner"), (Login.KEX_BROKEN, "kex"))

OUTCOMES = outcomes("ssh", "login.toml")
DEAD = Cause("ssh-dead-address", "Some addresses of the names of {nodes} do not answer from here")


@check(after=(), via="ssh", source="https://man.openbsd.org/ssh_config")
def ssh_login(
    nodes: Mapping[str, Node], sessions: Mapping[str, Session], hosts: Mapping[str, HostFacts] | None = None
) -> Iterator[Finding]:
    """netdoctor logs in over SSH, and the node's Python answers.

    Looks at:
        One login per node with the user's own SSH configuration, with host keys verified, and one Python
        started in it. The stage that failed is named: name, TCP, SSH banner, host key, authentication,
        shell, interpreter. If a login starts no program in time, that is the node's fault only if the
        slowest of the others took a fifth of the time.

    Matters because:
        Launchers (pdsh, mpirun, deepspeed, ray) log in the same way, and fail or hang at the first node
        that asks a question or does not answer. Without a login nothing else can be tested on the node.

    Fix:
        Each cause has its own fix. Never accept a changed host key without comparing its fingerprint on
        the node's console.
    """
    firsts = [one.first_byte_ms for one in sessions.values() if one.outcome == Login.OK]
    slowest_ms = max(filter(None, firsts), default=None)
    fewer = fewer_at_once(sessions, hosts or ())
    crowd = is_crowd(sessions)
    for node, session in sessions.items():
        silent = (session.outcome, session.stage) in SILENT and " within " in session.detail
        if crowd and silent:
            # It may have had no turn here: as little its own fault as that of those that got further.
            session = replace(session, outcome=Login.TIMEOUT)  # noqa: PLW2901
        yield from at(node, one_login(nodes[node], session, slowest_ms, fewer))


def one_login(
    node: Node, session: Session, slowest_ms: float | None = None, fewer: int | None = None
) -> Iterator[Finding]:
    """What is said of one login. slowest_ms: until the slowest of all nodes had started a program. fewer: as
    of fewer_at_once()."""
    outcome, text = session.outcome, session.detail or session.outcome.replace("_", " ")
    if outcome == Login.OK:
        yield from _logged_in(node, session)
        return
    if outcome not in OUTCOMES.outcome:
        yield unknown(node.id, f"login ended in a way that netdoctor does not know: {session.detail}")
        return
    if outcome == Login.TIMEOUT and slowest_ms is not None and _hangs(session, slowest_ms):
        yield _hanging(node, session, slowest_ms)
        return
    ours = outcome == Login.CONTROL
    target = endpoint(node, session)
    # What is the same for many nodes is said once.
    once = ours or outcome == Login.JUMP or (session.address or node.host) in text
    yield OUTCOMES.finding(
        f"{outcome}-{session.trouble}" if ours and session.trouble else outcome,
        {**words(node, session), "fewer": str(fewer or "")},
        text if once else f"{target}: {text}",
        Status.UNKNOWN if ours else None,
        observed=outcome.replace("_", " "),
        expected="a login and a Python that answers",
        seen=seen(f"ssh {target}" + (f", stage {session.stage}" if session.stage else ""), text),
    )


def _hangs(session: Session, slowest_ms: float) -> bool:
    """Whether it was let in, and no program came for far longer than on the slowest of the other nodes."""
    waited_ms = session.first_byte_ms or 0.0
    return session.stage == "shell" and waited_ms > max(PATIENCE_MS, TIMES_SLOWEST * slowest_ms)


def _hanging(node: Node, session: Session, slowest_ms: float) -> Finding:
    waited, others = (f"{ms / 1000:.1f} s" for ms in (session.first_byte_ms or 0.0, slowest_ms))
    text = f"the login succeeded, but no program started in {waited}"
    return OUTCOMES.finding(
        "timeout-shell",
        words(node, session),
        f"{text}; the slowest of the other nodes took {others}",
        observed=f"none in {waited}",
        expected=PEERS(f"a program in {others}"),
        seen=seen(f"ssh {endpoint(node, session)}, stage shell", text),
    )


def _logged_in(node: Node, session: Session) -> Iterator[Finding]:
    if session.passed_over:
        yield DEAD.warn(
            f"not every address of {node.host} answers: {session.passed_over}",
            observed=session.passed_over,
            expected="every address of the name answers",
            seen=seen(f"ssh {node.host}", f"{session.address} answered, after: {session.passed_over}"),
            fixes=look(
                "remove the address that does not answer from the name's entry, or repair its route",
                f"getent ahosts {quoted(node.host)}" if is_host_name(node.host) else "",
                on=CONTROL,
            ),
        )
    if session.noise:
        yield ok(
            node.id,
            "login works; the shell prints text at start, which breaks scp and some launchers",
            evidence=(seen("shell start-up", session.noise),),
        )


def words(node: Node, session: Session) -> Words:
    """What the table says of a login; what should stand in no command is empty."""
    host, via, key = dialled(node, session), session.via or "", authorize(session)
    no_shell = "not available" in session.detail or "nologin" in session.detail
    via_host = is_host_name(via.rpartition("@")[2].partition(":")[0]) and not via.startswith("-")
    return {
        "place": listed_at(node),
        "name": quoted(node.host) if is_host_name(node.host) else "",
        "id": quoted(node.id) if is_host_name(node.id) else "",
        "any_id": quoted(node.id),
        "host": quoted(host) if host else "",
        "server": f"{port_option(session)}{quoted(host)}",
        "address": str(parse(session.address) or parse(node.host) or ""),
        "port": str(session.port),
        "banner": "yes" if session.stage == "banner" else "",
        "direct": "yes" if host and not via else "",
        "via": via,
        "via_host": quoted(via) if via_host else "",
        "user": quoted(session.user or "root"),
        "without_shell": session.user if no_shell and is_host_name(session.user) else "",
        "python": f"{session.interpreter} is Python {session.python_version or 'too old'}",
        "interpreter": quoted(session.interpreter),
        "named_python": "yes" if session.interpreter.startswith("/") else "",
        "it_showed": f" It showed {session.fingerprint}." if session.fingerprint else "",
        "shows": f" (the server shows {session.fingerprint})" if session.fingerprint else "",
        "forget": forget(node, session),
        "remember": remember(node, session),
        "replace": replace_key(node, session),
        "authorize": key,
        "authorize_quoted": quoted(key),
        "key_of_user": key if session.user != "root" else "",
        "key_of_root": key if session.user == "root" else "",
        "more_startups": more_startups()[0],
        "fewer_startups": more_startups()[1],
        "fewer": "",
    }
