"""What is told where netdoctor itself broke."""

import sys

EXIT_BROKEN = 5


def broken(error: Exception) -> int:
    """Tell of an error that nobody foresaw, its traceback in a file. Returns the exit code."""
    import tempfile
    import traceback

    from netdoctor.text import clean

    path = "no file could be written"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="netdoctor-", suffix=".traceback", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            traceback.print_exception(error, file=file)
            path = file.name
    except OSError:
        pass
    text = clean(f"{type(error).__name__}: {error}", 300)
    sys.stderr.write(f"netdoctor broke ({text}); traceback: {path}; the cluster was not judged\n")
    return EXIT_BROKEN
