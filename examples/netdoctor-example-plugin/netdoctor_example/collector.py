"""Runs on the nodes, inside netdoctor's agent: standard library only, Python 3.6 and up."""

import os

SCRATCH = "/scratch"


def collect(args):
    """Return the fields of Scratch. args: what netdoctor knows about the job; not needed here."""
    path = os.environ.get("SCRATCH") or SCRATCH
    try:
        about = os.statvfs(path)
    except FileNotFoundError:
        return {"path": path, "exists": False}
    return {
        "path": path,
        "exists": True,
        "writable": os.access(path, os.W_OK),
        "free_bytes": about.f_bavail * about.f_frsize,
    }
