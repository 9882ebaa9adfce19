#!/bin/sh
# A loop device under a name below /dev/disk/by-id, of 64 MiB or of the size given. It vanishes with
# the machine: it is detached at once, and stays for as long as a process of the machine has it open.
set -eu
file=/root/$1.disk
unit=hold-$1
truncate --size="${2:-64M}" "$file"
i=0
while [ $i -lt 64 ]; do
    [ -b /dev/loop$i ] || mknod /dev/loop$i b 7 $i
    i=$((i + 1))
done
device=$(losetup --find --show "$file")
systemd-run --quiet --unit="$unit" sh -c "exec 9<$device; exec sleep infinity"
i=0
until systemctl show --property=MainPID --value "$unit" | xargs -I{} test -e /proc/{}/fd/9; do
    i=$((i + 1)); [ $i -lt 100 ]; sleep 0.1
done
losetup --detach "$device"
mkdir -p /dev/disk/by-id
ln -s "$device" "/dev/disk/by-id/$1"
