"""Checks of clocks: one file each, `checks/time/<property>.py` is `time.<property>`."""
