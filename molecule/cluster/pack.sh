#!/bin/bash
# Pack the archive's slurmctld under three new versions, into /root/packages.
set -euo pipefail
work=$(mktemp -d)
cd "$work"
mkdir /root/packages
apt-get download slurmctld
dpkg-deb --raw-extract slurmctld_*.deb package

sed -i 's/^Version: .*/&+0muster1/' package/DEBIAN/control
dpkg-deb --build package /root/packages
# With another content, which a daemon must be started with: what follows an ELF file's end is not read.
sed -i 's/+0muster1$/+0muster2/' package/DEBIAN/control
echo another >>package/usr/sbin/slurmctld-wlm
dpkg-deb --build package /root/packages
# Built from a version that nobody has.
sed -i 's/^Version: .*/Version: 99.11.0-1+0muster3/' package/DEBIAN/control
dpkg-deb --build package /root/packages
