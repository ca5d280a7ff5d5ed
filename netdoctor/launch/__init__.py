"""From hosts and what a report knows of them to the launch of a job.

`plan` makes the LaunchPlan, `text` and `parts` write it down for its launcher, `environment` gives the job's
variables alone. Pure: no file is opened and no node reached; `write` alone writes a plan's files.
Every value says whether it was measured, given or guessed, and where it comes from.
"""

from netdoctor.launch.folder import write
from netdoctor.launch.launchers import LAUNCHERS, parts, text
from netdoctor.launch.model import Evidence, LaunchPlan, Options, Origin, Part, PlanNode, Value
from netdoctor.launch.output import dotenv, json_text
from netdoctor.launch.planning import environment, plan, rank_table

__all__ = [
    "LAUNCHERS",
    "Evidence",
    "LaunchPlan",
    "Options",
    "Origin",
    "Part",
    "PlanNode",
    "Value",
    "dotenv",
    "environment",
    "json_text",
    "parts",
    "plan",
    "rank_table",
    "text",
    "write",
]
