#!/bin/bash
# Pack the archive's slurmctld under three new versions, and print the files.
set -euo pipefail
folder=$(mktemp -d)
cd "$folder"
apt-get download slurmctld >&2

pack() {
    version=$(sed -n 's/^Version: //p' package/DEBIAN/control)
    dpkg-deb --build package "$folder/slurmctld_${version}_all.deb" >&2
    echo "$folder/slurmctld_${version}_all.deb"
}

dpkg-deb --raw-extract slurmctld_*.deb package
sed -i 's/^Version: .*/&+0muster1/' package/DEBIAN/control
pack
# With another content, which a daemon must be started with: what follows an ELF file's end is not read.
sed -i 's/+0muster1$/+0muster2/' package/DEBIAN/control
echo another >>package/usr/sbin/slurmctld-wlm
pack
# Built from a version that nobody has.
sed -i 's/^Version: .*/Version: 99.11.0-1+0muster3/' package/DEBIAN/control
pack
