"""What NVML and nvidia-smi said on real boards, and the lab's NVML beside it.

tests/data/nvml: the agent's answer, each call with its milliseconds and nvmlReturn_t, and `nvidia-smi -q -x`
of the same moment, from driver 580.159.04; tests/data/machines has the same boards as machines.
"""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from netdoctor.facts.gpu import GpuFacts
from tests import machines

from .test_nvidia_smi import differences

DATA = Path(__file__).parents[1] / "data/nvml"
BOARDS = pytest.mark.parametrize("board", ["h100", "h200"])
# Of each machine its own.
OWN = ("uuid", "pci_bus_id")


def recorded(board: str) -> dict[str, Any]:
    answer = json.loads((DATA / f"{board}.json").read_text("utf-8"))["answer"]
    assert isinstance(answer, dict)
    return answer


@BOARDS
def test_the_agent_reads_what_nvidia_smi_prints(board: str) -> None:
    facts = msgspec.convert(recorded(board), type=GpuFacts)
    printed = ElementTree.fromstring((DATA / f"{board}.xml").read_text("utf-8"))
    (device,), (gpu,) = facts.devices, printed.iter("gpu")
    assert printed.findtext("driver_version") == facts.driver_version
    assert list(differences(gpu, device)) == []


@BOARDS
def test_the_labs_nvml_answers_as_the_real_one(board: str) -> None:
    if machines.nvml_library() is None:
        pytest.skip("no compiler for the lab's NVML")
    (answers,) = machines.ask([machines.load(f"{board}-vm")])
    real = recorded(board)
    ours = {name: answers["gpu"]["value"][name] for name in real}
    for each in (real, ours):
        (device,) = each["devices"]
        for name in OWN:
            del device[name]
    assert ours["devices"] == real["devices"]
    assert ours == real
