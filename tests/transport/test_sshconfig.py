"""ssh config read as OpenSSH reads it, and nothing run on the way."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from netdoctor.transport.base import SshOptions
from netdoctor.transport.ssh.messages import Endpoint
from netdoctor.transport.ssh.sshconfig import Resolver, TransportInputError, in_list

from .conftest import target

ME = getpass.getuser()


def resolve(tmp_path: Path, text: str, host: str = "node", **options: object) -> Endpoint:
    config = tmp_path / "config"
    config.write_text(text)
    resolver = Resolver(SshOptions(ssh_config=config, **options))  # type: ignore[arg-type]
    return resolver.resolve(target(host))


@pytest.mark.parametrize(
    ("text", "host", "want"),
    [
        pytest.param("", "node", {"host": "node", "port": 22, "user": ME, "known_as": "node"}, id="empty"),
        pytest.param(
            "Host node\n HostName 10.0.0.1\n Port 2222",
            "node",
            {"host": "10.0.0.1", "port": 2222, "known_as": "[10.0.0.1]:2222"},
            id="alias",
        ),
        pytest.param("Host n*\n HostName %h.example.com", "n1", {"host": "n1.example.com"}, id="%h"),
        pytest.param("Host=n1\nUser = bob", "n1", {"user": "bob"}, id="equals signs"),
        pytest.param('Host n1\n User "bob"  # who', "n1", {"user": "bob"}, id="quotes and comment"),
        pytest.param("User first\nHost n1\n User second", "n1", {"user": "first"}, id="first value wins"),
        pytest.param("Host * !n1\n User bob", "n1", {"user": ME}, id="negated"),
        pytest.param("Host n? \n User bob", "n12", {"user": ME}, id="question mark is one character"),
        pytest.param("Host n[12]\n User bob", "n1", {"user": ME}, id="brackets are no pattern"),
        pytest.param("Match all\n User bob", "n1", {"user": "bob"}, id="Match all"),
        pytest.param(
            "Host n1\n HostName x.org\nMatch host *.org\n User bob", "n1", {"user": "bob"}, id="Match host"
        ),
        pytest.param("Match originalhost n1,n2\n User bob", "n1", {"user": "bob"}, id="originalhost"),
        pytest.param("Match !originalhost n1\n User bob", "n1", {"user": ME}, id="negated criterion"),
        pytest.param(f"Match localuser {ME} host n1\n User bob", "n1", {"user": "bob"}, id="two criteria"),
        pytest.param("User amy\nMatch user amy\n Port 7", "n1", {"port": 7}, id="Match user"),
        pytest.param(
            "Match final host n1\n Port 7\nHost n1\n Port 8", "n1", {"port": 8}, id="final comes last"
        ),
        pytest.param("Match exec true\n User evil", "n1", {"user": ME}, id="exec never matches"),
        pytest.param("Match !exec false\n User evil", "n1", {"user": ME}, id="negated exec neither"),
        pytest.param("Match newthing x\n User evil", "n1", {"user": ME}, id="unknown criterion"),
        pytest.param("Match canonical\n User evil", "n1", {"user": ME}, id="canonical"),
        pytest.param("IdentityFile none", "n1", {"keys": (), "keys_named": True}, id="no keys"),
        pytest.param(
            "IdentityFile /k/%n-%h-%p-%r\nUser u\nPort 5", "n1", {"keys": ("/k/n1-n1-5-u",)}, id="tokens"
        ),
        pytest.param(
            "IdentityFile /a\nHost *\nIdentityFile /b\nIdentityFile /a",
            "n1",
            {"keys": ("/a", "/b")},
            id="several keys",
        ),
        pytest.param(
            "UserKnownHostsFile /a /b\nGlobalKnownHostsFile none",
            "n1",
            {"user_known_hosts": ("/a", "/b"), "global_known_hosts": ()},
            id="known hosts",
        ),
        pytest.param("HostKeyAlias boss\nPort 99", "n1", {"known_as": "boss"}, id="HostKeyAlias"),
        pytest.param("StrictHostKeyChecking no", "n1", {"strict": "accept"}, id="not strict"),
        pytest.param("StrictHostKeyChecking accept-new", "n1", {"strict": "record"}, id="accept-new learns"),
        pytest.param("StrictHostKeyChecking ask", "n1", {"strict": "yes"}, id="ask means no in a batch"),
        pytest.param("IdentityAgent none", "n1", {"agent": None}, id="no agent"),
        pytest.param("IdentityAgent /run/a.sock", "n1", {"agent": "/run/a.sock"}, id="agent"),
        pytest.param(
            "ConnectTimeout 7\nAddressFamily inet6\nBindAddress 127.0.0.9",
            "n1",
            {"connect_timeout_s": 7.0, "family": "inet6", "bind": "127.0.0.9"},
            id="dialling",
        ),
        pytest.param(
            "ProxyCommand exec nc -x 'a b' %h %p 2>/dev/null",
            "n1",
            {"proxy": ("nc", "-x", "a b", "n1", "22")},
            id="ProxyCommand",
        ),
        pytest.param("ProxyCommand none", "n1", {"proxy": ()}, id="no ProxyCommand"),
        pytest.param(
            "ProxyJump gate\nProxyCommand nc %h %p", "gate", {"proxy": (), "jump": ()}, id="first of two"
        ),
    ],
)
def test_settings(tmp_path: Path, text: str, host: str, want: dict[str, object]) -> None:
    endpoint = resolve(tmp_path, text, host)
    assert {key: getattr(endpoint, key) for key in want} == want


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Port http", "Port http is not a port number"),
        ("Port 70000", "not a port number"),
        ("Host", "without a value"),
        ('User "bob', "quote is not closed"),
        ("!!!", "not a setting"),
        ("HostName -oProxyCommand=x", "cannot begin with '-'"),
        ("HostName a;b", "not allowed"),
        ("HostName %q", "%q is not known"),
        ("HostName %n.x", "%n is not known"),
        ("ConnectTimeout 1hour", "is not a time"),
        ("ConnectTimeout 1y", "is not a time"),
        ("User 'a b'", "not allowed"),
        ("ProxyCommand nc %h %p | tee log", "needs a shell"),
        ("ProxyJump -x", "not a jump host"),
        ("ProxyJump a@b:99999", "not a jump host"),
        ("BindAddress eth0", "write an IP address"),
        ("StrictHostKeyChecking perhaps", "write yes"),
        ("IdentityFile ${NO_SUCH_VARIABLE_HERE}", "environment"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TransportInputError) as caught:
        resolve(tmp_path, f"# first line\n{text}\n", "node")
    assert said in str(caught.value)
    if "variable" not in text.lower():
        assert f"{tmp_path}/config:2" in str(caught.value)


def test_no_file_is_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    config = tmp_path / "config"
    config.write_text(f"Include {fifo}\nUser bob\n")
    for options in (
        SshOptions(ssh_config=fifo),
        SshOptions(ssh_config=config, key=fifo),
        SshOptions(ssh_config=config, known_hosts=fifo),
    ):
        with pytest.raises(TransportInputError, match="not a regular file"):
            Resolver(options)
    included = Resolver(SshOptions(ssh_config=config))
    assert included.resolve(target("n")).user == "bob"
    assert included.notes == [f"{fifo}: not read: not a regular file"]
    assert Resolver(SshOptions(ssh_config=Path(os.devnull))).resolve(target("n")).user == ME


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*", "", True), ("", "", True), ("", "a", False), ("a*", "a", True), ("*a", "ba", True),
        ("a*a", "a", False), ("a*a", "aa", True), ("*ab*b", "abab", True), ("a?*c", "abxc", True),
        ("?*?", "a", False), ("*b?", "abbc", True), ("a.c", "abc", False), ("a*b*c", "acb", False),
        ("*" * 24 + "b", "a" * 250, False), ("*a" * 100 + "*b", "a" * 250, False),
        ("*?" * 80, "a" * 80, True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert in_list(text, pattern) is fits


def test_include(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "1.conf").write_text("Host n1\n User one\n")
    (tmp_path / "d" / "2.conf").write_text("Port 22\nHost n2\n User two\n")
    text = f"Host n*\n Include {tmp_path}/d/*.conf\n User rest\nHost other\n Include {tmp_path}/d/2.conf\n"
    assert resolve(tmp_path, text, "n1").user == "one"
    assert resolve(tmp_path, text, "n2").user == "two"
    assert resolve(tmp_path, text, "n3").user == "rest"
    assert resolve(tmp_path, text, "x").user == ME
    (tmp_path / "loop").write_text(f"Include {tmp_path}/loop\n")
    with pytest.raises(TransportInputError, match="nested"):
        resolve(tmp_path, f"Include {tmp_path}/loop\n")


def test_jumps(tmp_path: Path) -> None:
    text = (
        "Host gate\n HostName 10.9.9.9\n User keeper\n Port 2022\n"
        "Host inner\n ProxyJump outer\n"
        "Host *\n ProxyJump gate,amy@second:7\n"
    )
    chain = resolve(tmp_path, text, "node").jump
    assert [(h.user, h.host, h.port) for h in chain] == [("keeper", "10.9.9.9", 2022), ("amy", "second", 7)]
    assert [
        h.name for h in resolve(tmp_path, "Host inner\nProxyJump outer\nHost n\nProxyJump inner", "n").jump
    ] == [
        "outer",
        "inner",
    ]
    assert resolve(tmp_path, "Host *\n ProxyJump gate", "gate").jump == ()
    assert resolve(tmp_path, text, "node", jump="none").jump == ()
    assert [h.host for h in resolve(tmp_path, text, "node", jump="[::1]:77").jump] == ["::1"]


def test_files_of_this_folder_are_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who logs in runs in another folder; `--known-hosts known_hosts` was /known_hosts there."""
    monkeypatch.chdir(tmp_path)
    Path("config").write_text("IdentityFile mine\nUserKnownHostsFile known other\n")
    Path("key").touch()
    Path("known_hosts").touch()
    found = Resolver(SshOptions(ssh_config=Path("config"))).resolve(target("a"))
    assert found.keys == (str(tmp_path / "mine"),)
    assert found.user_known_hosts == (str(tmp_path / "known"), str(tmp_path / "other"))
    options = SshOptions(ssh_config=Path("config"), key=Path("key"), known_hosts=Path("known_hosts"))
    found = Resolver(options).resolve(target("a"))
    assert (found.keys, found.user_known_hosts) == (
        (str(tmp_path / "key"),),
        (str(tmp_path / "known_hosts"),),
    )


