"""What is told where netdoctor itself broke."""

import sys

EXIT_BROKEN = 5


def broken(error: Exception) -> int:
    """Tell of an error that nobody foresaw, its traceback in a file. Returns the exit code."""
    import traceback

    from netdoctor.files import keep_traceback
    from netdoctor.text import clean

    path = keep_traceback("".join(traceback.format_exception(error))) or "no file could be written"
    text = clean(f"{type(error).__name__}: {error}", 300)
    sys.stderr.write(f"netdoctor broke ({text}); traceback: {path}; the cluster was not judged\n")
    return EXIT_BROKEN
