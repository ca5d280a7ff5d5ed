"""`netdoctor lint` from the command line: exit codes, formats, ignores, bad input, what might break it."""

import io
import json
import random
import sys
from pathlib import Path

import pytest

from netdoctor.cli import run
from netdoctor.errors import InputError
from netdoctor.lint.engine import lint
from netdoctor.lint.files import read
from netdoctor.lint.model import Kind
from tests.hostile import HOSTILE, HOSTILE_BYTES
from tests.report import strict

HERE = Path(__file__).parent
WRONG = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=8\n\n{}export RANK=$SLURM_PROCID\nsrun python a.py\n"


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["lint", *words])
    out, err = capsys.readouterr()
    return code, out, err


def rules_of(text: str, kind: Kind = Kind.SBATCH) -> list[str]:
    return [finding.rule for finding in lint([read("x", kind, text.encode())])]


def test_exit_codes_and_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad, good = str(HERE / "bad" / "guide-a-rank.sbatch"), str(HERE / "good" / "ray-1.sh")
    note = str(HERE / "bad" / "guide-a-eth0.sh")
    code, out, _ = called(capsys, bad, good)
    assert code == 1
    assert out.startswith(f"{bad}:9:8 slurm.rank-in-batch [error] SLURM_PROCID is expanded once")
    assert out.endswith("1 error in 2 files\n")
    assert called(capsys, good)[:2] == (0, "no findings in 1 file\n")
    assert [called(capsys, note, "--fail-on", how)[0] for how in ("warning", "note")] == [0, 1]
    assert [called(capsys, bad, "--fail-on", how)[0] for how in ("error", "never")] == [1, 0]
    assert called(capsys, bad, "--ignore", "slurm")[0] == 0
    assert called(capsys, bad, "--select", "torch,env.port")[0] == 0
    code, out, err = called(capsys, bad, str(tmp_path / "missing.sh"))
    assert (code, "1 error" in out) == (2, True)
    assert "missing.sh: no such file" in err
    for words in (
        [],
        ["-"],
        ["--select", "slurm.rang", bad],
        ["--explain", "nothing.here"],
        ["--as", "perl", bad],
    ):
        assert called(capsys, *words)[0] == 2
    code, out, _ = called(capsys, bad, "--width", "60")
    assert max(map(len, out.splitlines()[1:])) <= 60


def test_pages_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "--list", "--width", "100")
    assert (code, "slurm.shape" in out, max(map(len, out.splitlines())) <= 100) == (0, True, True)
    code, out, _ = called(capsys, "--explain", "slurm.shape", "--width", "80")
    assert code == 0
    assert all(head in out for head in ("what happens:", "write instead:", "wrong:", "right:", "source:"))


def test_formats_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(HERE / "bad" / name) for name in ("train.env", "guide-e-docker.sh")]
    data = json.loads(called(capsys, "-o", "json", *files)[1])
    assert data["counts"] == {"error": 6, "warning": 5, "note": 1}
    assert [file["kind"] for file in data["files"]] == ["env", "shell"]
    assert {"path", "line", "col", "rule", "severity", "message", "instead"} == data["findings"][0].keys()
    marks = called(capsys, "-o", "github", *files)[1].splitlines()
    assert len(marks) == 12
    assert all(mark.startswith(("::error file=", "::warning file=", "::notice file=")) for mark in marks)
    only = strict.sarif(called(capsys, "-o", "sarif", *files)[1].encode())
    assert len(only["results"]) == 12
    known = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert all(known[result["ruleIndex"]] == result["ruleId"] for result in only["results"])
    assert all(r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in only["results"])


@pytest.mark.parametrize(("found", "told"), [(10, []), (12, ["and 2 more of this level"])])
def test_annotations_beyond_what_github_shows_are_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, found: int, told: list[str]
) -> None:
    (tmp_path / "train.env").write_text("MASTER_PORT=99999\n" * found)
    marks = called(capsys, "-o", "github", str(tmp_path / "train.env"))[1].splitlines()
    assert marks[10:] == told


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(WRONG.format("").encode()))
    monkeypatch.setattr(sys, "stdin", text)
    code, out, _ = called(capsys, "--as", "sbatch", "-")
    assert (code, out.startswith("<stdin>:4:8 slurm.rank-in-batch")) == (1, True)


