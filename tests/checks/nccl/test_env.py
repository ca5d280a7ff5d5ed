import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from netdoctor.checks._shared.env import change
from netdoctor.checks.nccl.env import nccl_env
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import ConfFile, EnvFacts
from netdoctor.model import Finding, Kind, Status
from netdoctor.rules.variables import Setting, Source, unknown_choice

from ..build import cause, causes, env, found, job
from ..build_hw import nccl, rdma, software


def run(count: int = 2, rdmas: dict[str, RdmaFacts] | None = None, **variables: str) -> list[Finding]:
    setting = job(env=variables, env_from=dict.fromkeys(variables, "train.env:4"))
    return list(nccl_env({f"n{i}": env() for i in range(1, count + 1)}, rdmas, None, setting))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_IB_HCA": "^=mlx5_0", "NCCL_DEBUG": "WARN"},
        {"NCCL_IB_DISABLE": "0", "NCCL_IB_TIMEOUT": "22", "NCCL_SOCKET_FAMILY": "AF_INET"},
        {"NCCL_NET_GDR_LEVEL": "PXB", "NCCL_P2P_LEVEL": "5", "NCCL_BUFFSIZE": "0x400000"},
        {"NCCL_IB_HCA": "m"},
        {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "16"},
        {"http_proxy": "http://proxy:3128"},
    ],
)
def test_silent_on_what_means_what_it_says(variables: dict[str, str]) -> None:
    assert not run(**variables)
    assert not run(1, **variables)


