"""In a real pseudo-terminal: the screen comes up, and the terminal is as before, however it ends."""

import base64
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from netdoctor.report.save import load, save
from tests.report.build import sample_report
from tests.transport.conftest import free_port

pytestmark = pytest.mark.pty

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "trial" / "stand_in" / "job.py"
LEAVE = b"\x1b[?1049l"  # leave the alternate screen


class Terminal:
    """A program in a pseudo-terminal, what it drew, and the terminal's settings before it ran."""

    def __init__(self, argv: list[str], cwd: Path, size: tuple[int, int] = (30, 100), **env: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.drawn = b""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL", "MASTER", "GLOO"))}
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**environment, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **env},
            start_new_session=True,
        )

    def read(self, seconds: float = 0.1) -> bytes:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                with contextlib.suppress(OSError):
                    self.drawn += os.read(self.master, 1 << 16)
        return self.drawn

    @property
    def text(self) -> str:
        """What was drawn so far, without escape sequences."""
        escapes = r"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
        return re.sub(escapes, "", self.drawn.decode("utf-8", "replace"))

    @property
    def clipboard(self) -> str:
        """What the last OSC 52 put there, as a terminal takes it."""
        return base64.b64decode(re.findall(rb"\x1b\]52;c;([^\x07\x1b]*)", self.drawn)[-1]).decode()

    def wait_for(self, what: str | Callable[[], bool], seconds: float = 40) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.2)
            if what() if callable(what) else what in self.text:
                return
        raise AssertionError(f"not seen: {what}\n{self.text[-3000:]}")

    def keys(self, text: str) -> None:
        """Press keys; what was drawn before is forgotten."""
        self.read(0.3)
        self.drawn = b""
        os.write(self.master, text.encode())

    def end(self, seconds: float = 15) -> int:
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        self.read(0.2)
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def assert_restored(self) -> None:
        assert LEAVE in self.drawn
        assert termios.tcgetattr(self.slave)[:4] == self.before[:4]
        for mode in (b"?25h", b"?1000l", b"?2004l"):  # cursor shown, mouse off, bracketed paste off
            assert b"\x1b[" + mode in self.drawn


@contextlib.contextmanager
def terminal(*argv: str, cwd: Path, size: tuple[int, int] = (30, 100), **env: str) -> Iterator[Terminal]:
    opened = Terminal([sys.executable, *argv], cwd, size, **env)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    save(sample_report(), tmp_path / "report.json")
    return tmp_path / "report.json"


def test_quit_restores_the_terminal_and_returns_the_verdict(report: Path) -> None:
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent) as term:
        term.wait_for("NOT READY")
        term.keys("q")
        assert term.end() == 1
        term.assert_restored()
        after = term.drawn.rpartition(LEAVE)[2].decode()
        assert f"NOT READY, 3 causes; {report}" in after


def test_what_is_typed_behind_the_key_of_an_input_goes_there(report: Path) -> None:
    """In one write, as a paste or a script does, also before the first picture: no letter acts as a key."""
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent) as term:
        os.write(term.master, b"/quota\r")
        term.wait_for("filter: quota")
        for screen in ("1", "\r", "e", "2", "3", "4", "5"):
            term.keys(screen)
            for opens, typed in (("/", "quota"), (":", "zqom"), ("?", "sqrt")):
                term.keys(f"\x1b{opens}{typed}")
                term.wait_for(typed)
                assert term.process.poll() is None, (screen, opens)
                term.keys("\x1b")
        term.keys("q")
        assert term.end() == 1


@pytest.mark.parametrize(
    ("answer", "corner"),
    [("\x1b[1;2R", "╭─"), ("\x1b[1;3R", "+-"), ("", "+-"), ("R/\x1b[A\x1b[1;2Rfail", "╭─")],
    ids=["one column", "two columns", "no answer", "among keys"],
)
def test_frames_are_of_boxes_where_the_terminal_draws_them_in_one_column(
    report: Path, answer: str, corner: str
) -> None:
    where = {"cwd": report.parent, "LC_ALL": "C.UTF-8"}
    with terminal("-m", "netdoctor", "tui", str(report), **where) as term:
        while "\u2500" not in term.text:  # asks, and waits for a moment
            term.read(0.01)
        os.write(term.master, answer.encode())
        term.wait_for(f"{corner}")
        term.wait_for("worst first")
        if "fail" in answer:
            term.keys("\r")
            term.wait_for("filter: fail")


def test_quit_leaving_the_screen(report: Path) -> None:
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent) as term:
        term.wait_for("NOT READY")
        term.keys("Q")
        term.end()
        after = term.drawn.rpartition(LEAVE)[2]
        assert b"gpu-a03 drops connections" in after


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(report: Path, number: signal.Signals) -> None:
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent) as term:
        term.wait_for("NOT READY")
        term.process.send_signal(number)
        assert term.end() == 128 + number
        term.assert_restored()


