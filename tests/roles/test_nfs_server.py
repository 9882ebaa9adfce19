"""Folders are served to whom the role names, as exportfs understands it, without restarts."""

import pytest

EXPORTS = "/etc/exports.d/muster.exports"
HOME = {
    **{"path": "/srv/home", "fsid": "6f9a3c1e-0000-4000-8000-000000000001"},
    "clients": [{"host": "192.0.2.0/24", "writes": True}],
}


def exported(host):
    """Return (folder, client) -> options as exportfs told them to the server."""
    exports = {}
    for line in host.file("/var/lib/nfs/etab").content_string.splitlines():
        path, client = line.split("\t")
        name, _, options = client.partition("(")
        exports[path, name] = set(options.rstrip(")").split(","))
    return exports


def started(host):
    return host.check_output("systemctl show nfs-server --property=ActiveEnterTimestampMonotonic")


def test_folders_are_served_to_the_named_clients_alone(host):
    assert set(exported(host)) == {
        ("/srv/home", "192.0.2.0/24"),
        ("/srv/home", "198.51.100.7"),
        ("/srv/home", "198.51.100.8"),
        ("/dev/shm", "192.0.2.0/24"),
    }


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("192.0.2.0/24", {"rw", "root_squash"}),
        ("198.51.100.7", {"ro", "root_squash"}),
        ("198.51.100.8", {"rw", "no_root_squash"}),
    ],
)
def test_who_may_write_and_who_is_root(host, client, expected):
    options = exported(host)["/srv/home", client]
    # Both words, where one stands for the export and the other for its sec=, mean the other.
    assert options & {"rw", "ro", "root_squash", "no_root_squash"} == expected
    assert {"sync", "no_subtree_check", "sec=sys"} <= options
    assert "fsid=6f9a3c1e-0000-4000-8000-000000000001" in options


def test_a_folder_is_served_only_while_its_file_system_is_mounted(host):
    for options in exported(host).values():
        assert any(word.startswith("mountpoint") for word in options)


def test_only_version_4_is_spoken(host):
    def setting(name):
        return host.check_output(f"nfsconf --get nfsd {name}")

    assert [setting(name) for name in ("vers3", "vers4.0", "vers4.1", "vers4.2")] == [
        *("n", "n", "y", "y")
    ]
    for unit in ("rpcbind.service", "rpcbind.socket", "rpc-statd.service"):
        assert host.run(f"systemctl is-enabled {unit}").stdout.strip() == "masked"


def test_threads_suffice_for_the_connections(host):
    # Twenty of 1000 connections a thread, eight threads a core.
    threads = min(max(50, 8 * int(host.check_output("nproc"))), 512)
    assert host.check_output("nfsconf --get nfsd threads") == str(threads)


@pytest.mark.proof("two runs of the role, half a minute")
def test_changed_exports_reach_the_server_without_a_restart(host, converge):
    before = started(host)
    changed = [HOME | {"clients": [{"host": "203.0.113.0/24", "writes": True}]}]
    try:
        converge("nfs_server", nfs_server_exports=changed, nfs_server_threads=20)
        assert set(exported(host)) == {("/srv/home", "203.0.113.0/24")}
        assert host.file("/run/rpc.nfsd").content_string == "20\n"
        assert started(host) == before
    finally:
        said = converge("nfs_server")
    assert "failed=0" in said, said
    assert ("/srv/home", "203.0.113.0/24") not in exported(host)


def test_a_folder_that_is_no_file_system_of_its_own_is_refused(host, converge):
    """Who has the handle of one file reads every file of its file system (tests/vm)."""
    before = host.file(EXPORTS).content_string
    made = (
        "mkdir --parents /srv/folder /srv/part /srv/again /etc/part; "
        # A part of the root's file system, though mounted; and homes under another name.
        "mount --bind /etc/part /srv/part; mount --bind /srv/home /srv/again"
    )
    host.check_output(f"sh -c '{made}'")
    try:
        paths = ["/srv/home", "/dev/shm", "/srv/folder", "/srv/part", "/srv/again"]
        wanted = [
            HOME | {"path": path, "fsid": f"{HOME['fsid'][:-1]}{number}"}
            for number, path in enumerate(paths)
        ]
        said = " ".join(converge("nfs_server", nfs_server_exports=wanted).split())
        assert "/srv/home, /srv/folder, /srv/part: not a file system of its own" in said
        assert host.file(EXPORTS).content_string == before
    finally:
        host.run("sh -c 'umount /srv/part /srv/again; rmdir /srv/folder /srv/part /srv/again'")


@pytest.mark.proof("a run of the role; another refused folder is tried in `make test`")
def test_a_mount_where_programs_run_as_their_owner_is_refused(host, converge):
    """Root of a client leaves them there (tests/vm)."""
    before = host.file(EXPORTS).content_string
    host.check_output("mount -o remount,suid,nodev /srv/home")
    try:
        said = " ".join(converge("nfs_server", nfs_server_exports=[HOME]).split())
        assert "/srv/home: mounted without nosuid and nodev" in said
        assert host.file(EXPORTS).content_string == before
    finally:
        host.check_output("mount -o remount,nosuid,nodev /srv/home")


@pytest.mark.proof("four runs of the role, nearly a minute")
def test_what_exportfs_refuses_ends_the_run_until_it_is_right(host, converge):
    unknown = {"clients": [{"host": "no-such-host.invalid"}]}
    runs = [
        # Of this exportfs says so and ends well.
        (unknown, "exportfs: Failed to resolve no-such-host.invalid"),
        # Now the server runs, and nothing changes.
        (unknown, "exportfs: Failed to resolve no-such-host.invalid"),
        ({"fsid": "nonsense"}, 'bad fsid "fsid=nonsense"'),
    ]
    host.check_output("systemctl stop nfs-server")
    try:
        for wrong, words in runs:
            wanted = [HOME | wrong]
            said = converge("nfs_server", "--tags=nfs_server_configure", nfs_server_exports=wanted)
            assert "failed=1" in said, said
            assert words in " ".join(said.replace('\\"', '"').split())
            assert host.service("nfs-server").is_running
    finally:
        said = converge("nfs_server")
    assert "failed=0" in said, said
    assert ("/srv/home", "192.0.2.0/24") in exported(host)
