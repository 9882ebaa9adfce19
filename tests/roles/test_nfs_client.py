"""Folders are mounted before those who need them, and never taken from those who use them."""

import re

import pytest

UNITS = {"/srv/home-1": r"srv-home\x2d1.mount", "/apps": "apps.mount"}
MOUNTS = [
    {"source": "localhost:/srv/home", "path": "/srv/home-1", "options": "rw,hard,vers=4.2"},
    {"source": "localhost:/srv/apps", "path": "/apps", "options": "ro,hard,vers=4.2"},
]
WAITING = "/run/systemd/system/waiting.service"
FAILS = "/run/mount.nfs4.fails"


def source_of(host, path):
    """Return what is mounted at `path`, empty if nothing is."""
    table = host.file("/proc/self/mountinfo").content_string
    sources = [
        line.split(" - ")[1].split()[1] for line in table.splitlines() if f" {path} " in line
    ]
    return sources[-1] if sources else ""


def changed(said, host):
    """Whether a run that ended well changed the host."""
    assert re.search(rf"^{host.check_output('hostname')} +: .* failed=0 ", said, re.MULTILINE), said
    return "changed=0 " not in said


@pytest.fixture
def waiting(host):
    """A unit that a boot starts and that needs a folder, as slurmd does."""
    unit = (
        "[Unit]\\nRequiresMountsFor=/apps\\n[Service]\\nExecStart=/bin/sleep 600\\n"
        "[Install]\\nWantedBy=multi-user.target\\n"
    )
    host.check_output(f"printf '{unit}' >{WAITING} && systemctl enable --runtime --quiet waiting")
    yield
    host.check_output(f"systemctl disable --runtime --now --quiet waiting; rm {WAITING}")
    host.check_output("systemctl daemon-reload")


@pytest.fixture
def user(host):
    """Somebody who is in a folder."""
    host.check_output("systemd-run --quiet --unit=user --working-directory=/apps sleep 600")
    yield
    host.run("systemctl stop user")


@pytest.mark.parametrize("mount", MOUNTS, ids=lambda mount: mount["path"])
def test_folders_are_mounted_now_and_at_each_boot(host, mount):
    unit = UNITS[mount["path"]]
    assert source_of(host, mount["path"]) == mount["source"]
    assert host.run(f"systemctl is-enabled '{unit}'").stdout.strip() == "enabled"
    text = host.file(f"/etc/systemd/system/{unit}").content_string
    assert f"What={mount['source']}\nWhere={mount['path']}\nType=nfs4\n" in text
    assert f"Options={mount['options']},retry=9\n" in text


def test_a_server_that_names_owners_has_its_domain(host):
    assert host.check_output("nfsidmap -d") == "example.org"


def test_read_ahead_is_that_of_the_file_that_udev_s_rule_reads(host):
    """What the kernel makes of it at a mount, tests/vm shows."""
    assert host.check_output("nfsconf --get nfsrahead nfs4") == "15360"
    assert "nfsrahead" in host.check_output("cat /usr/lib/udev/rules.d/99-nfs.rules")


def test_no_helper_of_version_3_starts_at_a_boot(host):
    for unit in ("rpcbind.service", "rpcbind.socket"):
        assert host.run(f"systemctl is-enabled {unit}").stdout.strip() in ("disabled", "masked")


def test_who_needs_a_folder_waits_for_it(host, waiting):
    host.check_output("systemctl stop apps.mount")
    host.check_output("systemctl start waiting")
    assert source_of(host, "/apps") == "localhost:/srv/apps"
    after = host.check_output("systemctl show waiting --property=After --value").split()
    assert "apps.mount" in after


