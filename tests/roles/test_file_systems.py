"""Folders of a host lie on a disk that outlives it; what was on the disk is never lost."""

import json
import re

import pytest

PROGRAM = "/usr/local/lib/muster/muster_file_systems.py"
DEVICE = "/dev/disk/by-id/google-state"
FILE = "/root/google-state.disk"
"""What is behind it (molecule/shared/disk.sh)."""
FOLDER = "/var/lib/keeper"
KEPT = "/srv/muster/var/lib/keeper"


def run(host, what="apply"):
    return host.run(f"python3 {PROGRAM} {what}")


@pytest.fixture
def settings(host):
    """Write its first file system alone, with a change; what the role wrote comes back."""
    path = "/etc/muster/file-systems.json"
    before = host.file(path).content_string

    def write(**changes):
        [first, *_] = json.loads(before)["mounts"]
        text = json.dumps({"mounts": [{**first, **changes}]})
        host.check_output(f"printf %s '{text}' >{path}")

    yield write
    host.check_output(f"printf %s '{before}' >{path}")


@pytest.fixture
def other_disk(host):
    """A disk of its own, not under the name of the state disk; its path."""
    device = host.check_output(
        "sh -c 'cd /root; rm -f other; truncate --size=16M other; losetup --find --show other'"
    )
    yield device
    host.check_output(f"losetup --detach {device}")


def test_the_folder_lies_on_the_disk(host):
    mounted = host.check_output(f"stat --format=%d:%i {FOLDER}")
    assert mounted == host.check_output(f"stat --format=%d:%i {KEPT}")
    device = host.check_output("findmnt --noheadings --output SOURCE /srv/muster")
    assert device == host.check_output(f"realpath {DEVICE}")


def test_what_the_daemon_had_before_moved_with_it_and_the_daemon_runs_there(host):
    log = host.check_output(f"cat {KEPT}/log").split()
    # Once before the role came, once when its folder had moved.
    assert len(log) >= 2
    assert host.service("keeper").is_running
    pid = host.check_output("systemctl show keeper --property MainPID --value")
    assert host.check_output(f"stat --dereference --format=%d /proc/{pid}/cwd") == (
        host.check_output("stat --format=%d /srv/muster")
    )


def test_a_folder_that_was_not_there_is_made(host):
    assert host.check_output("stat --format=%U:%a /shared") == "root:755"
    assert host.mount_point("/shared").exists


def test_nothing_is_left_to_do(host):
    for what in ("check", "apply"):
        done = run(host, what)
        assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_the_daemon_does_not_start_without_the_disk(host):
    needed = host.check_output("systemctl show keeper --property Requires,After")
    assert needed.count("muster-file-systems.service") == 2


def test_the_daemon_does_not_start_on_what_was_in_its_folder_before(host):
    """As where the folder was taken out of the list, at the next boot."""
    host.check_output(f"sh -c 'systemctl stop keeper; umount {FOLDER}'")
    try:
        done = host.run("systemctl start keeper")
        assert done.rc != 0
        assert "Assertion failed" in done.stderr
    finally:
        assert run(host).stdout == f"{FOLDER}: bind it to {KEPT}\n"
        host.check_output("systemctl start keeper")


def test_settings_that_can_t_be_applied_are_refused_before_they_are_written(host):
    wanted = {"path": "/srv/other", "label": "muster-other", "size_gib": 100_000}
    host.check_output(f"printf %s '{json.dumps({'mounts': [wanted]})}' >/root/other.json")
    done = run(host, "check /root/other.json")
    assert done.rc == 1
    assert "GiB are missing" in done.stderr
    assert not host.file("/var/lib/muster/file-systems/muster-other").exists


