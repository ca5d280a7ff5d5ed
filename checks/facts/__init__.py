"""Checks of facts that came as files: one file each, `checks/facts/<property>.py` is `facts.<property>`."""
