from typing import Any

from netdoctor.checks.ssh.mesh import outcome, ssh_mesh
from netdoctor.facts.host import Login
from netdoctor.facts.mesh import Mesh, MeshLogin, MeshNode
from netdoctor.measure.mesh import ALL_UP_TO, FROM_FIRST, plan
from netdoctor.model import Finding, Status

from ..build import cause, causes, found, hosts, names, session

# As OpenSSH 9.2 says it, with LogLevel=ERROR.
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /root/.ssh/known_hosts:1
Host key verification failed."""
SAID: list[tuple[int | None, str, Login]] = [
    (0, "", Login.OK),
    (0, "stty: standard input: Inappropriate ioctl for device", Login.OK),
    (255, CHANGED, Login.HOST_KEY_CHANGED),
    (255, "Host key verification failed.", Login.HOST_KEY_UNKNOWN),
    (255, "No ED25519 host key is known for n2 and you have requested strict checking.\nHost key "
          "verification failed.", Login.HOST_KEY_UNKNOWN),
    (255, "root@n2: Permission denied (publickey,password).", Login.AUTH),
    (255, "Received disconnect from 10.0.0.2 port 22:2: Too many authentication failures", Login.AUTH),
    (255, "ssh: Could not resolve hostname n2: Name or service not known", Login.NAME),
    (255, "ssh: connect to host n2 port 22: Connection refused", Login.REFUSED),
    (255, "ssh: connect to host n2 port 22: No route to host", Login.UNREACHABLE),
    (255, "ssh: connect to host n2 port 22: Connection timed out", Login.NO_ANSWER),
    (255, "Connection timed out during banner exchange", Login.NO_ANSWER),
    (255, "Unable to negotiate with 10.0.0.2 port 22: no matching key exchange method found. Their offer: "
          "diffie-hellman-group1-sha1", Login.KEX),
    (255, "kex_exchange_identification: read: Connection reset by peer", Login.TOO_MANY),
    (255, "kex_exchange_identification: Connection closed by remote host", Login.TOO_MANY),
    (1, "This account is currently not available.", Login.SHELL),
    (127, "bash: true: command not found", Login.SHELL),
    (None, "", Login.TIMEOUT),
    (255, "something new", Login.LOST),
    (255, "", Login.LOST),
]  # fmt: skip
KEY = "ssh-ed25519 " + "A" * 60


def login(src: str, dst: str, said: str = "", code: int | None = None, **more: Any) -> MeshLogin:
    return MeshLogin(
        src=src, dst=dst, host=dst, said=said, code=255 if said and code is None else code or 0, **more
    )


def judged(bad: dict[tuple[str, str], str], count: int = 4, **more: Any) -> list[Finding]:
    """What is said of so many nodes, of which these logins fail with these words."""
    every = [(a, b) for a in names(count) for b in names(count) if a != b]
    logins = tuple(login(a, b, bad.get((a, b), ""), port=22) for a, b in every)
    nodes = {n: MeshNode(public_keys=(KEY + n,), host_keys=(KEY + n,)) for n in names(count)}
    mesh = Mesh(**{"logins": logins, "nodes": nodes, "possible": len(every), **more})
    return list(ssh_mesh(mesh, hosts(count), {n: session(int(n[1:]), port=2222) for n in names(count)}))


def to(node: str, said: str, count: int = 4) -> dict[tuple[str, str], str]:
    return {(other, node): said for other in names(count) if other != node}


def from_(node: str, said: str, count: int = 4) -> dict[tuple[str, str], str]:
    return {(node, other): said for other in names(count) if other != node}


DENIED, UNKNOWN = SAID[5][1], SAID[3][1]


def test_what_ssh_says() -> None:
    for code, text, kind in SAID:
        assert outcome(MeshLogin(src="n1", dst="n2", host="n2", code=code, said=text)) is kind, text


def test_all_pairs_then_a_sample_with_the_first_to_all() -> None:
    few = plan(names(ALL_UP_TO))
    assert {len(set(others)) for others in few.values()} == {ALL_UP_TO - 1}
    # No two begin with the same.
    assert len({others[0] for others in few.values()}) == ALL_UP_TO
    many = plan(names(1000))
    assert len(many["n1"]) >= FROM_FIRST
    assert max(len(others) for n, others in many.items() if n != "n1") == 4
    assert all(n not in others for n, others in many.items())


def test_who_is_named() -> None:
    for bad, key, nodes in (
        (from_("n2", DENIED), "mesh-auth-out", {"n2"}),
        (to("n3", DENIED), "mesh-auth-in", {"n3"}),
        (from_("n2", UNKNOWN), "mesh-host-key-unknown-out", {"n2"}),
        (from_("n2", CHANGED), "mesh-host-key-changed-out", {"n2"}),
        (to("n4", SAID[8][1]), "mesh-refused-in", {"n4"}),
        (from_("n4", SAID[7][1]), "mesh-name-out", {"n4"}),
        ({("n1", "n2"): UNKNOWN}, "mesh-host-key-unknown-path", {"n1->n2"}),
        ({cell: UNKNOWN for n in names(4) for cell in to(n, "")}, "mesh-host-key-unknown-all", {*names(4)}),
    ):
        findings = judged(bad)
        assert causes(findings) == {key: nodes}
        assert {target: one.status for target, one in found(findings).items()} == {
            f"{a}->{b}": Status.FAIL for a, b in bad
        }
        assert cause(findings, key).fixes


def test_fixes_hand_out_keys_that_the_nodes_told() -> None:
    fixes = cause(judged(from_("n2", DENIED)), "mesh-auth-out").fixes
    assert [fix.commands[0].run_on for fix in fixes] == ["n1", "n3", "n4"]
    assert all(f"echo '{KEY}n2' >>" in fix.commands[0].shell for fix in fixes)
    (fix,) = cause(judged(from_("n2", UNKNOWN)), "mesh-host-key-unknown-out").fixes
    assert f"'n1 {KEY}n1' 'n3 {KEY}n3' 'n4 {KEY}n4' >> $f" in fix.commands[0].shell
    (fix,) = cause(judged(from_("n2", SAID[8][1])), "mesh-refused-out").fixes
    assert "Host n1 n3 n4\\n  Port 2222\\n" in fix.commands[0].shell
    nobody = {n: MeshNode() for n in names(4)}
    (fix,) = cause(judged(from_("n2", DENIED), nodes=nobody), "mesh-auth-out").fixes
    assert fix.commands[0].run_on == "n2"
    assert "ssh-keygen" in fix.commands[0].shell


def test_no_word_of_a_node_stands_in_a_command() -> None:
    bad = MeshNode(public_keys=("ssh-ed25519 A'; id", f"{KEY}\n$(id)"), host_keys=("ssh-ed25519 `id`",))
    for said in (DENIED, UNKNOWN, CHANGED):
        findings = judged(from_("n2", said), nodes=dict.fromkeys(names(4), bad))
        for finding in findings:
            assert finding.cause
            shells = [one.shell for fix in finding.cause.fixes for one in fix.commands]
            assert not any("id" in shell.replace("id_ed25519", "") for shell in shells), shells


def test_what_was_not_tried_is_unknown() -> None:
    assert [one.status for one in judged({}, count=1)] == [Status.SKIP]
    (finding,) = judged({})
    assert (finding.status, finding.summary) == (
        Status.PASS,
        "12 of 12 directed pairs tried, all logins work",
    )
    late = (login("n1", "n2", tried=False), login("n2", "n1"))
    assert found(judged({}, 2, logins=late))["n1->n2"].status is Status.UNKNOWN
    assert found(judged({}, failed_nodes={"n1": "gone"}))["n1"].status is Status.UNKNOWN
    findings = judged({}, nodes={n: MeshNode(client=n != "n2") for n in names(4)})
    assert causes(findings) == {"mesh-no-client": {"n2"}}
