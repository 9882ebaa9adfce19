"""A folder gets a file system of its own under a daemon that writes into it: nothing is lost."""

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FILES = Path(__file__).parents[4] / "roles/file_systems/files"
LABEL = "muster-home"


class Machine:
    """Takes the commands of the program: a disk, and a daemon that writes whenever it runs."""

    def __init__(self, folder: Path, program: Any) -> None:
        self.folder, self.program = folder, program
        self.fails = ""
        """Name of the command that fails once."""
        self.bytes = 2**20
        """How much there is to move."""
        self.commands: list[str] = []
        self.runs, self.written = True, 0
        self.label, self.copied, self.mounted_at = "", 0, 0

    def run(self, name: str, *arguments: str, **_: Any) -> tuple[int, str]:
        if self.runs:
            self.written += 1
        self.commands.append(" ".join([name, *arguments]))
        if name == self.fails:
            self.fails = ""
            raise self.program.DiskError(f"{name} failed")
        match name, arguments:
            case "systemctl", ["show", *_]:
                return 0, "active\n" if self.runs else "inactive\n"
            case "systemctl", ["stop", _]:
                self.runs = False
            case "systemctl", ["start", "--no-block", _]:
                self.runs = True
            case "mkfs.ext4", _:
                self.label, self.copied = arguments[arguments.index("-L") + 1], 0
            case "cp", _:
                self.copied = self.written
                shutil.copytree(*arguments[-2:], dirs_exist_ok=True)
            case "e2label", [_, label]:
                self.label = label
            case "mount", [*_, target] if target == str(self.folder):
                self.mounted_at = self.written
            case "dumpe2fs", _:
                return 0, "Block count: 65536\nBlock size: 4096\n"
            case "blockdev", _:
                return 0, str(2**28)
            case "du", _:
                return 0, f"4096\t/elsewhere\n{self.bytes}\ttotal\n"
        return 0, ""

    def content(self, _: str) -> Any:
        return self.program.Content("ext4", self.label) if self.label else None


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FILES))
    name = "muster_file_systems"
    spec = importlib.util.spec_from_file_location(name, FILES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machine(tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "file").touch()
    machine = Machine(folder, program)
    monkeypatch.setattr(program, "run", machine.run)
    monkeypatch.setattr(program, "content", machine.content)
    monkeypatch.setattr(program, "is_zero", lambda _: True)
    monkeypatch.setattr(program, "wait_for", lambda *_: None)
    monkeypatch.setattr(program, "HALF_AT", str(tmp_path / "half"))
    yield machine
    sys.modules.pop("disks", None)


def apply(machine: Machine) -> list[str]:
    program = machine.program
    mount = program.Mount(str(machine.folder), LABEL, device="/dev/vdb", units=["nfs-server"])
    return list(program.FileSystem(mount, act=True).apply())


def test_nothing_is_written_between_the_copy_and_the_mount(machine: Machine) -> None:
    lines = apply(machine)
    assert lines == ["/dev/vdb: make a file system", f"{machine.folder}: mount /dev/vdb"]
    assert machine.written > 0
    assert machine.mounted_at == machine.copied
    assert machine.label == LABEL
    assert machine.runs


def test_a_failed_command_leaves_the_daemon_up_and_the_next_run_has_all_it_wrote(
    machine: Machine,
) -> None:
    apply(machine)
    for command in {command.split()[0] for command in machine.commands} - {"systemctl"}:
        again = Machine(machine.folder, machine.program)
        machine.program.run, machine.program.content = again.run, again.content
        again.fails = command
        with pytest.raises(machine.program.DiskError, match=f"{command} failed"):
            apply(again)
        assert again.runs, command
        apply(again)
        assert again.mounted_at == again.copied, command
        assert (again.runs, again.label) == (True, LABEL)


def test_a_folder_that_can_t_be_bound_is_moved_again(machine: Machine, tmp_path: Path) -> None:
    program, path = machine.program, tmp_path / "mysql"
    path.mkdir()
    folder = program.Folder(str(path), units=["mariadb"])
    file_system = program.FileSystem(program.Mount(str(tmp_path / "disk"), LABEL), act=True)
    (tmp_path / "disk").mkdir()
    machine.fails = "mount"
    with pytest.raises(program.DiskError, match="mount failed"):
        list(file_system.bind(folder))
    assert machine.runs
    (path / "later").touch()
    list(file_system.bind(folder))
    assert Path(f"{tmp_path}/disk{path}/later").exists()


def test_one_that_has_its_file_system_is_only_mounted(machine: Machine) -> None:
    machine.label = LABEL
    assert apply(machine) == [f"{machine.folder}: mount /dev/vdb"]
    assert not any(command.startswith(("mkfs", "cp")) for command in machine.commands)
    assert machine.runs


def test_what_does_not_fit_is_refused_before_anything_is_stopped(machine: Machine) -> None:
    machine.bytes = 2**28
    with pytest.raises(machine.program.DiskError, match=r"0\.2 GiB do not fit into 0\.2 GiB; set"):
        apply(machine)
    assert not any("stop" in command for command in machine.commands)
    assert machine.label == ""


@pytest.fixture
def state(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file system of a database, which is a file that is not made yet."""
    program = machine.program
    (tmp_path / "mysql").mkdir()
    monkeypatch.setattr(program, "FILES", str(tmp_path / "files"))
    return program.Mount(
        str(tmp_path / "state"),
        "muster-state",
        size_gib=1,
        folders=[{"path": str(tmp_path / "mysql"), "units": ["mariadb"]}],
    )


def of_room(monkeypatch: pytest.MonkeyPatch, program: Any, *, gib: int) -> None:
    """Let each disk have this much room."""
    blocks = gib * 2**30 // 4096
    there = SimpleNamespace(f_bavail=blocks, f_blocks=blocks, f_frsize=4096)
    monkeypatch.setattr(program.os, "statvfs", lambda _: there)


REFUSED = {
    "room": "needs 1.0 GiB more, and 0.1 GiB are missing",
    "loop device": "no loop device: losetup failed; mount a disk at",
    "size": "do not fit into 1.0 GiB",
    "link": "is a link or has another file system than",
    "mount": "is a link or has another file system than",
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_can_t_be_done_is_refused_and_nothing_is_touched(
    machine: Machine, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    program, folder = machine.program, tmp_path / "mysql"
    of_room(monkeypatch, program, gib=1 if wrong == "room" else 2)
    if wrong == "size":
        machine.bytes = 2**30
    if wrong == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    if wrong == "mount":
        monkeypatch.setattr(program.os.path, "ismount", lambda path: path == str(folder))
    for act in (False, True):
        machine.fails = "losetup" if wrong == "loop device" else ""
        with pytest.raises(program.DiskError, match=re.escape(REFUSED[wrong])):
            list(program.FileSystem(state, act=act).apply())
    assert not (tmp_path / "files").exists()
    assert not any("stop" in command for command in machine.commands)
    assert machine.runs
