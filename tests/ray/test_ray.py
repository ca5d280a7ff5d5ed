"""`scan --via ray` on a real Ray cluster of lab nodes, beside SSH. One test, for one cluster."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.ray.conftest import Ray, command
from tests.scan.harness import Scanned, scan, until

# In the command line of an agent, and in the name that Ray gives the process of our actor.
AGENT, ACTOR = "ndagent_loader", "ray::Agent"


def causes(scanned: Scanned) -> dict[str, tuple[str, ...]]:
    return {cause["key"]: tuple(cause["node_list"]) for cause in scanned.report["causes"]}


def alike(ray: Scanned, ssh: Scanned) -> None:
    """The same verdict, the same causes of the same nodes, and the same in every cell that both have."""
    assert (ray.code, ray.state) == (ssh.code, ssh.state), ray.summary() + ssh.summary()
    assert causes(ray) == causes(ssh), ray.summary() + ssh.summary()
    common = {*ray.report["matrix"]["checks"]} & {*ssh.report["matrix"]["checks"]}
    assert {"net.ports", "gpu.count", "sw.torch", "ray.version", "ray.ports", "ray.resources"} <= common
    for check in common:
        for node in ray.report["matrix"]["nodes"]:
            assert ray.cell(check, node) == ssh.cell(check, node), (check, node)


def interrupted(ray: Ray, folder: Path) -> None:
    """Ctrl-C once all agents run: what is known is reported, and nothing of it is left anywhere."""
    with ThreadPoolExecutor(1) as pool:
        scanning = pool.submit(ray.scan, folder)
        until(lambda: len(ray.processes(AGENT)) >= len(ray.lab.nodes), "an agent on every node")
        (scan,) = [pid for pid in ray.processes("netdoctor\0scan") if "\0sh\0" not in command(pid)]
        os.kill(scan, signal.SIGINT)
        found = scanning.result()
    assert found.report["run"]["ended_by"] == "interrupt"
    until(lambda: not [*ray.processes(AGENT), *ray.processes(ACTOR)], "no agent and no actor is left")
    assert not ray.processes("ray_driver")


def test_via_ray_as_over_ssh(ray: Ray, tmp_path: Path) -> None:
    lab = ray.lab
    folder = tmp_path / "ray"
    folder.mkdir()
    healthy = ray.scan(folder)
    assert (healthy.state, healthy.keys) == ("ready", []), healthy.summary()
    alike(healthy, scan(lab, tmp_path, "--python", "/usr/bin/python3"))

    lab.break_("node1", "torch", version="2.4.0+cu121")
    lab.break_("node2", "drop", peers="node1")
    lab.break_("node3", "gpu-missing")
    broken = ray.scan(folder)
    assert causes(broken) == {
        "torch-version": ("node1",),
        "firewall-inbound": ("node2",),  # with the pair that ray.ports finds shut, too
        "gpu-count-fewer": ("node3",),
        "ray-gpus": ("node3",),  # two are handed out, as at its start
    }, broken.summary()
    alike(broken, scan(lab, tmp_path, "--python", "/usr/bin/python3"))
    lab.heal()
    interrupted(ray, folder)

    (raylet,) = [pid for pid in ray.processes("raylet/raylet", "node3") if "_socket_name" in command(pid)]
    os.kill(raylet, signal.SIGKILL)
    partly = ray.scan(folder, "node0", "node3", "192.0.2.77")
    assert causes(partly) == {
        "ray-node-dead": ("node3",),
        "ray-unknown-node": ("192.0.2.77",),
    }, partly.summary()
    # In Ray's own word, which depends on whether the process or its heartbeats are missed first.
    (why,) = partly.cause("ray-node-dead")["seen"][:1]
    assert why.startswith("node3: "), why
    assert partly.cell("host.shm", "node0") == "."
    assert partly.cell("host.shm", "node3") == "b"
