"""`netdoctor` and `python -m netdoctor`."""

import contextlib
import gc
import io
import sys


class Told(io.TextIOWrapper):
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
            there = sys.stderr
            sys.stderr = Told(there.buffer, there.encoding, "backslashreplace", line_buffering=True)
        from netdoctor.cli import run

        code = run(sys.argv[1:])
        gc.freeze()  # on the way out nobody looks for garbage among the facts of thousands of nodes
        sys.exit(code)
    except KeyboardInterrupt:  # while it still imports, or already leaves
        sys.exit(130)


if __name__ == "__main__":
    main()
