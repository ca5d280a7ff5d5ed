"""Experiments that need several nodes at once. They measure; nothing here judges."""
