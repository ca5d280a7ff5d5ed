"""Checks of files that nodes share: one file each, `checks/path/<property>.py` is `path.<property>`."""
