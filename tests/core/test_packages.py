"""--packages and requirement files: read as pip reads them, and every mistake named with its line."""

import os
import random
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.software import Requested
from netdoctor.scanning.packages import MAX_DEPTH, MAX_PACKAGES, Requirements, lines, read_requirements, split


def read(folder: Path, text: str, name: str = "reqs.txt", packages: str = "") -> Requirements:
    (folder / name).write_text(text, "utf-8")
    return read_requirements(packages, folder / name)


def test_packages_are_split_between_packages_only() -> None:
    for text, parts in {
        "": [],
        "torch,vllm": ["torch", "vllm"],
        "torch>=2.4,<2.7,vllm": ["torch>=2.4,<2.7", "vllm"],
        "vllm[ray,audio]>=0.8, !=0.9,x": ["vllm[ray,audio]>=0.8, !=0.9", "x"],
        " torch , ,": ["torch"],
    }.items():
        assert split(text) == parts


def test_names_alone_ask_for_nothing_but_to_be_equal() -> None:
    found = read_requirements("Torch,vllm >= 0.8,torch==2.6.0")
    assert found.packages == ("Torch", "vllm")
    assert found.requested == [
        Requested(name="vllm", specifier=">=0.8"),
        Requested(name="Torch", specifier="==2.6.0"),
    ]


def test_a_file_as_people_write_it(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "c.txt").write_text("numpy<2\n")
    text = (
        "\ufeff# ours\n-i https://u:p@host/simple\ntorch == 2.6.0 \\\n    --hash=sha256:aa # why\n\n"
        "vllm[ray]>=0.8,<1 ; python_version < '3.13'\n-r more/c.txt\n-cmore/c.txt\n-e ./own\n--pre\n"
        "git+https://token@host/x.git\nflash_attn @ https://token@host/f.whl\n./a.whl\n"
    )
    found = read(tmp_path, text)
    assert found.packages == ("torch", "vllm", "numpy", "flash_attn")
    assert found.requested == [
        Requested(name="torch", specifier="==2.6.0", origin="reqs.txt:3"),
        Requested(
            name="vllm",
            specifier="<1,>=0.8",
            marker='python_version < "3.13"',
            origin="reqs.txt:6",
            extras=("ray",),
        ),
        Requested(name="numpy", specifier="<2", origin="c.txt:1"),
        Requested(name="numpy", specifier="<2", origin="c.txt:1", only_if_there=True),
        Requested(name="flash_attn", origin="reqs.txt:12"),
    ]
    assert [note.partition(" ")[0] for note in found.notes] == [
        "reqs.txt:", "reqs.txt:6:", "reqs.txt:9:", "reqs.txt:11:", "reqs.txt:12:", "reqs.txt:13:",
    ]  # fmt: skip
    assert "token" not in "".join(found.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ok\ntorch=2.6.0\n", "reqs.txt:2: not a requirement (write: name, name==1.2"),
        ("torch==\n", "reqs.txt:1"),
        ("sk-secret $x\n", "not a requirement"),
        ("--wrong\n", "reqs.txt:1: --wrong: no option"),
        ("torch;python_version<\n", "reqs.txt:1"),
        ("x;" + "(" * 5000, "not a requirement"),
        ("x;" + "(" * 400, "not a requirement"),
        ("-r reqs.txt\n", "includes itself"),
        ("-r none.txt\n", "none.txt, included by"),
        ("-r .\n", "directory"),
        ("".join(f"p{i}\n" for i in range(MAX_PACKAGES + 1)), "500 are allowed"),
        ("x" * (1 << 20) + "\n", "more than 1048576 bytes"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert words in str(error.value)
    assert "secret" not in str(error.value)


def test_includes_are_bounded(tmp_path: Path) -> None:
    for i in range(MAX_DEPTH + 2):
        (tmp_path / f"r{i}.txt").write_text(f"-r r{i + 1}.txt\n")
    with pytest.raises(InputError, match="10 deep"):
        read_requirements("", tmp_path / "r0.txt")
    (tmp_path / "wide.txt").write_text("".join(f"-r w{i}.txt\n" for i in range(60)))
    for i in range(60):
        (tmp_path / f"w{i}.txt").write_text("x\n")
    with pytest.raises(InputError, match="50 files"):
        read_requirements("", tmp_path / "wide.txt")
    with pytest.raises(InputError, match="--requirements"):
        read_requirements("", tmp_path / "fifo") if not os.mkfifo(tmp_path / "fifo") else None


def test_lines_are_those_of_pip() -> None:
    """Comments, blank lines and continuations, as pip's own reader has them, on random texts."""
    req_file = pytest.importorskip("pip._internal.req.req_file")
    source = random.Random(7)
    pieces = [
        "torch",
        "==1",
        "\\",
        "\\\n",
        "\n",
        "#",
        " # why",
        " ",
        "\t",
        "x;y",
        "-r a",
        "\\\\\n",
        "# c\\\n",
    ]
    for _ in range(1500):
        text = "".join(source.choice(pieces) for _ in range(source.randrange(12)))
        assert list(lines(text)) == list(req_file.preprocess(text)), repr(text)
