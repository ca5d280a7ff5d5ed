"""Checks of SSH: one file each, `checks/ssh/<property>.py` is `ssh.<property>`."""
