"""What becomes of files, links and folders, whatever lay there and whatever goes wrong."""

import base64
import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OWNER = pwd.getpwuid(os.geteuid()).pw_name
GROUP = grp.getgrgid(os.getegid()).gr_name

SECRET = "correct-horse-battery-staple-0123456789"  # noqa: S105 (of this test)
SECRET_B64 = base64.b64encode(SECRET.encode()).decode()
OTHER_B64 = base64.b64encode(b"an older secret of the same host").decode()

Run = Callable[..., Any]
Prepare = Callable[[Path], None]


def entry(dest: Path, **given: Any) -> dict[str, Any]:
    return {"dest": str(dest), "owner": OWNER, "group": GROUP, **given}


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):04o}"


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a folder that a run could change, times of change included."""
    files: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        state = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else b""
        if stat.S_ISREG(state.st_mode):
            content = path.read_bytes()
        files[str(path)] = (content, state.st_mode, state.st_uid, state.st_ctime_ns)
    return files


def write(text: str, permissions: int = 0o644) -> Prepare:
    def prepare(path: Path) -> None:
        path.write_text(text)
        path.chmod(permissions)

    return prepare


def link(target: str) -> Prepare:
    return lambda path: path.symlink_to(target)


def folder(permissions: int = 0o755) -> Prepare:
    def prepare(path: Path) -> None:
        path.mkdir()
        path.chmod(permissions)

    return prepare


def nothing(path: Path) -> None:
    pass


BLOCK = {"name": "lmod", "text": "source modules"}

# What lay there, what is wanted, what the diff shows, content and mode afterwards (None: no file).
CASES: dict[str, tuple[Prepare, dict[str, Any], list[tuple[str, str]], str | None, str | None]] = {
    "create": (nothing, {"content": "new\n"}, [("", "new\n")], "new\n", "0644"),
    "replace": (
        write("old\n"),
        {"content": "new\n", "mode": "0600"},
        [("old\n", "new\n"), (f"{OWNER} {GROUP} 0644\n", f"{OWNER} {GROUP} 0600\n")],
        "new\n",
        "0600",
    ),
    "empty it": (write("old\n"), {"content": ""}, [("old\n", "")], "", "0644"),
    "mode only": (
        write("old\n", 0o600),
        {"mode": "0640"},
        [(f"{OWNER} {GROUP} 0600\n", f"{OWNER} {GROUP} 0640\n")],
        "old\n",
        "0640",
    ),
    "not text": (
        lambda path: path.write_bytes(b"\xff"),  # type: ignore[misc]
        {"content": "new\n"},
        [("\ufffd", "new\n")],
        "new\n",
        "0644",
    ),
    "create a secret": (
        nothing,
        {"secret_content_b64": SECRET_B64},
        [("", "(secret, changed)\n")],
        SECRET,
        "0600",
    ),
    "replace a secret": (
        write("old secret", 0o400),
        {"secret_content_b64": SECRET_B64, "mode": "0400"},
        [("(secret)\n", "(secret, changed)\n")],
        SECRET,
        "0400",
    ),
    "a secret that others can read": (
        write(SECRET, 0o644),
        {"secret_content_b64": SECRET_B64, "mode": "0400"},
        [(f"{OWNER} {GROUP} 0644\n", f"{OWNER} {GROUP} 0400\n")],
        SECRET,
        "0400",
    ),
    "link": (
        nothing,
        {"state": "link", "target": "elsewhere"},
        [("", "(link to elsewhere)\n")],
        None,
        None,
    ),
    "link elsewhere": (
        link("here"),
        {"state": "link", "target": "elsewhere"},
        [("(link to here)\n", "(link to elsewhere)\n")],
        None,
        None,
    ),
    "link in place of a file": (
        write("old\n"),
        {"state": "link", "target": "elsewhere"},
        [("old\n", "(link to elsewhere)\n")],
        None,
        None,
    ),
    "file in place of a link": (
        link("elsewhere"),
        {"content": "new\n"},
        [("(link to elsewhere)\n", "new\n")],
        "new\n",
        "0644",
    ),
    "folder": (nothing, {"state": "directory"}, [("", "(directory)\n")], None, "0755"),
    "folder for its owner": (
        folder(),
        {"state": "directory", "mode": "0700"},
        [(f"{OWNER} {GROUP} 0755\n", f"{OWNER} {GROUP} 0700\n")],
        None,
        "0700",
    ),
    "remove a file": (write("old\n"), {"state": "absent"}, [("old\n", "")], None, None),
    "remove an empty folder": (
        folder(),
        {"state": "absent"},
        [("(directory)\n", "")],
        None,
        None,
    ),
    "block in a file of somebody else's": (
        write("theirs\n", 0o640),
        {"block": BLOCK},
        [
            (
                "theirs\n",
                "theirs\n# BEGIN Muster: lmod\nsource modules\n# END Muster: lmod\n",
            )
        ],
        "theirs\n# BEGIN Muster: lmod\nsource modules\n# END Muster: lmod\n",
        "0640",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_check_mode_says_what_the_run_does_and_a_second_run_does_nothing(
    case: str, tmp_path: Path, run_module: Run
) -> None:
    prepare, wanted, diff, content, permissions = CASES[case]
    path = tmp_path / "thing"
    prepare(path)
    files = {"files": [entry(path, **wanted)]}
    before = snapshot(tmp_path)

    said = run_module("managed_files", files, check=True)
    assert snapshot(tmp_path) == before
    done = run_module("managed_files", files)

    assert done["changed"] is True
    assert done["paths"] == [str(path)]
    assert [(part["before"], part["after"]) for part in done["diff"]] == diff
    for key in ("changed", "paths", "digests", "diff"):
        assert said[key] == done[key]

    if content is not None:
        assert path.read_text() == content
        assert done["digests"] == {str(path): hashlib.sha256(content.encode()).hexdigest()}
    if permissions is not None:
        assert mode(path) == permissions
    if wanted.get("state") == "link":
        assert str(path.readlink()) == wanted["target"]
    if wanted.get("state") == "directory":
        assert path.is_dir()
    if wanted.get("state") == "absent":
        assert not path.exists()
    assert set(tmp_path.iterdir()) <= {path}

    again = run_module("managed_files", files)
    assert (again["changed"], again["paths"], again["diff"]) == (False, [], [])


def test_a_new_content_does_not_reach_whoever_has_the_old_file_open(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "thing"
    path.write_text("old\n")
    with path.open() as reader:
        run_module("managed_files", {"files": [entry(path, content="new and longer\n")]})
        assert reader.read() == "old\n"
    assert path.read_text() == "new and longer\n"


def test_missing_parents_can_be_entered_whatever_the_umask(tmp_path: Path, run_module: Run) -> None:
    path = tmp_path / "a" / "b" / "thing"
    run_module(
        "managed_files",
        {"files": [entry(path, content="x")]},
        prefix=["sh", "-c", 'umask 077; exec "$@"', "sh"],
    )
    assert [mode(path.parent), mode(path.parent.parent), mode(path)] == ["0755", "0755", "0644"]


def test_a_link_to_a_folder_counts_as_the_folder(tmp_path: Path, run_module: Run) -> None:
    real = tmp_path / "export"
    real.mkdir()
    (real / "work").write_text("of years")
    home = tmp_path / "home"
    home.symlink_to(real)
    files = {"files": [entry(home, state="directory", mode="0711")]}
    assert run_module("managed_files", files)["changed"] is True
    assert home.is_symlink()
    assert mode(real) == "0711"
    assert (real / "work").read_text() == "of years"
    assert run_module("managed_files", files)["changed"] is False


BECOMES_A_LINK = """
import {module}
real = {module}.{function}
def meanwhile(*given, **named):
    if not os.path.islink({path!r}):
        os.rename({path!r}, {path!r} + ".aside")
        os.symlink({other!r}, {path!r})
    return real(*given, **named)
