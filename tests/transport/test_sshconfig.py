"""ssh config read as OpenSSH reads it, and nothing run on the way."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from netdoctor.transport.base import SshOptions
from netdoctor.transport.messages import Endpoint
from netdoctor.transport.sshconfig import Resolver, TransportInputError

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
            "ProxyJump none\nProxyCommand nc %h %p", "n1", {"proxy": (), "jump": ()}, id="first of two"
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
    with pytest.raises(TransportInputError, match="No such file"):
        Resolver(SshOptions(ssh_config=tmp_path / "none"))
    with pytest.raises(TransportInputError, match="No such file"):
        Resolver(SshOptions(ssh_config=config, key=tmp_path / "none"))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client on this machine")
@pytest.mark.parametrize("host", ["n1", "n2", "db.example.org", "gate", "X"])
def test_agrees_with_openssh(tmp_path: Path, host: str) -> None:
    (tmp_path / "more").write_text("Host n2\n Port 44\n User more\n")
    config = tmp_path / "config"
    config.write_text(
        f"Include {tmp_path}/more\nHost n? !n3\n  User enn\n  HostName %h.lan\n  IdentityFile /k/a\n"
        "Match host *.lan originalhost n1\n  Port 55\n  IdentityFile /k/b\n"
        "Host *.org\n  UserKnownHostsFile /x /y\n  User=org\n"
        "Match final host *.lan\n  BindAddress 127.0.0.3\n  AddressFamily inet\n"
        "Host *\n  ConnectTimeout 9\n  User last\n  IdentityFile /k/c\n"
    )
    said: dict[str, list[str]] = {}
    out = subprocess.run(
        ["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True
    ).stdout
    for line in out.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key, []).append(value)
    endpoint = Resolver(SshOptions(ssh_config=config)).resolve(target(host))
    assert endpoint.host.lower() == said["hostname"][0].lower()
    assert str(endpoint.port) == said["port"][0]
    assert endpoint.user == said["user"][0]
    assert list(endpoint.keys) == said["identityfile"]
    assert endpoint.connect_timeout_s == float(said["connecttimeout"][0])
    assert [os.path.expanduser(p) for p in said["userknownhostsfile"][0].split()] == list(
        endpoint.user_known_hosts
    )
    assert endpoint.bind == (said["bindaddress"][0] if "bindaddress" in said else None)
    assert endpoint.family == said["addressfamily"][0]
