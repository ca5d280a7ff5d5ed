"""A plan as data: JSON for programs, NAME=value lines for those that read env files."""

import json
from typing import Any

from netdoctor.launch.model import LaunchPlan, PlanNode, Value
from netdoctor.launch.shell import comment, left_out, opening, text

SCHEMA = "netdoctor.plan/1"


def as_data(plan: LaunchPlan) -> dict[str, Any]:
    """Plain data. Keys are only ever added within major 1 of the schema."""
    return {
        "schema": SCHEMA,
        "launcher": plan.options.launcher,
        "head": plan.head,
        "world_size": plan.world,
        "script": list(plan.options.script),
        "env": {name: _value(value) for name, value in plan.env.items()},
        "not_set": dict(plan.left_out),
        "nodes": [_node(*ranked) for ranked in plan.ranked()],
        "remarks": list(plan.remarks),
        "arithmetic": list(plan.arithmetic),
        "fit": plan.fit,
    }


def json_text(plan: LaunchPlan) -> str:
    return json.dumps(as_data(plan), indent=2) + "\n"


def _value(value: Value | None) -> dict[str, str] | None:
    if value is None:
        return None
    return {"value": value.text, "origin": value.origin.value, "source": value.source}


def _node(node: PlanNode, rank: int, first: int) -> dict[str, Any]:
    return {
        "id": node.id,
        "node_rank": rank,
        "first_rank": first,
        "processes": _value(node.processes),
        "gpus": node.gpus,
        "name": _value(node.name),
        "address": _value(node.address),
        "python": _value(node.python),
        "env": {name: _value(value) for name, value in node.env.items()},
    }


def dotenv(plan: LaunchPlan) -> str:
    """``NAME=value`` lines, what is not known as comments.

    Values stand as they are: Docker reads quotes as part of a value, and no value has a line end.
    """
    lines = [*opening(plan)]
    for name, value in plan.env.items():
        lines += [comment(value.why), f"{name}={value.text}"]
    for node in plan.nodes:
        lines += [comment(f"on {node.id} alone: {name}={value.text}") for name, value in node.env.items()]
    return text([*lines, *left_out(plan)])
