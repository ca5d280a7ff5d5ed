"""What travels to nodes, and nothing else: Python 3.6 and up, standard library only.

Annotations that need `typing` are quoted so that nothing is imported for them. What packs and sends these
modules is netdoctor.transport.bundle.
"""
