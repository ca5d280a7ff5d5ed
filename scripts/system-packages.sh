#!/bin/bash
# Install the Debian packages named as arguments that are not there yet. Needs root and apt-get; starts no daemon.
set -euo pipefail

missing=()
for package in "$@"; do
    # A package that was removed but not purged is still listed, so ask for the state.
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" != installed ]; then
        missing+=("$package")
    fi
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "not a Debian machine; install the likes of these yourself: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "not root; to install what is missing: apt-get install ${missing[*]}" >&2
    exit 1
fi

# A policy of 101 keeps maintainer scripts from starting daemons; a policy that is there already is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 0755 "$policy"
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
