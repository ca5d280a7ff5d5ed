"""Checks of what NCCL chooses: one file each, `checks/nccl/<property>.py` is `nccl.<property>`."""
