"""Each rule speaks on its wrong example and is silent on its right one; fixtures say the same at length."""

import re
from pathlib import Path

import pytest

from netdoctor.lint.engine import lint, rules
from netdoctor.lint.files import Read, read
from netdoctor.lint.model import Kind, Rule

HERE = Path(__file__).parent


def sample(rule: Rule, text: str) -> list[Read]:
    """The files of an example."""
    parts = text.replace("<CR>", "\r").split("--- second file\n")
    return [read(f"node{number}", rule.example, part.encode()) for number, part in enumerate(parts)]


def test_a_rule_tells_wrong_from_right() -> None:
    for rule in rules().values():
        wrong = lint(sample(rule, rule.wrong))
        assert rule.id in {finding.rule for finding in wrong}, rule.id
        assert all(finding.message and len(finding.message) < 400 for finding in wrong), rule.id
        assert lint(sample(rule, rule.right)) == [], rule.id


def test_every_rule_has_a_title_a_source_and_words_for_people() -> None:
    for rule in rules().values():
        assert rule.title.endswith("."), rule.id
        assert rule.source, rule.id
        assert rule.happens, rule.id
        assert rule.instead, rule.id
        assert re.fullmatch(r"[a-z0-9]+\.[a-z0-9-]+", rule.id)


def test_a_port_at_its_bounds() -> None:
    def said(port: str) -> list[str]:
        return [one.rule for one in lint(sample(rules()["env.port"], f"MASTER_PORT={port}\n"))]

    assert not any(map(said, ("0", "1024", "65535")))
    assert said("1") == said("1023") == said("65536") == said("-1") == said("x") == ["env.port"]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("mlx5_0,^mlx5_1", "mlx5_0,mlx5_1"),
        ("^mlx5_0,^mlx5_1", "^mlx5_0,mlx5_1"),
        ("=mlx5_0,=mlx5_1", "=mlx5_0,mlx5_1"),
        ("^=mlx5_0,^=mlx5_1", "^=mlx5_0,mlx5_1"),
    ],
)
def test_how_a_list_of_adapters_begins_counts_for_all_of_it(written: str, instead: str) -> None:
    (found,) = lint([read("x", Kind.ENV, f"NCCL_IB_HCA={written}\n".encode())])
    assert (found.rule, found.instead) == ("env.ifname", f"NCCL_IB_HCA={instead}")