import os
{module}.{function} = meanwhile
"""


@pytest.mark.parametrize("before", [folder(), write("old\n")], ids=["folder", "file"])
@pytest.mark.parametrize("moment", ["os.makedirs", "pwd.getpwnam"])
def test_what_becomes_a_link_meanwhile_gives_nothing_else_away(
    before: Prepare, moment: str, tmp_path: Path, run_module: Run
) -> None:
    path, other = tmp_path / "theirs", tmp_path / "others"
    before(path)
    before(other)
    module, _, function = moment.partition(".")
    change = BECOMES_A_LINK.format(
        module=module, function=function, path=str(path), other=str(other)
    )
    state = "directory" if path.is_dir() else "file"
    files = {"files": [entry(path, state=state, mode="0700")]}
    was = mode(other)
    result = run_module("managed_files", files, before=change)
    assert path.is_symlink()
    assert mode(other) == was
    if moment == "os.makedirs":
        assert result["msg"] == f"{path} was replaced while it was looked at; run again"


IN_THE_WAY: dict[str, tuple[Prepare, dict[str, Any], str]] = {
    "folder": (folder(), {"content": "x"}, "is a directory, wanted is a file; move it away"),
    "folder for a link": (
        folder(),
        {"state": "link", "target": "x"},
        "is a directory, wanted is a link; move it away",
    ),
    "file": (write("work"), {"state": "directory"}, "is a file, wanted is a directory"),
    "link to nothing": (link("nowhere"), {"state": "directory"}, "is a link, wanted is a dir"),
    "full folder": (
        lambda path: (path / "work").mkdir(parents=True),
        {"state": "absent"},
        "is a directory, wanted is nothing; move it away",
    ),
}


@pytest.mark.parametrize("check", [True, False], ids=["check", "run"])
@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_may_be_needed_is_not_replaced(
    case: str, check: bool, tmp_path: Path, run_module: Run
) -> None:
    prepare, wanted, sentence = IN_THE_WAY[case]
    path = tmp_path / "thing"
    prepare(path)
    before = snapshot(tmp_path)
    done = run_module("managed_files", {"files": [entry(path, **wanted)]}, check=check)
    assert done["failed"] is True
    assert done["msg"].startswith(f"{path} {sentence}")
    assert snapshot(tmp_path) == before


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_refused_content_leaves_the_old_file(tmp_path: Path, run_module: Run) -> None:
    below = tmp_path / "etc"
    below.mkdir()
    path = below / "thing"
    path.write_text("old\n")
    check = script(tmp_path / "check", 'echo "$1: line 1: no such option" >&2; exit 3')
    before = snapshot(below)
    done = run_module(
        "managed_files", {"files": [entry(path, content="new\n", validate=f"{check} %s")]}
    )
    assert done["msg"] == (
        f"{path} is left as it was; the new one was refused: {path}: line 1: no such option"
    )
    assert done["changed"] is False
    assert {**snapshot(below), str(below): ()} == {**before, str(below): ()}


def test_a_missing_validator_is_named(tmp_path: Path, run_module: Run) -> None:
    path = tmp_path / "thing"
    done = run_module(
        "managed_files", {"files": [entry(path, content="x", validate="no-such-program %s")]}
    )
    assert "no-such-program: No such file or directory" in done["msg"]
    assert not path.exists()


def test_only_a_content_that_was_accepted_is_put_in_place(tmp_path: Path, run_module: Run) -> None:
    path = tmp_path / "thing"
    check = script(tmp_path / "check", 'grep -q good "$1"')
    wanted = entry(path, content="good\n", validate=f"{check} %s", mode="0640")
    assert run_module("managed_files", {"files": [wanted]})["changed"] is True
    assert (path.read_text(), mode(path)) == ("good\n", "0640")


def test_files_before_a_refused_one_are_reported_as_changed(
    tmp_path: Path, run_module: Run
) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    done = run_module(
        "managed_files",
        {
            "files": [
                entry(first, content="x"),
                entry(second, content="x", validate="/bin/false"),
                entry(third, content="x"),
            ]
        },
    )
    assert done["failed"] is True
    assert done["paths"] == [str(first)]
    assert first.exists()
    assert not second.exists()
    assert not third.exists()


def test_a_set_is_tried_together_before_any_of_it_is_in_place(
    tmp_path: Path, run_module: Run
) -> None:
    first, second = tmp_path / "first.conf", tmp_path / "second.conf"
    first.write_text("old\n")
    log = tmp_path / "log"
    check = script(
        tmp_path / "check",
        f'cat "$1/first.conf" "$1/second.conf" {first} >>{log}; ! grep -q bad "$1/second.conf"',
    )

    def wanted(text: str) -> dict[str, Any]:
        return {
            "files": [entry(first, content="new\n"), entry(second, content=text)],
            "validate_together": {
                "files": [str(first), str(second)],
                "command": f"{check} %s",
            },
        }

    refused = run_module("managed_files", wanted("bad\n"))
    assert refused["msg"].startswith(f"{first}, {second} stay as they were")
    assert log.read_text() == "new\nbad\nold\n"
    assert first.read_text() == "old\n"
    assert not second.exists()

    assert run_module("managed_files", wanted("good\n"))["paths"] == [str(first), str(second)]
    assert (first.read_text(), second.read_text()) == ("new\n", "good\n")
    log.unlink()
    assert run_module("managed_files", wanted("good\n"))["changed"] is False
    assert not log.exists()


def test_a_kill_before_the_rename_leaves_the_old_file_and_the_next_run_completes(
    tmp_path: Path, run_module: Run
) -> None:
    below = tmp_path / "etc"
    below.mkdir()
    path = below / "thing"
    path.write_text("old secret")
    killer = script(tmp_path / "killer", "kill -KILL $PPID")
    wanted = entry(path, secret_content_b64=SECRET_B64, mode="0400", validate=f"{killer} %s")

    done = run_module("managed_files", {"files": [wanted]})
    assert done.code == -9
    assert path.read_text() == "old secret"
    left = [name for name in below.iterdir() if name != path]
    assert [(name.read_text(), mode(name)) for name in left] == [(SECRET, "0400")]

    run_module("managed_files", {"files": [{**wanted, "validate": "/bin/true"}]})
    assert path.read_text() == SECRET
    assert list(below.iterdir()) == [path]


FULL = """
mount -t tmpfs -o size=16k none "$1" && printf 'old\\n' >"$1/thing" && shift 1 || exit 99
"$@"; code=$?
echo; cat "$(dirname "$THING")/thing"; ls -A "$(dirname "$THING")" >&2
exit $code
"""


def test_a_full_disk_is_said_in_a_sentence_and_the_old_file_stays(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "thing"
    done = run_module(
        "managed_files",
        {"files": [entry(path, content="x" * 100_000)]},
        # A mount of its own, which ends with the process; a user namespace allows it to anybody.
        prefix=["unshare", "--map-root-user", "--mount", "sh", "-c", FULL, "sh", str(tmp_path)],
        env={**os.environ, "THING": str(path)},
    )
    assert done["msg"] == (
        f"{path}: No space left on device; make room in the file system of {tmp_path} "
        f"(df -h {tmp_path}) and run again"
    )
    # The content that is there, and the only name in the folder.
    assert done.printed.endswith("old\nthing\n")


def test_a_file_that_can_not_be_read_is_named_itself(tmp_path: Path, run_module: Run) -> None:
    """And not the one before it."""
    files = [entry(tmp_path / "thing", content="a"), entry(Path("/proc/self/mem"), content="b")]
    done = run_module("managed_files", {"files": files})
    assert done["msg"] == "/proc/self/mem: Input/output error; fix that and run again"
    assert done["paths"] == [str(tmp_path / "thing")]


def test_a_limit_of_the_host_is_said_in_a_sentence(tmp_path: Path, run_module: Run) -> None:
    path = tmp_path / "thing"
    path.write_text("old\n")
    done = run_module(
        "managed_files",
        {"files": [entry(path, content="x" * 100_000)]},
        prefix=["prlimit", "--fsize=4096"],
    )
    assert done["msg"].startswith(f"{path}: File too large; make room")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_place_of_a_parent_is_said_in_a_sentence(tmp_path: Path, run_module: Run) -> None:
    (tmp_path / "etc").write_text("")
    path = tmp_path / "etc" / "thing"
    done = run_module("managed_files", {"files": [entry(path, content="x")]})
    assert done["msg"].startswith(f"{path}: ")
    assert "in the way" in done["msg"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "owner": ({"owner": "nobody-has-this-name", "content": "x"}, "owner nobody-has-this-name or"),
    "mode": ({"mode": "rw-r--r--", "content": "x"}, "mode rw-r--r-- is not octal"),
    "base64": ({"secret_content_b64": f"{SECRET}!"}, "secret_content_b64 is no base64"),
    "template": ({"template": "x.j2"}, "the template was not rendered"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_wish_is_said_in_a_sentence(case: str, tmp_path: Path, run_module: Run) -> None:
    given, sentence = WRONG[case]
    path = tmp_path / "thing"
    done = run_module("managed_files", {"files": [entry(path) | given]})
    assert done["msg"].startswith(f"{path}: {sentence}")
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_a_package_will_bring_is_no_error_in_check_mode(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "thing"
    wanted = entry(path, content="x", validate="no-such-program %s") | {"owner": "not-there-yet"}
    done = run_module("managed_files", {"files": [wanted]}, check=True)
    assert done["changed"] is True


SECRETS: dict[str, tuple[Prepare, dict[str, Any]]] = {
    "create": (nothing, {}),
    "replace": (write("another"), {}),
    "unchanged": (write(SECRET, 0o600), {}),
    "in the way": (folder(), {}),
    "no such owner": (nothing, {"owner": "nobody-has-this-name"}),
    "no base64": (nothing, {"secret_content_b64": f"{SECRET}!"}),
    "wrong mode": (nothing, {"mode": "x"}),
    "refused": (nothing, {"validate": "{tmp}/quotes %s"}),
}


@pytest.mark.parametrize("check", [True, False], ids=["check", "run"])
@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_is_in_nothing_that_the_module_prints(
    case: str, check: bool, tmp_path: Path, run_module: Run
) -> None:
    prepare, given = SECRETS[case]
    path = tmp_path / "thing"
    prepare(path)
    script(tmp_path / "quotes", 'cat "$1"; cat "$1" >&2; exit 1')
    wanted = entry(path, secret_content_b64=SECRET_B64) | {
        key: value.replace("{tmp}", str(tmp_path)) for key, value in given.items()
    }
    done = run_module("managed_files", {"files": [wanted]}, check=check)
    assert done.result, done.printed
    assert SECRET not in done.printed
    assert SECRET_B64 not in done.printed


def test_the_secret_that_is_replaced_is_not_shown_either(tmp_path: Path, run_module: Run) -> None:
    path = tmp_path / "thing"
    path.write_text(SECRET)
    done = run_module("managed_files", {"files": [entry(path, secret_content_b64=OTHER_B64)]})
    assert done["changed"] is True
    assert SECRET not in done.printed


def test_a_block_is_replaced_where_it_stands_and_made_only_in_a_file(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "bash.bashrc"
    missing = tmp_path / "zshrc"
    path.write_text("first\n# BEGIN Muster: lmod\nold\n# END Muster: lmod\nlast")
    wanted = {"files": [entry(path, block=BLOCK), entry(missing, block=BLOCK)]}
    assert run_module("managed_files", wanted)["paths"] == [str(path)]
    assert path.read_text() == (
        "first\n# BEGIN Muster: lmod\nsource modules\n# END Muster: lmod\nlast"
    )
    assert not missing.exists()


def test_a_block_goes_through_a_link(tmp_path: Path, run_module: Run) -> None:
    real, path = tmp_path / "real", tmp_path / "thing"
    real.write_text("theirs\n")
    path.symlink_to(real)
    run_module("managed_files", {"files": [entry(path, block=BLOCK)]})
    assert path.is_symlink()
    assert real.read_text().startswith("theirs\n# BEGIN Muster: lmod\n")


SYSTEMCTL = """\
[ "$1" = show ] && echo LoadState={} && echo ActiveState=active && echo UnitFileState=enabled
true"""


def test_a_daemon_is_foreseen_to_restart_for_a_file_that_is_not_there_yet(
    tmp_path: Path, run_module: Run, stand_ins: Callable[..., str]
) -> None:
    path = tmp_path / "probe.conf"
    given = {
        "files": [entry(path, content="new\n")],
        "service": {"name": "muster-probe", "config": [str(path)]},
    }
    env = {"PATH": stand_ins({"systemctl": SYSTEMCTL.format("loaded")})}
    said = run_module("managed_files", given, check=True, env=env)
    assert (said["changed"], said["action"], said["paths"]) == (True, "restart", [str(path)])
    headers = [part["after_header"].split("/")[-1] for part in said["diff"]]
    assert headers == ["probe.conf", "90-muster-record.conf", "muster-probe.service"]
    assert not path.exists()


def test_a_file_that_was_written_is_reported_where_its_daemon_fails(
    tmp_path: Path, run_module: Run, stand_ins: Callable[..., str]
) -> None:
    path = tmp_path / "probe.conf"
    given = {"files": [entry(path, content="new\n")], "service": {"name": "muster-probe"}}
    env = {"PATH": stand_ins({"systemctl": SYSTEMCTL.format("not-found")})}
    failed = run_module("managed_files", given, env=env)
    assert failed["msg"].startswith("muster-probe.service is not-found")
    assert (failed["failed"], failed["changed"]) == (True, True)
    assert failed["paths"] == [str(path)]
    assert path.read_text() == "new\n"


def test_a_program_that_does_not_start_is_refused_in_each_run(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "program"
    given = {
        "files": [entry(path, content="#!/bin/sh\necho broken >&2\nexit 3\n", mode="0755")],
        "must_run": [str(path), "--help"],
    }
    for changed in (True, False):
        failed = run_module("managed_files", given)
        assert (failed["failed"], failed["changed"]) == (True, changed)
        assert failed["msg"] == f"`{path} --help` ended with 3; fix what it says: broken"
    given["files"][0]["content"] = "#!/bin/sh\n"
    assert run_module("managed_files", given)["changed"]


def test_a_program_that_is_not_there_yet_is_not_run_in_check_mode(
    tmp_path: Path, run_module: Run
) -> None:
    path = tmp_path / "program"
    given = {"files": [entry(path, content="#!/bin/sh\n", mode="0755")], "must_run": [str(path)]}
    assert run_module("managed_files", given, check=True)["changed"]
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    broken = {"files": [entry(path, mode="0755")], "must_run": [str(path)]}
    assert run_module("managed_files", broken, check=True)["failed"]


# -- folders that have nothing else ---------------------------------------------------------------


def test_a_whole_folder_has_what_is_wanted_and_nothing_else(run_module: Run, tmp_path: Path):
    top, elsewhere = tmp_path / "examples", tmp_path / "elsewhere"
    for path in (elsewhere, top / "train/old", top / "gone/below"):
        path.mkdir(parents=True)
        (path / "file").write_text("x")
    (top / "gone/link").symlink_to(elsewhere)
    files = [entry(top / name / "README.md", content="a\n") for name in ("train", "ddp")]
    given = {"files": files, "whole_folders": [f"{top}/"]}
    before = snapshot(top)
    done = run_module("managed_files", given, check=True)
    assert snapshot(top) == before
    gone = ["gone/below/file", "gone/below", "gone/link", "gone", "train/old/file", "train/old"]
    assert {*done["paths"]} == {
        str(top / name) for name in ["train/README.md", "ddp/README.md", *gone]
    }
    done = run_module("managed_files", given)
    assert done["changed"]
    assert sorted(path.relative_to(top).as_posix() for path in top.rglob("*")) == [
        *("ddp", "ddp/README.md", "train", "train/README.md")
    ]
    # What a link led to stays.
    assert (elsewhere / "file").read_text() == "x"
    assert run_module("managed_files", given)["paths"] == []


def test_a_whole_folder_of_which_nothing_is_wanted_is_refused(run_module: Run, tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("x")
    given = {
        "files": [entry(tmp_path / "others", content="a")],
        "whole_folders": [str(tmp_path / "other")],
    }
    done = run_module("managed_files", given)
    assert "no file is wanted in it; leave it out of whole_folders" in done["msg"]
    assert (tmp_path / "other/file").exists()
