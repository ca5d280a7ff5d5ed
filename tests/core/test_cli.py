"""The command line from outside: exit codes, one clear line for each mistake, nothing contacted."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor import __main__, cli
from netdoctor.cli.running import signals, signals_noted
from tests.scan import harness

ENV = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), "HOME": "/nonexistent"}


def netdoctor(*argv: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return harness.netdoctor(*argv, cwd=cwd, **ENV)


def shell(line: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """A shell line in which ``netdoctor`` is ours."""
    line = line.replace("netdoctor", f"{sys.executable} -m netdoctor")
    return subprocess.run(["bash", "-c", line], check=False, cwd=cwd, env=ENV, capture_output=True, text=True)


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """A port on which nobody must knock."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["scan"], "no hosts", id="no hosts"),
        pytest.param(["scan", "HOST", "--only", "net.port"], "did you mean net.ports", id="unknown check"),
        pytest.param(["scan", "HOST", "--skip", "*"], "nothing is left", id="nothing selected"),
        pytest.param(["scan", "HOST", "--master-port", "99999"], "1 to 65535", id="port"),
        pytest.param(["scan", "HOST", "--timeout", "nan"], "seconds", id="timeout"),
        pytest.param(["scan", "HOST", "--parallel", "0"], "count", id="parallel"),
        pytest.param(["scan", "HOST", "--profile", "huge"], "huge", id="profile"),
        pytest.param(["scan", "HOST", "-o", "yaml"], "yaml", id="format"),
        pytest.param(["scan", "HOST", "-o", "json=/nowhere/x.json"], "/nowhere", id="output folder"),
        pytest.param(["scan", "HOST", "--env-file", "nowhere.env"], "nowhere.env", id="env file"),
        pytest.param(["scan", "HOST", "--checks-dir", "nowhere"], "no such folder", id="checks folder"),
        pytest.param(["scan", "HOST", "--node", "ghost"], "ghost", id="node"),
        pytest.param(["scan", "nowhere/hosts.txt"], "nowhere", id="no hosts file"),
        pytest.param(["scan", "bad;name"], "bad;name", id="shell characters"),
        pytest.param(["scan", "--last"], "last", id="no last report"),
        pytest.param(["scan", "--facts", "nowhere.json"], "nowhere.json", id="no facts"),
        pytest.param(["scan", "HOST", "--baseline", "nowhere.json"], "nowhere.json", id="no baseline"),
        pytest.param(["scan", "HOST", "--nope"], "--nope", id="unknown flag"),
        pytest.param(["scan", "HOST", "--prof", "quick"], "--prof", id="abbreviated flag"),
        pytest.param(["sca", "HOST"], "sca", id="abbreviated command"),
        pytest.param(["checks"], "say which: list, explain", id="no verb"),
        pytest.param(["checks", "explain", "net.port"], "net.ports", id="explain"),
        pytest.param(["checks", "list", "--family", "xx"], "there are:", id="family"),
        pytest.param(["--nope"], "--nope", id="flag without command"),
        pytest.param(["scan", "\x1b[31mred"], "red", id="escape in a name"),
    ],
)
def test_bad_input_is_2_and_one_line_and_contacts_nobody(
    argv: list[str], words: str, tmp_path: Path, door: socket.socket
) -> None:
    host = f"127.0.0.1:{door.getsockname()[1]}"
    done = netdoctor(*(host if word == "HOST" else word for word in argv), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BlockingIOError):
        door.accept()


def test_a_baseline_that_the_scan_would_replace_is_refused(tmp_path: Path, door: socket.socket) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    host = f"127.0.0.1:{door.getsockname()[1]}"
    done = netdoctor("scan", host, "--baseline", "./report.json", "--save", str(report), cwd=tmp_path)
    assert done.returncode == 2
    assert "would replace it" in done.stderr
    assert report.read_text() == "{}"
    done = netdoctor("scan", host, "--baseline", ".netdoctor/last.json", cwd=tmp_path)
    assert "would replace it" in done.stderr
    with pytest.raises(BlockingIOError):
        door.accept()


