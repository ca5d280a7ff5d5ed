"""Checks of gloo: one file each, `checks/gloo/<property>.py` is `gloo.<property>`."""