def test_the_disk_s_content_wins_on_a_recreated_machine(host):
    """The daemon's folder of the new machine holds something else, and the owner another number."""
    host.check_output(f"sh -c 'systemctl stop keeper; umount {FOLDER}; umount /shared'")
    host.check_output(f"sh -c 'rm -rf {FOLDER}; mkdir {FOLDER}; echo new >{FOLDER}/log'")
    before = host.check_output(f"cat {KEPT}/log")
    number = host.check_output("id -u keeper")
    host.check_output("usermod --uid 4712 keeper")
    try:
        done = run(host)
        assert f"{KEPT}: give it to keeper:keeper" in done.stdout
        assert f"{FOLDER}: bind it to {KEPT}" in done.stdout
        assert "move" not in done.stdout
        assert host.check_output(f"cat {FOLDER}/log") == before
        assert (
            host.check_output(f"stat --format=%U {FOLDER} {FOLDER}/log").split() == ["keeper"] * 2
        )
    finally:
        host.check_output(f"usermod --uid {number} keeper")
        assert run(host).rc == 0
        host.check_output("systemctl start keeper")


def test_host_keys_come_back_to_a_recreated_machine(host):
    key = "/etc/ssh/ssh_host_ed25519_key"
    before = host.check_output(f"sha256sum <{key}")
    host.check_output(f"sh -c 'rm {key}; ssh-keygen -q -t ed25519 -N \"\" -f {key}'")
    assert host.check_output(f"sha256sum <{key}") != before
    assert "/etc/ssh/ssh_host_*: take those of /srv/muster/etc/ssh" in run(host).stdout
    assert host.check_output(f"sha256sum <{key}") == before
    assert host.check_output(f"stat --format=%a {key}") == "600"
    assert host.check_output("stat --format=%a /srv/muster/etc/ssh") == "700"
    public = host.check_output(f"cut -d ' ' -f 2 {key}.pub")
    asked = f"ssh-keyscan -t ed25519 127.0.0.1 2>/dev/null | grep -qF {public}"
    host.check_output(f"timeout 20 sh -c 'until {asked}; do sleep 0.2; done'")


def test_the_file_system_grows_with_its_disk(host):
    """As at a boot, before it is mounted: a container may not resize what is mounted."""
    before = int(host.check_output("df --output=size -B1M /srv/muster").split()[1])
    device = host.check_output(f"realpath {DEVICE}")
    size = int(host.check_output(f"stat --format=%s {FILE}")) + 32 * 2**20
    host.check_output(f"sh -c 'systemctl stop keeper; umount {FOLDER} /shared /srv/muster'")
    host.check_output(f"sh -c 'truncate --size={size} {FILE}; losetup --set-capacity {device}'")
    assert run(host).stdout.splitlines()[:2] == [
        "/srv/muster: grow to the size of its disk",
        f"/srv/muster: mount {DEVICE}",
    ]
    assert int(host.check_output("df --output=size -B1M /srv/muster").split()[1]) >= before + 25
    assert run(host).stdout == ""
    host.check_output("systemctl start keeper")


def damaged(disk):
    """Return commands that make a file system of ours and take its superblock away."""
    return (
        f"mkfs.ext4 -q -L muster-state {disk} && "
        f"dd if=/dev/zero of={disk} bs=4096 count=1 conv=notrunc status=none"
    )


@pytest.mark.parametrize(
    "damage",
    [
        damaged,
        lambda disk: f"dd if=/dev/urandom of={disk} bs=512 seek=9 count=1 conv=notrunc status=none",
    ],
    ids=["superblock", "data"],
)
def test_a_disk_that_is_neither_known_nor_blank_is_refused(host, settings, other_disk, damage):
    host.check_output(f"sh -c '{damage(other_disk)}'")
    before = host.check_output(f"sha256sum {other_disk}")
    settings(device=other_disk, path="/srv/other", folders=[])
    done = run(host)
    assert done.rc == 1
    assert "is not formatted: repair it" in done.stderr
    assert host.check_output(f"sha256sum {other_disk}") == before