def test_what_is_stronger(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("User conf\nPort 1\nIdentityFile /conf\nProxyJump gate\n")
    key = tmp_path / "key"
    key.write_text("")
    resolver = Resolver(SshOptions(ssh_config=config, user="flag", port=2, key=key, jump="none"))
    endpoint = resolver.resolve(target("a"))
    assert (endpoint.user, endpoint.port, endpoint.keys, endpoint.jump) == ("flag", 2, (str(key),), ())
    own = resolver.resolve(target("a", user="own", port=3))
    assert (own.user, own.port) == ("own", 3)
    with pytest.raises(TransportInputError, match="no such file"):
        Resolver(SshOptions(ssh_config=tmp_path / "none"))
    with pytest.raises(TransportInputError, match="no such file"):
        Resolver(SshOptions(ssh_config=config, key=tmp_path / "none"))


HOSTS = ("n1", "n2", "db.example.org", "gate", "X1")
PATTERNS = (*HOSTS, "*", "n?", "n*", "*.org", "!n1", "!*.org", "?*1", "*n*1*", "N1", "10.*")
VALUES = {
    "HostName": ("%h.lan", "10.0.0.7", "other", "n1", "a%%b"),
    "Port": ("22", "2222", "65535"),
    "User": ("bob", "jane@corp.example", "1234abc", "CORP\\jane", '"bob"', "a.b-c_d"),
    "IdentityFile": ("/k/a", '"/k/a b"', "/k/%h-%n-%p-%r", "none", "~/x", "/k/c"),
    "ConnectTimeout": ("9", "1m", "1h30m", "90s", "none", "2W", "1m30", "0"),
    "UserKnownHostsFile": ("/x", "/x /y", "none", '"/a b" /y', "~/kh"),
    "AddressFamily": ("inet", "inet6", "any", "INET"),
    "BindAddress": ("127.0.0.3", "::1"),
    "StrictHostKeyChecking": ("yes", "no", "ask", "off", "accept-new"),
    "HostKeyAlias": ("boss", "Other"),
    "IdentitiesOnly": ("yes", "no", "YES"),
    "HashKnownHosts": ("yes", "no", "true"),
    "ProxyJump": ("gate", "amy@second:7,third", "none", "ssh://u@h:9"),
    "ProxyCommand": ("nc %h %p", "none", "nc -x '%%a b' %h"),
}
CRITERIA = (
    *("all", "host n*", "host *.lan,n2", "originalhost n1,X1", "user bob", f"localuser {ME}", "!host n1"),
    *("final all", "host n1 user bob", "!originalhost n* user b*", "user !bob,*", "final host *.lan"),
)


def random_config(rng: random.Random, include: str = "") -> str:
    """Lines as people write them: blocks, Includes, quotes, comments, equals signs, odd case."""
    lines = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.2:
            lines.append("Host " + " ".join(rng.sample(PATTERNS, rng.randint(1, 3))))
        elif kind < 0.32:
            lines.append("Match " + rng.choice(CRITERIA))
        elif kind < 0.38 and include:
            lines.append(f"Include {include}")
        else:
            key = rng.choice(list(VALUES))
            name = rng.choice((key, key.lower(), key.upper()))
            value = rng.choice(VALUES[key])
            lines.append(f"{rng.choice(('', '  ', chr(9)))}{name}{rng.choice((' ', '=', ' = '))}{value}")
            if key not in ("ProxyCommand",) and rng.random() < 0.1:
                lines[-1] += "  # said by X"
        if rng.random() < 0.1:
            lines.append(rng.choice(("", "# a comment", "   ")))
    return "\n".join(lines) + "\n"


def openssh(config: Path, host: str) -> dict[str, list[str]] | None:
    """What ``ssh -G`` says, by key; None where it refuses the file."""
    argv = ["ssh", "-G", "-F", str(config), host]
    result = subprocess.run(argv, capture_output=True, text=True)
    said: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key, []).append(value)
    return said if result.returncode == 0 else None


