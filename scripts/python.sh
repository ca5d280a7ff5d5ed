#!/bin/bash
# Print the path of a Python 3.10 or newer that can make virtual environments; say what is missing otherwise.
set -euo pipefail

found=
for name in "${PYTHON:-python3.11}" python3 python3.13 python3.12 python3.10; do
    # Run it: a version manager's stand-in may be on PATH without a Python behind it.
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        found=$name
        if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
            command -v "$name"
            exit 0
        fi
    fi
done
if [ -n "$found" ]; then
    echo "$found cannot make virtual environments: apt-get install python3-venv" >&2
else
    echo "netdoctor needs Python 3.10 or newer; this machine's python3 is: $(python3 -V 2>&1 || true)." >&2
    echo "Install one (Debian 12: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2
fi
exit 1
