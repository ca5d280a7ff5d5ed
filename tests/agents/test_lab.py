"""An agent's way through lab faults: one call names the cause, and one more shows that it is gone."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from netdoctor.cli.agents.tools import Desk
from netdoctor.lab import Lab
from tests.agents.test_mcp import check, client
from tests.scan.faults import CASES, Case, put
from tests.scan.test_faults_hw import EITHER_LAYER, VARIANTS
from tests.scan.test_faults_net import FABRIC, FIREWALL, NAMES, PACKETS

pytestmark = pytest.mark.lab
FAULTS = int(os.environ.get("NETDOCTOR_TEST_MCP_FAULTS", "5"))
SEED = int(os.environ.get("NETDOCTOR_TEST_SEED", "30"))


def chosen() -> list[Any]:
    """Faults of the network, of HCAs and of GPUs, each with the lab that it is for."""
    net = [one.values[0] for one in (*FIREWALL, *FABRIC, *NAMES, *PACKETS)]
    hcas = [one.values[0] for one in (*EITHER_LAYER, *VARIANTS)]
    gpus = [one for one in CASES if one.faults and all(name.startswith("gpu-") for name in one.names)]
    every = [("lab4", one) for one in net] + [("hw_lab", one) for one in (*hcas, *gpus)]
    # With torch on nodes a driver may be too old for it; these here have none.
    plain = [
        (lab, one)
        for lab, one in every
        if not one.job and not one.args and not one.check.startswith("sw.") and one.check != "gpu.torch"
    ]
    some = random.Random(SEED).sample(plain, min(FAULTS, len(plain)))
    return [
        pytest.param(lab, one, id=" + ".join(one.faults)) for lab, one in sorted(some, key=lambda x: x[0])
    ]


def desk_of(lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(folder)
    (folder / "hosts.txt").write_text(lab.hosts_file.read_text("utf-8"), "utf-8")
    return Desk(folder.resolve(), fields={"ssh_config": lab.ssh_config})


@pytest.mark.parametrize(("kind", "fault"), chosen())
def test_the_cause_is_named_and_gone_after_the_repair(
    kind: str, fault: Case, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = request.getfixturevalue(kind)
    desk = desk_of(lab, folder, monkeypatch)
    put(lab, fault.faults)

    async def work(connected: Any) -> tuple[Any, Any]:
        first = (await connected.call_tool("scan", {"hosts": "hosts.txt"})).structured_content
        lab.heal()
        causes = [one for one in first["causes"] if one["untrusted"]["key"] == fault.key]
        again = {"checks": causes[0]["checks"]} if causes else {"checks": [fault.check]}
        return first, (await connected.call_tool("rerun", again)).structured_content

    first, second = client(desk, work)
    check("scan", first)
    check("rerun", second)
    found = [one for one in first["causes"] if one["untrusted"]["key"] == fault.key]
    assert len(found) == 1, first["causes"]
    assert tuple(found[0]["untrusted"]["nodes"]) == fault.nodes
    assert found[0]["status"] == fault.status
    assert fault.check in found[0]["checks"]
    assert fault.key not in {one["untrusted"]["key"] for one in second["causes"]}


def test_a_healthy_lab_is_ready(lab4: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desk_of(lab4, folder, monkeypatch)

    async def work(connected: Any) -> Any:
        return (await connected.call_tool("scan", {"hosts": "hosts.txt"})).structured_content

    found = client(desk, work)
    assert (found["verdict"], found["causes"]) == ("ready", [])
