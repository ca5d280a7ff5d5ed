"""Checks of software: one file each, `checks/sw/<property>.py` is `sw.<property>`."""
