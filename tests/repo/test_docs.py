"""docs/checks/ says what the docstrings say."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from netdoctor.engine.assemble.scope import SUBJECTS
from netdoctor.engine.registry import load_builtin
from netdoctor.lint.engine import rules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "scripts" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_pages_are_not_stale(generator: ModuleType) -> None:
    wanted = generator.pages(load_builtin().values())
    assert not generator.stale(wanted), "run `make docs`"


def test_every_check_has_a_page(generator: ModuleType) -> None:
    names = {path.stem for path in generator.CHECKS.glob("*.md")}
    assert names == {*load_builtin(), "index"}


def test_every_rule_of_lint_has_its_page(generator: ModuleType) -> None:
    wanted = generator.lint_pages(rules().values())
    assert wanted.keys() == {f"{name}.md" for name in (*rules(), "index")}
    assert not generator.stale(wanted, generator.LINT), "run `make docs`"


def test_a_changed_docstring_is_noticed(generator: ModuleType, tmp_path: Path) -> None:
    wanted = generator.pages(load_builtin().values())
    for name, text in wanted.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert generator.stale(wanted, tmp_path) == []
    (tmp_path / "host.shm.md").write_text("old", "utf-8")
    (tmp_path / "gone.check.md").write_text("a check that no longer exists", "utf-8")
    assert generator.stale(wanted, tmp_path) == ["gone.check.md", "host.shm.md"]


def test_links_between_pages_lead_somewhere(generator: ModuleType) -> None:
    wanted = generator.pages(load_builtin().values())
    for name, text in wanted.items():
        for target in re.findall(r"\]\(([\w.-]+\.md)\)", text):
            assert target in wanted, f"{name} links to {target}"


def test_pages_of_options_and_facts_are_what_the_code_says(generator: ModuleType) -> None:
    for path, text in generator.written(load_builtin().values()).items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `make docs`"


def test_the_tables_of_verdict_and_expect_are_what_the_checks_say(generator: ModuleType) -> None:
    checks = load_builtin().values()
    page = generator.EXPECT.read_text("utf-8")
    assert generator.expected(checks, page) == page, "run `make docs`"
    assert generator.expected(list(checks)[:5], page) != page
    text = generator.VERDICT.read_text("utf-8")
    assert generator.verdict(checks, text) == text, "run `make docs`"
    assert generator.verdict(list(checks)[:5], text) != text
    families = {check.family for check in checks}
    assert families == set(SUBJECTS), "each has its words behind: not tested"
    assert all(f"| `{family}` |" in text for family in families)
