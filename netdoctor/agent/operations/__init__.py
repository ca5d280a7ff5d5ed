"""Experiments: what a node does when it is asked to."""
