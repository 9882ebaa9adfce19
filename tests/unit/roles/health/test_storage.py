"""Which folders a node needs, and what is known of them."""

import json

import pytest
from health import storage
from health.findings import Reading

# As systemd 252 prints it on a node of the lab.
SHOWN = (
    "Requires=sysinit.target system.slice -.mount home.mount srv-my\\x2ddata.mount\n"
    "RequiresMountsFor=/home /apps /srv/my-data/projects /var/tmp\n"
)
MOUNTINFO = r"""
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 24 0:30 / /home rw,noatime shared:20 - nfs4 storage1:/home rw,vers=4.2
36 24 0:31 / /srv/my-data rw,noatime - nfs4 storage1:/data rw,vers=4.2
37 24 0:32 / /mnt/other\040folder rw - nfs4 storage2:/other rw
38 24 0:33 / /boot rw master:2 propagate_from:1 - vfat /dev/sda2 rw
""".lstrip()
ANSWERS = Reading(0, "nfs\n")


def results(shown=SHOWN, mountinfo=MOUNTINFO, vm="", **readings):
    needs, mounts = storage.wanted(shown, vm), storage.mounted(mountinfo)
    paths = storage.looks(needs, mounts)
    said = {path: readings.get(path.rpartition("/")[2], ANSWERS) for path in paths} | readings
    return {
        finding.check: f"{finding.state}: {finding.why}"
        for finding in storage.findings(needs, mounts, said)
    }


def test_mounts_of_the_network_that_hold_what_slurmd_waits_for_are_looked_at():
    assert results() == {
        "storage /home": "healthy: nfs4, answers",
        # /apps is a folder of the node's own disk; nobody needs the other folder.
        "storage /srv/my-data": "healthy: nfs4, answers",
    }


@pytest.mark.parametrize(
    "strange", ["\N{NO-BREAK SPACE}", "\x1f", "\r", "\x85", "\N{LINE SEPARATOR}", "\udcff"]
)
def test_a_mount_with_a_strange_name_hides_no_other(strange):
    path = f"/tmp/.{strange}"
    # The kernel writes nothing in the place of an empty source.
    row = f"39 24 0:34 / {path}\\040x rw - fuse.x{strange}  rw,user_id=20077\n"
    mounts = storage.mounted(row + MOUNTINFO)
    assert mounts == {**storage.mounted(MOUNTINFO), f"{path} x": f"fuse.x{strange}"}
    assert results(mountinfo=row + MOUNTINFO) == results()


def test_a_look_asks_the_server():
    assert storage.look("/home", "nfs4") == ["stat", "--file-system", "--format=%T", "/home/."]


@pytest.mark.parametrize("kind", ["ceph", "fuse.ceph-fuse"])
def test_a_look_asks_ceph_s_metadata_server_and_not_what_is_remembered(kind):
    assert storage.look("/home", kind) == ["stat", "--cached=never", "--format=%F", "/home/."]


def test_a_folder_that_is_not_mounted():
    without = "\n".join(line for line in MOUNTINFO.splitlines() if " /home " not in line)
    said = "broken: it is not mounted; its mount unit says why"
    assert results(mountinfo=without)["storage /home"] == said


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (Reading(None), "broken: it does not answer; is its server up?"),
        (
            Reading(
                1,
                "stat: cannot read file system information for '/home/.': Stale file handle\n",
            ),
            "broken: its file handle is stale; unmount it and mount it again",
        ),
        (
            Reading(
                1, "stat: cannot read file system information for '/home/.': Input/output error\n"
            ),
            "broken: Input/output error",
        ),
        # Root is nobody there, and the server has answered.
        (
            Reading(
                1, "stat: cannot read file system information for '/home/.': Permission denied\n"
            ),
            "healthy: nfs4, answers",
        ),
        (Reading(1, ""), "broken: stat ends with 1"),
        (Reading(None, missing=True), "unchecked: stat is not installed"),
    ],
)
def test_what_a_look_says(reading, said):
    assert results(home=reading)["storage /home"] == said


def test_a_vm_has_its_list_from_its_boot():
    shown = "Requires=sysinit.target -.mount\nRequiresMountsFor=/var/tmp\n"
    folders = [{"path": path, "type": "nfs4"} for path in ("/home", "/apps")]
    refused = {storage.mounting("/apps"): Reading(32, "mount.nfs4: Connection refused\n")}
    assert results(shown, vm=json.dumps(folders), **refused) == {
        "storage /apps": "broken: it is not mounted; mount: mount.nfs4: Connection refused",
        "storage /home": "healthy: nfs4, answers",
    }


@pytest.mark.parametrize("kind", ["ceph", "fuse.ceph-fuse", "autofs", "lustre"])
def test_other_file_systems_that_wait_for_servers(kind):
    other = MOUNTINFO.replace("- nfs4 storage1:/home", f"- {kind} x")
    assert results(mountinfo=other)["storage /home"] == f"healthy: {kind}, answers"


def test_where_nothing_is_shared_nothing_is_looked_at():
    shown = "Requires=-.mount\nRequiresMountsFor=/home /apps\n"
    assert results(shown, "24 1 8:1 / / rw - overlay overlay rw\n") == {}


def test_where_systemd_says_nothing_that_is_said():
    assert storage.unknown(Reading(1, "System has not been booted with systemd\n")) == (
        "storage",
        "unchecked",
        "systemctl: System has not been booted with systemd",
    )
