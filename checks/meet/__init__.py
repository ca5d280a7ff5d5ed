"""Checks of tasks that call: one file each, `checks/meet/<property>.py` is `meet.<property>`."""
