"""Reports of nodes that call everything something hostile: plans of them stay text that shells can read."""

import subprocess
from dataclasses import replace

import pytest

from netdoctor import launch
from netdoctor.errors import InputError
from netdoctor.facts.net import Listener, PortHolderFacts
from netdoctor.facts.rdma import Gid, Hca, HcaPort, RdmaFacts
from netdoctor.facts.software import Nccl, SoftwareFacts, Torch
from netdoctor.launch import Evidence
from tests.checks import build as healthy
from tests.hostile import HOSTILE
from tests.launch.build import evidence, planned, targets
from tests.launch.test_emit import WORDS


def of(said: str) -> Evidence:
    """A report in which nodes, programs and files are called so, and so are its causes."""
    env = {"NCCL_SOCKET_IFNAME": said, "CUDA_VISIBLE_DEVICES": said}
    job = healthy.job(2, env=env, env_from=dict.fromkeys(env, said))
    seen = evidence(2, state="not_ready", causes=(said,), source=said, headline=said, job=job)
    port = HcaPort(
        name=f"{said}:1", number=1, state="ACTIVE", phys_state="LinkUp", link_layer="Ethernet", rate_gbit_s=9,
        gids=(Gid(index=3, gid=said, type="RoCE v2"),),
    )  # fmt: skip
    for i in (1, 2):
        rows = (healthy.row(said, f"10.0.0.{i}"),)
        facts = {
            "net": healthy.net(i, netdevs=(healthy.netdev(said),), addresses=rows),
            "host": healthy.host(i, hostname=f"{said}{i}"),
            "software": SoftwareFacts(
                executable=f"/opt/{said}",
                version=said,
                torch=Torch(version=said),
                nccl=(Nccl(version=said, origin=said, path=said),),
            ),
            "rdma": RdmaFacts(hcas=(Hca(name=said, ports=(port,)),)),
            "port_holder": PortHolderFacts(
                port=29500, listeners=(Listener(port=29500, address=said, process=said),)
            ),
        }
        for group, fact in facts.items():
            seen.facts.put(group, healthy.name(i), fact)
    return seen


@pytest.mark.thorough
def test_whatever_nodes_call_things_plans_stay_text() -> None:
    for said in (*HOSTILE.values(), *WORDS):
        made = planned(targets(2), of(said))
        scripts = []
        for launcher in ("torchrun", "sbatch", "deepspeed", "ray", "k8s"):
            plan = replace(made, options=replace(made.options, launcher=launcher))
            try:
                texts = [launch.text(plan), launch.dotenv(plan)]
            except InputError:  # what DeepSpeed would garble
                continue
            assert all(line.isprintable() for text in texts for line in text.split("\n")), (launcher, said)
            scripts += [part.text for part in launch.parts(plan) if part.runs]
        assert scripts
        done = subprocess.run(
            ["bash", "-n"], input="\n".join(scripts), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), said
