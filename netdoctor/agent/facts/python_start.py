"""Group `python_start`: whether the job's interpreter gets as far as a program."""

from ..system import site_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def collect(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return facts.software.PythonStart. args: {"env": variables of the job}. Raises Unavailable."""
    found = dict(site_path.start(args))
    del found["prefix"], found["path"]
    return found
