"""The cache's disk, its daemon's unit and their order; what a kernel caches, tests/vm shows.

Containers share this machine's kernel, which may have no module cachefiles: then the role says so,
and the daemon is not run.
"""

import re

import pytest

PROGRAM = "python3 /usr/local/lib/muster/muster_cache_disk.py"
DEVICE = "/dev/disk/by-id/muster-cache"
PLACE = "/var/cache/fscache"


def apply(host, disk=f"--device {DEVICE}"):
    return host.run(f"{PROGRAM} {disk}")


@pytest.fixture
def unmounted(host):
    """The disk off its place; afterwards it is the role's again."""
    host.check_output(f"umount {PLACE}")
    yield
    host.run(f"umount {PLACE}")
    host.check_output(f"blkdiscard --zeroout {DEVICE}")
    assert apply(host).rc == 0


@pytest.fixture
def file(host, unmounted):
    """Where a file on the root disk would be; it goes with its mount."""
    yield "/root/cache.img"
    host.check_output(f"sh -c 'umount {PLACE}; rm -f /root/cache.img'")


def source(host):
    return host.check_output(f"findmnt --noheadings --output SOURCE {PLACE}")


def test_the_disk_is_mounted_and_nothing_is_left_to_do(host):
    assert source(host) == host.check_output(f"realpath {DEVICE}")
    for options in ("", " --check"):
        done = apply(host, f"--device {DEVICE}{options}")
        assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_no_part_of_it_is_kept_for_root(host):
    superblock = host.check_output(f"dumpe2fs -h {DEVICE} 2>/dev/null")
    assert re.search(r"^Reserved block count: +0$", superblock, re.MULTILINE)


def test_the_daemon_comes_after_the_disk_and_before_any_shared_folder(host):
    words = host.check_output("systemctl show cachefilesd --property Requires,After,Before")
    values = dict(line.split("=", 1) for line in words.splitlines())
    assert "muster-cache-disk.service" in values["Requires"].split()
    assert "muster-cache-disk.service" in values["After"].split()
    assert "remote-fs-pre.target" in values["Before"].split()
    path = host.check_output("systemctl show cachefilesd --property FragmentPath --value")
    assert path == "/etc/systemd/system/cachefilesd.service"


def test_the_daemon_runs_where_the_kernel_has_the_cache(host):
    has = host.run("modprobe --dry-run --quiet cachefiles").rc == 0
    assert host.service("cachefilesd").is_running == has


def test_the_node_says_how_its_cache_is(host):
    done = host.run("muster-cache")
    assert re.match(r"disk: \d of \d+ MiB used\n", done.stdout), done.stdout + done.stderr
    assert done.rc == 0


def test_a_damaged_file_system_of_ours_is_recreated(host, unmounted):
    # The inode of its root folder.
    host.check_output(f"debugfs -w -R 'clri <2>' {DEVICE}")
    done = apply(host)
    assert done.rc == 0, done.stderr
    assert f"{DEVICE}: make a file system in place of one that can't be mounted" in done.stdout
    assert host.file(f"{PLACE}/lost+found").is_directory


def test_a_blank_disk_is_formatted(host, unmounted):
    host.check_output(f"blkdiscard --zeroout {DEVICE}")
    assert f"{DEVICE}: make a file system" in apply(host).stdout


def test_check_does_nothing(host, unmounted):
    host.check_output(f"blkdiscard --zeroout {DEVICE}")
    said = apply(host, f"--device {DEVICE} --check").stdout
    assert said.splitlines() == [f"{DEVICE}: make a file system", f"{PLACE}: mount {DEVICE}"]
    assert host.run(f"blkid --probe {DEVICE}").rc == 2
    assert not host.mount_point(PLACE).exists


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("mkfs.ext4 -q -F -L precious", "holds ext4 labelled precious"),
        ("mkswap --quiet", "holds swap labelled (nothing)"),
        ("wipefs --quiet --all", "holds something that is no file system"),
    ],
)
def test_a_disk_with_anything_else_on_it_is_refused_and_left_alone(host, unmounted, content, named):
    host.check_output(f"{content} {DEVICE}")
    before = host.check_output(f"sha256sum {DEVICE}")
    done = apply(host)
    assert done.rc != 0
    assert named in done.stderr
    assert f"blkdiscard --zeroout {DEVICE}" in done.stderr
    assert host.check_output(f"sha256sum {DEVICE}") == before


def test_a_device_that_is_not_there_is_named_with_what_to_do(host, unmounted):
    done = apply(host, "--device /dev/none --check")
    assert done.rc != 0
    assert done.stderr.startswith("/dev/none: no such device; name another in storage.cache.device")


def test_a_file_on_the_root_disk_is_written_out_and_mounted(host, file):
    done = apply(host, f"--file {file} --gib 1")
    assert done.rc == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{file}: make a file of 1 GiB with a file system",
        f"{PLACE}: mount {file}",
    ]
    blocks, size = host.check_output(f"stat --format='%b %s' {file}").split()
    assert int(size) == 2**30
    assert int(blocks) * 512 >= 2**30
    assert source(host).startswith("/dev/loop")
    done = apply(host, f"--file {file} --gib 1")
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_a_file_that_would_fill_the_root_disk_is_refused(host, file):
    done = apply(host, f"--file {file} --gib 1000000")
    assert done.rc != 0
    assert "GiB are free, too few for 1000000 GiB" in done.stderr
    assert not host.file(file).exists


def test_another_disk_is_taken_at_the_next_boot(host):
    done = apply(host, "--file /root/other.img --gib 1")
    assert (done.rc, done.stdout) == (0, "")
    assert done.stderr.strip().endswith(
        "stays the cache until the next boot, then /root/other.img is"
    )
    assert not host.file("/root/other.img").exists


def test_a_disk_that_the_next_boot_would_not_find_is_told_now(host):
    done = apply(host, "--device /dev/other")
    assert (done.rc, done.stdout) == (1, "")
    assert "/dev/other: no such device; name another" in done.stderr
    assert source(host) == host.check_output(f"realpath {DEVICE}")


@pytest.mark.proof("two runs of the role, half a minute")
def test_each_half_runs_alone(converge):
    for half in ("install", "configure"):
        said = converge("fscache", f"--tags=fscache_{half}")
        assert "failed=0" in said, said
        assert "changed=0" in said, said
