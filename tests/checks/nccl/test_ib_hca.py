import pytest

from netdoctor.checks.nccl.ib_hca import nccl_ib_hca
from netdoctor.facts.rdma import HcaPort, RdmaFacts
from netdoctor.facts.software import ConfFile, EnvFacts
from netdoctor.model import Finding, Status

from ..build import cause, causes, env, found, job
from ..build_hw import hca, port, rdma, rdmas, roce_port


def run(
    nodes: dict[str, RdmaFacts], envs: dict[str, EnvFacts] | None = None, **variables: str
) -> list[Finding]:
    setting = job(env=variables, env_from=dict.fromkeys(variables, "train.env:7"))
    return list(nccl_ib_hca(nodes, {node: env() for node in nodes} | (envs or {}), None, setting))


def named(*names: str) -> RdmaFacts:
    return rdma(*(hca(name) for name in names))


ROCE = rdma(*(hca(name, ports=(roce_port(name),)) for name in ("mlx5_0", "mlx5_1")))


def test_says_what_each_node_uses() -> None:
    findings = run(rdmas(2))
    assert {f.observed for f in findings} == {"mlx5_0:1 and mlx5_1:1"}
    assert {f.status for f in findings} == {Status.PASS}


def test_skips() -> None:
    assert [f.status for f in run({"n1": RdmaFacts()})] == [Status.SKIP]
    down = rdma(hca("mlx5_0", ports=(port(state="DOWN"),)))
    assert [f.status for f in run({"n1": down})] == [Status.SKIP]
    assert [f.status for f in nccl_ib_hca(rdmas(2), None, None, job(backend="gloo"))] == [Status.SKIP]


def test_a_list_that_matches_nothing() -> None:
    findings = run(rdmas(2), NCCL_IB_HCA="mlx4")
    assert causes(findings) == {"nccl-ib-hca-nomatch": {"n1", "n2"}}
    assert "train.env:7" in findings[0].summary
    assert [f.commands[0].shell for f in cause(findings, "nccl-ib-hca-nomatch").fixes] == [
        "unset NCCL_IB_HCA",
        "export NCCL_IB_HCA='=mlx5_0,mlx5_1'",
    ]


def test_a_list_that_matches_nothing_on_one_node() -> None:
    findings = run(rdmas(3, n2=named("roce0", "roce1")), NCCL_IB_HCA="=mlx5_0,mlx5_1")
    assert causes(findings) == {"nccl-ib-hca-nomatch": {"n2"}}
    value = cause(findings, "nccl-ib-hca-nomatch").fixes[1].commands[0].shell
    assert value == "export NCCL_IB_HCA='=mlx5_0,mlx5_1,roce0,roce1'"


def test_names_of_interfaces_are_no_hcas() -> None:
    assert "not of network interfaces" in run(rdmas(2), NCCL_IB_HCA="eth1")[0].summary


def test_a_space_in_the_list_is_pointed_out() -> None:
    words = "; NCCL takes the space in the list as part of the name"
    assert run(rdmas(2), NCCL_IB_HCA="mlx4_0, mlx4_1")[0].summary.endswith(words)
    assert words not in run(rdmas(2), NCCL_IB_HCA="mlx4_0,mlx4_1")[0].summary


def test_the_prefix_trap() -> None:
    many = named("mlx5_1", "mlx5_10", "mlx5_11")
    findings = run({"n1": many, "n2": many}, NCCL_IB_HCA="mlx5_1")
    assert causes(findings) == {"nccl-ib-hca-prefix": {"n1", "n2"}}
    assert {f.status for f in findings} == {Status.WARN}
    assert cause(findings, "nccl-ib-hca-prefix").fixes[0].commands[0].shell == "export NCCL_IB_HCA='=mlx5_1'"
    assert not causes(run({"n1": many, "n2": many}, NCCL_IB_HCA="=mlx5_1"))
    assert not causes(run({"n1": many, "n2": many}, NCCL_IB_HCA="mlx5"))


