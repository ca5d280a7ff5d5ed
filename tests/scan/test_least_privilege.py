"""A login that may do little: what docs/security.md says that is unknown then, and nothing else."""

import re
from pathlib import Path

from netdoctor.lab import Lab
from tests.scan.faults import put
from tests.scan.harness import REPO, scan


def forced() -> str:
    """The options of the key, as docs/security.md gives them."""
    page = (REPO / "docs" / "security.md").read_text("utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("restrict,")]
    options = line.partition(" ssh-ed25519 ")[0]
    return re.sub(r'from="[^"]*",', "", options)


def test_without_root_and_behind_a_forced_command_one_check_is_unknown(lab4: Lab, folder: Path) -> None:
    give = (
        "mkdir -p ~trainer/.ssh; cd ~trainer/.ssh; "
        '(printf "%s " "$1"; cat /root/.ssh/authorized_keys) > authorized_keys; chown -R trainer .'
    )
    for node in lab4.nodes:
        lab4.run(node, ["bash", "-ec", give, "sh", forced()], check=True)
    put(lab4, ("node3 drop",))
    try:
        scanned = scan(lab4, folder, "--ssh-user", "trainer")
    finally:
        for node in lab4.nodes:
            lab4.run(node, ["cp", "/root/.ssh/authorized_keys", "/home/trainer/.ssh/"], check=True)
    # Who drops connections is known, and so is that only root could see the rule.
    failed = [(cause["key"], cause["node_list"]) for cause in scanned.causes("fail")]
    assert failed == [("firewall-inbound", ["node3"])], scanned.summary()
    matrix = scanned.report["matrix"]
    unknown = {
        (check, node)
        for check, row in zip(matrix["checks"], matrix["cells"], strict=True)
        for node, letter in zip(matrix["nodes"], row, strict=True)
        if letter == "?"
    }
    assert unknown == {("net.firewall", "node3")}, scanned.summary()
    assert "no permission" in scanned.text