def test_an_exception_restores_the_terminal_and_exits_5(report: Path) -> None:
    program = (
        "import sys; from netdoctor.tui.actions.table import DO; from netdoctor.__main__ import main\n"
        "def crash(stage): raise RuntimeError('a defect')\n"
        "DO['pairs'] = crash\n"
        f"sys.argv = ['netdoctor', 'tui', {str(report)!r}]; sys.exit(main())"
    )
    with terminal("-c", program, cwd=report.parent, TMPDIR=str(report.parent)) as term:
        term.wait_for("NOT READY")
        term.keys("3")
        assert term.end() == 5
        term.assert_restored()
        assert "netdoctor broke (RuntimeError: a defect)" in term.text
        assert "Traceback" not in term.text


def test_fixes_go_to_stdout_when_it_is_a_pipe(report: Path) -> None:
    script = f"{sys.executable} -m netdoctor tui {report} > fixes.sh"
    opened = Terminal(["sh", "-c", script], report.parent)
    try:
        opened.wait_for("NOT READY")
        opened.keys("E")
        opened.wait_for("standard output")
        opened.keys("q")
        opened.end()
    finally:
        opened.close()
    text = (report.parent / "fixes.sh").read_text("utf-8")
    assert "ssh gpu-a03 'sudo" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(("env", "word"), [({"TERM": "dumb"}, "TERM"), ({"TERM": ""}, "TERM")])
def test_a_dumb_terminal_is_refused(report: Path, env: dict[str, str], word: str) -> None:
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent, **env) as term:
        assert term.end() == 2
        assert word in term.text
        assert "netdoctor scan" in term.text
        assert b"\x1b" not in term.drawn


@pytest.mark.parametrize("arguments", [["tui", "report.json"], ["scan", "--tui", "somehost"]])
def test_no_terminal_is_refused_and_names_scan(report: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netdoctor", *arguments],
        cwd=report.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        timeout=60,
    )
    assert done.returncode == 2
    assert "netdoctor scan" in done.stderr
    assert done.stdout == ""
    assert "\x1b" not in done.stderr


def test_a_newer_report_is_refused_before_the_screen(report: Path) -> None:
    newer = report.read_text("utf-8").replace("netdoctor.report/1", "netdoctor.report/2")
    report.write_text(newer, "utf-8")
    with terminal("-m", "netdoctor", "tui", str(report), cwd=report.parent) as term:
        assert term.end() == 2
        assert "install a newer netdoctor" in term.text
        assert LEAVE not in term.drawn


