"""Checks of the machine itself: one file each, `checks/host/<property>.py` is `host.<property>`."""
