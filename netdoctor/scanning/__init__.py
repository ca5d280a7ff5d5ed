"""Running a scan: from a request to a plan, an outcome and a report. Knows no terminal and no arguments."""

from netdoctor.options import ScanRequest
from netdoctor.scanning.hosts import reread
from netdoctor.scanning.known import newest
from netdoctor.scanning.merging import into
from netdoctor.scanning.part import PartPlan, costs, plan_part
from netdoctor.scanning.plan import Plan, prepare, reads
from netdoctor.scanning.record import kept_request, load_own
from netdoctor.scanning.reporting import assemble, destination, opening, ssh_argv
from netdoctor.scanning.saved import judge_saved

__all__ = [
    "PartPlan",
    "Plan",
    "ScanRequest",
    "assemble",
    "costs",
    "destination",
    "into",
    "judge_saved",
    "kept_request",
    "load_own",
    "newest",
    "opening",
    "plan_part",
    "prepare",
    "reads",
    "reread",
    "ssh_argv",
]
