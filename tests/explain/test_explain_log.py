"""`netdoctor explain log`, as it is typed."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from netdoctor.cli import run
from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import load
from netdoctor.explain.rendering import headings, text
from netdoctor.text import clean
from scripts.explain_score import answers, records, share
from tests.hostile import HOSTILE

ROOT = Path(__file__).parents[2]
SHM = "Error while creating shared memory segment /dev/shm/nccl-1YsMbG (size 7340384)"


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["explain", "log", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_exit_codes_tell_recognised_unknown_and_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content, code, said in (
        ("known", f"step 1\n{SHM}\n", 0, "[1] "),
        ("healthy", "step 1 loss 2.0\nstep 2 loss 1.9\n", 3, "Nothing wrong was found."),
        ("unknown", "foo: FATAL: cannot frobnicate 10.1.2.3\n", 3, "foo: FATAL: cannot frobnicate <address>"),
        ("empty", "", 3, "Nothing wrong was found."),
    ):
        path = tmp_path / name
        path.write_text(content)
        got, out, _ = typed(capsys, str(path))
        assert (got, said in " ".join(out.split()) + " ") == (code, True), (name, out)
    code, out, err = typed(capsys, str(tmp_path / "absent"))
    assert (code, out) == (2, "")
    assert "no such file" in err
    locked = tmp_path / "dangling"
    locked.symlink_to(tmp_path / "nowhere")
    code, _, err = typed(capsys, str(locked))
    assert code == 2
    assert "not there" in err


def test_json_fits_its_schema_whatever_the_log_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = json.loads((ROOT / "netdoctor" / "explain" / "schema.json").read_text("utf-8"))
    path = tmp_path / "rank_3.log"
    hostile = "\n".join(f"Error: cannot {one} {SHM}" for one in HOSTILE.values())
    path.write_text(f"{hostile}\nConnection closed by remote peer\n", errors="surrogatepass")
    code, out, _ = typed(capsys, str(path), "-o", "json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert jsonschema_rs.validator_for(schema).is_valid(found), list(
        jsonschema_rs.validator_for(schema).iter_errors(found)
    )
    assert found["causes"][0]["label"] == "shm_too_small"
    assert found["causes"][0]["fix"]
    assert out.isascii()
    for line in (*found["unknown_lines"], *(q for c in found["causes"] for q in (*c["lines"], *c["echoes"]))):
        assert line["text"] == clean(line["text"])


def test_hostile_lines_reach_no_terminal_and_no_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(f"{SHM} {one}" for one in HOSTILE.values()), errors="surrogatepass")
    for output in ("text", "markdown"):
        _, out, _ = typed(capsys, str(path), "-o", output, "--width", "80")
        assert all(line.isprintable() for line in out.splitlines()), output
        if output == "text":
            assert max(map(len, out.splitlines())) <= 80
        assert "<script" not in out


def test_text_says_who_failed_first_and_what_decides() -> None:
    known = load()
    said = explain_text({"rank_1.log": f"[rank1]: {SHM}", "rank_0.log": "[rank0]: ok"}, known)
    assert list(headings(said)) == ["2 logs, 2 lines, ranks 0-1.", "First to fail: rank 1"]
    shown = text(said, {"host.shm": ["Remount it larger."]})
    assert "Remount it larger." in shown
    assert "netdoctor scan HOSTS --only host.shm" in shown


def test_real_reports_come_out_right() -> None:
    """As `python scripts/explain_score.py tests/explain/failures-dev.jsonl` prints."""
    reports = records(ROOT / "tests" / "explain" / "failures-dev.jsonl")
    known = load()
    found = answers(reports, known)
    assert len(found) == 44
    assert share(found, 1) >= 0.90
    assert share(found, 3) >= 0.97
    assert not [one.record["id"] for one in found if one.confidently_wrong]
    assert share(answers(reports, known, leave_out=True), 3) >= 0.75
