#!/bin/bash
# slurmctld-package.sh FOLDER: build Debian's package slurmctld so that it starts scripts early, into FOLDER.
#
# It runs in a temporary Debian whose apt has deb-src lines. Progress goes to stdout, the commands' output to stderr.
set -euo pipefail
seconds=2    # between passes, in place of 30: the loop that makes them looks once a second
suffix=+0muster1    # above the archive's version, below its next: 0 sorts before the letters of +deb13u1 and +b1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

work=$(mktemp -d)
cd "$work"
{
    apt-get update
    apt-get install --yes --no-install-recommends build-essential
} >&2
echo "fetching the source of slurm-wlm and what its build needs"
apt-get source slurm-wlm >&2
cd slurm-wlm-*/
apt-get build-dep --yes --no-install-recommends ./ >&2
if ! grep -qE '^#ifndef[[:space:]]+PERIODIC_TIMEOUT' src/slurmctld/slurmctld.h; then
    echo "error: in $(dpkg-parsechangelog --show-field Version) PERIODIC_TIMEOUT can't be set from outside; use the archive's" >&2
    exit 1
fi
echo "compiling $(dpkg-parsechangelog --show-field Version) with PERIODIC_TIMEOUT=$seconds"
# Debian's own rules, which run no tests of SLURM; only the flag is added: dpkg-buildflags(1).
DEB_CPPFLAGS_APPEND=-DPERIODIC_TIMEOUT=$seconds DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" \
    dpkg-buildpackage --build=any --no-sign >&2
# Under the archive's version all packages of SLURM depend on each other exactly, so the new version is
# given to this one alone: the others, of which the constant is no part, stay the archive's.
dpkg-deb --raw-extract ../slurmctld_*.deb ../package
sed -i -E "s/^Version: .*/&$suffix/" ../package/DEBIAN/control
dpkg-deb --root-owner-group --build ../package "$1" >&2
