"""The recorder against a lab: what the torch that is installed today writes is still known."""

from dataclasses import replace
from pathlib import Path

import pytest

from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import Confidence
from netdoctor.lab import Lab
from netdoctor.lab import node as nodes
from scripts.record_logs import JOB, run, trimmed
from tests.bandwidth.conftest import torch_python
from tests.explain.recordings import FAULTS, job

pytestmark = pytest.mark.lab


def test_what_the_installed_torch_says_is_known(lab4: Lab) -> None:
    python, why = torch_python()
    if why:
        pytest.skip(why)
    for node in lab4.nodes:
        nodes.write(lab4.state, node, {JOB: Path(__file__).with_name("job.py").read_bytes()})
    # One rank is enough for this fault, and starts torch once.
    base = next(one for one in FAULTS if one.name == "ifname_not_there")
    alone = replace(base, ranks=(0,), env={"WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "ens10f0"}, args=job())
    words = {node: lab4.address(node) for node in lab4.nodes} | {"python": python, "job": JOB}
    said = run(lab4, alone, words)
    first = explain_text({"rank0.log": "\n".join(trimmed(said[0]))}).reasons[0]
    assert first.known.label == base.label, said[0]
    assert first.confidence is Confidence.CERTAIN