@pytest.mark.parametrize("make", ["mkfs.ext4 -q -L photos", "mkswap --quiet"])
def test_a_disk_with_anything_on_it_is_refused(host, settings, other_disk, make):
    host.check_output(f"{make} {other_disk}")
    before = host.check_output(f"sha256sum {other_disk}")
    settings(device=other_disk, path="/srv/other", folders=[])
    done = run(host)
    assert done.rc == 1
    assert f"{other_disk} holds" in done.stderr
    assert "blkdiscard --zeroout" in done.stderr
    assert host.check_output(f"sha256sum {other_disk}") == before


def test_a_missing_disk_is_one_sentence(host, settings):
    settings(device="/dev/disk/by-id/google-elsewhere")
    done = run(host, "check")
    assert done.rc == 1
    assert done.stderr.startswith("/dev/disk/by-id/google-elsewhere: no such device; attach")


SHELF = "/srv/shelf"
SHELF_FILE = "/var/lib/muster/file-systems/muster-shelf"


def test_a_file_takes_the_place_of_a_disk_and_has_its_room_at_once(host):
    size, blocks = host.check_output(f"stat --format='%s %b' {SHELF_FILE}").split()
    assert int(size) == 2**30
    assert int(blocks) * 512 >= 2**30
    assert host.check_output(f"stat --format=%a {SHELF_FILE}") == "600"
    there = host.check_output(f"findmnt --noheadings --output SOURCE,FSTYPE,OPTIONS {SHELF}")
    assert "/dev/loop" in there
    assert {"nosuid", "nodev"} <= {*there.split()[2].split(",")}


def test_a_file_that_was_made_and_is_missing_is_not_made_again(host, settings):
    record = "/etc/muster/file-systems.made"
    assert re.search(r"^muster-shelf 20\d\d-\d\d-\d\d$", host.file(record).content_string, re.M)
    wanted = {"path": SHELF, "label": "muster-shelf", "device": "", "folders": []}
    settings(**wanted, host_keys=False, size_gib=1)
    host.check_output(f"mv {SHELF_FILE} {SHELF_FILE}.away")
    try:
        for what in ("check", "apply"):
            done = run(host, what)
            assert done.rc == 1
            assert f"{SHELF_FILE} is missing or empty, and it was there on 20" in done.stderr
            assert f"{SHELF} is still mounted, so first copy what is in it" in done.stderr
        assert not host.file(SHELF_FILE).exists
    finally:
        host.check_output(f"mv {SHELF_FILE}.away {SHELF_FILE}")


def test_files_behind_a_link_are_refused(host, settings):
    folder = SHELF_FILE.rpartition("/")[0]
    wanted = {"path": SHELF, "label": "muster-shelf", "device": "", "folders": []}
    settings(**wanted, host_keys=False, size_gib=1)
    host.check_output(f"sh -c 'mv {folder} {folder}.moved; ln -s {folder}.moved {folder}'")
    try:
        done = run(host)
        assert done.rc == 1
        assert f"{SHELF_FILE} is {folder}.moved/muster-shelf by a link" in done.stderr
    finally:
        host.check_output(f"sh -c 'rm {folder}; mv {folder}.moved {folder}'")


def test_what_a_folder_had_before_moved_in_and_belongs_to_whom_it_did(host):
    assert host.check_output(f"stat --format=%U:%a {SHELF}") == "keeper:750"
    assert host.check_output(f"stat --format=%U {SHELF}/book") == "keeper"
    assert host.check_output(f"cat {SHELF}/book") == "read"


def test_who_fills_one_file_system_fills_no_other(host):
    fill = f"dd if=/dev/zero of={SHELF}/fill bs=1M status=none"
    assert "No space left on device" in host.run(fill).stderr
    try:
        host.check_output(f"sh -c 'dd if=/dev/zero of={FOLDER}/more bs=1M count=1 status=none'")
        host.check_output("dd if=/dev/zero of=/var/lib/more bs=1M count=1 status=none")
    finally:
        host.check_output(f"rm -f {SHELF}/fill {FOLDER}/more /var/lib/more")


