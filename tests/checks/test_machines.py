"""Clusters of real kinds of machines: healthy ones give no alarm, and one broken member is named."""

import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module

import pytest

import netdoctor.facts
from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.model import Status
from netdoctor.store import Store
from tests import machines
from tests.checks import build
from tests.machines import Machine

# So many that the odd one has a majority against it.
BROKEN_AMONG = 4
ALARMS = (Status.WARN, Status.FAIL, Status.UNKNOWN)


CHECKS = [one for one in ordered(load_builtin().values()) if one.via in (None, "ssh")]
KNOWN = [machines.load(name) for name in machines.names()]
KINDS = pytest.mark.parametrize("machine", KNOWN, ids=machines.names())


@pytest.fixture(scope="module", autouse=True)
def asked() -> None:
    """All at once: a fork for all of them."""
    if machines.nvml_library() is None:
        pytest.skip("no C compiler for the lab's NVML (gcc)")
    machines.ready(KNOWN)


@pytest.fixture(scope="module")
def broken() -> None:
    machines.ready(one.broken(fault) for one in KNOWN for fault in one.faults)


def judged(members: Sequence[Machine], store: Store | None = None) -> tuple[Judgement, list[Group]]:
    judgement = judge(CHECKS, build.names(len(members)), store or machines.fleet(members))
    assert judgement.tracebacks == []
    return judgement, diagnose(judgement)


def alarms(groups: Sequence[Group]) -> list[str]:
    """What a user would be told, with the sentences behind it."""
    return [
        f"{group.status} {group.key} of {', '.join(group.culprits)}: {group.title}"
        for group in groups
        if group.status in ALARMS
    ]


# Groups of facts that no machine has, and why; what is new is given to the machines, or has its line here.
NOWHERE = {
    **dict.fromkeys(
        ("launch", "sharing", "storage", "groups", "reach", "mesh", "imports", "wanted", "baseline"),
        "asked for",
    ),
    "bmc": "no file has what a management controller says",
    **dict.fromkeys(("ray", "ray_ports", "firewall"), "no Ray runs, and nothing is filtered"),
    **dict.fromkeys(
        ("gpu_bits", "gpu_work", "job_shells", "loss", "nccl_answer", "shell_env"),
        "measured in launch and full scans",
    ),
    **dict.fromkeys(
        ("allreduce", "collectives", "ladder", "pair_rates", "tcp_rates", "rdma_rates"),
        "bandwidth takes its time",
    ),
}
NO_DRIVER = {"cloud-vm", "cpu-cluster", "graviton", "mi300x", "microvm"}
# What some machine has at least, so that its checks have something healthy to be silent about.
SOMEWHERE: dict[str, Callable[[Store], object]] = {
    "a bond": lambda store: any(dev.slaves for dev in store.get("net", "n1").netdevs),
    "addresses in one subnet": lambda store: store.get("net", "n1").shared,
    "tracked connections": lambda store: store.get("net", "n1").conntrack_max,
    "an interface with a driver and a speed": lambda store: any(
        dev.driver and dev.speed_mbit_s for dev in store.get("net", "n1").netdevs
    ),
    "torch's GPU code": lambda store: store.get("software", "n1").torch.archs,
    "PCIe links of HCAs": lambda store: any(hca.pcie for hca in store.get("rdma", "n1").hcas),
    "limits of a control group": lambda store: store.get("tuning", "n1").memory_limit_bytes,
    "AMD's GPUs": lambda store: store.get("accelerators", "n1").kfd,
    "NVSwitches": lambda store: store.get("gpu", "n1").nvswitches,
    "a container": lambda store: store.get("host", "n1").container,
    "a cloud": lambda store: store.get("host", "n1").cloud,
}


def test_no_group_of_facts_is_forgotten() -> None:
    for module in pkgutil.iter_modules(netdoctor.facts.__path__):
        import_module(f"netdoctor.facts.{module.name}")
    needed = {need.info for check in load_builtin().values() for need in check.needs}
    groups = {info.group for info in needed if info.origin != "derived"}
    assert groups >= NOWHERE.keys(), "there is no such group any more"
    left = dict(SOMEWHERE)
    for machine in KNOWN:
        store = machines.fleet([machine])
        there = {*store.cluster, *(group for group in store.node if store.present(group, ["n1"]))}
        wanted = groups - NOWHERE.keys() - ({"kernel_log"} if machine.name in NO_DRIVER else set())
        assert there == wanted, f"{machine.name}: a group has to be given to it, or named in NOWHERE"
        left = {what: has for what, has in left.items() if not has(store)}
    assert not left, "on no machine"


@KINDS
def test_three_healthy_machines_of_a_kind_give_no_alarm(machine: Machine) -> None:
    _, groups = judged([machine] * 3)
    assert alarms(groups) == []


@pytest.mark.thorough
@KINDS
def test_nor_do_one_two_and_eight(machine: Machine) -> None:
    for count in (1, 2, 8):
        _, groups = judged([machine] * count)
        assert alarms(groups) == [], f"{count} of them"


@pytest.mark.thorough
@KINDS
@pytest.mark.usefixtures("broken")
def test_the_broken_one_is_named(machine: Machine) -> None:
    assert len(machine.faults) > 1
    for fault in machine.faults:
        members = [machine] * BROKEN_AMONG
        members[2] = machine.broken(fault)
        _, groups = judged(members)
        named = [(group.key, group.culprits) for group in groups if group.status in ALARMS]
        # A cause on one path has that path's id behind its own.
        assert [(key[: len(fault)], culprits) for key, culprits in named] == [(fault, ("n3",))], alarms(
            groups
        )


@pytest.mark.thorough
def test_mixed_clusters_are_silent_where_the_mixture_was_said() -> None:
    """A login node, spare nodes of another kernel, two generations: with a value typed for each part."""
    hgx, dgx = machines.load("hgx-h100-ib"), machines.load("dgx-a100-hdr")
    login = Machine(hgx.name, machines.merged(hgx.spec, {"gpus": 0, "devices": {}}), "login")
    spare = Machine(hgx.name, machines.merged(hgx.spec, {"kernel": "5.15.0-130-generic"}), "spare")
    for members, parts in [
        ([hgx, hgx, hgx, login], {"n4": {"gpu.count": "0"}}),
        ([hgx, hgx, hgx, spare], {"n4": {"host.kernel": "5.15.0-130-generic"}}),
        (
            [hgx, hgx, dgx, dgx],
            {n: {"gpu.model": "NVIDIA A100-*", "rdma.rate": "200"} for n in ("n3", "n4")}
            | {n: {"gpu.model": "NVIDIA H100*", "rdma.rate": "400"} for n in ("n1", "n2")},
        ),
    ]:
        store = machines.fleet(members)
        assert alarms(judged(members, store)[1]), "so that there is something to say"
        store.cluster["wanted"] = Expectations(
            wishes=tuple(
                Expectation(key=key, any_of=(value,), place="e:1", nodes=(node,))
                for node, values in parts.items()
                for key, value in values.items()
            )
        )
        assert alarms(judged(members, store)[1]) == []
