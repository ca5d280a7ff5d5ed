"""Clusters of real kinds of machines: healthy ones give no alarm, and one broken member is named."""

from collections.abc import Sequence

import pytest

from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.wanted import Wanted, Wish
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
        store.cluster["wanted"] = Wanted(
            wishes=tuple(
                Wish(key=key, any_of=(value,), place="e:1", nodes=(node,))
                for node, values in parts.items()
                for key, value in values.items()
            )
        )
        assert alarms(judged(members, store)[1]) == []
