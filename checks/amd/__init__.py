"""Checks of AMD GPUs: one file each, `checks/amd/<property>.py` is `amd.<property>`."""
