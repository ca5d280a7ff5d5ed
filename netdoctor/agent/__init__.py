"""The program that runs on nodes, and the control-side helpers that send it there.

`bootstrap` and `provide` run on the control host. Every other module here travels to nodes: Python 3.6 and
up, standard library only, annotations that need `typing` are quoted so that nothing is imported for them.
"""
