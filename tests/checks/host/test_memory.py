from netdoctor.checks.host.memory import host_memory
from netdoctor.model import Status

from ..build import GIB, host


def test_silent_with_memory_to_spare() -> None:
    assert list(host_memory(host())) == []


def test_warns_when_little_is_left() -> None:
    (finding,) = host_memory(host(memory_available_bytes=20 * GIB))
    assert finding.status is Status.WARN


def test_lab_nodes_share_the_machines_memory() -> None:
    (finding,) = host_memory(host(memory_available_bytes=1, shares_machine=True))
    assert finding.status is Status.SKIP


def test_an_unread_size_is_not_green() -> None:
    (finding,) = host_memory(host(memory_total_bytes=0, memory_available_bytes=0))
    assert finding.status is Status.UNKNOWN
    assert "/proc/meminfo" in finding.summary
