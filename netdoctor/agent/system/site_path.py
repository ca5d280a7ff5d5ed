"""sys.path of the job's interpreter: the agent runs with -E -S -s, and a job does not."""

import sys
from _thread import allocate_lock

# Lines of .pth files that change no path, and cost more to run than an interpreter to start: of setuptools
# (editable installs, its distutils, namespaces) and of virtualenv.
_NO_PATH = (
    "import __editable___",
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'",
    "import sys, types, os;has_mfs",
    "import _virtualenv",
)

_begun = []  # type: list[bool]
_beginning = allocate_lock()
_left_out = []  # type: list[tuple[str, str]]  # a line, and the folder of its .pth file


def own_path(every_line: bool = False) -> "list[str]":
    """Return sys.path as the interpreter has it that starts without -S: by its own `site`, when first asked.

    Sets sys.path, and sys.prefix of a virtual environment. Runs sitecustomize. every_line: runs those that
    change no path, too, for who imports what is installed.
    """
    with _beginning:
        if sys.flags.no_site and not _begun:
            import site

            # What it calls: a name of its own goes before the built-in one.
            vars(site)["exec"] = _line
            site.main()
            _begun.append(True)
        while every_line and _left_out:
            _run(*_left_out.pop(0))
        return list(sys.path)


def _line(text: str) -> None:
    folder = str(sys._getframe(1).f_locals.get("sitedir", ""))
    if text.startswith(_NO_PATH):
        _left_out.append((text, folder))
    else:
        _run(text, folder)


def _run(text: str, sitedir: str) -> None:
    # Some take `sitedir` out of the frame that runs them.
    exec(text, {"__name__": "site", **vars(sys.modules["site"])})