def test_bad_input_stays_on_the_screen_and_exits_2(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("gpu1 slots=\n", "utf-8")
    with terminal("-m", "netdoctor", "tui", "hosts.txt", cwd=tmp_path) as term:
        term.wait_for("exit would be 2")
        term.keys("q")
        assert term.end() == 2
        term.assert_restored()


def test_the_editor_keeps_out_of_the_file_for_fixes(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("gpu1 slots=\n", "utf-8")
    editor = tmp_path / "vi"
    editor.write_text("#!/bin/sh\necho draws its screen\n", "utf-8")
    editor.chmod(0o755)
    script = f"{sys.executable} -m netdoctor tui hosts.txt > fixes.sh"
    with contextlib.closing(Terminal(["sh", "-c", script], tmp_path, EDITOR=str(editor))) as term:
        term.wait_for("enter opens hosts.txt:1")
        term.keys("\r")
        term.wait_for("draws its screen")
        term.keys("q")
        assert term.end() == 2
    assert (tmp_path / "fixes.sh").read_text("utf-8") == ""


def test_bad_input_is_mended_in_the_editor_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("127.0.0.2:1\ngpu1 slots=\n", "utf-8")
    editor = tmp_path / "vi"  # the name decides whether it is told the line
    editor.write_text('#!/bin/sh\nprintf "edits %s\\n" "$1"; echo 127.0.0.2:1 > "$2"\n', "utf-8")
    editor.chmod(0o755)
    with terminal("-m", "netdoctor", "tui", "hosts.txt", cwd=tmp_path, EDITOR=str(editor)) as term:
        term.wait_for("enter opens hosts.txt:2 in your editor")
        term.keys("\r")
        term.wait_for(lambda: b"edits +2" in term.drawn)
        term.wait_for("reads it again")
        term.keys("R")
        term.wait_for("NOT READY")
        term.keys("q")
        assert term.end() == 1
        term.assert_restored()


@pytest.mark.lab
def test_three_faults_are_healed_by_what_was_copied(lab4: Lab, tmp_path: Path) -> None:
    """At 80x24: scan, open a cause, copy its fix, paste it into a shell, run it again; until all is READY."""
    faults = {"node1": "drop", "node2": "small-shm", "node3": "own-name-loopback"}
    for node, fault in faults.items():
        lab4.break_(node, fault)
    argv = ["-m", "netdoctor", "tui", "--ssh-config", str(lab4.ssh_config), str(lab4.hosts_file)]
    pasted = ""
    with terminal(*argv, "--export", "fix.sh", cwd=tmp_path, size=(24, 80)) as term:
        term.wait_for("3 causes")
        for left in (2, 1, 0):
            term.wait_for("[1]" if left == 2 else "enter open")
            term.keys("\r")
            term.wait_for("verify")
            # The command, or its script, is in sight before anything is scrolled.
            assert re.search(r"ssh -F |sh \.netdoctor/fix-", term.text)
            term.keys("y")
            term.wait_for("copied fix")
            fix = term.clipboard
            pasted += fix
            done = subprocess.run(
                ["bash", "-c", fix], cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, (fix, done.stderr)
            if left == 2:
                term.keys("E")
                term.wait_for((tmp_path / "fix.sh").exists)
                assert fix in (tmp_path / "fix.sh").read_text("utf-8")
            term.keys("r")
            term.wait_for(lambda: "Go on?" in term.text or "RE-RUNNING" in term.text)
            if "Go on?" in term.text:
                term.keys("y")
            term.wait_for("fixed: ")
            assert "RE-RUNNING" in term.text
            term.wait_for(["nothing to fix", "1 cause", "2 causes"][left])
        assert all(node in pasted for node in faults)
        term.keys("5")
        term.wait_for("fixed   WARN")
        term.keys("q")
        assert term.end() == 0
        term.assert_restored()
        assert term.drawn.decode().rstrip().endswith("READY; .netdoctor/last.json")
    saved = load(tmp_path / ".netdoctor" / "last.json")
    assert saved.causes == ()
    assert not {letter for row in saved.matrix.cells for letter in row} & set("X!?b")
    assert sum(note.text.startswith("run again ") for note in saved.notes) == 3


@pytest.mark.lab
def test_quitting_in_mid_scan_leaves_nothing_on_the_nodes(lab4: Lab, tmp_path: Path) -> None:
    lab4.break_("node1", "drop")  # silence makes the port experiment long
    before = {node: len(lab4.pids(node)) for node in lab4.nodes}
    argv = ["-m", "netdoctor", "tui", "--ssh-config", str(lab4.ssh_config), str(lab4.hosts_file)]
    with terminal(*argv, cwd=tmp_path) as term:
        term.wait_for("ports")
        term.keys("q")
        term.wait_for("quit?")
        term.keys("y")
        assert term.end() == 130
        term.assert_restored()
    end = time.monotonic() + 5
    while time.monotonic() < end and {node: len(lab4.pids(node)) for node in lab4.nodes} != before:
        time.sleep(0.2)
    assert {node: len(lab4.pids(node)) for node in lab4.nodes} == before


@pytest.mark.lab
def test_a_trial_over_ssh_that_is_left_leaves_nothing_on_the_nodes(lab4: Lab, tmp_path: Path) -> None:
    before = {node: len(lab4.pids(node)) for node in lab4.nodes}
    job = Path("/var/tmp", f"netdoctor-test-{os.getpid()}.py")  # where nodes see it
    job.write_text(
        "import time\nfor i in range(999):\n    print('step', i, flush=True)\n    time.sleep(0.1)\n"
    )
    words = ["--no-scan", "--nproc", "1", "--chdir", "/var/tmp", "--for", "60", "--", "python3", str(job)]
    argv = ["-m", "netdoctor", "try", "--tui", "--ssh-config", str(lab4.ssh_config), str(lab4.hosts_file)]
    try:
        with terminal(*argv, *words, cwd=tmp_path, size=(24, 80)) as one:
            one.wait_for(lambda: all(f"{node} " in one.text for node in lab4.nodes))
            one.wait_for(lambda: re.search(r"step \d{2}", one.text) is not None)
            one.keys("q")
            assert one.end(40) == 130
            one.assert_restored()
            assert "no process is left" in one.text
    finally:
        job.unlink()
    end = time.monotonic() + 15
    while time.monotonic() < end and {node: len(lab4.pids(node)) for node in lab4.nodes} != before:
        time.sleep(0.2)
    assert {node: len(lab4.pids(node)) for node in lab4.nodes} == before


@pytest.mark.parametrize(
    ("key", "size", "code"),
    [
        ("q", (24, 80), 130),
        ("\x03", (16, 60), 130),
        (signal.SIGINT, (24, 80), 130),
        (signal.SIGTERM, (24, 80), 143),
    ],
)
def test_a_trial_that_is_left_is_ended(
    tmp_path: Path, key: str | signal.Signals, size: tuple[int, int], code: int
) -> None:
    # A job and a port of its own: another worker tries the same at the same time.
    job = shutil.copytree(JOB.parent, tmp_path / "job") / JOB.name
    (tmp_path / "job.env").write_text(f"MASTER_PORT={free_port()}\n")
    words = ["--no-scan", "--env-file", "job.env", "--nproc", "2", "--for", "60", "--", "python3", str(job)]
    argv = ["-m", "netdoctor", "try", "--local", "--tui", *words]
    with terminal(*argv, cwd=tmp_path, size=size) as one:
        one.wait_for("2 of 2 ranks joined, step ")
        one.wait_for(lambda: re.search(r"steps +2/2", one.text) is not None)
        if isinstance(key, str):
            one.keys(key)
        else:
            one.process.send_signal(key)
        assert one.end(40) == code
        one.assert_restored()
        assert "INTERRUPTED" in one.text
        assert "no process is left" in one.text
    left = subprocess.run(["pgrep", "-f", str(job)], capture_output=True, text=True, check=False).stdout
    assert not left
