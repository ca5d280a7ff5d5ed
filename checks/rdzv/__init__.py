"""Checks of the rendezvous: one file each, `checks/rdzv/<property>.py` is `rdzv.<property>`."""