def test_a_mount_that_failed_is_tried_again_with_what_waits_for_it(host, waiting):
    host.check_output(f"systemctl stop apps.mount; echo Network is unreachable >{FAILS}")
    assert "dependency" in host.run("systemctl start waiting").stderr
    assert "Network is unreachable" in host.check_output("journalctl --unit=apps.mount --lines=9")
    again = "muster-mount-again@apps"
    assert host.run(f"systemctl is-active {again}").stdout.strip() == "activating"
    host.check_output(f"rm {FAILS}")
    host.check_output("timeout 60 sh -c 'until systemctl is-active waiting; do sleep 1; done'")
    assert source_of(host, "/apps") == "localhost:/srv/apps"
    host.check_output(f"timeout 10 sh -c 'while systemctl is-active {again}; do sleep 1; done'")
    assert host.check_output("systemctl list-units --failed --no-legend") == ""


@pytest.mark.proof("five runs of the role, a minute and more")
def test_a_folder_may_be_mounted_by_who_enters_it_and_no_boot_waits_for_it(host, converge, user):
    try:
        said = " ".join(converge("nfs_client", nfs_client_automount=True).split())
        assert "/apps: somebody uses it, so it stays mounted as it is" in said
        host.check_output("systemctl stop user")
        assert changed(converge("nfs_client", nfs_client_automount=True), host)
        assert source_of(host, "/apps") == "localhost:/srv/apps"
        wants = host.check_output("ls /etc/systemd/system/remote-fs.target.wants").split()
        assert set(wants) >= {"apps.automount", r"srv-home\x2d1.automount"}
        assert not any(name.endswith(".mount") for name in wants)
        host.check_output(f"systemctl stop apps.mount; echo Connection refused >{FAILS}")
        host.check_output("timeout 10 systemctl start remote-fs.target")
        # More often than systemd lets a unit fail by default.
        for _ in range(7):
            assert "No such device" in host.run("timeout 30 ls /apps").stderr
        assert not changed(converge("nfs_client", nfs_client_automount=True), host)
        host.check_output(f"rm {FAILS}; ls /apps")
        assert source_of(host, "/apps") == "localhost:/srv/apps"
        # A run that does not come to all folders leaves the others' automounts its own.
        host.check_output(
            f"systemctl stop 'srv-home*.mount' apps.mount; echo Connection refused >{FAILS}"
        )
        assert "can't be mounted at" in " ".join(converge("nfs_client").split())
    finally:
        host.run(f"rm -f {FAILS}")
        said = converge("nfs_client")
    assert changed(said, host)
    assert " autofs " not in host.check_output("grep /apps /proc/self/mountinfo")
    assert source_of(host, "/apps") == "localhost:/srv/apps"
    assert host.check_output("find /etc/systemd/system -name '*.automount'") == ""
    assert host.run("systemctl is-enabled apps.mount").stdout.strip() == "enabled"


@pytest.mark.proof("three runs of the role, nearly a minute")
def test_an_automount_whose_folder_is_refused_stays_refused(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "path": "/srv/x"}]
    try:
        host.check_output(f"echo access denied >{FAILS}")
        for _ in range(2):
            said = converge("nfs_client", nfs_client_mounts=wanted, nfs_client_automount=True)
            assert "can't be mounted at" in said
            assert "access denied for" in said
    finally:
        host.check_output(f"rm {FAILS}")
        converge("nfs_client")
    assert host.check_output("find /etc/systemd/system -name 'srv-x.*'") == ""
    assert host.check_output("systemctl list-units --failed --no-legend") == ""


@pytest.mark.proof("waits a minute for a server that never answers")
def test_a_mount_that_gets_no_answer_is_given_up(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "path": "/srv/x"}]
    host.check_output(f"echo hangs >{FAILS}")
    try:
        said = " ".join(converge("nfs_client", nfs_client_mounts=wanted).split())
        assert "can't be mounted at /srv/x: no answer within 60 s" in said
        # Neither it nor what tries it again when it has failed.
        units = "srv-x.mount muster-mount-again@srv-x.service"
        assert "activating" not in host.run(f"systemctl is-active {units}").stdout
        assert host.run("pgrep --full --exact 'sleep 600'").stdout == ""  # the stand-in's
    finally:
        host.check_output(f"rm {FAILS}")
        converge("nfs_client")
    assert host.check_output("find /etc/systemd/system /run/systemd/system -name '*srv-x*'") == ""
    assert host.check_output("systemctl list-units --failed --no-legend") == ""


