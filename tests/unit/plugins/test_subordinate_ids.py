"""The module `subordinate_ids`: which lines of subuid(5) it writes, keeps, removes."""

import pwd

import pytest

ADA = {"name": "ada", "first": 1245773824}
ADA_S = "ada:1245773824:65536\n"
SYSTEM = next(entry.pw_name for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000)


@pytest.fixture
def keep(run_module, tmp_path):
    """Return what runs the module on two files in a folder."""

    def run(*ranges, check=False):
        files = {name: str(tmp_path / name) for name in ("subuid", "subgid")}
        return run_module("subordinate_ids", {"ranges": list(ranges), **files}, check=check)

    return run


def test_each_person_has_a_range_in_both_files(keep, tmp_path) -> None:
    done = keep(ADA, check=True)
    assert done["changed"]
    assert list(tmp_path.iterdir()) == []
    assert keep(ADA)["changed"]
    for name in ("subuid", "subgid"):
        assert (tmp_path / name).read_text() == ADA_S
        assert (tmp_path / name).stat().st_mode & 0o7777 == 0o644
    again = keep(ADA)
    assert (again["changed"], again["kept"], again["diff"]) == (False, [], [])
    (tmp_path / "subgid").chmod(0o600)
    assert [one["before_header"] for one in keep(ADA)["diff"]] == [str(tmp_path / "subgid")]


def test_lines_of_people_who_left_are_removed(keep, tmp_path) -> None:
    left = "no-such-login:1245839360:65536\n"  # of this module
    made = "ada:100000:65536\nno-such-login:165536:65536\n"  # of useradd
    (tmp_path / "subuid").write_text(f"{left}{made}# a comment\nada\n")
    done = keep(ADA)
    assert (tmp_path / "subuid").read_text() == ADA_S
    assert done["kept"] == []
    assert left in done["diff"][0]["before"]
    assert "warnings" not in done.result
    assert keep()["changed"]
    assert (tmp_path / "subuid").read_text() == ""


def test_lines_of_system_users_are_kept_and_named(keep, tmp_path) -> None:
    lines = f"{SYSTEM}:100000:65536\n0:200000:1000\nno-such-daemon:3000000:1000\n"
    (tmp_path / "subuid").write_text(ADA_S + lines)
    done = keep(ADA)
    assert (tmp_path / "subuid").read_text() == lines + ADA_S
    assert (tmp_path / "subgid").read_text() == ADA_S
    assert done["kept"] == [f"{tmp_path}/subuid {line}" for line in lines.splitlines()]
    (said,) = done["warnings"]
    assert f"subuid has lines of others, which stay: {SYSTEM}:100000:65536, 0:2" in str(said)
    again = keep(ADA)
    assert (again["changed"], len(again["warnings"])) == (False, 1)


def test_a_line_of_a_system_user_with_a_person_s_numbers_is_told(keep, tmp_path) -> None:
    (tmp_path / "subgid").write_text("root:1000000:1300000000\n")
    (said,) = keep(ADA, {"name": "bob", "first": 1245839360})["warnings"]
    assert "root:1000000:1300000000 has numbers of ada and of 1 more, whose files" in str(said)
    assert (tmp_path / "subgid").read_text().startswith("root:1000000:1300000000\nada:")


def test_a_file_that_can_t_be_written_is_a_sentence(run_module, tmp_path) -> None:
    files = {"subuid": str(tmp_path / "none/subuid"), "subgid": str(tmp_path / "subgid")}
    done = run_module("subordinate_ids", {"ranges": [ADA], **files})
    assert (
        done["msg"] == f"{tmp_path}/none/subuid: No such file or directory; fix that and run again"
    )
