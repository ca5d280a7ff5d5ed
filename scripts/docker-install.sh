#!/bin/sh
# The steps of the Dockerfile that need no container engine: .ci/run runs the same ones in clean virtual environments.
#
#   docker-install.sh build SOURCE WHEELS    build netdoctor's wheel from SOURCE into WHEELS, the lock file beside it
#   docker-install.sh install WHEELS         install what is locked, each file by its hash, and that wheel
#
# PYTHON names the interpreter, `python3` by default.
set -eu

python=${PYTHON:-python3}

case "${1:-}" in
build)
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-cache-dir --no-deps --wheel-dir "$3" "$2"
    cp "$2/requirements.lock" "$3"
    ;;
install)
    lock=$2/requirements.lock
    set -- "$2"/netdoctor-*.whl
    if [ $# -ne 1 ] || [ ! -f "$1" ]; then
        echo "docker-install.sh: want exactly one wheel, found: $*" >&2
        exit 1
    fi
    pip() {
        "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@"
    }
    pip --require-hashes -r "$lock"
    pip --no-deps "$1"
    "$python" -m pip check --disable-pip-version-check
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
