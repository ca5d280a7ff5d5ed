from typing import Any

import pytest

from netdoctor.checks.rdma.efa import rdma_efa
from netdoctor.facts.rdma import Hca, NetPlugin, RdmaFacts
from netdoctor.facts.software import EnvFacts
from netdoctor.model import Finding, Status

from ..build import causes, env, job, said
from ..build_hw import gpus, hca, no_gpus, software

EFA = hca("rdmap16s0", driver="efa 2.13.0g", hca_type=None)
FOLDER = "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"


def plugin(found: bool = True, folder: str = FOLDER) -> NetPlugin:
    return NetPlugin(path=f"{folder}/libnccl-net.so", found=found)


def judged(
    plugins: tuple[NetPlugin, ...] | None, *hcas: Hca, login: EnvFacts | None = None, **given: Any
) -> list[Finding]:
    facts: dict[str, Any] = {"gpu": gpus(), "software": software(), "job": job(), **given}
    rdma = RdmaFacts(hcas=hcas or (EFA, EFA), net_plugins=plugins)
    return said(rdma_efa(rdma, login or env(), **facts))


def test_silent_where_nccl_finds_it() -> None:
    assert not judged((plugin(),))
    assert not judged((plugin(False), plugin(True, "/usr/lib64")))
    # The session does not have the folder, and the job does.
    assert not judged((plugin(False),), job=job(env={"LD_LIBRARY_PATH": f"/usr/lib64:{FOLDER}"}))


def test_a_node_without_the_plugin() -> None:
    (finding,) = judged(())
    assert (finding.status, causes([finding])) == (Status.WARN, {"efa-plugin-none": {"n1"}})
    assert finding.summary == "2 EFA devices, and the plugin that NCCL needs for them is nowhere"
    assert finding.evidence[0].output == "no libnccl-net*.so"


def test_a_plugin_that_the_loader_does_not_find() -> None:
    (finding,) = judged((plugin(False),), EFA)
    assert (finding.status, causes([finding])) == (Status.WARN, {"efa-plugin-hidden": {"n1"}})
    assert finding.summary.startswith("1 EFA device, and the plugin")
    assert finding.observed == f"only in {FOLDER}"
    assert finding.evidence[0].output == f"{FOLDER}/libnccl-net.so"
    assert finding.cause
    (command,) = [one for fix in finding.cause.fixes for one in fix.commands]
    assert command.shell == f'export LD_LIBRARY_PATH={FOLDER}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'


@pytest.mark.parametrize("folder", ["/opt/$(id)", "/opt/a b", "/opt/a;id", "/opt/a\n", "opt", "/opt/`id`"])
def test_no_words_of_a_node_stand_in_a_command(folder: str) -> None:
    (finding,) = judged((plugin(False, folder),))
    assert finding.cause
    assert not [one for fix in finding.cause.fixes for one in fix.commands]


@pytest.mark.parametrize(
    ("plugins", "hcas", "given"),
    [
        ((), (hca(),), {}),
        (None, (EFA,), {}),
        ((), (EFA,), {"gpu": None}),
        ((), (EFA,), {"gpu": no_gpus()}),
        ((), (EFA,), {"software": None}),
        ((), (EFA,), {"software": software(torch=None)}),
        ((), (EFA,), {"login": env(NCCL_NET_PLUGIN="/opt/mine/libnccl-net-mine.so")}),
    ],
    ids=["no EFA", "old report", "no GPU facts", "no GPU", "no interpreter", "no torch", "named"],
)
def test_what_is_not_judged(plugins: Any, hcas: Any, given: Any) -> None:
    (finding,) = judged(plugins, *hcas, **given)
    assert finding.status is Status.SKIP
    if "login" in given:
        assert finding.summary == "the plugin is set in NCCL_NET_PLUGIN (login session)"
