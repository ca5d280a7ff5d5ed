#!/bin/bash
# Unpack Debian's Open MPI into a folder, FOLDER/bin/mpirun, and install nothing: its libraries, such as libibverbs, would
# be seen by every lab node and change what a scan says. Needs apt-get's lists; root is not needed.
set -euo pipefail

folder=$1
libs="$folder/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")"
mkdir -p "$folder/bin" "$folder/debs"
mapfile -t packages < <(apt-get install -s --no-install-recommends openmpi-bin | awk '/^Inst/ { print $2 }')
(cd "$folder/debs" && apt-get download -qq "${packages[@]}")
for package in "$folder"/debs/*.deb; do
    dpkg -x "$package" "$folder"
done
rm -r "$folder/debs"

cat >"$folder/bin/environment" <<END
export OPAL_PREFIX=$libs/openmpi OPAL_DATADIR=$folder/usr/share OPAL_PKGDATADIR=$folder/usr/share/openmpi
export OPAL_LIBDIR=$libs OPAL_PKGLIBDIR=$libs/openmpi/lib/openmpi3 OPAL_BINDIR=$folder/usr/bin
export OPAL_SYSCONFDIR=$folder/etc PMIX_PREFIX=$libs/pmix2 PMIX_INSTALL_PREFIX=$libs/pmix2
export LD_LIBRARY_PATH=$libs:$libs/openmpi/lib:$libs/pmix2/lib PATH=$folder/usr/bin:\$PATH
END
for pair in mpirun:orterun orted:orted; do
    own="$folder/bin/${pair%%:*}"
    printf '#!/bin/sh\n. %s\nexport OMPI_MCA_orte_launch_agent=%s\nexec %s "$@"\n' \
        "$folder/bin/environment" "$folder/bin/orted" "$folder/usr/bin/${pair##*:}" >"$own"
    chmod 755 "$own"
done
