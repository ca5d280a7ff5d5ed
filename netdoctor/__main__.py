"""`netdoctor` and `python -m netdoctor`."""

import atexit
import contextlib
import gc
import io
import os
import sys


class Stderr(io.TextIOWrapper):
    """Standard error. What cannot be told there, full or closed, is lost, and changes no exit code."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def main() -> None:
    """Run the command line and exit with its documented code."""
    # What commands make they keep to the end; those that last turn it on again.
    gc.disable()
    try:
        if sys.stderr is not None:
            original = sys.stderr
            sys.stderr = Stderr(original.buffer, original.encoding, "backslashreplace", line_buffering=True)
        from netdoctor.cli import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # while it still imports, or already leaves
        sys.exit(130)
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # see cli.run
            raise
        sys.exit(130)


def command() -> None:
    """`main`, and the end of the process: the kernel takes at once what Python gives back piece by piece, for
    the facts of a thousand nodes in 50 ms."""
    try:
        main()
    except SystemExit as end:
        # Who measures this is not done yet.
        if sys.getprofile() or sys.gettrace() or not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C once more: an end, and no traceback
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(end.code)


if __name__ == "__main__":
    command()
