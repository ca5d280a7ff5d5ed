"""Lines of devices, drivers and transports: what they lead to, and what frightens for nothing."""

from pathlib import Path

import pytest

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import Knowledge, load
from netdoctor.explain.model import Confidence

LINES = tomllib.loads(Path(__file__).with_name("hardware_lines.toml").read_text("utf-8"))
TIMEOUT = (
    "NCCL WARN NET/IB : Got completion from peer n2<49577> with error 12, opcode 1, len 0, vendor err 129"
)


@pytest.fixture(scope="module")
def known() -> Knowledge:
    return load()


def test_lines_of_other_releases_lead_to_their_cause(known: Knowledge) -> None:
    wrong = []
    lines = [(label, text) for label, texts in LINES["leads_to"].items() for text in texts]
    for label, text in [*lines, *((one["label"], one["line"]) for one in LINES["more"])]:
        reasons = explain_text({"log": text}, known).reasons
        certain = {one.known.label for one in reasons if one.confidence is Confidence.CERTAIN}
        if not reasons or reasons[0].known.label != label or certain - {label}:
            wrong.append((label, text, [(one.known.label, str(one.confidence)) for one in reasons]))
    assert not wrong


def test_what_healthy_jobs_print_gives_no_cause(known: Knowledge) -> None:
    lines = LINES["harmless"]["lines"]
    alone = {
        line: said for line in lines.splitlines() if (said := explain_text({"log": line}, known).reasons)
    }
    assert not alone
    assert not explain_text({"log": lines}, known).reasons


def test_a_lost_gpu_outweighs_what_the_others_say_of_it(known: Knowledge) -> None:
    log = [
        "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: Work(",
        TIMEOUT,
        "n2:5:9 [1] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n1<51159>",
        "NVRM: Xid (PCI:0000:44:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
    ]
    assert explain_text({"log": "\n".join(log)}, known).reasons[0].known.label == "gpu_hardware_fault"


def test_both_halves_of_an_ambiguous_timeout_are_told(known: Knowledge) -> None:
    """A completion error 12 without a GID in it is a link or a GID: neither is likely, both name a check."""
    said = explain_text({"log": TIMEOUT}, known).reasons
    assert {"ib_link_or_fabric", "roce_gid_index"} == {one.known.label for one in said[:2]}
    assert {one.confidence for one in said} == {Confidence.POSSIBLE}
    assert {"rdma.port", "rdma.gid"} <= {check for one in said for check in one.known.checks}


def test_a_machine_check_that_was_only_logged_is_no_node_that_went_down(known: Knowledge) -> None:
    """The kernel logs errors, too, that the hardware has corrected; an exception was not corrected."""
    logged = "mce: [Hardware Error]: Machine check events logged"
    fatal = "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400"
    for line, confidence in ((logged, Confidence.POSSIBLE), (fatal, Confidence.LIKELY)):
        (reason,) = explain_text({"log": line}, known).reasons
        assert (reason.known.label, reason.confidence) == ("node_failed", confidence)
