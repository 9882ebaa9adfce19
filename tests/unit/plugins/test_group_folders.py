"""What the module `group_folders` refuses and what it asks of setfacl; the rest is molecule's."""

import grp
import os
from pathlib import Path

import pytest

GROUP = grp.getgrgid(os.getgid()).gr_name
LISTED = "default:user::rwx default:group::rwx default:group:{gid}:rwx default:mask::rwx"


def folder(path, **words):
    return {"folders": [{"path": str(path), "group": GROUP, **words}]}


@pytest.fixture
def tools(stand_ins, tmp_path):
    """Return an environment whose setfacl writes down its words; getfacl knows nothing yet."""

    def played(listing=""):
        (tmp_path / "listing").write_text(listing)
        programs = {
            "getfacl": f"cat {tmp_path}/listing",
            "setfacl": f'(echo "$1 $2"; readlink "$3") >>{tmp_path}/told',
        }
        return {"PATH": stand_ins(programs)}

    return played


def test_a_folder_is_made_for_its_group(run_module, tools, tmp_path) -> None:
    done = run_module("group_folders", folder(tmp_path / "photos"), env=tools())
    assert done["changed"]
    assert (tmp_path / "photos").stat().st_mode & 0o7777 == 0o2770
    gid = os.getgid()
    entries = [
        *("default:user::rwx", "default:group::rwx", f"default:group:{gid}:rwx"),
        *("default:mask::rwx", "default:other::---", "group::rwx", "other::---"),
    ]
    told = (tmp_path / "told").read_text()
    # Which shows that it was the folder itself, not what was at its path by then.
    assert told == f"--modify {','.join(entries)}\n{tmp_path}/photos\n"


def test_what_is_there_is_left_alone_with_the_entries_of_others(run_module, tools, tmp_path):
    (tmp_path / "photos").mkdir()
    gid = os.getgid()
    lines = [
        *(f"# file: {tmp_path}/photos", "# owner: 0", f"# group: {gid}", "# flags: -s-"),
        *("user::rwx", "user:20009:r-x", "group::rwx", "mask::rwx", "other::r-x"),
        *LISTED.format(gid=gid).split(),
        *("default:user:20009:rwx\t#effective:rwx", "default:other::r-x"),
    ]
    env = tools("".join(f"{line}\n" for line in lines))
    done = run_module("group_folders", folder(tmp_path / "photos", readable=True), env=env)
    assert (done["changed"], done["diff"]) == (False, [])
    done = run_module("group_folders", folder(tmp_path / "photos"), env=env, check=True)
    assert "other::---\n" in done["diff"][0]["after"]
    assert not (tmp_path / "told").exists()


def test_check_mode_makes_nothing(run_module, tools, tmp_path) -> None:
    done = run_module("group_folders", folder(tmp_path / "photos"), env=tools(), check=True)
    assert done["changed"]
    assert not (tmp_path / "photos").exists()


def test_a_folder_that_root_can_t_look_at_keeps_no_other_from_being_made(
    run_module, tools, tmp_path
) -> None:
    """A member may mount something over it (FUSE), and the run must go on."""
    refuse = f"""
import os
look = os.lstat
def refuse(path, **options):
    if path == "{tmp_path}/shut":
        raise PermissionError(13, "Permission denied", path)
    return look(path, **options)
os.lstat = refuse
"""
    given = {"folders": [*folder(tmp_path / "shut")["folders"], *folder(tmp_path / "b")["folders"]]}
    done = run_module("group_folders", given, env=tools(), before=refuse)
    assert [diff["after_header"] for diff in done["diff"]] == [f"{tmp_path}/b"]
    assert f"{tmp_path}/shut is left alone, since root can't look at it" in done.printed


def test_a_link_in_its_place_is_refused(run_module, tools, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to("/etc")
    done = run_module("group_folders", folder(tmp_path / "photos"), env=tools())
    assert "is there and is no folder; move it away" in done["msg"]


def test_a_link_that_takes_its_place_leads_nowhere(run_module, stand_ins, tmp_path: Path) -> None:
    """Where root of a node is root in the folder above, as on CephFS."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "etc").mkdir(mode=0o755)
    swap = f"cd {tmp_path}; rmdir photos; ln -s etc photos"
    env = {"PATH": stand_ins({"getfacl": swap, "setfacl": f"touch {tmp_path}/told"})}
    done = run_module("group_folders", folder(tmp_path / "photos"), env=env)
    assert "nobody else may change what is there" in done["msg"]
    assert (tmp_path / "etc").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "told").exists()


def test_a_group_that_is_not_there_is_named(run_module, tools, tmp_path) -> None:
    given = {"folders": [{"path": str(tmp_path / "photos"), "group": "no-such-group"}]}
    done = run_module("group_folders", given, env=tools())
    assert "no group no-such-group; make it first" in done["msg"]
    assert not (tmp_path / "photos").exists()


def test_a_file_system_without_access_lists_is_told(run_module, stand_ins, tmp_path) -> None:
    env = {"PATH": stand_ins({"getfacl": "true", "setfacl": "echo not supported >&2; exit 1"})}
    done = run_module("group_folders", folder(tmp_path / "photos"), env=env)
    assert "setfacl said: not supported" in done["msg"]
    assert "make the folder on its server" in done["msg"]
