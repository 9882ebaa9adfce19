"""A folder gets a file system of its own under a daemon that writes into it: nothing is lost."""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

FILES = Path(__file__).parents[4] / "roles/file_systems/files"
LABEL = "muster-home"


class Machine:
    """Takes the commands of the program: a disk, and a daemon that writes whenever it runs."""

    def __init__(self, folder: Path, program: Any) -> None:
        self.folder, self.program = folder, program
        self.fails = ""
        """Name of the command that fails once."""
        self.e2fsck = 0
        """Exit code of it."""
        self.bytes = 2**20
        """How much there is to move."""
        self.commands: list[str] = []
        self.bounds: dict[str, float | None] = {}
        """For how long each may run at most."""
        self.runs, self.written = True, 0
        self.label, self.copied, self.mounted_at = "", 0, 0

    def run(self, name: str, *arguments: str, **more: Any) -> tuple[int, str]:
        self.bounds[name] = more.get("seconds", 600)
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
        return (self.e2fsck if name == "e2fsck" else 0), ""

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
    for name in ("disks", "mount_table", "open_files"):
        sys.modules.pop(name, None)


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


def test_what_changes_a_file_system_is_never_killed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a large one it takes hours; killed in the middle it leaves damage, at each boot."""
    machine.bytes = 2**10
    apply(machine)
    program = machine.program
    mount = program.Mount(str(machine.folder), LABEL, device="/dev/vdb", project_quotas=True)
    there = program.FileSystem(mount, act=True)
    there.can_grow = lambda: True
    list(there.adapt(mounted=False))
    monkeypatch.setattr(program, "ids_of", lambda _: (4711, 4711))
    (machine.folder / "mysql").mkdir()
    list(there.own(program.Folder("/mysql", owner="mysql", group="mysql")))
    changing = ("mkfs.ext4", "cp", "e2fsck", "resize2fs", "tune2fs", "chown")
    assert {name: machine.bounds[name] for name in changing} == dict.fromkeys(changing)


def test_one_that_has_its_file_system_is_only_mounted(machine: Machine) -> None:
    machine.label = LABEL
    assert apply(machine) == [f"{machine.folder}: mount /dev/vdb"]
    assert not any(command.startswith(("mkfs", "cp")) for command in machine.commands)
    assert machine.runs


def test_nor_by_systemd_or_the_play() -> None:
    role = FILES.parent
    unit = role / "templates/etc/systemd/system/muster-file-systems.service.j2"
    # Without a line systemd waits for ever.
    assert "\nType=oneshot\n" in unit.read_text()
    assert "TimeoutStartSec" not in unit.read_text()
    (task, *_) = yaml.safe_load((role / "tasks/configure.yml").read_text())
    service = task["muster.slurm.managed_files"]["service"]
    assert service["timeout_seconds"] >= 24 * 60 * 60


def test_an_existing_one_is_checked_before_it_is_mounted(machine: Machine) -> None:
    machine.label = LABEL
    assert apply(machine) == [f"{machine.folder}: mount /dev/vdb"]
    names = [command for command in machine.commands if command.startswith(("e2fsck", "mount"))]
    assert [name.split()[0] for name in names] == ["e2fsck", "mount"]
    assert names[0] == "e2fsck -p /dev/vdb"
    machine.e2fsck = 1
    assert apply(machine) == [
        f"{machine.folder}: e2fsck has repaired /dev/vdb",
        f"{machine.folder}: mount /dev/vdb",
    ]


def test_one_that_needs_a_person_is_not_mounted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, run = machine.program, machine.run
    machine.label = LABEL

    def broken(name: str, *arguments: str, **more: Any) -> tuple[int, str]:
        if name == "e2fsck":
            machine.commands.append(name)
            raise program.DiskError("e2fsck -p /dev/vdb: home: INCONSISTENCY;\n\t(run it by hand)")
        return run(name, *arguments, **more)

    monkeypatch.setattr(program, "run", broken)
    sentence = (
        "e2fsck -p /dev/vdb: home: INCONSISTENCY; (run it by hand); repair it with "
        "`e2fsck -f /dev/vdb` (unmount it first if it is mounted elsewhere), and run again"
    )
    with pytest.raises(program.DiskError, match=f"^{re.escape(sentence)}$"):
        apply(machine)
    assert not any(command.startswith("mount") for command in machine.commands)
    assert machine.runs
    machine.commands.clear()
    mount = program.Mount(str(machine.folder), LABEL, device="/dev/vdb", units=["nfs-server"])
    assert applied(machine, mount, act=False) == [f"{machine.folder}: mount /dev/vdb"]
    assert "e2fsck" not in machine.commands


@pytest.mark.parametrize("label", ["", LABEL], ids=["new", "there"])
def test_an_error_of_the_disk_makes_it_read_only(machine: Machine, label: str) -> None:
    machine.label = label
    program, folder = machine.program, str(machine.folder)
    mount = program.Mount(folder, LABEL, device="/dev/vdb", options=["nosuid", "nodev"])
    applied(machine, mount)
    mounts = [command for command in machine.commands if command.startswith("mount")]
    assert mounts[-1] == f"mount -t ext4 -o errors=remount-ro,nosuid,nodev /dev/vdb {folder}"
    assert len(mounts) == (1 if label else 2)
    assert all("errors=remount-ro" in command for command in mounts)


def test_what_e2fsck_itself_says(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
    disk = tmp_path / "disk"
    disk.touch()
    os.truncate(disk, 2**24)
    program.run("mkfs.ext4", "-q", "-F", str(disk))
    there = program.FileSystem(program.Mount("/home", LABEL, device=str(disk)), act=True)
    assert list(there.check()) == []
    # Marked as having errors, with a wrong count of free blocks.
    for change in ("set_super_value free_blocks_count 5", "set_super_value state 2"):
        program.run("debugfs", "-w", "-R", change, str(disk))
    assert list(there.check()) == [f"/home: e2fsck has repaired {disk}"]
    assert list(there.check("-f")) == []
    for change in ("clri <2>", "set_super_value state 2"):
        program.run("debugfs", "-w", "-R", change, str(disk))
    with pytest.raises(program.DiskError, match=r"^e2fsck -p .* RUN fsck MANUALLY.* `e2fsck -f "):
        list(there.check())
    sys.modules.pop("disks", None)


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
    monkeypatch.setattr(program, "RECORD", str(tmp_path / "etc/made"))
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


def writing(monkeypatch: pytest.MonkeyPatch, program: Any, *writers: Any) -> list[Any]:
    """Let there be these writers, a list for each look; return whom each look was for."""
    looks: list[Any] = []
    answers = iter(writers)

    def answer(folders: list[str], units: list[str]) -> Any:
        looks.append((folders, [*units]))
        return next(answers, [])

    monkeypatch.setattr(program, "writers", answer)
    return looks


SOME = [f"vim (pid {pid}) /home/ada/file" for pid in range(1, 6)]


def test_a_folder_in_which_programs_write_does_not_move(
    machine: Machine, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, folder = machine.program, str(machine.folder)
    device = program.Mount(folder, LABEL, device="/dev/vdb", units=["nfs-server"])
    for mount, paths, units in (
        (device, [folder], ["nfs-server"]),
        (state, [str(tmp_path / "mysql")], ["mariadb"]),
    ):
        for act in (False, True):
            looks = writing(monkeypatch, program, SOME[:1])
            sentence = (
                f"{paths[0]} can't move while programs write there, as what they write would be "
                "lost: vim (pid 1) /home/ada/file; end them, or wait until their jobs are done, "
                "and run again; if it is the log of this run, write it elsewhere, such as to /root "
                "or /var/tmp"
            )
            with pytest.raises(program.DiskError, match=f"^{re.escape(sentence)}$"):
                list(program.FileSystem(mount, act=act).apply())
            assert looks == [(paths, units)]
    assert not (tmp_path / "files").exists()
    assert not any("stop" in command for command in machine.commands)
    assert machine.label == ""


def test_nor_does_one_in_which_they_have_begun_to_write_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, folder = machine.program, str(machine.folder)
    looks = writing(monkeypatch, program, [], SOME)
    with pytest.raises(program.DiskError, match=r"lost: .*pid 1.*, .*pid 3\) \S+ and 2 more; end"):
        apply(machine)
    assert looks == [([folder], ["nfs-server"]), ([folder], [])]
    assert machine.mounted_at == 0
    assert machine.runs
    assert apply(machine)[0] == "/dev/vdb: make a file system"
    assert machine.mounted_at == machine.copied > 0
    assert machine.label == LABEL


def test_nor_does_one_that_is_to_be_bound(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, path = machine.program, tmp_path / "mysql"
    path.mkdir()
    mount = program.Mount(str(tmp_path / "disk"), LABEL)
    (tmp_path / "disk").mkdir()
    folder = program.Folder(str(path), units=["mariadb"])
    for act in (False, True):
        looks = writing(monkeypatch, program, SOME)
        with pytest.raises(program.DiskError, match="can't move while programs write there"):
            list(program.FileSystem(mount, act=act).bind(folder))
        assert looks == [([str(path)], ["mariadb"])]
    assert not any("stop" in command for command in machine.commands)
    looks = writing(monkeypatch, program, [], SOME)
    with pytest.raises(program.DiskError, match="can't move while programs write there"):
        list(program.FileSystem(mount, act=True).bind(folder))
    assert looks[1] == ([str(path)], [])
    assert machine.runs
    assert not any(command.startswith("mount") for command in machine.commands)
    assert not Path(f"{tmp_path}/disk{path}").exists()


def test_what_is_only_mounted_hides_nothing_new(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A boot mounts it, also where a program writes to the folder that the mount hides."""
    looks = writing(monkeypatch, machine.program, SOME)
    machine.label = LABEL
    apply(machine)
    assert looks == []


