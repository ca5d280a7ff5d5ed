"""What a node's own distribution calls a package and a service, and how it installs one."""

import re
from collections.abc import Mapping

from netdoctor.facts.host import HostFacts

# NAME of os-release(5), as its distributions write it; who installs with what is in each one's manual.
_TOOLS = {
    "apt": r"debian|ubuntu|mint|pop!_os|raspbian",
    "dnf": r"red hat|rhel|centos|rocky|alma|oracle|fedora|amazon",
    "zypper": r"suse|sles",
}
_COMMANDS = {
    "apt": "apt-get install -y",
    "dnf": "dnf install -y",
    "zypper": "zypper --non-interactive install",
}


def tool_of(host: HostFacts | None) -> str | None:
    """``apt``, ``dnf`` or ``zypper``; None where the distribution is none that is known."""
    name = host.os_name.lower() if host else ""
    return next((tool for tool, pattern in _TOOLS.items() if re.search(pattern, name)), None)


def install_package(host: HostFacts | None, names: Mapping[str, str] | str) -> str:
    """The command that installs a package. names: one for all, or by tool; empty where there is none.

    For a distribution that is not known the first tool that is there does it.
    """
    by_tool = dict.fromkeys(_COMMANDS, names) if isinstance(names, str) else names
    known = tool_of(host)
    if known:
        return f"{_COMMANDS[known]} {by_tool[known]}" if by_tool.get(known) else ""
    tries = [f"{_COMMANDS[tool]} {name}" for tool, name in by_tool.items() if name]
    return f"({' || '.join(tries)})" if len(tries) > 1 else "".join(tries)


def service(host: HostFacts | None, names: Mapping[str, str]) -> str | None:
    """What the node's distribution calls a service, by tool; None where the distribution is not known."""
    known = tool_of(host)
    return names.get(known) if known else None
