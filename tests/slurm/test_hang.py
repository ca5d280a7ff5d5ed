"""`explain hang --via slurm` in the allocation of a real job that hangs."""

import json
import shutil
from pathlib import Path

import pytest

from tests.bandwidth.conftest import torch
from tests.slurm.conftest import Slurm
from tests.slurm.test_try import alone

__all__ = ["torch"]
JOB = Path(__file__).parents[1] / "hang" / "job.py"
TASK = """\
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR={address}
export MASTER_PORT=29511 GLOO_SOCKET_IFNAME=eth0 TMPDIR=/tmp
exec {python} {job} {what}
"""
# The job as a step of its own, until all ranks have made two steps; then netdoctor in the same allocation.
BATCH = """\
srun --ntasks-per-node=1 --nodes={count} sh /task.sh > /job.log 2>&1 &
for i in $(seq 600); do [ "$(grep -c steps /job.log)" = {count} ] && break; sleep 0.2; done
sleep 4
cd /root && netdoctor explain hang --via slurm --no-scan --quiet -o json
kill $!
"""


@pytest.mark.weekly
@pytest.mark.parametrize(("what", "node"), [("sleep 2 5", "node2"), ("stopped 1 5", "node1")])
def test_the_rank_that_holds_others_up_is_named(via: Slurm, torch: str, what: str, node: str) -> None:
    job = via.site / "hang.py"
    shutil.copyfile(JOB, job)
    task = TASK.format(address=via.lab.address(via.first), python=torch, job=job, what=what)
    via.write({"/task.sh": task})
    batch = BATCH.format(count=len(via.lab.nodes))
    out = via.run(
        "salloc", "-Q", f"--nodes={len(via.lab.nodes)}", "--exclusive", "sh", "-c", batch, timeout=240
    )
    found = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert (found["ranks_at_fault"], found["nodes_at_fault"]) == ([int(what.split()[1])], [node]), found
    via.run("scancel", "--user=root")
    alone(via)
