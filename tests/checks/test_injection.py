"""What watches the other tests of this folder sees a command that takes a node's words as they are."""

import shlex
from collections.abc import Callable, Iterator

import pytest

from netdoctor.checks.rdma.pcie import ADDRESS, rdma_pcie
from netdoctor.facts.rdma import Hca
from netdoctor.model import HERE, Cause, Finding, run

from .injection import HOSTILE, attack, bare

CAUSE = Cause("some-cause", "{nodes} {is} ill")


def naming(command: Callable[[str], str]) -> Callable[[Hca], Iterator[Finding]]:
    def check(hca: Hca) -> Iterator[Finding]:
        yield CAUSE.fail("ill", at=HERE, fixes=run("heal it", command(hca.name)))

    return check


@pytest.mark.parametrize(
    "shell", ["ip link set dev {}", "ip link set dev '{}'", 'ip link set dev "{}"', "true  # {}"]
)
def test_a_word_that_stands_bare_is_seen(shell: str) -> None:
    assert bare(shell.format(HOSTILE))
    with pytest.raises(AssertionError, match=r"some-cause: hca\.name stands bare"):
        attack(naming(shell.format), {"hca": Hca(name="mlx5_0")}, {shell})


@pytest.mark.parametrize(
    "command",
    [shlex.quote, lambda name: f"bash -c {shlex.quote('ip link show ' + shlex.quote(name))}", lambda _: ""],
)
def test_one_that_is_quoted_is_not(command: Callable[[str], str]) -> None:
    attack(naming(command), {"hca": Hca(name="mlx5_0")}, {repr(command)})


def test_a_pattern_that_lets_no_others_pass_is_enough() -> None:
    attack(
        naming(lambda name: name if ADDRESS.fullmatch(name) else ""),
        {"hca": Hca(name="mlx5_0")},
        {"pattern"},
    )
    with pytest.raises(AssertionError):
        attack(
            naming(lambda name: name if name.startswith("mlx") else ""),
            {"hca": Hca(name="mlx5_0")},
            {"start"},
        )


@pytest.mark.thorough
def test_checks_are_watched() -> None:
    assert hasattr(rdma_pcie, "__wrapped__")
