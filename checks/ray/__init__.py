"""Checks of Ray: one file each, `checks/ray/<property>.py` is `ray.<property>`."""
