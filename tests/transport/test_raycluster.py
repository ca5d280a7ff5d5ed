"""What is known of a Ray cluster before Ray is asked: raylets in a made-up /proc, and a head that is gone."""

import os
import socket
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.transport.ray.raycluster import Raylet, head_of, lacking, of_cluster, raylets, reach


def put(root: Path, pid: int, *words: str, environ: str = "", home: str = "ray") -> str:
    """A raylet with its files; returns the path of its interpreter."""
    ray = root / home / "ray"
    program, python = ray / "core/src/ray/raylet/raylet", root / home / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("")
    (ray / "_version.py").write_text('version = "2.44.1"\ncommit = "daca7b2"\n')
    python.write_text("")
    python.chmod(0o755)
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    command = [str(program), *words, f"--python_worker_command={python} {ray}/worker.py --x=y"]
    (folder / "cmdline").write_text("\0".join(command))
    (folder / "environ").write_text(environ)
    return str(python)


def test_a_raylet_says_its_head_its_python_and_its_release(tmp_path: Path) -> None:
    environ = "A=RAY_USE_TLS=1\0RAY_USE_TLS=1\0RAY_AUTH_TOKEN=secret\0RAY_ADDRESS=x"
    python = put(tmp_path, 7, "--gcs-address=10.0.0.1:6379", environ=environ)
    (tmp_path / "proc" / "9").mkdir()  # gone meanwhile
    (found,) = raylets(tmp_path / "proc")
    assert found == Raylet(
        head="10.0.0.1:6379", python=python, release="2.44.1", keys=("RAY_AUTH_TOKEN", "RAY_USE_TLS")
    )
    assert lacking(found, {"RAY_USE_TLS": "1"}) == "RAY_AUTH_TOKEN"
    assert lacking(None, {}) == ""
    assert raylets(tmp_path / "nowhere") == []


def test_only_its_own_users_raylets_and_roots_decide_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 7, "--gcs-address=10.0.0.1:6379")
    owner = (tmp_path / "proc" / "7").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert bool(raylets(tmp_path / "proc")) is (owner == 0)


def test_a_raylet_of_another_network_is_another_machine(tmp_path: Path) -> None:
    put(tmp_path, 7, "--gcs-address=10.0.0.1:6379")
    for pid, name in (("7", "net:[2]"), ("self", "net:[1]")):
        folder = tmp_path / "proc" / pid / "ns"
        folder.mkdir(parents=True)
        (folder / "net").symlink_to(name)
    assert raylets(tmp_path / "proc") == []


def test_what_its_command_line_names_has_to_be_here(tmp_path: Path) -> None:
    put(tmp_path, 7, "--gcs-address=10.0.0.1:6379")
    (tmp_path / "ray" / "python").chmod(0o644)
    (found,) = raylets(tmp_path / "proc")
    assert (found.python, found.release) == ("", "2.44.1")
    (tmp_path / "ray/ray/core/src/ray/raylet/raylet").unlink()
    assert raylets(tmp_path / "proc") == [Raylet(head="10.0.0.1:6379")]
    put(tmp_path, 8, "--gcs-address=$(id):1", home="other")
    assert [one.head for one in raylets(tmp_path / "proc")] == ["10.0.0.1:6379"]


def test_which_cluster_is_meant() -> None:
    one, two = Raylet(head="10.0.0.1:6379", release="1"), Raylet(head="127.0.0.1:6380", release="2")
    assert head_of("auto", [one, one]) == one.head  # two raylets on one host
    assert head_of("auto", []) == "auto"
    assert head_of("head:1", [one, two]) == "head:1"
    with pytest.raises(InputError, match=r"several Ray clusters run here .*--ray-address"):
        head_of("auto", [one, two])
    assert of_cluster(one.head, [two, one]) is one
    assert of_cluster("localhost:6380", [one, two]) is two
    assert of_cluster("10.0.0.9:6379", [one, two]) is None


def test_a_head_that_does_not_listen_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        reach(f"localhost:{port}", 5.0)
    for head, why in (
        (f"127.0.0.1:{port}", "nothing listens there"),
        ("nosuch.invalid:6379", "no such host"),
        ("a..b:6379", "no such host"),
        ("127.0.0.1:99999", "no Ray cluster at"),
    ):
        with pytest.raises(InputError, match=why) as caught:
            reach(head, 5.0)
        assert str(caught.value).isprintable()
