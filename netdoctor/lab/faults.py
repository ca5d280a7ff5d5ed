"""The catalogue of faults, by name."""

from __future__ import annotations

from typing import Any

from netdoctor.lab import fault_hardware, fault_host, fault_links, fault_software, fault_ssh
from netdoctor.lab.fault import Fault


def registry() -> dict[str, Fault]:
    modules: tuple[Any, ...] = (fault_ssh, fault_links, fault_host, fault_software, fault_hardware)
    return {fault.name: fault for module in modules for fault in module.FAULTS}
