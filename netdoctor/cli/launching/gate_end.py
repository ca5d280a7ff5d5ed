"""How `netdoctor gate` ends, for itself and for members of a gang. Light: help is to load no more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netdoctor.report.model import Report

# What the command is told of the nodes that it starts on.
PREFIX = "NETDOCTOR_GATE_"


@dataclass(frozen=True, slots=True)
class End:
    """How it ends. code: of a refusal; None where the command starts, with these variables beside its own."""

    code: int | None
    why: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    report: "Report | None" = None