@pytest.mark.proof("three runs of the role, nearly a minute")
def test_an_automount_that_nobody_entered_goes_with_its_folder(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "path": "/srv/x"}]
    try:
        assert changed(
            converge("nfs_client", nfs_client_mounts=wanted, nfs_client_automount=True), host
        )
        host.check_output("systemctl stop srv-x.mount")
        assert source_of(host, "/srv/x") == "systemd-1"
        assert changed(converge("nfs_client", nfs_client_automount=True), host)
        assert source_of(host, "/srv/x") == ""
        assert host.check_output("find /etc/systemd/system -name 'srv-x.*'") == ""
    finally:
        converge("nfs_client")


@pytest.mark.proof("a run of the role; somebody else's mount is refused in `make test`")
def test_somebody_else_s_automount_is_refused_and_stays(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "path": "/srv/x"}]
    unit = "/etc/systemd/system/srv-x.automount"
    host.check_output(f"printf '[Automount]\\nWhere=/srv/x\\n' >{unit}")
    try:
        said = " ".join(converge("nfs_client", nfs_client_mounts=wanted).split())
        assert f"{unit} is not Muster's; take that file away" in said
        assert host.file(unit).exists
    finally:
        host.check_output(f"rm {unit}")


@pytest.mark.proof("three runs of the role; another source is taken in `make test`")
def test_other_options_are_taken_when_nobody_uses_the_folder(host, converge):
    other = [MOUNTS[0], {**MOUNTS[1], "options": "rw,hard,vers=4.2"}]
    try:
        assert changed(converge("nfs_client", nfs_client_mounts=other), host)
        asked = host.file("/run/mount.nfs4").content_string.splitlines()[-1]
        assert "rw,hard,vers=4.2" in asked
        assert source_of(host, "/apps") == "localhost:/srv/apps"
        assert not changed(converge("nfs_client", nfs_client_mounts=other), host)
    finally:
        converge("nfs_client")


def test_a_folder_in_use_keeps_its_mount_until_it_is_free(host, converge, user):
    other = [MOUNTS[0], {**MOUNTS[1], "source": "localhost:/srv/other"}]
    try:
        said = " ".join(converge("nfs_client", nfs_client_mounts=other).split())
        assert "/apps: somebody uses it, so it stays mounted as it is" in said
        assert source_of(host, "/apps") == "localhost:/srv/apps"
        # Nothing more can be done, so nothing more is said to be.
        assert not changed(converge("nfs_client", nfs_client_mounts=other), host)
        host.check_output("systemctl stop user")
        assert changed(converge("nfs_client", nfs_client_mounts=other), host)
        assert source_of(host, "/apps") == "localhost:/srv/other"
    finally:
        converge("nfs_client")


def test_a_mount_that_is_taken_out_is_unmounted(host, converge):
    try:
        assert changed(converge("nfs_client", nfs_client_mounts=MOUNTS[:1]), host)
        assert source_of(host, "/apps") == ""
        assert not host.file("/etc/systemd/system/apps.mount").exists
        assert not changed(converge("nfs_client", nfs_client_mounts=MOUNTS[:1]), host)
    finally:
        converge("nfs_client")


def test_what_somebody_else_mounted_is_refused(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "path": "/dev/shm"}]
    said = " ".join(converge("nfs_client", nfs_client_mounts=wanted).split())
    assert "/dev/shm is mounted from" in said


def test_a_server_that_is_away_is_named(host, converge):
    wanted = [*MOUNTS, {**MOUNTS[0], "source": "127.0.0.9:/x", "path": "/srv/x"}]
    try:
        said = " ".join(converge("nfs_client", nfs_client_mounts=wanted).split())
        assert "127.0.0.9 does not answer on port 2049 after 10 s" in said
        assert source_of(host, "/srv/x") == ""
    finally:
        converge("nfs_client")
