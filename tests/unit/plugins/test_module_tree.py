"""How a tree of modulefiles is compared, published and cached; Lmod itself is not asked here.

With the real Lmod: tests/roles/test_software.py.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/module_tree.py"
SPEC = importlib.util.spec_from_file_location("module_tree", PATH)
assert SPEC is not None and SPEC.loader is not None
module_tree = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(module_tree)
MARK = module_tree.MARK
WRITTEN_BY_LMOD = (PATH.parents[3] / "roles/lmod/templates/etc/lmod/lmodrc.lua.j2").read_text(
    encoding="utf-8"
)


def publish(path: Path, files: dict[str, str]) -> list[str]:
    tree = module_tree.Tree(str(path), files)
    changes = tree.to_write + tree.to_remove
    tree.publish()
    return changes


def files_in(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()
    }


def lmod(tmp_path: Path, version: str = "8.6.19", code: int = 0, said: str = ""):
    """An Lmod whose tools note how they were called and answer `code` and `said`."""
    tools = tmp_path / version / "libexec"
    tools.mkdir(parents=True)
    for name in ("check_module_tree_syntax", "update_lmod_system_cache_files"):
        (tools / name).touch()
    calls: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str, str]:
        calls.append([Path(command[0]).name, *command[1:]])
        return code, "", said.format(folder=command[-1])

    return module_tree.Lmod(run, str(tmp_path / version)), calls


def test_a_file_is_written_with_a_line_that_says_whose_it_is(tmp_path: Path) -> None:
    assert publish(tmp_path, {"a/b/1.lua": "x\n"}) == ["a/b/1.lua"]
    assert files_in(tmp_path) == {"a/b/1.lua": MARK + "x\n"}
    assert publish(tmp_path, {"a/b/1.lua": "x\n"}) == []


def test_a_full_disk_names_the_file_that_stays_as_it_was(tmp_path: Path) -> None:
    publish(tmp_path, {"a/1.lua": "x\n"})
    (tmp_path / f"a/.1.lua{module_tree.NEW}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        publish(tmp_path, {"a/1.lua": "y\n"})
    assert full.value.filename == f"{tmp_path}/a/1.lua"
    assert (tmp_path / "a/1.lua").read_text() == MARK + "x\n"


def test_a_default_comes_after_what_it_points_to_and_goes_before_it(tmp_path: Path) -> None:
    files = {"a/.modulerc.lua": "1\n", "a/1.lua": "x\n", "z/2.lua": "y\n"}
    assert publish(tmp_path, files) == ["a/1.lua", "z/2.lua", "a/.modulerc.lua"]
    assert publish(tmp_path, {}) == ["a/.modulerc.lua", "a/1.lua", "z/2.lua"]
    assert list(tmp_path.iterdir()) == []


def test_files_of_people_stay_and_keep_their_folder(tmp_path: Path) -> None:
    publish(tmp_path, {"a/1.lua": "x\n", "b/c/1.lua": "y\n"})
    (tmp_path / "a/mine.lua").write_text("mine\n")
    publish(tmp_path, {})
    assert files_in(tmp_path) == {"a/mine.lua": "mine\n"}
    assert not (tmp_path / "b").exists()


def test_a_file_of_people_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.lua").write_text("mine\n")
    with pytest.raises(
        module_tree.RefusedError, match=r"a/1\.lua was not written by Muster; move it"
    ):
        module_tree.Tree(str(tmp_path), {"a/1.lua": "x\n"})


@pytest.mark.parametrize("name", ["/etc/passwd.lua", "../x.lua", "a/../../x.lua", "a/1"])
def test_a_path_outside_the_tree_or_of_no_modulefile_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(module_tree.RefusedError, match="not a path below"):
        module_tree.Tree(str(tmp_path), {name: "x\n"})


def test_a_file_that_users_can_not_read_is_mended(tmp_path: Path) -> None:
    publish(tmp_path, {"a/1.lua": "x\n"})
    (tmp_path / "a/1.lua").chmod(0o600)
    assert publish(tmp_path, {"a/1.lua": "x\n"}) == ["a/1.lua"]
    assert (tmp_path / "a/1.lua").stat().st_mode & 0o777 == 0o644


def test_what_a_killed_run_left_is_no_module_and_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.1.lua.muster-new").write_text(MARK + "half")
    assert publish(tmp_path, {"a/1.lua": "x\n"}) == ["a/1.lua"]
    assert files_in(tmp_path) == {"a/1.lua": MARK + "x\n"}


def test_a_refused_tree_is_named_by_its_place_and_left_alone(tmp_path: Path) -> None:
    tool, calls = lmod(tmp_path, code=1, said="-----\n  a/1, Fn: {folder}/a/1.lua Error: no\n\n")
    path = tmp_path / "modules"
    with pytest.raises(module_tree.RefusedError) as refused:
        module_tree.Tree(str(path), {"a/1.lua": "x\n"}).check(tool, [])
    assert str(refused.value) == (
        f"{path} is left as it was; Lmod refuses a/1, Fn: {path}/a/1.lua Error: no"
    )
    assert not path.exists()
    [[_, scratch]] = calls
    assert not Path(scratch).exists()


def test_without_lmod_the_message_says_what_to_install(tmp_path: Path) -> None:
    tool = module_tree.Lmod(lambda *_: (0, "", ""), str(tmp_path / "none"))
    assert tool.version == ""
    with pytest.raises(module_tree.RefusedError, match="install Lmod 8 or newer"):
        module_tree.Tree(str(tmp_path / "modules"), {"a/1.lua": "x\n"}).check(tool, [])


LOADED = "\na/1:a/c++/2\n"


def loading(tmp_path: Path, answers: dict[str, tuple[int, str, str]]):
    """An Lmod that takes all files, and answers what is given when a shell loads a module."""
    home = tmp_path / "8.6.19"
    (home / "libexec").mkdir(parents=True)
    (home / "libexec/check_module_tree_syntax").touch()
    loads: list[tuple[str, str]] = []

    def run(command: list[str]) -> tuple[int, str, str]:
        if "-c" not in command:
            return 0, "", ""
        assert command[:2] == ["env", "-i"]
        *_, shell, init, name = command
        assert init == f"{home}/init/{shell}"
        loads.append((shell, name))
        return answers[name]

    return module_tree.Lmod(run, str(home)), loads


def test_a_module_that_changes_must_load_before_it_is_published(tmp_path: Path) -> None:
    publish(tmp_path / "modules", {"a/1.lua": "x\n", "a/2.lua": "y\n"})
    tool, loads = loading(tmp_path, {"a/1": (0, LOADED, ""), "a/c++/2": (0, LOADED, "")})
    wanted = {"a/1.lua": "new\n", "a/2.lua": "y\n", "a/c++/2.lua": "z\n", "a/other.lua": "o\n"}
    tree = module_tree.Tree(str(tmp_path / "modules"), wanted)
    tree.check(tool, ["a/1", "a/2", "a/c++/2"])
    shells = [shell for shell in ("bash", "sh", "zsh") if shutil.which(shell, path="/usr/bin:/bin")]
    assert loads == [(shell, name) for name in ("a/1", "a/c++/2") for shell in shells]


# What Lmod 8.6.19 says of a modulefile that calls LmodError.
REFUSED = """Lmod has detected the following error: the folder is
not there
While processing the following module(s):
    Module fullname  Module Filename
