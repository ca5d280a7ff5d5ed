"""Checks of bandwidth between nodes: one file each, `checks/bw/<property>.py` is `bw.<property>`."""
