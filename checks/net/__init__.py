"""Checks of the network: one file each, `checks/net/<property>.py` is `net.<property>`."""
