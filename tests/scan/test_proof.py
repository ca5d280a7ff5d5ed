"""Every fault of the lab is healed by its own fix, pasted as it is shown, or it is said why it cannot be."""

from netdoctor.lab import FAULTS
from tests.scan import test_faults_host, test_faults_hw, test_faults_net, test_faults_ssh
from tests.scan.faults import CASES, NOT_PASTED

# They have the cases; each is proven where it is held.
MODULES = (test_faults_host, test_faults_hw, test_faults_net, test_faults_ssh)
LEAST = 45


def test_every_fault_is_healed_by_its_fix_or_has_a_reason() -> None:
    pasted = {name for one in CASES if not one.excused for name in one.names}
    assert not NOT_PASTED.keys() - FAULTS.keys(), "no such fault"
    assert not pasted & NOT_PASTED.keys()
    assert not FAULTS.keys() - pasted - NOT_PASTED.keys(), "neither pasted nor in the table"


def test_as_many_fixes_are_pasted_as_are_promised() -> None:
    pasted = {(one.faults, tuple(one.job.items())) for one in CASES if not one.excused}
    assert len(pasted) >= LEAST
