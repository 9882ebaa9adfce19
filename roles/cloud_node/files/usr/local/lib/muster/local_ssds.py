#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Make one device of a node's local SSDs for its cache: `local_ssds.py N`.

One SSD is used as it is; of more an array without redundancy is made (RAID 0, as in
https://cloud.google.com/compute/docs/disks/add-local-ssd): what is on it can be read again.
After a reboot of the guest udev has already assembled the array. The link DEVICE points to it.

A device that holds anything else is refused. Needs Python's standard library and disks.py alone.
"""

import glob
import os
import sys
import time
from collections.abc import Mapping

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from disks import Content, DiskError, content, is_zero, run
except (ImportError, SyntaxError, ValueError) as error:
    sys.exit(
        f"{sys.path[0]}/disks.py is missing or damaged ({error}); power the node down, and SLURM "
        "makes another"
    )

SSDS = "/dev/disk/by-id/google-local-nvme-ssd-*"
"""As Google's images name them."""
DEVICE = "/run/muster-node/local-ssds"
NAME = "muster-cache"
ARRAY = f"/dev/md/{NAME}"
MEMBER = Content("linux_raid_member", f"any:{NAME}")
"""What libblkid finds on a member of Muster's array."""
WAIT_S = 30
"""How long devices may take to appear at boot."""
COMMAND_S = 60.0
"""Less than the unit's limit, so that the journal says which command it was."""


def wait_for_ssds(count: int) -> list[str]:
    """Return the local SSDs when there are `count` of them.

    Raises:
        DiskError: there are more or fewer.

    """
    deadline = time.monotonic() + WAIT_S
    while True:
        # Muster makes no partitions, so a link to one is not Muster's.
        ssds = sorted(link for link in glob.glob(SSDS) if "-part" not in link)
        if len(ssds) == count:
            return ssds
        if time.monotonic() >= deadline:
            raise DiskError(
                f"{len(ssds)} of {count} local SSDs are there ({SSDS}); power the node down, and "
                "SLURM makes another"
            )
        time.sleep(0.1)


def arrays_of(device: str) -> set[str]:
    """Return the arrays that a device is part of."""
    name = os.path.basename(os.path.realpath(device))
    holders = glob.glob(f"/sys/class/block/{name}/holders/md*")
    return {f"/dev/{os.path.basename(holder)}" for holder in holders}


def plan(members: Mapping[str, tuple[set[str], Content | None]]) -> tuple[str | None, list[str]]:
    """Return the array to take, None for a new one, and the arrays to stop for that.

    Args:
        members: Device -> its arrays, and its content.

    Raises:
        DiskError: something else is on one.

    """
    for device, (_, holds) in members.items():
        if holds not in (None, MEMBER):
            raise DiskError(
                f"{device} holds {holds}, so it joins no array; if nothing on it is needed, "
                f"wipefs --all {device} && blkdiscard --zeroout {device}, and restart "
                "muster-cache-disk"
            )
    arrays = {array for held, _ in members.values() for array in held}
    if len(arrays) == 1 and all(held for held, _ in members.values()):
        return arrays.pop(), []
    # Members of an array whose other members came back blank.
    return None, sorted(arrays)


def array(ssds: list[str]) -> str:
    """Return the array of several."""
    # udev may be assembling it now.
    run("udevadm", "settle", f"--timeout={WAIT_S}", seconds=COMMAND_S)
    members = {device: (arrays_of(device), content(device)) for device in ssds}
    whole, halves = plan(members)
    if whole is None:
        create(ssds, members, halves)
        whole = ARRAY
    elif content(whole) is not None:
        return whole
    # Of a new one there may be the file system of an earlier array, of which members may be
    # missing; another's first format was cut off. muster_cache_disk.py formats neither.
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-L", NAME, whole, seconds=COMMAND_S)
    return whole


def create(
    ssds: list[str], members: Mapping[str, tuple[set[str], Content | None]], halves: list[str]
) -> None:
    """Create the array; refuse members that hold what is not known."""
    for device, (_, holds) in members.items():
        if holds is None and not is_zero(device):
            raise DiskError(
                f"{device} holds something that libblkid does not know, so it joins no array; if "
                f"nothing on it is needed, blkdiscard --zeroout {device}, and restart "
                "muster-cache-disk"
            )
    for half in halves:
        run("mdadm", "--stop", half, seconds=COMMAND_S)
    print(f"{ARRAY}: make an array of {', '.join(ssds)}", flush=True)
    # mdadm(8): "any" lets it have the same name on each host, --run asks no question.
    shape = ("--level=0", f"--raid-devices={len(ssds)}", "--homehost=any", f"--name={NAME}")
    run("mdadm", "--create", ARRAY, *shape, "--run", *ssds, seconds=COMMAND_S)


def main(count: int) -> None:
    """Make the device and its link."""
    ssds = wait_for_ssds(count)
    device = ssds[0] if count == 1 else array(ssds)
    new = f"{DEVICE}.new"
    if os.path.lexists(new):
        os.unlink(new)
    os.symlink(os.path.realpath(device), new)
    os.rename(new, DEVICE)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except DiskError as error:
        sys.exit(str(error))
