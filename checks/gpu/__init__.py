"""Checks of NVIDIA GPUs: one file each, `checks/gpu/<property>.py` is `gpu.<property>`."""