"""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((1, "false\n", REFUSED), "Lmod has detected the following error: the folder is not there"),
        # It has ended well, and has loaded another one.
        ((0, "\na/2\n", ""), "a/1 is not loaded"),
        ((0, "", ""), "a/1 is not loaded"),
    ],
)
def test_a_module_that_does_not_load_is_not_published(
    tmp_path: Path, answer: tuple[int, str, str], said: str
) -> None:
    tool, _ = loading(tmp_path, {"a/1": answer})
    path = tmp_path / "modules"
    with pytest.raises(module_tree.RefusedError) as refused:
        module_tree.Tree(str(path), {"a/1.lua": "x\n"}).check(tool, ["a/1"])
    assert str(refused.value) == f"{path} is left as it was; Lmod refuses {said} (in bash)"
    assert not path.exists()


# In place of Lmod's own: modulefiles are lines for the shell that loads them.
MODULE = """module() {
    . "${MODULEPATH%%:*}/$2.lua" && export LOADEDMODULES="$2"
}
"""


def test_a_module_must_load_in_each_shell(tmp_path: Path) -> None:
    (tmp_path / "libexec").mkdir()
    (tmp_path / "libexec/check_module_tree_syntax").symlink_to("/bin/true")
    (tmp_path / "init").mkdir()
    for shell in ("bash", "sh", "zsh"):
        (tmp_path / "init" / shell).write_text(MODULE)

    def run(command: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    tool = module_tree.Lmod(run, str(tmp_path))
    of_all = module_tree.Tree(str(tmp_path / "modules"), {"a/1.lua": "printf 'said to users'\n"})
    # The first line of a modulefile is a comment in Lua.
    of_all.wanted = {name: text.replace(MARK, "") for name, text in of_all.wanted.items()}
    of_all.check(tool, ["a/1"])
    of_bash = module_tree.Tree(str(tmp_path / "modules"), {})
    of_bash.wanted = {"a/1.lua": "array=(1 2)\n"}
    with pytest.raises(module_tree.RefusedError, match=r"[Ss]yntax error.*\(in sh\)$"):
        of_bash.check(tool, ["a/1"])


def source(tmp_path: Path, tool: object, watch: list[str], *loads: str) -> str:
    files = module_tree.tree(str(tmp_path / "modules"))
    return module_tree.cache_source(tool, files, watch, [*loads])


@pytest.mark.parametrize(
    ("installed", "lmodrc", "configured"),
    [
        (True, WRITTEN_BY_LMOD, True),
        (False, WRITTEN_BY_LMOD, False),
        # As the package leaves it: modulefiles that are right would be refused in check mode.
        (True, "propT = {}", False),
        (True, None, False),
    ],
)
def test_lmod_is_configured_when_its_role_has_run(
    tmp_path: Path, installed: bool, lmodrc: str | None, configured: bool
) -> None:
    path = tmp_path / "lmodrc.lua"
    if lmodrc is not None:
        path.write_text(lmodrc)
    if installed:
        lmod(tmp_path)
    home = str(tmp_path / "8.6.19")
    assert module_tree.Lmod(None, home, str(path)).configured is configured


def test_the_cache_depends_on_all_that_it_was_built_from(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    watched = tmp_path / "software"
    tool, _ = lmod(tmp_path)
    newer, _ = lmod(tmp_path, version="8.7.60")
    publish(modules, {"a/1.lua": "x\n"})
    seen = [source(tmp_path, tool, [str(watched)])]
    assert source(tmp_path, tool, [str(watched)]) == seen[0]

    seen.append(source(tmp_path, newer, [str(watched)]))
    watched.mkdir()
    seen.append(source(tmp_path, tool, [str(watched)]))
    Path(f"{watched}.building").touch()
    assert source(tmp_path, tool, [str(watched)]) == seen[0]
    (modules / "mine.lua").write_text("")
    seen.append(source(tmp_path, tool, [str(watched)]))
    (modules / "mine.lua").write_text("setenv")
    seen.append(source(tmp_path, tool, [str(watched)]))
    (modules / "mine.lua").rename(modules / "minesetenv.lua")
    seen.append(source(tmp_path, tool, [str(watched)]))
    # Hosts read beside the cache which modules they can try.
    seen.append(source(tmp_path, tool, [str(watched)], "a/1"))
    seen.append(source(tmp_path, tool, [str(watched)], "a/1", "a/2"))
    assert len(set(seen)) == len(seen)


def test_a_cache_is_stale_until_it_was_built_to_the_end(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert module_tree.cache_is_stale(str(cache), "s")
    (cache / "cacheDir").mkdir(parents=True)
    (cache / "cacheDir/spiderT.lua").touch()
    # The run was killed here: the files are those of another tree.
    assert module_tree.cache_is_stale(str(cache), "s")
    module_tree.write(f"{cache}/source", "s\n")
    assert not module_tree.cache_is_stale(str(cache), "s")
    assert module_tree.cache_is_stale(str(cache), "other")
    (cache / "cacheDir/spiderT.lua").unlink()
    assert module_tree.cache_is_stale(str(cache), "s")


def test_a_cache_that_is_not_built_is_said(tmp_path: Path) -> None:
    tool, calls = lmod(tmp_path, code=1, said="disk full")
    with pytest.raises(module_tree.LmodError, match="spider cache in /c was not built: disk full"):
        tool.build_cache("/m", "/c")
    assert calls == [
        ["update_lmod_system_cache_files", "-d", "/c/cacheDir", "-t", "/c/timestamp", "/m"]
    ]
