"""Checks of the environment of jobs: one file each, `checks/env/<property>.py` is `env.<property>`."""
