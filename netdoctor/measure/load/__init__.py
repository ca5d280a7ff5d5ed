"""Experiments that load nodes as a job does: collectives, the same work everywhere, storage."""
