"""Tables in TOML: read by their schema, and a mistake is told with its file and key."""

from pathlib import Path

import pytest
from msgspec import Struct

import netdoctor
from netdoctor import tables
from netdoctor.rules import boards, profiles, variables, xid

ROOT = Path(netdoctor.__file__).parent


class Row(Struct, forbid_unknown_fields=True):
    name: str
    rate: float


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 'x'\nrate = 1\ncolour = 'red'\n", "unknown field `colour`"),
        ("name = 'x'\n", "missing required field `rate`"),
        ("name = 'x'\nrate = 'much'\n", r"\$\.rate"),
        ("name = \n", "line 1"),
    ],
)
def test_a_mistake_is_told_with_its_file(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^rules/data/x\.toml: .*{said}"):
        tables.parsed(text, "rules/data/x.toml", Row)


def test_words_may_have_a_remark() -> None:
    assert tables.names("a b  # why\n\n# nothing\nc\n") == {"a", "b", "c"}


def test_every_table_has_a_reader() -> None:
    files = {path.name: path for path in ROOT.glob("*/data/*.toml")}
    code = "".join(path.read_text("utf-8") for path in ROOT.glob("*/*.py"))
    assert files
    assert [name for name in files if f'"{name}"' not in code] == []


def test_what_the_tables_say() -> None:
    board = boards.board("NVIDIA H100 80GB HBM3")
    assert board is not None
    assert (board.tflop_s, board.gbyte_s) == (989, 3350)
    assert xid.meaning(79, "") == xid.Xid("the GPU has fallen off the bus", xid.Need.REBOOT)
    assert {one.cloud for one in profiles.PROFILES} == {"aws", "azure", "oci", None}
    assert variables.WORDS["NCCL_SOCKET_FAMILY"] == ("AF_INET", "AF_INET6")
    assert {"NCCL_ALGO", "WORLD_SIZE"} <= variables.MUST_BE_EQUAL
