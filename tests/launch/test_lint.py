"""What `plan` writes, `lint` has nothing to say against."""

from dataclasses import replace

import pytest

from netdoctor import launch
from netdoctor.cli.plan import LAUNCHERS
from netdoctor.lint.engine import lint
from netdoctor.lint.files import read
from tests.checks import build as healthy
from tests.launch.build import evidence, planned, targets

pytest.importorskip("tree_sitter_bash")


def test_lint_finds_nothing_in_plans() -> None:
    seen = evidence(2)
    for i in (1, 2):
        there = healthy.net(
            i, netdevs=(healthy.netdev("ens9"),), addresses=(healthy.row("ens9", f"10.0.0.{i}"),)
        )
        seen.facts.put("net", healthy.name(i), there)
    uneven = [replace(one, slots=one.order + 1) for one in targets(2)]
    for launcher in LAUNCHERS:
        plans = [planned(targets(2, slots=8), None, launcher), planned(targets(2), seen, launcher)]
        if launcher in ("torchrun", "sbatch", "deepspeed", "mpirun", "ray"):
            plans.append(planned(uneven, seen, launcher, rdzv="static"))
        for made in plans:
            files = [read(part.name, None, part.text.encode()) for part in launch.parts(made)]
            assert lint(files) == [], launcher
            assert launcher != "torchrun" or lint([read("pasted.sh", None, launch.text(made).encode())]) == []
