"""`scan --via ray` on a real Ray cluster of lab nodes, beside SSH."""

import os
import resource
import shlex
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

    (raylet,) = ray.raylets("node3")
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


def stop(ray: Ray, node: str) -> None:
    """End Ray there as a machine that is switched off does."""
    for pid in ray.processes("ray", node):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not ray.processes("ray", node), "Ray is gone there")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def locked(raylet: int) -> set[int]:
    """RLIMIT_MEMLOCK of a raylet and of what it has started."""
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    family = [raylet, *map(int, children)]
    return {resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[0] for pid in family}


def test_what_only_ray_brings_about(ray: Ray, tmp_path: Path) -> None:
    """A raylet that may lock little memory, two where one belongs, one without CPUs; and one that hangs."""
    for node in ("node1", "node3"):
        stop(ray, node)
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]  # nobody in a lab node may have more
    hard = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    ray.start("node1", limits=[f"--memlock=65536:{hard}"])
    ray.start("node2")
    ray.start("node3", "--num-cpus=0")
    folder = tmp_path / "ray"
    folder.mkdir()
    found = ray.scan(folder)
    assert causes(found) == {"memlock-low": ("node1",), "ray-gpus": ("node2",)}, found.summary()
    assert found.report["healthy_nodes"] == ["node0", "node3"]
    assert "pgrep -x raylet" in str(found.cause("memlock-low")["fixes"])
    assert "2 raylets" in str(found.cause("ray-gpus")["seen"])
    assert scan(ray.lab, tmp_path, "--only", "host.memlock").keys == []  # logins have it

    (low,) = ray.raylets("node1")
    before = locked(low)
    assert before == {65536}, "workers do not have what their raylet has"
    fix, *_ = found.cause("memlock-low")["fixes"]
    (line,) = fix["commands"]
    assert (line["run_on"], fix["needs_root"]) == (["node1"], True)
    sudo, *argv = shlex.split(line["inner"])  # of a root who is in lab nodes already
    assert (sudo, argv[-1].count("unlimited:unlimited")) == ("sudo", 1)
    argv[-1] = argv[-1].replace("unlimited:unlimited", f"{hard}:{hard}")
    done = ray.run("node1", *argv)
    assert done.returncode == 0, done.stderr
    again = ray.scan(folder, "--only", "host.memlock")
    assert again.keys == [], again.summary()

    (raylet,) = ray.raylets("node3")
    with stopped(raylet):
        # Ray asks it to place actors of others, too: every third such scan blamed one of them for being late.
        hangs = ray.scan(folder, "--timeout", "15", "--only", "host.memlock,host.shm")
    assert causes(hangs) == {"ray-late": ("node3",)}, hangs.summary()
    assert (hangs.code, hangs.cell("host.shm", "node0")) == (3, "."), hangs.summary()


def test_a_head_that_does_not_answer_costs_no_more_than_the_timeout(ray: Ray) -> None:
    for address, why in (("127.0.0.1:1", "nothing listens there"), ("nosuch.invalid:6379", "no such host")):
        done = ray.netdoctor("--ray-address", address)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"no Ray cluster at {address}: {why}" in done.stderr
    (server,) = ray.processes("gcs/gcs_server", ray.lab.nodes[0])
    with stopped(server), ThreadPoolExecutor(1) as pool:
        done = ray.netdoctor("--timeout", "6")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "no answer in 6 s: its GCS hangs" in done.stderr
        until(lambda: not ray.processes("ray_driver"), "its driver is gone")
        # Ctrl-C while Ray is waited for.
        waiting = pool.submit(ray.netdoctor)
        until(lambda: ray.processes("ray_driver"), "a driver waits")
        time.sleep(2)  # Ray is imported, and connects
        (scan,) = [pid for pid in ray.processes("netdoctor\0scan") if "\0sh\0" not in command(pid)]
        os.kill(scan, signal.SIGINT)
        assert waiting.result().returncode == 130
        until(lambda: not ray.processes("ray_driver"), "nothing of ours waits")
