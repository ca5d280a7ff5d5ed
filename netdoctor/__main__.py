"""`netdoctor` and `python -m netdoctor`."""

import sys


def main() -> None:
    """Run the command line and exit with its documented code."""
    from netdoctor.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