@pytest.mark.parametrize(
    ("name", "value", "key", "proposal"),
    [
        ("NCCL_IB_DISABLE", "true", "nccl-env-number-nccl-ib-disable", "export NCCL_IB_DISABLE=1"),
        ("NCCL_IB_DISABLE", "no", "nccl-env-number-nccl-ib-disable", "export NCCL_IB_DISABLE=0"),
        ("NCCL_IB_TIMEOUT", "022", "nccl-env-number-nccl-ib-timeout", "export NCCL_IB_TIMEOUT=22"),
        ("NCCL_BUFFSIZE", "4M", "nccl-env-number-nccl-buffsize", "unset NCCL_BUFFSIZE"),
        ("NCCL_SOCKET_FAMILY", "4", "nccl-env-word-nccl-socket-family", "export NCCL_SOCKET_FAMILY=AF_INET"),
        ("NCCL_NET_GDR_LEVEL", "pxb", "nccl-env-word-nccl-net-gdr-level", "export NCCL_NET_GDR_LEVEL=PXB"),
        ("NCCL_P2P_LEVEL", "nvlink", "nccl-env-word-nccl-p2p-level", "unset NCCL_P2P_LEVEL"),
        (
            "NCCL_SOCKET_IFNAME",
            "eth0, eth1",
            "nccl-env-list-nccl-socket-ifname",
            "export NCCL_SOCKET_IFNAME=eth0,eth1",
        ),
        (
            "NCCL_SOCKET_IFNAME",
            "^lo,^docker",
            "nccl-env-list-nccl-socket-ifname",
            "export NCCL_SOCKET_IFNAME='^lo,docker'",
        ),
        ("NCCL_SOCKET_IFNAME", "e", "nccl-env-list-nccl-socket-ifname", "unset NCCL_SOCKET_IFNAME"),
        ("NCCL_IB_HCA", "=^mlx5_0", "nccl-env-list-nccl-ib-hca", "export NCCL_IB_HCA='^=mlx5_0'"),
        ("NCCL_P2P_DISABLE", "1", "nccl-env-slow-nccl-p2p-disable", "unset NCCL_P2P_DISABLE"),
        ("NCCL_SHM_DISABLE", "1", "nccl-env-slow-nccl-shm-disable", "unset NCCL_SHM_DISABLE"),
        ("NCCL_IB_TIMEOUT", "0", "nccl-env-timeout-nccl-ib-timeout", "unset NCCL_IB_TIMEOUT"),
        ("NCCL_IB_TIMEOUT", "32", "nccl-env-timeout-nccl-ib-timeout", "unset NCCL_IB_TIMEOUT"),
        ("NCCL_DEBUG", "TRACE", "nccl-env-debug-nccl-debug", "export NCCL_DEBUG=WARN"),
        ("NCCL_ALGO", "Ring", "nccl-env-forced-nccl-algo", "unset NCCL_ALGO"),
        (
            "NCCL_ASYNC_ERROR_HANDLING",
            "1",
            "nccl-env-renamed-nccl-async-error-handling",
            "unset NCCL_ASYNC_ERROR_HANDLING; export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        ),
        (
            "NCCL_BLOCKING_WAIT",
            "0",
            "nccl-env-renamed-nccl-blocking-wait",
            "unset NCCL_BLOCKING_WAIT; export TORCH_NCCL_BLOCKING_WAIT=0",
        ),
        (
            "NCCL_DESYNC_DEBUG",
            "$(reboot) 1",
            "nccl-env-renamed-nccl-desync-debug",
            "unset NCCL_DESYNC_DEBUG; export TORCH_NCCL_DESYNC_DEBUG='$(reboot) 1'",
        ),
    ],
)
def test_speaks_of_traps(name: str, value: str, key: str, proposal: str) -> None:
    findings = run(**{name: value})
    assert key in causes(findings)
    assert {f.status for f in findings} == {Status.WARN}
    assert cause(findings, key).fixes[0].commands[-1].shell == proposal
    assert f"{name}={value} (train.env:4)" in findings[0].summary


def test_forcing_infiniband_without_an_hca_ends_the_job() -> None:
    rdmas = {"n1": RdmaFacts(), "n2": rdma()}
    findings = run(2, rdmas, NCCL_NET="ib")
    assert causes(findings) == {"nccl-env-net-nccl-net": {"n1"}}
    assert findings[0].status is Status.FAIL


def test_what_the_login_session_carries() -> None:
    envs = {"n1": env(), "n2": env(RANK="3", TORCHELASTIC_USE_AGENT_STORE="True", PET_NNODES="4")}
    findings = list(nccl_env(envs, None, None, job()))
    assert causes(findings) == {"env-stale-rank": {"n2"}, "env-stale-torchrun": {"n2"}}
    assert "--nnodes" in next(f.summary for f in findings if "PET" in f.summary)
    assert not run(RANK="3")


def test_values_that_must_be_equal() -> None:
    envs = {"n1": env(NCCL_ALGO="Ring"), "n2": env(NCCL_ALGO="Tree"), "n3": env(NCCL_ALGO="Ring")}
    findings = list(nccl_env(envs, None, None, job()))
    assert causes(findings)["nccl-env-differs-nccl-algo"] == {"n2"}
    assert {f.target for f in findings if f.status is Status.FAIL} == {"n2"}
    assert causes(findings) == {
        "nccl-env-differs-nccl-algo": {"n2"},
        "nccl-env-forced-nccl-algo": {"n1", "n3"},
    }
    assert cause(findings, "nccl-env-differs-nccl-algo").fixes[0].commands[0].shell == "export NCCL_ALGO=Ring"


def test_values_are_compared_by_what_they_amount_to() -> None:
    nodes = {"n1": env(), "n2": env(NCCL_IB_DISABLE="true"), "n3": env()}
    findings = list(nccl_env(nodes, None, None, job()))
    assert causes(findings) == {"nccl-env-number-nccl-ib-disable": {"n2"}}
    assert {f.status for f in findings} == {Status.WARN}
    where, heal, meant = cause(findings, "nccl-env-number-nccl-ib-disable").fixes
    assert where.commands[0].shell.startswith("grep -rswnE NCCL_IB_DISABLE /etc/environment")
    assert heal.commands[-1].shell == "export NCCL_IB_DISABLE=0"
    assert meant.commands[-1].shell == "export NCCL_IB_DISABLE=1"


def test_a_word_that_nccl_ignores_is_no_difference() -> None:
    nodes = {"n1": env(), "n2": env(NCCL_SOCKET_FAMILY="af_inet"), "n3": env()}
    (finding,) = nccl_env(nodes, None, None, job())
    assert finding.status is Status.WARN
    assert causes([finding]) == {"nccl-env-word-nccl-socket-family": {"n2"}}


def test_left_over_ranks_have_one_fix() -> None:
    findings = list(nccl_env({"n1": env(), "n2": env(RANK="3", LOCAL_RANK="1")}, None, None, job()))
    assert len({f.cause.fixes for f in findings if f.cause}) == 1
    where, take_out = cause(findings, "env-stale-rank").fixes
    assert (where.kind, take_out.kind) == (Kind.LOOK, Kind.JOB)  # never one paste
    assert where.commands[0].shell.startswith("grep -rswnE 'RANK|LOCAL_RANK")
    assert "unset RANK LOCAL_RANK" in take_out.commands[0].shell


def test_what_a_login_switches_off_the_job_switches_on_again() -> None:
    nodes = {"n1": env(), "n2": env(NCCL_IB_DISABLE="1"), "n3": env()}
    hint = cause(nccl_env(nodes, None, None, job()), "nccl-env-differs-nccl-ib-disable")
    assert hint.fixes[1].commands[0].shell == "export NCCL_IB_DISABLE=0"
    job_s = job(env={"NCCL_IB_DISABLE": "0"})
    assert not list(nccl_env(nodes, None, None, job_s))


def test_one_cause_for_all_that_is_odd_about_a_variable_of_a_node() -> None:
    findings = list(nccl_env({"n1": env(), "n2": env(NCCL_IB_TC="0106"), "n3": env()}, None, None, job()))
    assert causes(findings) == {"nccl-env-differs-nccl-ib-tc": {"n2"}}
    assert len(findings) == 2


def test_what_has_no_effect_here_is_a_warning() -> None:
    nodes = {"n1": env(), "n2": env(NCCL_IB_DISABLE="1"), "n3": env()}
    (finding,) = nccl_env(nodes, dict.fromkeys(nodes, RdmaFacts()), None, job())
    assert finding.status is Status.WARN
    (finding,) = nccl_env(nodes, dict.fromkeys(nodes, rdma()), None, job())
    assert finding.status is Status.FAIL
    assert finding.cause is not None
    assert finding.cause.follows == ("nccl.ib-hca",)


def test_launchers_set_their_own_variables() -> None:
    (left,) = nccl_env({"n1": env(), "n2": env(WORLD_SIZE="8"), "n3": env()}, None, None, job())
    assert (left.status, left.cause and left.cause.key) == (Status.WARN, "env-stale-rank")
    (one,) = nccl_env({"n1": env(), "n2": env(MASTER_ADDR="n1"), "n3": env()}, None, None, job())
    assert one.status is Status.WARN
    two = nccl_env({"n1": env(MASTER_ADDR="n3"), "n2": env(MASTER_ADDR="n1"), "n3": env()}, None, None, job())
    assert {f.status for f in two} == {Status.FAIL}


def test_interfaces_may_differ() -> None:
    envs = {"n1": env(NCCL_SOCKET_IFNAME="eth0"), "n2": env(NCCL_SOCKET_IFNAME="ens3")}
    assert not list(nccl_env(envs, None, None, job()))


def test_equal_meanings_are_equal() -> None:
    envs = {"n1": env(NCCL_CROSS_NIC="1"), "n2": env(NCCL_CROSS_NIC="0x1"), "n3": env(NCCL_CROSS_NIC="1")}
    assert not list(nccl_env(envs, None, None, job()))


def test_of_two_nodes_the_one_that_sets_it_is_named() -> None:
    conf = ConfFile(path="/etc/nccl.conf", values={"NCCL_IB_DISABLE": "1"})
    findings = list(nccl_env({"n1": env(), "n2": EnvFacts(nccl_conf=(conf,))}, None, None, job()))
    assert causes(findings) == {"nccl-env-differs-nccl-ib-disable": {"n2"}}
    assert "/etc/nccl.conf" in found(findings)["n2"].summary
    command = cause(findings, "nccl-env-differs-nccl-ib-disable").fixes[0].commands[0]
    out = "sed -i 's/^NCCL_IB_DISABLE=/#netdoctor NCCL_IB_DISABLE=/' /etc/nccl.conf"
    assert (command.run_on, command.shell) == ("n2", out)


def test_a_value_in_a_file_is_put_right_and_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("NCCL_ALGO=ring\nNCCL_DEBUG=WARN\n")
    for value in ("Ring", None):
        (fix,) = change(Setting("NCCL_ALGO", "ring", str(path), Source.FILE), value)
        before = path.read_text()
        for _ in range(2):
            subprocess.run(["sh", "-c", fix.commands[0].shell], check=True)
        healed = {"NCCL_DEBUG=WARN", f"NCCL_ALGO={value}"} if value else {"NCCL_DEBUG=WARN"}
        assert {line for line in path.read_text().splitlines() if not line.startswith("#")} == healed
        subprocess.run(["sh", "-c", fix.undo[0].shell], check=True)
        assert path.read_text() == before


@pytest.mark.parametrize("value", ["Rung", "Ring, Tree", "tree;ring", "foo:ring", "^ring,x"])
def test_a_word_in_a_list_that_nccl_does_not_know_ends_the_job(value: str) -> None:
    """Seen with 2.28.9: Unrecognized element token "Rung" when parsing "Rung", invalid usage."""

    def said(version: str) -> tuple[Finding, ...]:
        machine = software()
        facts = {"n1": replace(machine, nccl=(replace(machine.nccl[0], version=version),))}
        return tuple(nccl_env({"n1": env(NCCL_ALGO=value)}, None, facts, job()))

    for version in ("2.24.3", "2.28.9", "2.30.7"):
        assert [(f.status, f.cause and f.cause.key) for f in said(version)] == [
            (Status.FAIL, "nccl-env-refused-nccl-algo")
        ]
    # Older releases pass over it; what is newer than this table may know it.
    for version in ("2.23.4", "2.99.0"):
        assert {f.status for f in said(version)} == {Status.WARN}


@pytest.mark.parametrize(
    "value", ["ring", "RING,tree", "^ring", "ring;allreduce:^tree,nvls", "allreduce:PAT"]
)
def test_lists_that_nccl_knows(value: str) -> None:
    assert unknown_choice("NCCL_ALGO", value, (2, 28, 9)) == ""


def test_a_default_that_is_written_out_is_no_difference() -> None:
    assert not list(nccl_env({"n1": env(), "n2": env(NCCL_IB_DISABLE="0"), "n3": env()}, None, None, job()))


def test_a_proxy_matters_to_an_etcd_rendezvous_only() -> None:
    variables = {"http_proxy": "http://user:secret@proxy:3128", "PET_RDZV_BACKEND": "etcd-v2"}
    findings = run(**variables)
    assert set(causes(findings)) == {"env-proxy-http-proxy"}
    assert all("secret" not in repr(f) for f in findings)
    assert not run(**variables, no_proxy="10.0.0.0/8")


def test_a_file_that_cannot_be_read_may_set_anything() -> None:
    conf = ConfFile(path="/etc/nccl.conf", error="EIO")
    (finding,) = nccl_env({"n1": env(), "n2": EnvFacts(nccl_conf=(conf,))}, None, None, job())
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)
    assert "/etc/nccl.conf" in finding.summary


def test_forcing_infiniband_where_the_hcas_are_not_known() -> None:
    (finding,) = run(2, {"n1": rdma()}, NCCL_NET="IB")
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)


def test_a_difference_is_of_no_effect_only_where_no_node_has_hcas() -> None:
    nodes = {"n1": env(), "n2": env(NCCL_IB_DISABLE="1"), "n3": env()}
    (finding,) = nccl_env(nodes, {"n1": RdmaFacts()}, None, job())
    assert finding.status is Status.FAIL


def test_a_word_for_a_number_is_ignored_by_newer_releases() -> None:
    def said(version: str) -> str:
        softwares = {"n1": software(nccl=(nccl(version),))}
        (finding,) = nccl_env({"n1": env(NCCL_IB_GID_INDEX="three")}, None, softwares, job())
        return finding.summary

    assert "is ignored" in said("2.32.3")
    assert "means 0" in said("2.31.2")