def test_switched_off_everywhere_is_a_warning() -> None:
    findings = run(rdmas(2), NCCL_IB_DISABLE="1")
    assert causes(findings) == {"nccl-ib-off": {"n1", "n2"}}
    assert {f.status for f in findings} == {Status.WARN}
    assert all(f.summary.endswith(" switches them off") for f in findings)
    assert not causes(run(rdmas(2), NCCL_IB_DISABLE="true"))
    conf = ConfFile(path="/etc/nccl.conf", values={"NCCL_IB_DISABLE": "1"})
    envs = {"n2": EnvFacts(nccl_conf=(conf,))}
    command = cause(run(rdmas(2), envs), "nccl-ib-off").fixes[0].commands[0]
    out = "sed -i 's/^NCCL_IB_DISABLE=/#netdoctor NCCL_IB_DISABLE=/' /etc/nccl.conf"
    assert (command.run_on, command.shell) == ("n2", out)
    findings = run(rdmas(2), NCCL_NET="socket")
    assert causes(findings) == {"nccl-ib-off": {"n1", "n2"}}
    assert all(f.summary.endswith(" asks for TCP") for f in findings)


def test_switched_off_on_one_node_hangs() -> None:
    envs = {"n2": env(NCCL_IB_DISABLE="1")}
    findings = run(rdmas(3), envs)
    assert causes(findings) == {"nccl-ib-off": {"n2"}}
    assert found(findings)["n2"].status is Status.FAIL


def test_a_node_without_hcas_among_others() -> None:
    findings = run(rdmas(3, n3=RdmaFacts()))
    assert causes(findings) == {"nccl-ib-mixed-transport": {"n3"}}


def test_fewer_ports_on_one_node() -> None:
    findings = run(rdmas(3, n1=named("mlx5_0")))
    assert causes(findings) == {"nccl-ib-fewer": {"n1"}}
    assert found(findings)["n1"].status is Status.WARN
    assert cause(findings, "nccl-ib-fewer").fixes == ()
    findings = run(rdmas(3), {"n1": env(NCCL_IB_HCA="=mlx5_0")})
    (fix,) = cause(findings, "nccl-ib-fewer").fixes
    assert fix.commands[0].shell == "export NCCL_IB_HCA='=mlx5_0,mlx5_1'"


def test_other_names_are_fine_when_as_many() -> None:
    assert not causes(run(rdmas(3, n1=named("ibp1", "ibp2"))))


def test_link_layers_do_not_mix() -> None:
    findings = run(rdmas(3, n1=ROCE))
    assert causes(findings) == {"nccl-ib-link-layer": {"n1"}}
    assert "use Ethernet ports here, InfiniBand on other nodes" in found(findings)["n1"].summary
    mixed = rdma(hca("mlx5_0"), hca("mlx5_1", ports=(roce_port("mlx5_1"),)))
    findings = run({"n1": mixed, "n2": mixed})
    assert causes(findings) == {"nccl-ib-two-layers": {"n1", "n2"}}
    assert cause(findings, "nccl-ib-two-layers").fixes[0].commands[0].shell == "export NCCL_IB_HCA='=mlx5_0'"
    assert not causes(run({"n1": mixed, "n2": mixed}, NCCL_IB_HCA="=mlx5_0"))


def test_what_a_node_sets_has_to_be_known() -> None:
    findings = found(nccl_ib_hca(rdmas(2), {"n1": env()}, None, job()))
    assert [findings[node].status for node in ("n1", "n2")] == [Status.PASS, Status.UNKNOWN]


@pytest.mark.parametrize(
    "ports", [(port(), port(number=2, state="")), (port(), port(number=2, link_layer="")), ()]
)
def test_a_port_that_cannot_be_read_is_not_left_out(ports: tuple[HcaPort, ...]) -> None:
    odd = rdma(hca("mlx5_0", ports=ports), hca("mlx5_1"))
    findings = run(rdmas(2, n2=odd))
    assert {f.target for f in findings if f.status is Status.UNKNOWN} == {"n2"}
    alone = rdma(hca("mlx5_0", ports=(port(state=""),)))
    assert [(f.target, f.status) for f in run({"n1": alone})][-1] == ("n1", Status.UNKNOWN)