LOOP = "/dev/loop7"


@pytest.fixture
def made(machine: Machine, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, made, recorded and mounted, on a disk with enough room."""
    program, run = machine.program, machine.run
    of_room(monkeypatch, program, gib=100)

    def with_loop(name: str, *arguments: str, **more: Any) -> tuple[int, str]:
        code, out = run(name, *arguments, **more)
        return code, LOOP if name == "losetup" else out

    def take(file: str, size: int) -> None:
        Path(file).parent.mkdir(exist_ok=True)
        with Path(file).open("ab") as taken:
            taken.truncate(size)

    monkeypatch.setattr(program, "run", with_loop)
    monkeypatch.setattr(program, "take", take)
    applied(machine, state)
    return state


def applied(machine: Machine, mount: Any, *, act: bool = True) -> list[str]:
    return list(machine.program.FileSystem(mount, act=act).apply())


def is_mounted(monkeypatch: pytest.MonkeyPatch, program: Any, mount: Any) -> None:
    monkeypatch.setattr(program.os.path, "ismount", lambda path: path == mount.path)
    monkeypatch.setattr(program.FileSystem, "refuse_other", lambda _: None)


def test_a_file_that_was_made_is_recorded_once(
    machine: Machine, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, file = Path(machine.program.RECORD), tmp_path / "files/muster-state"
    assert file.stat().st_size == 2**30
    assert re.search(r"^muster-state 20\d\d-\d\d-\d\d$", record.read_text(), re.MULTILINE)
    syncs = [command for command in machine.commands if command.startswith("sync")]
    assert syncs[:2] == [f"sync {record}.new", f"sync {record.parent}"]
    before = record.read_text()
    assert not any("note" in line for line in applied(machine, made))
    assert record.read_text() == before
    # One that was made before there was a record.
    record.unlink()
    is_mounted(monkeypatch, machine.program, made)
    line = f"{record}: note that {file} is there"
    assert applied(machine, made, act=False)[0] == line
    assert not record.exists()
    assert applied(machine, made)[0] == line
    assert record.read_text() == before
    assert not applied(machine, made, act=False)[1:]


def test_a_file_that_is_missing_is_not_made_again(
    machine: Machine, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, file = machine.program, tmp_path / "files/muster-state"
    file.unlink()
    machine.label = ""
    machine.commands.clear()
    for act in (False, True):
        with pytest.raises(program.DiskError) as refused:
            applied(machine, made, act=act)
        assert re.fullmatch(
            f"{file} is missing or empty, and it was there on 20..-..-..; bring the file back "
            r"\(.*\), or, if nothing in it is needed, remove its line in "
            f"{program.RECORD}, and run again",
            str(refused.value),
        )
    assert not file.exists()
    assert machine.commands == []
    # An empty one is as good as none.
    file.touch()
    with monkeypatch.context() as context:
        is_mounted(context, program, made)
        sentence = f"{made.path} is still mounted, so first copy what is in it; bring"
        with pytest.raises(program.DiskError, match=re.escape(sentence)):
            applied(machine, made)
    record = Path(program.RECORD)
    record.write_text(record.read_text().replace("muster-state", "muster-statement"))
    assert f"{file}: take 1 GiB" in applied(machine, made)
    assert [line.split()[0] for line in record.read_text().splitlines()[1:]] == [
        "muster-statement",
        "muster-state",
    ]


@pytest.mark.parametrize("recorded", [False, True])
def test_nor_is_one_made_below_a_disk_that_is_not_mounted(
    machine: Machine, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    program, file, fstab = machine.program, tmp_path / "files/muster-state", tmp_path / "fstab"
    file.unlink()
    if not recorded:
        Path(program.RECORD).unlink()
    machine.commands.clear()
    fstab.write_text(f"/dev/vdc {file.parent} ext4 defaults 0 2\n")
    monkeypatch.setattr(sys.modules["mount_table"], "FSTAB", str(fstab))
    for act in (False, True):
        sentence = f"{file.parent} is not mounted, though {fstab} says that it should be"
        with pytest.raises(
            program.DiskError, match=f"^{re.escape(sentence)}.*`mount {file.parent}"
        ):
            applied(machine, made, act=act)
    assert machine.commands == []
    assert not file.exists()


def test_one_that_is_to_be_smaller_says_all_that_has_to_go(
    machine: Machine, made: Any, tmp_path: Path
) -> None:
    machine.program.take(str(tmp_path / "files/muster-state"), 2**31)
    sentence = f"unmount it, and remove the file and its line in {machine.program.RECORD}"
    with pytest.raises(machine.program.DiskError, match=re.escape(sentence)):
        applied(machine, made)


@pytest.mark.parametrize("link", ["folder", "file", "dangling"])
def test_a_link_on_the_way_to_the_file_is_refused(
    machine: Machine, made: Any, tmp_path: Path, link: str
) -> None:
    program, folder = machine.program, tmp_path / "files"
    path = folder / "muster-state" if link == "file" else folder
    path.rename(tmp_path / "big")
    path.symlink_to(tmp_path / ("not mounted" if link == "dangling" else "big"))
    machine.commands.clear()
    for recorded in (True, False):
        Path(program.RECORD).write_text("muster-state 2025-01-01\n" if recorded else "")
        for act in (False, True):
            with pytest.raises(program.DiskError, match="a boot does not wait for the disk behind"):
                applied(machine, made, act=act)
    assert machine.commands == []
