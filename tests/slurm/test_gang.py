"""`gate --gang` as docs/gate.md has it: tasks of one srun start together, or none does."""

import re

from tests.scan.faults import put
from tests.scan.harness import REPO
from tests.slurm.conftest import Slurm


def line(count: int) -> str:
    """The page's two lines, for these nodes."""
    page = (REPO / "docs" / "gate.md").read_text("utf-8")
    found = re.search(r"```\n(export NETDOCTOR_MEET_SECRET.*?)```", page, re.DOTALL)
    assert found is not None
    text = found[1].replace("gpu01", "node0").replace("--tasks 8", f"--tasks {count}")
    text = text.replace("srun ", f"srun -N{count} ")
    text = text.replace("./launch.sh", "sh -c 'echo started on $SLURM_NODEID'")
    assert text.count("started") == 1
    return text


def test_tasks_of_srun_start_together_or_not_at_all(slurm: Slurm) -> None:
    count = len(slurm.lab.nodes)
    out = slurm.run("bash", "-c", line(count), timeout=120)
    assert sorted(re.findall(r"started on (\d)", out)) == [str(n) for n in range(count)], out
    put(slurm.lab, ("node1 full-disk",))
    out = slurm.run("bash", "-c", line(count) + " 2>&1", check=False, timeout=120)
    slurm.lab.heal()
    assert "started" not in out.replace("not started", "")
    assert out.count("FAIL host.disk /tmp is full on node1") >= count - 1, out
