"""known_hosts by OpenSSH's rules, line by line."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from netdoctor.transport.ssh.knownhosts import HostKey, KnownHosts, hash_name


def blob(kind: str, body: bytes = b"x" * 32) -> bytes:
    return len(kind).to_bytes(4, "big") + kind.encode() + len(body).to_bytes(4, "big") + body


def key(kind: str = "ssh-ed25519", body: bytes = b"x" * 32) -> str:
    return f"{kind} {base64.b64encode(blob(kind, body)).decode()}"


K = key()


@pytest.mark.parametrize(
    ("text", "name", "trusted"),
    [
        pytest.param(f"node {K}", "node", 1, id="plain"),
        pytest.param(f"NODE {K} comment here", "node", 1, id="case and comment"),
        pytest.param(f"a,node,10.0.0.1 {K}", "10.0.0.1", 1, id="comma list"),
        pytest.param(f"[node]:22022 {K}", "[node]:22022", 1, id="port"),
        pytest.param(f"node {K}", "[node]:22022", 0, id="other port"),
        pytest.param(f"*.example.org {K}", "a.example.org", 1, id="wildcard"),
        pytest.param(f"*.example.org,!a.* {K}", "a.example.org", 0, id="negated"),
        pytest.param(f"[10.0.0.*]:2222 {K}", "[10.0.0.7]:2222", 1, id="wildcard and port"),
        pytest.param(f"n? {K}", "n12", 0, id="one character"),
        pytest.param(f"{hash_name('node', b's' * 20)} {K}", "node", 1, id="hashed"),
        pytest.param(f"{hash_name('node', b's' * 20)} {K}", "other", 0, id="hashed, another"),
        pytest.param(f"# node {K}\n\n  \n", "node", 0, id="comments and blanks"),
        pytest.param(f"node {K}\nnode {key('ssh-rsa')}", "node", 2, id="two types"),
        pytest.param(f"@cert-authority * {K}", "node", 0, id="authority"),
        pytest.param(f"junk\nnode {K}\n\xff\xfe", "node", 1, id="bad lines around"),
    ],
)
def test_lookup(tmp_path: Path, text: str, name: str, trusted: int) -> None:
    file = tmp_path / "known"
    file.write_text(text)
    known = KnownHosts().lookup(name, [str(file)])
    assert len(known.trusted) == trusted
    assert not known.revoked


def test_revoked_and_several_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"node {K}\n")
    (tmp_path / "b").write_text(f"@revoked * {K}\n@cert-authority *.org {K}\n")
    known = KnownHosts().lookup("node", [str(tmp_path / name) for name in ("a", "none", "b")])
    assert known.trusted == known.revoked == (HostKey("ssh-ed25519", blob("ssh-ed25519")),)
    assert known.trusted[0].source == f"{tmp_path}/a:1"
    assert not known.any_certificates
    assert KnownHosts().lookup("x.org", [str(tmp_path / "b")]).any_certificates


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("node ssh-ed25519", "expected"),
        ("node ssh-ed25519 ###", "base64"),
        (f"node ssh-rsa {K.split()[1]}", "not of the type"),
        (f"node ssh-ed25519 {K.split()[1][:8]}", "not of the type"),
        ("node 1024 65537 1234", "protocol 1"),
        (f"@friend node {K}", "marker"),
        (f"|2|abc|def {K}", "hashing"),
        (f"|1|abc {K}", "hashing"),
        (f"|1|YQ==|YQ== {K}", "cut"),
    ],
)
def test_bad_lines_are_skipped_with_a_note(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "known"
    file.write_text(f"{line}\ngood {K}\n")
    known = KnownHosts()
    assert len(known.lookup("good", [str(file)]).trusted) == 1
    (note,) = known.notes
    assert f"{file}:1" in note
    assert why in note


def test_adds_to_a_file_without_a_final_newline(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known"
    known = KnownHosts()
    new = HostKey("ssh-ed25519", blob("ssh-ed25519"))
    known.add("node", new, str(file), hashed=False)
    known.add("node", new, str(file), hashed=False)
    assert file.read_text() == f"node {K}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(f"node {K}")
    again = KnownHosts()
    again.add("two", new, str(file), hashed=True)
    assert len(file.read_text().splitlines()) == 2
    assert KnownHosts().lookup("two", [str(file)]).trusted == (new,)


def test_notes_are_few(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_bytes(bytes(range(256)) * 500)
    known = KnownHosts()
    assert known.lookup("node", [str(file)]).trusted == ()
    assert 0 < len(known.notes) <= 6


def test_no_file_is_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    known = KnownHosts()
    assert known.lookup("node", [str(fifo), os.devnull]).trusted == ()
    assert known.notes == [f"{fifo}: not read: not a regular file"]
