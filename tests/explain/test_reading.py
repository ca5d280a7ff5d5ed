"""Logs as they lie about: packed, cut, in other encodings, without end, and what is no log at all."""

import bz2
import gzip
import io
import lzma
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.explain import matching
from netdoctor.explain.collecting import RANK_HITS_MAX, Collector
from netdoctor.explain.engine import explain, explain_logs
from netdoctor.explain.knowledge import load
from netdoctor.explain.reading import LINE_MAX, STDIN, Log, blocks, logs

LINE = "Error while creating shared memory segment /dev/shm/nccl-1YsMbG (size 7340384)"
TEXT = f"step 1 loss 2.0\n{LINE}\nbye\n"


def labels(path: Path) -> list[tuple[str, int]]:
    """(label, line of its first quote) of the causes."""
    return [(one.known.label, one.lines[0].line) for one in explain([str(path)]).reasons]


def remarks(path: Path) -> str:
    return " ".join(explain([str(path)]).sources[0].remarks)


FORMS = {
    "plain": TEXT.encode(),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "no end of line": TEXT.rstrip("\n").encode(),
    "byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "utf-16": TEXT.encode("utf-16"),
    "utf-16 big": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "utf-16 without a mark": TEXT.encode("utf-16-le"),
    "latin-1 among it": b"\xe9t\xe9\n" + LINE.encode(),
    "gzip": gzip.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "gzip of several": gzip.compress(b"step 1\n") + gzip.compress(TEXT.encode()),
    "colours": f"a\n\x1b[31mError while \x1b[1mcreating\x1b[0m{LINE[20:]}\x1b[0m\n".encode(),
    "a progress bar": f"  1%|#| 1/9\r  2%|#| 2/9\r{LINE}\n".encode(),
    "behind a long line": b"x" * (3 * LINE_MAX) + b"\n" + LINE.encode(),
    "among zeros": b"\0" * 3000 + b"\n" + LINE.encode() + b"\n" + b"\0" * 3000,
}


def test_every_form_is_read(tmp_path: Path) -> None:
    for name, data in FORMS.items():
        path = tmp_path / name
        path.write_bytes(data)
        found = labels(path)
        assert [label for label, _ in found][:1] == ["shm_too_small"], name
        number = 1 if name == "a progress bar" else 3 if name == "gzip of several" else 2
        assert found[0][1] == number, name


def test_a_long_line_is_quoted_where_the_trouble_is(tmp_path: Path) -> None:
    """Behind a progress bar, however long: a return begins a line of the same number, by the same speaker."""
    for times in (1, 9, 900, 9000, 200_000):
        bar = "  1%|#| 1/9\r" * times
        (tmp_path / "log").write_bytes(f"[rank3]: {bar}{LINE}\r  2%|#| 2/9\r{bar}\nover\n".encode())
        said = explain([str(tmp_path / "log")])
        [line] = said.reasons[0].lines
        assert (line.text, line.rank, line.line) == (f"[rank3]: {LINE}", 3, 1)
        assert not said.sources[0].remarks
        assert said.sources[0].lines == 2


def test_what_cannot_be_read_whole_is_told(tmp_path: Path) -> None:
    whole = gzip.compress((TEXT + "".join(f"{os.urandom(40).hex()}\n" for _ in range(4000))).encode())
    cases = {
        "cut.gz": (whole[: len(whole) // 2], "end early"),
        "damaged.xz": (lzma.compress(TEXT.encode())[:-9] + b"123456789", "damaged"),
        "long": (LINE.encode() + b"\n" + b"y" * (2 * LINE_MAX), "1 line longer than 1 MiB"),
        "core": (bytes(range(256)) * 64, "binary"),
        "packed.zst": (b"\x28\xb5\x2f\xfd" + bytes(90), "zstd -dc"),
    }
    for name, (data, said) in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert said in remarks(path), name
    assert labels(tmp_path / "cut.gz") == [("shm_too_small", 2)]
    assert labels(tmp_path / "long")[0] == ("shm_too_small", 1)


def test_empty_and_strange_logs_give_no_cause(tmp_path: Path) -> None:
    for name, data in {
        "empty": b"",
        "one byte": b"\x1f",
        "a line end": b"\n",
        "escape": b"\x1b",
        "access log": b'10.0.0.1 - - [22/Nov/2026:11:00:00 +0000] "GET /index.html HTTP/1.1" 200 512\n' * 50,
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert explain([str(path)]).reasons == (), name


def test_names_files_folders_patterns_and_stdin(tmp_path: Path) -> None:
    for name in ("a/attempt_0/0/stderr.log", "a/attempt_0/1/stderr.log", "a/model.pt", "b.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    assert len(logs([str(tmp_path / "a")])) == 2
    assert len(logs([str(tmp_path / "a"), str(tmp_path / "*.log"), str(tmp_path / "b.log")])) == 3
    said = explain(["-"], stdin=io.BytesIO(TEXT.encode()))
    assert said.sources[0].name == STDIN
    assert said.reasons[0].lines[0].line == 2


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "no log was named"),
        (["nowhere.log"], "nowhere.log: no such file"),
        (["nothing*.log"], "no file matches"),
        (["empty"], "no files in this folder"),
        (["\x1b[2Jx"], "no file matches"),
        (["a\0b"], "no such file"),
    ],
)
def test_names_that_name_nothing(
    names: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=said) as raised:
        logs(names)
    assert "\x1b" not in str(raised.value)


def test_never_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in remarks(tmp_path / "pipe")


class Endless(io.RawIOBase):
    """A log of so many bytes that is made while it is read, and never lies anywhere whole."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")


def test_of_what_a_rank_repeats_the_first_lines_are_kept_and_all_are_counted() -> None:
    text, collector = "".join(f"[rank{i % 2}]: {LINE}\n" for i in range(20)), Collector()
    collector.begin("log")
    for found in matching.Matcher(load().patterns).block(text.encode(), 1):
        collector.take(found)
    assert [hit.number for hit in collector.gathered.hits] == [*range(1, 2 * RANK_HITS_MAX + 1)]
    assert set(collector.gathered.counts.values()) == {20}


@pytest.mark.thorough
def test_memory_is_bounded_whatever_the_log_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without an end, lines that are all of kinds of their own, and the same trouble over and over."""

    def pieces() -> Iterator[bytes]:
        for _ in range(6):
            yield b"z" * (1 << 20)
        yield b"\n"
        words = [f"{chr(103 + i % 20)}{chr(103 + i // 20 % 20)}{chr(103 + i // 400)}" for i in range(8000)]
        for start in range(30):
            yield b"".join(f"{w}{words[start]}{words[-start]} q\n".encode() for w in words[::4])
        for number in range(10):
            yield b"".join(
                f"[rank{number * 200 + i}]: RuntimeError: {LINE} refused the {i}\n".encode()
                for i in range(200)
            )

    monkeypatch.setattr(matching, "KINDS_MAX", 4000)  # so that a smaller log shows it
    tracemalloc.start()
    said = explain_logs([Log(STDIN, None)], stdin=Endless(pieces()))  # type: ignore[arg-type]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert said.reasons[0].known.label == "shm_too_small"
    assert most < 20 << 20


def test_blocks_are_whole_lines_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%d %s\n" % (i, b"x" * 997) for i in range(1, 5001)))
    log = logs([str(path)])[0]
    seen = [(number, block.split(b"\n")) for number, block in blocks(log)]
    assert len(seen) > 3
    assert [int(line.split()[0]) for _, block in seen for line in block] == list(range(1, 5001))
    assert all(int(block[0].split()[0]) == number for number, block in seen)
    assert log.lines == 5000
