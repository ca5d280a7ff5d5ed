"""Where reports go: never over what is read, nor through links, nor to where nobody takes them."""

import os
import threading
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.errors import InputError
from netdoctor.report.output import Output, RenderOptions, deliver, parse_outputs
from netdoctor.report.places import keep_apart, opened
from netdoctor.report.save import load, save, write_into, write_whole
from netdoctor.scanning import ScanRequest
from tests.report.build import sample_report
from tests.report.test_foreign import STRANGER
from tests.scanning.ground import Ground
from tests.strangers import strangers


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ground(here: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    return Ground(monkeypatch, here)


# Inputs and outputs


@pytest.mark.parametrize(
    "argv",
    [
        "scan hosts.txt -o json=hosts.txt", "scan hosts.txt --save hosts.txt",
        "scan hosts.txt -o json=hard.txt", "scan hosts.txt -o json=link.txt",
        "scan hosts.txt -o json=./hosts.txt", "scan n1 -o text=.netdoctor/last.json",
        "scan n1 --save s.json -o text=s.json", "scan n1 -o text=a -o json=./a",
        "scan n1 --ssh-config hosts.txt -o text=hosts.txt", "scan n1 --ssh-key hosts.txt -o text=hosts.txt",
        "scan n1 --known-hosts hosts.txt -o text=hosts.txt", "scan n1 --env-file hosts.txt -o text=hosts.txt",
        "scan n1 --baseline hosts.txt -o text=hosts.txt", "scan n1 --baseline hosts.txt --save hosts.txt",
        "scan n1 -o text=.ssh/config", "scan n1 -o text=.ssh/known_hosts",
        "scan --facts r.json -o json=r.json", "scan --facts r.json --save r.json",
        "report convert r.json -o text=r.json", "report show r.json -o json=link.json",
        "scan --last --save r.json -o json=r.json",
    ],
)  # fmt: skip
def test_what_is_read_is_never_written_over(
    argv: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ground: Ground
) -> None:
    monkeypatch.setenv("HOME", str(here))
    (here / ".ssh").mkdir()
    (here / ".ssh/config").touch()
    (here / "hosts.txt").write_text("n1\nn2\n")
    os.link(here / "hosts.txt", here / "hard.txt")
    os.symlink("hosts.txt", here / "link.txt")
    save(ground.scan(ScanRequest(hosts=("n1",))), here / "r.json")
    os.symlink("r.json", here / "link.json")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert cli.run(argv.split()) == 2
    assert "the same file" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_the_last_report_may_be_replaced_by_the_next(here: Path) -> None:
    keep_apart([("--save", here / "r.json")], [("hosts", here / "h"), ("key", here / "k")])


# The default place


@pytest.mark.parametrize("kind", ["folder", "file", "dangling"])
def test_no_link_is_followed_to_where_the_last_report_goes(here: Path, kind: str) -> None:
    victim = here / "victim"
    if kind == "folder":
        victim.mkdir()
        os.symlink(victim, here / ".netdoctor")
    else:
        (here / ".netdoctor").mkdir()
        if kind == "file":
            victim.write_text("precious")
        os.symlink(victim, here / ".netdoctor/last.json")
    if kind == "folder":
        with pytest.raises(InputError, match=r"is a link.*--no-save"):
            opened([], Path(".netdoctor/last.json"), [])
        with pytest.raises(OSError, match="is a link"):
            save(sample_report())
        assert list(victim.iterdir()) == []
        return
    opened([], Path(".netdoctor/last.json"), [])
    save(sample_report())
    assert not (here / ".netdoctor/last.json").is_symlink()
    assert load().run.id == sample_report().run.id
    assert (victim.read_text() if kind == "file" else victim.exists()) in ("precious", False)


def test_a_folder_of_somebody_else_is_not_written_to(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / ".netdoctor").mkdir()
    if os.geteuid() == 0:
        os.chown(here / ".netdoctor", STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(InputError, match=r"belongs to somebody else.*--save FILE"):
        opened([], Path(".netdoctor/last.json"), [])
    with pytest.raises(OSError, match="belongs to somebody else"):
        save(sample_report())


def test_what_a_killed_process_left_is_removed_and_nothing_else(here: Path) -> None:
    save(sample_report())
    folder = here / ".netdoctor"
    old, young, other = (
        folder / f".last.json.{end}" for end in ("0123456789abcdef.tmp", "fedcba9876543210.tmp", "tmp")
    )
    for path in (old, young, other, folder / "notes.tmp"):
        path.touch()
        os.utime(path, (0, 0))
    os.utime(young)
    save(sample_report())
    left = {path.name for path in folder.iterdir() if not path.name.startswith("fix-")}
    assert left == {"last.json", young.name, other.name, "notes.tmp"}


# What cannot be written is known before


def test_the_folder_of_the_last_report_is_not_made_by_looking(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened([], Path(".netdoctor/last.json"), [])
    assert list(here.iterdir()) == []
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # a file system that is mounted read-only
    with pytest.raises(InputError, match=r"no permission to write in .*--save FILE"):
        opened([], Path(".netdoctor/last.json"), [])
    assert cli.run(["scan", "n1"]) == 2


def test_a_pipe_that_nobody_reads_is_an_error_before(here: Path) -> None:
    os.mkfifo(here / "p")
    with pytest.raises(InputError, match="nobody reads from this pipe yet"):
        opened(parse_outputs(["junit=p"]), None, [])
    with pytest.raises(InputError, match="is a pipe; -o json=p"):
        opened([], Path("p"), [])
    with pytest.raises(OSError, match="No such device"):
        write_whole(here / "p", b"x")


def test_a_pipe_is_held_open_for_its_reader(here: Path) -> None:
    os.mkfifo(here / "p")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((here / "p").read_bytes()), daemon=True)
    reader.start()
    outputs = None
    while outputs is None:
        try:
            outputs = opened(parse_outputs(["json=p"]), None, [])
        except InputError:  # its reader has not come that far
            assert reader.is_alive()
    report = sample_report("not_ready")
    assert deliver(report, outputs, RenderOptions(), save=None, redact=False) == (1, [])
    reader.join(20)
    assert got[0].startswith(b'{"schema"')


def test_a_reader_who_takes_nothing_does_not_hold_up_the_end(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdoctor.report.save.READER_S", 0.05)
    os.mkfifo(here / "p")
    deaf = os.open(here / "p", os.O_RDONLY | os.O_NONBLOCK)
    outputs = opened([Output("json", Path("p"))], None, [])
    report = sample_report("ready", nodes=2000)
    code, troubles = deliver(report, outputs, RenderOptions(), save=None, redact=False)
    os.close(deaf)
    assert code == 5
    assert "took nothing" in troubles[0]


# One code, which the report itself tells


def test_what_could_not_be_written_is_told_with_the_code(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for state, code, word in (("ready", 5, "READY"), ("not_ready", 1, "NOT READY")):
        outputs = parse_outputs(["text", "junit=j.xml"])
        report = sample_report(state)
        got, troubles = deliver(report, outputs, RenderOptions(), save=Path("r.json"), redact=False)
        assert got == code
        assert len(troubles) == 2
        shown = capsys.readouterr().out
        assert shown.rstrip().splitlines()[-1].startswith(f"{word}, exit {code}, ")
        assert "the report was not saved to r.json: No space left on device" in shown
        assert "-o junit=j.xml: No space left" in shown
    assert list(here.iterdir()) == []


def test_no_link_of_a_stranger_is_followed_to_what_is_written(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was known beforehand, in a folder that several may write to."""
    victim, pipe, group = here / "victim", here / "pipe", here / "group"
    victim.write_text("mine")
    os.mkfifo(pipe)
    group.mkdir()
    for name, target in {"out": victim, "by": pipe, "gone": here / "new", "chain": group / "out"}.items():
        (group / name).symlink_to(target)
    (group / "folder").symlink_to(here, target_is_directory=True)
    with strangers(monkeypatch, *(group / name for name in ("out", "by", "gone", "folder"))):
        for name in ("out", "by", "gone", "chain"):
            with pytest.raises(OSError, match="it is a link that belongs to uid"):
                write_whole(group / name, b"x")
        with pytest.raises(OSError, match="it is a link that belongs to uid"):
            write_into(group / "folder", "victim", b"x")
    assert victim.read_text() == "mine"
    assert not (here / "new").exists()
    write_whole(group / "chain", b"through links of one's own")
    assert victim.read_bytes() == b"through links of one's own"
    assert (group / "chain").is_symlink()
    assert (group / "out").is_symlink()