def agrees(config: Path, host: str) -> None:
    said = openssh(config, host)
    try:
        endpoint = Resolver(SshOptions(ssh_config=config)).resolve(target(host))
    except TransportInputError as error:
        # What cannot be a host name for us is none for OpenSSH either, once it connects.
        if said is None or "HostName" in str(error):
            return
        raise AssertionError(f"only netdoctor refuses it: {error}") from error
    if said is None and host == "gate":
        return  # a jump host that is to be its own: OpenSSH refuses, netdoctor goes there directly
    assert said is not None, "OpenSSH refuses it"
    assert endpoint.host.lower() == said["hostname"][0].lower()
    assert str(endpoint.port) == said["port"][0]
    assert endpoint.user == said["user"][0]
    if endpoint.keys_named:
        expected = [os.path.expanduser(path) for path in said["identityfile"] if path != "none"]
        tokens = {"%h": endpoint.host, "%n": host, "%p": str(endpoint.port), "%r": endpoint.user}
        for token, value in tokens.items():
            expected = [path.replace(token, value) for path in expected]
        assert list(endpoint.keys) == list(dict.fromkeys(expected))
    timeout = said["connecttimeout"][0]
    assert endpoint.connect_timeout_s == (None if timeout in ("none", "0") else float(timeout))
    files = said["userknownhostsfile"][0]
    ours = " ".join(endpoint.user_known_hosts) or "none"
    assert " ".join(map(os.path.expanduser, files.split(" "))) == ours
    assert endpoint.bind == (said["bindaddress"][0] if "bindaddress" in said else None)
    assert endpoint.family == said["addressfamily"][0]
    strict = {"true": "yes", "false": "accept", "ask": "yes", "accept-new": "record"}
    assert endpoint.strict == strict[said["stricthostkeychecking"][0]]
    assert endpoint.keys_only == (said["identitiesonly"][0] == "yes")
    assert endpoint.hash_known_hosts == (said["hashknownhosts"][0] == "yes")
    if "hostkeyalias" in said:
        assert endpoint.known_as == said["hostkeyalias"][0].lower()
    assert bool(endpoint.proxy) == ("proxycommand" in said)
    if "proxyjump" in said:
        last = said["proxyjump"][0].split(",")[-1]
        named = last.rpartition("@")[2].rpartition("/")[2].partition(":")[0]
        assert not endpoint.jump or endpoint.jump[-1].name == named
    else:
        assert endpoint.jump == ()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client on this machine")
@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_openssh(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (tmp_path / "more").write_text(random_config(rng))
    config = tmp_path / "config"
    config.write_text(random_config(rng, include=str(tmp_path / "more")))
    try:
        agrees(config, rng.choice(HOSTS))
    except AssertionError as error:
        error.add_note(config.read_text() + "--- more\n" + (tmp_path / "more").read_text())
        raise
