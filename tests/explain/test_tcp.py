"""Lines of sockets, names and launchers: what they lead to, and what frightens for nothing."""

from pathlib import Path

from netdoctor.compat import tomllib
from netdoctor.explain.engine import explain_text
from netdoctor.explain.knowledge import load
from netdoctor.explain.model import Confidence

LINES = tomllib.loads(Path(__file__).with_name("tcp_lines.toml").read_text("utf-8"))


def test_lines_of_other_releases_lead_to_their_cause() -> None:
    wrong = []
    lines = [(label, text) for label, texts in LINES["leads_to"].items() for text in texts]
    for label, text in [*lines, *((one["label"], one["line"]) for one in LINES["ending"])]:
        reasons = explain_text({"log": text}, load()).reasons
        certain = {one.known.label for one in reasons if one.confidence is Confidence.CERTAIN}
        if not reasons or reasons[0].known.label != label or certain - {label}:
            wrong.append((label, text, [(one.known.label, str(one.confidence)) for one in reasons]))
    assert not wrong


def test_what_healthy_jobs_print_gives_no_cause() -> None:
    lines = LINES["harmless"]["lines"].strip() + "\n" + LINES["survived"]["lines"].strip()
    alone = {line: said for line in lines.splitlines() if (said := explain_text({"log": line}).reasons)}
    assert not alone
    assert not explain_text({"log": lines}).reasons


def test_rank_0_that_cannot_reach_its_own_store_has_a_wrong_address() -> None:
    line = "[c10d] The client socket has timed out after 600s while trying to connect to (10.0.0.9, 29500)."
    own, others = (explain_text({f"rank{rank}.log": line}).reasons for rank in (0, 1))
    assert own[0].known.label == "master_addr_wrong"
    assert others[0].known.label == "firewall_blocked"
    assert {one.confidence for one in others} == {Confidence.POSSIBLE}


def test_a_store_that_one_rank_serves_and_the_others_do_not_reach_is_behind_a_firewall() -> None:
    served = "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
    asked = "[c10d] The client socket has timed out after 600s while trying to connect to (10.0.0.5, 29500)."
    assert explain_text({"rank0.log": served}).reasons[0].known.label == "rank_world_size_misconfig"
    both = explain_text({"rank0.log": served, "rank1.log": asked}).reasons
    assert both[0].known.label == "firewall_blocked"
    assert "net.ports" in both[0].known.checks
