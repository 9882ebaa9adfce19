"""Folders of a host lie on a disk that outlives it; what was on the disk is never lost."""

import json

import pytest

PROGRAM = "/usr/local/lib/muster/muster_state_disk.py"
DEVICE = "/dev/disk/by-id/google-state"
FILE = "/root/google-state.disk"
"""What is behind it (molecule/shared/disk.sh)."""
FOLDER = "/var/lib/keeper"
KEPT = "/srv/muster/var/lib/keeper"


def run(host, what="apply"):
    return host.run(f"python3 {PROGRAM} {what}")


@pytest.fixture
def settings(host):
    """Write the program's settings with a change; those of the role come back."""
    path = "/etc/muster/state-disk.json"
    before = host.file(path).content_string

    def write(**changes):
        text = json.dumps({**json.loads(before), **changes})
        host.check_output(f"printf %s '{text}' >{path}")

    yield write
    host.check_output(f"printf %s '{before}' >{path}")


@pytest.fixture
def other_disk(host):
    """A disk of its own, not under the name of the state disk; its path."""
    device = host.check_output(
        "sh -c 'truncate --size=16M /root/other; losetup --find --show /root/other'"
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
    assert needed.count("muster-state-disk.service") == 2


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
    settings(device=other_disk, path="/srv/other")
    done = run(host)
    assert done.rc == 1
    assert "is not formatted: repair it" in done.stderr
    assert host.check_output(f"sha256sum {other_disk}") == before


@pytest.mark.parametrize("make", ["mkfs.ext4 -q -L photos", "mkswap --quiet"])
def test_a_disk_with_anything_on_it_is_refused(host, settings, other_disk, make):
    host.check_output(f"{make} {other_disk}")
    before = host.check_output(f"sha256sum {other_disk}")
    settings(device=other_disk, path="/srv/other")
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
