from netdoctor.checks.host_memory import host_memory
from netdoctor.model import Status

from .build import GIB, host, node


def test_silent_with_memory_to_spare() -> None:
    assert list(host_memory(node(), host())) == []


def test_warns_when_little_is_left() -> None:
    (finding,) = host_memory(node(), host(memory_available_bytes=20 * GIB))
    assert finding.status is Status.WARN


def test_lab_nodes_share_the_machines_memory() -> None:
    (finding,) = host_memory(node(), host(memory_available_bytes=1, in_lab=True))
    assert finding.status is Status.SKIP


def test_an_unread_size_judges_nothing() -> None:
    assert list(host_memory(node(), host(memory_total_bytes=0, memory_available_bytes=0))) == []