def test_ignores_want_a_rule_a_reason_and_a_finding() -> None:
    mark = "# netdoctor: ignore"
    assert rules_of(WRONG.format("")) == ["slurm.rank-in-batch"]
    assert rules_of(WRONG.format(f"{mark}[slurm.rank-in-batch] the site's prolog sets it\n")) == []
    assert rules_of(WRONG.format(f"{mark}[slurm.rank-in-batch]\n")) == [
        "lint.ignore-reason",
        "slurm.rank-in-batch",
    ]
    assert rules_of(WRONG.format(f"{mark} because\n")) == ["lint.ignore-reason", "slurm.rank-in-batch"]
    assert rules_of(WRONG.format(f"{mark}[env.port] why\n")) == ["lint.unused-ignore", "slurm.rank-in-batch"]
    assert rules_of(WRONG.format(f"{mark}[no.rule] why\n")) == ["lint.unused-ignore", "slurm.rank-in-batch"]
    both = f"{mark}[torch.endpoint, torch.node-rank] the image's torchrun differs\n"
    several = "torchrun --nnodes 2 \\\n  --nproc-per-node 8 \\\n  train.py\n"
    assert rules_of(several, Kind.SHELL) == ["torch.endpoint", "torch.node-rank"]
    assert rules_of(both + several, Kind.SHELL) == []
    behind = f"export MASTER_PORT=40000  {mark}[env.port-ephemeral] reserved here\n"
    assert rules_of(behind, Kind.SHELL) == []


def test_what_is_no_text_or_too_large_is_bad_input() -> None:
    deep = b"services:\n" + b"".join(b" " * n + b"a:\n" for n in range(1, 200))
    laughs = b"services:\n  a: &a [x]\n" + b"".join(b"  b%d: [%s]\n" % (n, b"*a," * 100) for n in range(100))
    cases = {
        b"#!/bin/bash\n\0\n": "NUL byte",
        "#!/bin/bash\n".encode("utf-16"): "UTF-16",
        b"#!/bin/bash\n" + b"a" * 100_000: "a line of more than",
        b"#!/bin/bash\n" + b"echo\n" * 100_000: "not read",
        b"x" * 2_000_000: "larger than 1 MiB",
    }
    for content, words in cases.items():
        with pytest.raises(InputError, match=words):
            read("x.sh", None, content)
    for content in (
        deep,
        laughs,
        b"services: [",
        b"services: *nothing\n",
        b"services: !!python/name:os.system x\n\t:",
    ):
        with pytest.raises(InputError, match=r"x\.yaml"):
            read("x.yaml", None, content)
    for path in ("/nonexistent", "/", "/dev/zero", "a\0b"):
        with pytest.raises(InputError):
            read(path, Kind.SHELL)


def test_options_that_are_none() -> None:
    for text in (
        "torchrun -=x",
        "torchrun - x",
        "srun -",
        "mpirun -x",
        "mpirun --mca btl",
        "docker run",
        "python -m",
        "ray start --x",
        "=",
    ):
        assert rules_of(f"#!/bin/bash\n{text}\n", Kind.SHELL) == [], text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", list(Kind))
def test_nothing_breaks_it(kind: Kind) -> None:
    """Fixtures torn apart, random bytes, hostile strings: findings or bad input, and no traceback."""
    rng = random.Random(kind.value)
    pieces = [path.read_bytes() for path in (HERE / "bad").iterdir()]
    pieces += [path.read_bytes() for path in (HERE / "good").iterdir()]
    odd = [*(text.encode("utf-8", "replace") for text in HOSTILE.values()), *HOSTILE_BYTES.values()]
    odd += [rng.randbytes(200) for _ in range(10)]
    odd += [
        b"(" * 3000,
        b"$(" * 2000,
        b"if " * 2000,
        b'"' * 999,
        b"${" * 2000,
        b"<<E\n" * 900,
        b"[" * 5000,
        b"{a,b}" * 500,
    ]
    for _ in range(60):
        torn = rng.choice(pieces)
        start = rng.randrange(len(torn))
        torn = torn[start : rng.randrange(start, len(torn)) + 1]
        content = b"".join(rng.sample([torn, rng.choice(odd), rng.choice(pieces), b"\r\n"], 4))
        found, said = [], ""
        try:
            found = lint([read("x", kind, content)])
        except InputError as error:
            said = str(error)
        assert said.isprintable()
        for one in found:
            assert one.message.isprintable()
            assert one.instead.isprintable()
            assert one.position.line >= 1
