"""The program that looks whether people and jobs can load modules; shells are stand-ins.

With Lmod and real shells: tests/roles/test_lmod.py.
"""

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FILE = Path(__file__).parents[4] / "roles/lmod/files/muster_check_modules.py"
SPEC = importlib.util.spec_from_file_location("muster_check_modules", FILE)
assert SPEC is not None and SPEC.loader is not None
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)

OLD, NEW = "apps/tool/1", "apps/tool/2"
LOADS = 'for name; do :; done; echo; echo "apps/other/1:$name"'

Done = tuple[int, str]


class Host:
    """A host that sees a tree of modules, with shells that do what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.cache = folder, folder / "modules", folder / "cache"
        self.bin, self.started = folder / "bin", folder / "profile.d"
        for path in (self.bin, self.cache):
            path.mkdir()
        for name in ("timeout", "sleep", "id"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        for shell in ("bash", "sh", "zsh"):
            self.shell(shell, LOADS)
        self.publish(OLD, 1)
        self.publish(NEW, 2)

    def shell(self, name: str, text: str) -> None:
        """Let a shell that is told to load a module do something else."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\necho {name} >>{self.folder}/begun\n{text}\n")
        path.chmod(0o755)
        (self.folder / "begun").touch()
        (self.folder / "begun").chmod(0o666)

    def publish(self, module: str, time: float) -> None:
        path = self.tree / f"{module}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time, time))
        (self.cache / "loads").write_text(f"{OLD}\n{NEW}\napps/told-of-and-not-here-yet/1\n")
        (self.cache / "timestamp").touch()
        os.utime(self.cache / "timestamp", (time, time))

    def begun(self) -> list[str]:
        """Return the shells that were started since this was asked last."""
        lines = (self.folder / "begun").read_text().split()
        (self.folder / "begun").write_text("")
        return sorted(lines)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # Not below pytest's folder, which its owner alone enters: the shells run as nobody.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Host(Path(folder))
        monkeypatch.setattr(program, "PATH", str(made.bin))
        monkeypatch.setattr(program, "LOOKED", f"{folder}/run/looked")
        made.started.mkdir()
        monkeypatch.setattr(program, "READ_AT_START", (str(made.started), f"{folder}/profile"))
        yield made


@pytest.fixture
def check(host: Host, capsys: pytest.CaptureFixture[str]) -> Callable[[], Done]:
    def check() -> Done:
        return program.main([str(host.tree), str(host.cache)]), capsys.readouterr().out

    return check


def test_each_shell_is_tried_once_for_each_publication(host: Host, check) -> None:
    assert check() == (0, "")
    assert host.begun() == ["bash", "bash", "bash", "sh", "sh", "zsh", "zsh", "zsh"]
    assert check() == (0, "")
    assert host.begun() == []
    host.publish(OLD, 3)
    assert check() == (0, "")
    assert len(host.begun()) == 8


def test_the_module_that_was_published_last_is_loaded_by_the_shells_that_are_there(
    host: Host, check
) -> None:
    (host.bin / "zsh").unlink()
    host.shell("sh", "exit 1")
    host.publish(OLD, 3)
    code, out = check()
    assert (code, out.partition(": ")[0]) == (
        1,
        f"`module load {OLD}` does not work on this host in sh -l, sh -l -i",
    )


def test_what_shells_read_at_their_start_is_tried_again_when_it_changes(host: Host, check) -> None:
    def changed() -> bool:
        host.begun()
        assert check() == (0, "")
        return len(host.begun()) == 8

    assert changed()
    (host.started / "site.sh").write_text("one")
    assert changed()
    assert not changed()
    (host.started / "site.sh").write_text("two")
    assert changed()
    (host.started / "site.sh").unlink()
    assert changed()
    (host.folder / "profile").touch()
    assert changed()
    assert not changed()


def test_a_program_that_a_shell_leaves_in_the_background_is_not_waited_for(
    host: Host, check
) -> None:
    left = host.folder / "left"
    left.touch()
    left.chmod(0o666)
    host.shell("bash", f"sleep 1000 & echo $! >>{left}; {LOADS}")
    assert check() == (0, "")
    pids = left.read_text().split()
    assert len(pids) == 3
    # Killed ones may wait for init.
    states = subprocess.run(
        ["ps", "-o", "stat=", *pids], capture_output=True, text=True, check=False
    ).stdout.split()
    assert all(state.startswith("Z") for state in states)


def test_what_fails_is_named_with_what_the_shell_says_and_tried_again(host: Host, check) -> None:
    host.shell("zsh", "echo 'zsh:1: command not found: module' >&2; exit 127")
    # As interactive shells have it without a terminal.
    host.shell(
        "sh", 'echo "sh: 0: can\'t access tty; job control turned off" >&2; echo; echo other'
    )
    code, out = check()
    assert code == 1
    first, second = (
        line.partition("; run site.yml, whose role lmod")[0] for line in out.splitlines()
    )
    on_this_host = f"`module load {NEW}` does not work on this host in"
    assert first == f"{on_this_host} sh -l, sh -l -i: it is not loaded"
    ways = "zsh -l, zsh -l -i, a script for zsh"
    assert second == f"{on_this_host} {ways}: zsh:1: command not found: module"
    host.begun()
    host.shell("zsh", LOADS)
    host.shell("sh", LOADS)
    assert check() == (0, "")


def test_a_shell_that_does_not_end_ends_nothing_else(
    host: Host, check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SECONDS", 1)
    host.shell("bash", "exec sleep 100")
    code, out = check()
    assert code == 1
    assert out == (
        f"`module load {NEW}` does not work on this host in bash -l, bash -l -i, a script for "
        f"bash: it did not end within 1 s; `bash -lixc 'module load {NEW}'` shows what it waits "
        "for: a file of /etc/profile.d, the file server, or a host that is busy\n"
    )


def test_a_file_server_that_does_not_answer_keeps_nobody_waiting(
    host: Host, check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SECONDS", 1)
    monkeypatch.setenv("PATH", f"{host.bin}:{os.environ['PATH']}")
    host.shell("stat", "exec sleep 100")
    assert check() == (
        1,
        f"{host.cache} does not answer within 1 s; bring the server that has it back, and run "
        "site.yml again\n",
    )
    assert host.begun() == ["stat"]


def test_shells_are_not_root_and_have_an_empty_home(host: Host, check) -> None:
    for shell in ("bash", "sh", "zsh"):
        home = '[ -d "$HOME" ] && [ -w "$HOME" ] && [ ! -e "$HOME"/* ]'
        host.shell(shell, f'[ "$(id -u)" != 0 ] && {home} && {LOADS}')
    assert check() == (0, "")


@pytest.mark.parametrize("gone", ["loads", "timestamp"])
def test_before_anything_is_published_nothing_is_tried(host: Host, check, gone: str) -> None:
    text = (host.cache / gone).read_text()
    (host.cache / gone).unlink()
    assert check() == (0, "")
    assert host.begun() == []
    (host.cache / gone).write_text(text)
    assert check() == (0, "")
    assert len(host.begun()) == 8


def test_without_tree_and_cache_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["/apps/modules"]) == 2
    assert capsys.readouterr().err == "usage: muster-check-modules TREE CACHE\n"


def test_a_login_shell_loads_the_module_itself_and_in_a_script() -> None:
    function = '() { [ "$1 $#" = "load 2" ] && export LOADEDMODULES="$2"; }'
    commands = [command for _, command in program.ways(NEW) if command[0] == "bash"]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "HOME": "/", "BASH_FUNC_module%%": function},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )
        assert done.stdout.splitlines()[-1] == NEW, done.stderr
