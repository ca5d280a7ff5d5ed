"""How NCCL reads its variables, and which of several places wins."""

import pytest

from netdoctor.facts.software import CALLING, ConfFile, EnvFacts, Job
from netdoctor.rules import variables as rules
from netdoctor.rules.variables import Source


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, 7),
        ("", 7),
        ("1", 1),
        ("true", 7),
        ("010", 8),
        ("0x10", 16),
        ("-1", -1),
        ("22ms", 22),
        (" 5", 5),
        ("08", 0),
        ("99999999999999999999", 7),
        ("9" * 5000, 7),
    ],
)
def test_integers_as_strtoll_reads_them(text: str | None, number: int) -> None:
    assert rules.param(text, 7) == number
    assert rules.param("true", 7, (2, 31, 2)) == 0


@pytest.mark.parametrize(
    ("version", "read"),
    [
        (None, ["/job.conf", "/etc/nccl.conf"]),
        ((2, 23, 4), ["/job.conf", "/etc/nccl.conf"]),
        ((2, 22, 3), ["/root/.nccl.conf", "/etc/nccl.conf"]),
    ],
)
def test_which_files_a_release_reads(version: tuple[int, ...] | None, read: list[str]) -> None:
    files = (
        ConfFile(path="/job.conf", place="named"),
        ConfFile(path="/home/u/.nccl.conf", place="home-variable"),
        ConfFile(path="/root/.nccl.conf", place="home-passwd"),
        ConfFile(path="/etc/nccl.conf", place="system"),
    )
    assert [one.path for one in rules.conf_files(EnvFacts(nccl_conf=files), version)] == read
    homes = [one.path for one in rules.conf_files(EnvFacts(nccl_conf=files[1:]), version)]
    assert homes == ["/home/u/.nccl.conf" if version is None else "/root/.nccl.conf", "/etc/nccl.conf"]


def test_the_end_of_a_line_and_what_gloo_sees_of_the_files() -> None:
    values = {"NCCL_SOCKET_IFNAME": "eth0\r", "GLOO_SOCKET_IFNAME": "eth1\r"}
    login = EnvFacts(nccl_conf=(ConfFile(path="/etc/nccl.conf", place="system", values=values),))
    assert rules.values(rules.effective_env(login, Job(), (2, 29, 7))) == {"NCCL_SOCKET_IFNAME": "eth0\r"}
    assert rules.values(rules.effective_env(login, Job(), (2, 30, 3))) == {"NCCL_SOCKET_IFNAME": "eth0"}
    assert rules.values(rules.exported(login))["GLOO_SOCKET_IFNAME"] == "eth1"


def test_the_jobs_environment_wins_over_login_and_files() -> None:
    login = EnvFacts(
        variables={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5", "MASTER_PORT": "1"},
        nccl_conf=(
            ConfFile(path="/root/.nccl.conf", values={"NCCL_DEBUG": "INFO", "NCCL_BUFFSIZE": "1"}),
            ConfFile(path="/etc/nccl.conf", values={"NCCL_BUFFSIZE": "2", "GLOO_SOCKET_IFNAME": "x"}),
        ),
    )
    job = Job(env={"NCCL_IB_HCA": "=mlx5_0"}, env_from={"NCCL_IB_HCA": "train.env:4"})
    env = rules.effective_env(login, job)
    assert {name: (one.value, one.origin, one.source) for name, one in env.items()} == {
        "NCCL_IB_HCA": ("=mlx5_0", "train.env:4", Source.JOB),
        "NCCL_DEBUG": ("WARN", "login session", Source.LOGIN),
        "MASTER_PORT": ("1", "login session", Source.LOGIN),
        "NCCL_BUFFSIZE": ("1", "/root/.nccl.conf", Source.FILE),
    }
    assert rules.effective_env(None, Job()) == {}


@pytest.mark.parametrize(
    ("origin", "source"), [(CALLING, Source.CALLER), ("calling.env:1", Source.JOB), (None, Source.JOB)]
)
def test_an_env_file_is_the_jobs_whatever_its_name(origin: str | None, source: Source) -> None:
    job = Job(env={"NCCL_DEBUG": "WARN"}, env_from={"NCCL_DEBUG": origin} if origin else {})
    assert rules.effective_env(None, job)["NCCL_DEBUG"].source is source


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("NCCL_CROSS_NIC", "0x1", "1"),
        ("NCCL_CROSS_NIC", "", None),
        ("NCCL_IB_DISABLE", "0", None),
        ("NCCL_IB_DISABLE", "true", None),
        ("NCCL_IB_DISABLE", "1", "1"),
        ("NCCL_SOCKET_FAMILY", "af_inet", None),
        ("NCCL_SOCKET_FAMILY", "AF_INET", "AF_INET"),
        ("NCCL_P2P_LEVEL", "5", "5"),
        ("NCCL_ALGO", "Ring", "Ring"),
    ],
)
def test_what_a_value_amounts_to(name: str, value: str, meant: str | None) -> None:
    assert rules.meaning(name, value) == meant
