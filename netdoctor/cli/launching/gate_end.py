"""How `netdoctor gate` ends, for itself and for members of a gang. Light: help is to load no more."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from netdoctor.text import clean

if TYPE_CHECKING:
    from netdoctor.report.model import Report

# Of the variables that name the nodes it starts on.
PREFIX = "NETDOCTOR_GATE_"


@dataclass(frozen=True, slots=True)
class End:
    """How it ends. code: of a refusal; None where the command starts, with these variables."""

    code: int | None
    why: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    report: "Report | None" = None


def say(text: str) -> None:
    """A line of gate's own on standard error."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"netdoctor gate: {clean(text, 2000)}\n")
