"""Collectors: what a node sees of itself, a module for each group of facts."""
