import pytest

from netdoctor.checks.slurm.limits import slurm_limits
from netdoctor.model import Status

from ..build import MIB, cause, job, limits
from ..build_hw import rdma

KIB = 1024
GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("here", "soft", "status"),
    [
        pytest.param({"memlock": None}, None, None, id="equal"),
        pytest.param({"memlock": 8 * MIB}, 8 * MIB, None, id="both small"),
        pytest.param({"memlock": None}, 16 * GIB, None, id="lower, and enough for any job"),
        pytest.param({"memlock": 8 * MIB}, None, None, id="higher"),
        pytest.param({}, 64 * KIB, None, id="the session's is not known"),
        pytest.param({"memlock": None}, 64 * KIB, Status.FAIL, id="stops RDMA"),
        pytest.param({"memlock": 8 * MIB}, 64 * KIB, Status.FAIL, id="lower than a small one"),
        pytest.param({"memlock": None}, 1 * GIB, Status.WARN, id="lower, and works"),
    ],
)
def test_memlock(here: dict[str, int | None], soft: int | None, status: Status | None) -> None:
    facts = limits(memlock_soft_bytes=soft, memlock_hard_bytes=soft)
    found = list(slurm_limits(facts, job(session_limits=here), rdma()))
    assert [one.status for one in found] == ([] if status is None else [status])


def test_without_hcas_it_stops_nothing() -> None:
    facts = limits(memlock_soft_bytes=64 * KIB, memlock_hard_bytes=64 * KIB)
    for devices in (None, rdma(hcas=())):
        (finding,) = slurm_limits(facts, job(session_limits={"memlock": None}), devices)
        assert finding.status is Status.WARN
        assert finding.summary == "RLIMIT_MEMLOCK of a step is 64 KiB, of the session here unlimited"


@pytest.mark.parametrize(("hard", "first"), [(None, "--propagate=NOFILE"), (1024, "LimitNOFILE=1048576")])
def test_the_fix_is_where_the_hard_limit_is(hard: int | None, first: str) -> None:
    facts = limits(nofile_soft=1024, nofile_hard=hard)
    found = list(slurm_limits(facts, job(session_limits={"nofile": 65536}), None))
    assert found[0].summary == "RLIMIT_NOFILE of a step is 1024, of the session here 65536"
    fix = cause(found, "slurm-limits").fixes[0]
    assert first in " ".join([fix.text, *(command.shell for command in fix.commands)])
