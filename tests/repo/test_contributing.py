"""The code in CONTRIBUTING's walk-throughs is that of the example plug-in, which test_plugin runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^`([\w/.-]+\.py)`:\n\n```python\n(.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)


def test_every_python_block_says_whose_it_is() -> None:
    assert len(BLOCKS) == TEXT.count("```python") > 0


@pytest.mark.parametrize(("path", "block"), BLOCKS)
def test_a_block_is_the_code_of_its_file(path: str, block: str) -> None:
    assert f"\n{block}\n" in (ROOT / path).read_text("utf-8")
