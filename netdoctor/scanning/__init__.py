"""Running a scan: from a request to a plan, an outcome and a report. Knows no terminal and no arguments."""

from netdoctor.scanning.again import Rerun, costs, rejudge, rerun
from netdoctor.scanning.hosts import reread
from netdoctor.scanning.known import newest
from netdoctor.scanning.merging import into
from netdoctor.scanning.plan import Plan, prepare, reads
from netdoctor.scanning.record import load_own, replay
from netdoctor.scanning.reporting import assemble, destination, opening, ssh_argv
from netdoctor.scanning.request import ScanRequest

__all__ = [
    "Plan",
    "Rerun",
    "ScanRequest",
    "assemble",
    "costs",
    "destination",
    "into",
    "load_own",
    "newest",
    "opening",
    "prepare",
    "reads",
    "rejudge",
    "replay",
    "reread",
    "rerun",
    "ssh_argv",
]
