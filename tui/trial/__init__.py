"""The live page of a job that is tried: a row for each node, or for many that fare alike."""