@pytest.mark.parametrize(
    ("argv", "bound"),
    [
        # Logins 30 s and 10 s of our own, and what the experiments may take together.
        pytest.param(["--only", "host.*"], lambda each: 40.0, id="passive"),
        pytest.param(["-p", "full"], lambda each: 40.0 + sum(each), id="all"),
        pytest.param(["-p", "full", "--budget", "900"], lambda each: 40.0 + sum(each), id="a long budget"),
        pytest.param(["-p", "full", "--deadline", "25"], lambda each: 25.0, id="a deadline"),
    ],
)
def test_a_plan_bounds_each_experiment_and_the_scan(
    argv: list[str], bound: Callable[[list[float]], float], tmp_path: Path, door: socket.socket
) -> None:
    done = netdoctor("scan", f"127.0.0.1:{door.getsockname()[1]}", "--plan", *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    each = [
        float(seconds) for seconds in re.findall(r"^  \S+ +[a-z-]+ +at most +(\d+) s  ", done.stdout, re.M)
    ]
    assert len(each) == (0 if "--only" in argv else 15)
    last = re.search(r"^leaves the nodes after (\d+) s at the latest", done.stdout, re.M)
    assert last
    assert float(last[1]) == pytest.approx(bound(each), abs=len(each))
    if "900" in argv:
        assert max(each) > 900
    if "full" in argv:
        assert "Packet loss" in done.stdout
        assert "Torch starts on idle GPUs" in done.stdout
    with pytest.raises(BlockingIOError):
        door.accept()


@pytest.mark.parametrize(
    "argv", [["-h"], ["--help"], ["scan", "-h"], ["checks", "-h"], ["checks", "list", "-h"], []]
)
def test_help_is_everywhere(argv: list[str], tmp_path: Path) -> None:
    done = netdoctor(*argv, cwd=tmp_path)
    assert done.returncode == 0
    assert "usage:" in done.stdout
    assert done.stderr == ""


def test_the_catalogue_and_a_manual_page(tmp_path: Path) -> None:
    listed = netdoctor("checks", "list", cwd=tmp_path)
    assert listed.returncode == 0
    ids = [line.split()[0] for line in listed.stdout.splitlines()]
    assert "net.ports" in ids
    page = netdoctor("checks", "explain", "net.ports", cwd=tmp_path)
    assert page.returncode == 0
    assert "Matters because:" in page.stdout
    assert "\nfacts: ports, firewall of all nodes, paths, job, host of all nodes\n" in page.stdout
    assert "runs after:" in page.stdout
    assert "with `--reach`.  [on request]\n" in listed.stdout
    assert "``" not in listed.stdout
    page = netdoctor("checks", "explain", "net.reach", cwd=tmp_path)
    assert page.stdout.startswith("net.reach: Every node reaches the URLs that are named with `--reach`.\n")
    assert "``" not in page.stdout


def test_a_broken_plug_in_is_named_and_the_rest_listed(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("raise ValueError('\\x1b[31mboom')\n")
    done = netdoctor("checks", "list", "--checks-dir", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert "bad.py" in done.stderr
    assert "boom" in done.stderr
    assert "\x1b" not in done.stderr
    assert "net.ports" in done.stdout


SITE = r'''
from netdoctor.check import check
from netdoctor.facts.host import HostFacts

@check()
def site_x(host: HostFacts):
    """Fine\x1b[31m.

    Looks at:
        \x1b]0;x\x07This.
    """
    return []
'''


def test_a_plug_in_s_manual_does_not_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text(SITE)
    for verb in (["list"], ["explain", "site.x"]):
        done = netdoctor("checks", *verb, "--checks-dir", ".", cwd=tmp_path)
        assert done.returncode == 0
        assert "Fine" in done.stdout
        assert "\x1b" not in done.stdout


def test_our_own_defect_is_5_with_the_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("us\x1b[31m")

    monkeypatch.setattr("netdoctor.engine.registry.load", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.run(["checks", "list"]) == 5
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert "\x1b" not in told.err
    assert len(told.err.splitlines()) == 1
    [file] = tmp_path.iterdir()
    assert str(file) in told.err
    assert "ZeroDivisionError" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (SystemExit(3), 3), (SystemExit("x"), 2), (BrokenPipeError(), 5)],
)
def test_other_ends(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    def end(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("netdoctor.engine.registry.load", end)
    monkeypatch.setattr(cli, "_drop_stdout", lambda: None)
    assert cli.run(["checks", "list"]) == code


def test_an_interrupt_while_a_class_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def make(*args: object, **kwargs: object) -> None:
        type("Facts", (), {"missing": Field()})

    monkeypatch.setattr("netdoctor.engine.registry.load", make)
    assert cli.run(["checks", "list"]) == 130
    # While it still imports nobody has called `run` yet.
    monkeypatch.setattr(cli, "run", make)
    monkeypatch.setattr(sys, "stderr", None)  # it would be wrapped, and closed with its wrapper
    monkeypatch.setattr("gc.disable", lambda: None)
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == 130


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_output_that_nobody_gets_is_never_0(where: str, tmp_path: Path) -> None:
    done = shell(f"netdoctor checks list {where}", tmp_path)
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1
    assert "standard output" in done.stderr


def test_all_streams_closed(tmp_path: Path) -> None:
    assert shell("netdoctor checks list <&- >&- 2>&-", tmp_path).returncode == 5
    assert shell("netdoctor checks explain nope <&- 2>&-", tmp_path).returncode == 2


@pytest.mark.parametrize(("line", "code"), [("scan", 2), ("checks list >/dev/full", 5), ("scan -h", 0)])
def test_a_full_stderr_changes_no_exit_code(line: str, code: int, tmp_path: Path) -> None:
    assert shell(f"netdoctor {line} 2>/dev/full", tmp_path).returncode == code


@pytest.mark.parametrize(("line", "code"), [("checks list", 0), ("scan", 2)])
def test_the_end_of_the_process_loses_nothing(line: str, code: int, tmp_path: Path) -> None:
    argv = line.split()
    program = (
        "import atexit, sys; from netdoctor.__main__ import command\n"
        "atexit.register(print, 'the last'); atexit.register(print, 'words', file=sys.stderr)\n"
        f"sys.argv[1:] = {argv!r}; command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=tmp_path,
        env={**ENV, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
    )
    by_itself = netdoctor(*argv, cwd=tmp_path)
    assert (done.returncode, by_itself.returncode) == (code, code)
    assert (done.stdout, done.stderr) == (f"{by_itself.stdout}the last\n", f"{by_itself.stderr}words\n")


def test_a_reader_that_leaves_early_sees_no_traceback(tmp_path: Path) -> None:
    done = shell("netdoctor checks list | head -n 1", tmp_path)
    assert done.stderr == ""


def test_a_hang_up_that_nohup_ignores_ends_no_scan() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals(None) as came:
            os.kill(os.getpid(), signal.SIGHUP)
        with signals_noted() as noted:
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not came
    assert not noted


def test_an_interrupt_in_the_last_moment_leaves_no_traceback() -> None:
    program = (
        "import os, signal, sys\nfrom netdoctor import __main__ as own\n"
        "class Late:\n    def flush(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "def main(): sys.stdout = Late(); sys.exit(3)\n"
        "own.main = main\nown.command()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
