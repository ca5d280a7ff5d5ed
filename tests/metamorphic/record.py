"""What real nodes answer, healthy and with each fault of a lab: python -m tests.metamorphic.record FILE

Needs root. One lab of four nodes; every fault of tests/scan that is on one node and needs no word of the job
is put, scanned with profile launch, and taken back. The file has the facts of each scan, compressed.
"""

import json
import lzma
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from netdoctor.lab import LabError, up
from netdoctor.report.kept import as_facts
from netdoctor.report.save import load
from tests.scan import faults
from tests.scan.harness import scan

MODULES = ("net", "host", "hw", "ssh")
# The tests of these need another lab, or leave one behind that is not as it was.
LEFT = {"torch", "old-python", "frozen", "not-ssh", "sshd-down", "full-disk", "shm-left"}


def single() -> list[faults.Case]:
    """Faults of one node about which the job says nothing, each once."""
    for name in MODULES:
        import_module(f"tests.scan.test_faults_{name}")
    cases = [
        c for c in faults.CASES if len(c.faults) == 1 and not c.job and not c.args and not c.names & LEFT
    ]
    return list({c.faults: c for c in cases}.values())


def facts_of(folder: Path) -> dict[str, Any]:
    """Those of the scan that was just saved in this folder, as plain data."""
    return as_facts(load(folder / ".netdoctor/last.json").facts).plain()


def main(path: Path) -> None:
    found: dict[str, Any] = {"healthy": None, "again": None, "faults": {}}
    with tempfile.TemporaryDirectory(prefix="netdoctor-record-") as folder:
        lab = up(
            4, state_dir=Path(folder) / "lab", subnet=f"10.121.{os.getpid() % 250}",
            gpus=2, hcas=2, link_layer="InfiniBand", data_net=True,
        )  # fmt: skip
        try:
            for name in ("healthy", "again"):
                scanned = scan(lab, Path(folder))
                assert scanned.code == 0, scanned.summary()
                found[name] = facts_of(Path(folder))
            for case in single():
                try:
                    faults.put(lab, case.faults)
                    scanned = scan(lab, Path(folder))
                except LabError as error:  # a fault of another kind of lab
                    print(case.faults[0], error, flush=True)
                    continue
                finally:
                    lab.heal()
                named = [[cause["key"], cause["node_list"]] for cause in scanned.report["causes"]]
                print(case.faults[0], named, flush=True)
                found["faults"][case.faults[0]] = {"causes": named, "facts": facts_of(Path(folder))}
        finally:
            lab.down()
    path.write_bytes(lzma.compress(json.dumps(found).encode(), preset=9))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
