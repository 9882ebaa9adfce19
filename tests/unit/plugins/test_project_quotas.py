"""What the module `project_quotas` does where there are no quotas; all else is in tests/vm."""

import os
from pathlib import Path

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import project_quota as module

TABLE = """\
30 1 8:1 / / rw - ext4 /dev/vda1 rw,errors=remount-ro
31 30 7:0 / /home rw,nosuid,nodev - ext4 /dev/loop0 rw,prjquota
32 30 7:1 / /data rw - xfs /dev/loop1 rw,pqnoenforce
"""


def on_root(*folders):
    """A file system without project quotas: that of the tests."""
    return {"file_systems": [{"path": "/", "folders": list(folders)}]}


FOLDER = {"path": "/srv/ada", "project": 20001, "gib": 50, "files": 1000}


@pytest.mark.parametrize(
    ("path", "enforced"), [("/home", True), ("/data", False), ("/", False), ("/srv", False)]
)
def test_a_file_system_enforces_quotas_if_it_is_mounted_so(path, enforced) -> None:
    assert ("prjquota" in module.options_of(path, TABLE)) is enforced


def test_quotas_without_the_option_are_refused_with_the_remedy(run_module) -> None:
    done = run_module("project_quotas", on_root(FOLDER))
    assert done["failed"]
    assert "/ is not mounted with project quotas" in done["msg"]
    assert "reboot this host" in done["msg"]
    assert "tune2fs -O quota,project -Q prjquota" in done["msg"]


def test_a_run_in_check_mode_on_a_fresh_host_shows_what_will_be(run_module) -> None:
    done = run_module("project_quotas", on_root(FOLDER), check=True)
    assert done["changed"]
    assert done["diff"]["after"] == (
        "/srv/ada: any size, any number of files -> 50 GiB, 1000 files\n"
    )


def test_where_there_are_no_quotas_nothing_is_touched(run_module) -> None:
    assert not run_module("project_quotas", on_root())["changed"]


def test_the_kernel_s_structures_have_their_sizes() -> None:
    """<linux/fs.h> and <linux/quota.h>."""
    assert module.FSXATTR.size == 28
    assert module.DQBLK.size == 72


def test_only_what_is_in_a_folder_is_given_to_its_project(tmp_path, monkeypatch) -> None:
    """Its owner can make links there; root must not follow them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    home = tmp_path / "ada"
    (home / "sub").mkdir(parents=True)
    (home / "sub/file").touch()
    (home / "to-folder").symlink_to(outside)
    (home / "sub/to-file").symlink_to(outside / "precious")
    os.mkfifo(home / "pipe")
    given = []

    def give(fd, project, *, inherit):
        assert project == 20001
        given.append((str(Path(f"/proc/self/fd/{fd}").readlink()), inherit))

    monkeypatch.setattr(module, "give", give)
    marked = []
    monkeypatch.setattr(module.os, "setxattr", lambda *words: marked.append(words[1:]))
    top = os.open(home, os.O_RDONLY)
    try:
        module.give_all(top, 20001)
    finally:
        os.close(top)
    assert set(given) == {
        (str(home), True),
        (str(home / "sub"), True),
        (str(home / "sub/file"), False),
    }
    assert marked == [("trusted.muster.project", b"20001")]
