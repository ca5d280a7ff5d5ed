"""`netdoctor facts`: what it refuses before it looks, who of a node's tasks writes, and how."""

import os
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.cli import facts


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--name a;b", "--name says what this node is called"),
        ("--env-file nowhere.env", "--env-file nowhere.env: no such file"),
        ("--master-port 0", "is not a port"),
        ("--path data", "is not a path on the nodes; write /data or ~/run"),
        ("--path /proc/1/root", "holds nothing of a job"),
        ("--profile thorough", "not one of the choices"),
    ],
)
def test_mistakes_are_told_before_anything_is_looked_at(
    argv: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert cli.run(["facts", *argv.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert said in err


def test_only_the_first_task_of_a_node_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    assert cli.run(["facts", "-o", str(tmp_path / "facts")]) == 0
    assert not any(tmp_path.iterdir())


def test_a_line_goes_where_it_is_told_to(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder, file = tmp_path / "facts", tmp_path / "one.jsonl"
    for line in (b"first\n", b"second\n"):  # a later one takes the place of the earlier, whole
        facts._write(str(folder), "n1", line)
        facts._write(str(file), "n1", line)
    facts._write(str(folder), "fe80::1%eth0", b"third\n")
    facts._write("-", "n1", b"fourth\n")
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == {
        "n1.facts.jsonl": b"second\n",
        "fe80::1%eth0.facts.jsonl": b"third\n",
    }
    assert file.read_bytes() == b"second\n"
    assert capfdbinary.readouterr().out == b"fourth\n"
    modes = {one.stat().st_mode & 0o777 for one in (folder, *folder.iterdir(), file)}
    assert modes == {0o700, 0o600}
    # A name that everybody knows beforehand leads nowhere.
    (tmp_path / "mine").write_bytes(b"precious")
    (folder / "n2.facts.jsonl").symlink_to(tmp_path / "mine")
    facts._write(str(folder), "n2", b"fifth\n")
    assert (folder / "n2.facts.jsonl").read_bytes() == b"fifth\n"
    assert not (folder / "n2.facts.jsonl").is_symlink()
    assert (tmp_path / "mine").read_bytes() == b"precious"
    (tmp_path / "taken").write_bytes(b"")
    for place in (tmp_path / "taken", tmp_path / "no" / "where"):
        with pytest.raises(facts.InputError, match="-o"):
            facts._write(str(place), "n1", b"")
    assert os.listdir(tmp_path).count("taken") == 1
