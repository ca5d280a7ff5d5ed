"""Login shells that are asked for their environment: a real bash, and start-up files as people have them."""

import os
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent.operations import shell as op_shell

pytestmark = pytest.mark.process
MARK = "0123456789abcdef"
GUARDED = """# ~/.bashrc
[ -z "$PS1" ] && return
export CUDA_HOME=/opt/cuda LD_LIBRARY_PATH=/opt/cuda/lib64 HF_TOKEN=hf_0123456789abcdefghij
export PATH=$HOME/bin:$PATH
"""
LOUD = """echo "Welcome to gpu01"; printf 'netdoctor-%s\\0' x; echo NCCL_DEBUG=PRINTED; cat
read -t 1 answer; python3() { echo mine; }; alias printf='echo no'; tput cols; set -o noclobber
export NCCL_DEBUG=$'two\\nlines' TORCH_HOME=/t
sleep 300 &
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of bash, with a python3 of their own."""
    for name in [*os.environ]:
        if name.startswith(("NCCL_", "CUDA_", "TORCH", "PYTHON")) or name == "LD_LIBRARY_PATH":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(op_shell, "own_shell", lambda: "/bin/bash")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    (tmp_path / ".bash_profile").write_text("[ -f ~/.bashrc ] && . ~/.bashrc\n")
    return tmp_path


def asked() -> dict[str, Any]:
    return op_shell.shell_env({"mark": MARK})


def test_what_stands_below_the_guard_is_in_logins_alone(home: Path) -> None:
    (home / ".bashrc").write_text(GUARDED)
    found = asked()
    assert (found["error"], found["shell"], found["guard"]) == ("", "/bin/bash", 2)
    assert found["variables"]["CUDA_HOME"] == "/opt/cuda"
    assert found["variables"]["LD_LIBRARY_PATH"] == "/opt/cuda/lib64"
    assert found["variables"]["HF_TOKEN"] == "set"
    assert found["tools"]["torchrun"] == str(home / "bin" / "torchrun")
    assert "torchrun" not in found["own_tools"]


def test_files_that_print_ask_and_leave_something_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_shell, "PATIENCE_S", 1.0)
    (home / ".bashrc").write_text(LOUD)
    found = asked()
    assert found["error"] == ""
    assert found["variables"]["NCCL_DEBUG"] == "two\nlines"
    assert found["variables"]["TORCH_HOME"] == "/t"
    assert "python3" not in found["tools"]


def test_files_that_never_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_shell, "PATIENCE_S", 0.4)
    for text, error in (
        ("exit 7", "it ended with status 7 before it answered"),
        ("sleep 60", "no answer in 0.4 s"),
        ("yes", "no answer in 0.4 s"),
        ("head -c 400000 /dev/zero | tr '\\0' x; exit 0", "more than 256 KiB"),
        ("exec cat /dev/null", "status 0"),
    ):
        (home / ".bashrc").write_text(text + "\n")
        found = asked()
        assert error in found["error"], (text, found)
        assert found["variables"] == {}


def test_who_is_not_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_shell, "own_shell", lambda: "/usr/bin/fish")
    assert asked()["error"] == "fish is not asked"
    monkeypatch.setattr(op_shell, "own_shell", lambda: str(home / "bash"))
    assert asked()["error"] == "ENOENT"
    for mark in ("", "x" * 16, "a' ; reboot"):
        with pytest.raises(ValueError, match="mark"):
            op_shell.shell_env({"mark": mark})


def test_the_line_that_ends_sessions_without_a_prompt() -> None:
    for text, line in (
        (GUARDED, 2),
        ("a\nb\ncase $- in\n *i*) ;;\n *) return;;\nesac", 3),
        ("[[ $- != *i* ]] && return", 1),
        ('if [ -z "${PS1:-}" ]; then return; fi', 1),
        ('# [ -z "$PS1" ] && return\nexport X=1', None),
        ("PS1='$ '\n[ -f x ] && return", None),
        ("", None),
    ):
        assert op_shell.guard(text) == line, text


def test_shells_without_a_prompt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login reads ~/.profile, bash what BASH_ENV names, and sh neither."""
    (home / ".bash_profile").write_text("echo Welcome; export NCCL_DEBUG=INFO\n")
    (home / "init").write_text("export TORCH_HOME=/t\nPATH=$HOME/bin:$PATH\n")
    monkeypatch.setenv("BASH_ENV", str(home / "init"))
    plain, bash, login = op_shell.job_shells({"mark": MARK})["shells"]
    assert [row["way"] for row in (plain, bash, login)] == ["sh -c", "bash -c", "bash -l -c"]
    assert not any(row["error"] or row["late"] for row in (plain, bash, login))
    assert not plain["variables"].keys() & {"NCCL_DEBUG", "TORCH_HOME"}
    assert bash["variables"]["TORCH_HOME"] == "/t"
    assert bash["tools"]["torchrun"] == f"{home}/bin/torchrun"
    assert "torchrun" not in plain["tools"]
    assert login["variables"]["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize(
    ("text", "error", "late"),
    [
        ("exec sleep 1000\n", "no answer in 1 s", True),
        ("exit 3\n", "it ended with status 3 before it answered", False),
    ],
)
def test_a_login_that_runs_no_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str, late: bool
) -> None:
    monkeypatch.setattr(op_shell, "PATIENCE_S", 1.0)
    (home / ".bash_profile").write_text(text)
    plain, bash, login = op_shell.job_shells({"mark": MARK})["shells"]
    assert not plain["error"] + bash["error"]
    assert (login["error"], login["late"]) == (error, late)
    assert login["variables"] == {}
