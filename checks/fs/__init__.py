"""Checks of shared folders: one file each, `checks/fs/<property>.py` is `fs.<property>`."""
