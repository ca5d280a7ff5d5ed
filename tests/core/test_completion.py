"""`netdoctor completion`: the scripts in the shells they are for, as somebody types."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.cli import completion
from netdoctor.cli.parser import subcommands, tree

# What is typed before the tab, and the line after it.
TYPED = {
    "netdoctor comp": "netdoctor completion",
    "netdoctor scan --prof": "netdoctor scan --profile",
    "netdoctor scan -p qu": "netdoctor scan -p quick",
    "netdoctor scan --profile=qu": "netdoctor scan --profile=quick",
    "netdoctor scan --only net.ports,net.mt": "netdoctor scan --only net.ports,net.mtu",
    "netdoctor scan hos": "netdoctor scan hosts.txt",
    "netdoctor scan --env-file hos": "netdoctor scan --env-file hosts.txt",
    "netdoctor scan hosts.txt -o juni": "netdoctor scan hosts.txt -o junit",
    "netdoctor checks exp": "netdoctor checks explain",
    "netdoctor checks explain net.po": "netdoctor checks explain net.ports",
    "netdoctor lab br": "netdoctor lab break",
    "netdoctor report show --wi": "netdoctor report show --width",
}
Script = Callable[[str], Path]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """The folder with the script of a shell, and a hosts file."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "hosts.txt").write_text("n1\n")
    found = list(completion.commands())
    for shell, make in (("bash", completion.bash), ("zsh", completion.zsh), ("fish", completion.fish)):
        (folder / shell).write_text("".join(f"{line}\n" for line in make(found)))
    return lambda shell: folder / shell


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} on this machine")


def test_every_option_of_every_command_is_completed() -> None:
    places = list(completion.commands())
    known = {place.path: {flag for one in place.options for flag in one.flags} for place in places}
    assert set(cli.COMMANDS) | {""} <= set(known)
    for command in cli.COMMANDS:
        for parser in tree(subcommands(cli.build_parser(command))[command]):
            flags = {flag for action in parser._actions for flag in action.option_strings}
            assert known[parser.prog.removeprefix("netdoctor").strip()] == flags


@pytest.mark.process
@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in completion.SHELLS])
def test_the_shell_reads_it(shell: str, scripts: Script) -> None:
    line = [shell, "-n", scripts(shell)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@needs("fish")
def test_fish_completes(scripts: Script) -> None:
    ask = "; ".join(f"echo NEXT; complete -C '{line}'" for line in TYPED)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source fish; {ask}"],
        capture_output=True, text=True, check=False, timeout=60, cwd=scripts("fish").parent,
    )  # fmt: skip
    assert done.stderr == ""
    offered = [part.strip().split("\n") for part in done.stdout.split("NEXT\n")[1:]]
    for (line, after), words in zip(TYPED.items(), offered, strict=True):
        found = {word.partition("\t")[0] for word in words}
        assert found & {after.rpartition(" ")[2], after.rpartition("=")[2]}, (line, words)


STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": "source ./bash",
    "zsh": "autoload -Uz compinit; compinit -u -D; source ./zsh",
}


@pytest.mark.pty
@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in STARTS])
def test_a_tab_in_a_terminal_completes(shell: str, scripts: Script) -> None:
    """Each line is typed in a real terminal, a tab pressed, and the line as it then stands echoed."""
    environment = {**os.environ, "TERM": "xterm", "PS1": "> ", "HISTFILE": "/dev/null", "EDITOR": "emacs"}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(scripts(shell).parent)
        os.execvpe(shell, STARTS[shell], environment)
    try:
        got, ends = "", time.monotonic() + 60

        def type_in(keys: str, until: str) -> str:
            nonlocal got
            got = ""
            os.write(terminal, keys.encode())
            while not (match := re.search(until, got)):
                assert time.monotonic() < ends, got
                if select.select([terminal], [], [], 0.2)[0]:
                    got += os.read(terminal, 1 << 16).decode("utf-8", "replace")
            return match[1]

        type_in(f"{SET_UP[shell]}; echo rea''dy:1\n", r"[\n\r](ready:1)")
        for line, wanted in TYPED.items():
            # Ctrl-A and Ctrl-E: the start and the end of the line.
            shown = type_in(f"{line}\t\x01echo 'LINE':\x05\n", r"[\n\r]LINE:([^\r\n]*)")
            assert shown.strip() == wanted, line
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def test_the_command_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", "bash"]) == 0
    assert "complete -F _netdoctor netdoctor" in capsys.readouterr().out
    assert cli.run(["completion", "powershell"]) == 2
    assert "there are: bash, zsh, fish" in capsys.readouterr().err