def test_a_file_is_mounted_again_after_a_boot_and_grows(host, settings):
    """As above, unmounted: its loop device goes with the mount."""
    wanted = {"path": SHELF, "label": "muster-shelf", "device": "", "folders": []}
    host.check_output(f"umount {SHELF}")
    held = f"losetup --noheadings --associated {SHELF_FILE} | grep -q ."
    host.check_output(f"timeout 10 sh -c 'while {held}; do sleep 0.1; done'")
    settings(**wanted, host_keys=False, size_gib=2)
    try:
        done = run(host)
        assert done.stdout.splitlines()[:2] == [
            f"{SHELF_FILE}: take 1 GiB",
            f"{SHELF}: grow to the size of its disk",
        ]
        assert host.check_output(f"cat {SHELF}/book") == "read"
        assert int(host.check_output(f"df --output=size -B1M {SHELF}").split()[1]) > 1900
        settings(**wanted, host_keys=False, size_gib=1)
        done = run(host)
        assert done.rc == 1
        assert f"{SHELF_FILE} has 2 GiB and is never made smaller" in done.stderr
    finally:
        host.check_output(f"umount {SHELF}")
        host.check_output(f"timeout 10 sh -c 'while {held}; do sleep 0.1; done'")
        host.check_output(f"sh -c 'e2fsck -fp {SHELF_FILE}; resize2fs {SHELF_FILE} 1G'")
        host.check_output(f"truncate --size=1G {SHELF_FILE}")
    settings(**wanted, host_keys=False, size_gib=1, options=["nosuid", "nodev"])
    assert run(host).rc == 0


def test_a_file_that_has_no_room_is_refused_before_it_takes_any(host, settings):
    before = host.check_output("df --output=avail -B1G /var/lib").split()[1]
    other = {"path": "/srv/other", "label": "muster-other", "device": "", "folders": []}
    settings(**other, size_gib=100_000)
    done = run(host)
    assert done.rc == 1
    assert "GiB are missing, with what the machine itself keeps" in done.stderr
    assert (
        abs(int(host.check_output("df --output=avail -B1G /var/lib").split()[1]) - int(before)) < 5
    )


def test_a_disk_that_was_not_filled_before_the_machine_stopped_is_made_again(
    host, settings, other_disk
):
    host.check_output(f"mkfs.ext4 -q -L muster-new {other_disk}")
    settings(device=other_disk, path="/srv/other", folders=[], host_keys=False)
    try:
        assert run(host).rc == 0
        assert host.check_output(f"blkid --output value --match-tag LABEL {other_disk}") == (
            "muster-state"
        )
    finally:
        host.run("umount /srv/other")


def test_a_folder_in_which_a_program_writes_does_not_move(host, settings, other_disk):
    held = "exec 9>/srv/other/log; exec sleep infinity"
    host.check_output("mkdir -p /srv/other")
    host.check_output(f"systemd-run --quiet --unit=writer sh -c '{held}'")
    try:
        host.check_output("timeout 10 sh -c 'until test -e /srv/other/log; do sleep 0.1; done'")
        settings(device=other_disk, path="/srv/other", folders=[], host_keys=False)
        for what in ("check", "apply"):
            done = run(host, what)
            assert done.rc == 1
            assert "/srv/other can't move while programs write there" in done.stderr
            assert "/srv/other/log; end them" in done.stderr
        assert host.check_output(f"blkid --probe {other_disk} || echo blank") == "blank"
    finally:
        host.check_output("sh -c 'systemctl stop writer; rm -r /srv/other'")


def test_another_file_system_at_the_folder_is_refused(host, settings, other_disk):
    host.check_output("sh -c 'mkdir -p /srv/other; mount -t tmpfs other /srv/other'")
    settings(device=other_disk, path="/srv/other", folders=[])
    try:
        done = run(host)
        assert done.rc == 1
        assert "/srv/other has another file system than that of" in done.stderr
        assert host.check_output(f"blkid --probe {other_disk} || echo blank") == "blank"
    finally:
        host.check_output("umount /srv/other")
