"""Folders that groups share, tried as their members."""

import pytest


@pytest.fixture
def write(host):
    """Return what writes a file as somebody with a umask, and removes it in the end."""
    made = []

    def run(login, umask, path, *, text="x"):
        made.append(path)
        script = f"umask {umask}; mkdir -p $(dirname {path}) && echo {text} >>{path}"
        return host.run(f"runuser -u {login} -- sh -c %s", script).rc == 0

    yield run
    host.run(f"rm -rf {' '.join(made)} /data/photos/sub /models/org")


def reads(host, login, path):
    return host.run(f"runuser -u {login} -- cat {path}").rc == 0


@pytest.mark.parametrize("umask", ["022", "077"])
def test_members_share_what_they_write_whatever_their_umask_is(host, write, umask):
    assert write("mia", umask, "/data/photos/sub/file")
    assert write("leo", umask, "/data/photos/sub/file", text="of leo")
    assert host.file("/data/photos/sub/file").content_string == "x\nof leo\n"
    assert host.file("/data/photos/sub/file").group == "vision"
    # leo removes what mia has made.
    assert host.run("runuser -u leo -- rm -r /data/photos/sub").rc == 0


def test_nobody_else_sees_a_project(host, write):
    assert write("mia", "000", "/data/photos/file")
    assert not reads(host, "kim", "/data/photos/file")
    assert host.run("runuser -u kim -- ls /data/photos").rc != 0
    assert not write("kim", "022", "/data/photos/of-kim")


def test_a_folder_that_lost_the_setgid_bit_is_still_shared(host, write):
    host.check_output("runuser -u mia -- mkdir /data/photos/sub")
    host.check_output("runuser -u mia -- chmod g-s /data/photos/sub")
    assert write("mia", "077", "/data/photos/sub/file")
    assert host.file("/data/photos/sub/file").group == "mia"
    assert write("leo", "022", "/data/photos/sub/file")


def test_models_are_put_there_by_the_group_and_read_by_all(host, write):
    assert write("mia", "077", "/models/org/name")
    assert reads(host, "kim", "/models/org/name")
    assert not write("leo", "022", "/models/of-leo")
    assert not write("kim", "000", "/models/org/name")


def test_what_was_there_already_stays_as_it_is(host):
    assert host.file("/data/old").mode == 0o2770
    assert host.file("/data/old/file").mode == 0o600
