"""Who writes below a folder is found, whatever the folder is called where that process sees it."""

import errno
import importlib.util
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/file_systems/files/open_files.py"
WAIT = "print('ready', flush=True); input()"
PROGRAMS = {
    "open": "import sys; f = open(sys.argv[1], 'w')",
    "appends": "import sys; f = open(sys.argv[1], 'a')",
    "reads and writes": "import sys; f = open(sys.argv[1], 'r+')",
    "mapped": (
        "import mmap, sys\nwith open(sys.argv[1], 'r+') as f: m = mmap.mmap(f.fileno(), 4096)\n"
        # Python keeps a descriptor of its own.
        "import os; os.closerange(3, 100)"
    ),
}
HARMLESS = {
    "reads": "import sys; f = open(sys.argv[1])",
    "removed": "import os, sys; f = open(sys.argv[1], 'w'); os.remove(sys.argv[1])",
    "lies in it": "import os, sys; os.chdir(os.path.dirname(sys.argv[1]))",
    "own copy": (
        "import mmap, os, sys\n"
        "with open(sys.argv[1], 'r+') as f: m = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE)\n"
        "os.closerange(3, 100)"
    ),
    "writes beside it": "import os, sys; f = open(os.path.dirname(sys.argv[1]) + 's', 'w')",
}


@pytest.fixture(scope="module")
def open_files() -> Any:
    spec = importlib.util.spec_from_file_location("open_files", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Start a program and return its pid once it has said that it is ready."""
    with ExitStack() as stack:

        def one(*command: str) -> str:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            return str(process.pid)

        yield one


@pytest.fixture
def start_in_namespace(start: Callable[..., str]) -> Callable[..., str]:
    """Do the same in a mount namespace of its own, by a script and its arguments."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder for a process alone")
    return lambda script, *words: start("unshare", "--mount", "sh", "-c", script, "sh", *words)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "home" / "a file"
    file.parent.mkdir()
    file.write_bytes(bytes(4096))
    return file


def python(code: str, file: Path) -> list[str]:
    return [sys.executable, "-c", f"{code}\n{WAIT}", str(file)]


@pytest.mark.parametrize("how", PROGRAMS)
def test_who_can_write_below_a_folder_is_found(
    open_files: Any, start: Callable[..., str], file: Path, how: str
) -> None:
    pid = start(*python(PROGRAMS[how], file))
    (found,) = open_files.writers([str(file.parent)])
    assert (found.pid, found.file) == (pid, str(file))
    assert str(found) == f"{found.name} (pid {pid}) {file}"
    assert open_files.writers([f"{file.parent}/none", str(file.parent.parent / "other")]) == []


@pytest.mark.parametrize("how", HARMLESS)
def test_who_can_lose_nothing_is_not(
    open_files: Any, start: Callable[..., str], file: Path, how: str
) -> None:
    start(*python(HARMLESS[how], file))
    assert open_files.writers([str(file.parent)]) == []


def test_this_process_does_not_count_and_those_that_wait_for_it_do(
    open_files: Any, file: Path
) -> None:
    """At a boot nobody waits, so what they do must not differ from what `check` has seen."""
    code = (
        "import os, runpy, sys\n"
        f"writers = runpy.run_path({str(PROGRAM)!r})['writers']\n"
        "own = open(sys.argv[1], 'w')\n"
        "print([found.pid for found in writers([os.path.dirname(sys.argv[1])])])"
    )
    command = [sys.executable, "-c", code, str(file)]
    for counted in (False, True):
        with ExitStack() as stack:
            if counted:
                stack.enter_context(file.open("a"))  # this test waits for the program
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == f"{[str(os.getpid())] if counted else []}\n"


@pytest.fixture
def no_right(open_files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel refuse to open map_files, as in a container without the capability."""
    really = os.open

    def refused(path: str | Path, *more: Any) -> int:
        if "/map_files/" in str(path):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return really(path, *more)

    monkeypatch.setattr(open_files.os, "open", refused)


@pytest.mark.usefixtures("no_right")
@pytest.mark.parametrize("name", ["a file", "a\n\\ file (deleted)"])
def test_a_mapping_is_found_by_its_path_where_its_file_can_t_be_opened(
    open_files: Any, start: Callable[..., str], file: Path, name: str
) -> None:
    file = file.rename(file.parent / name)
    pid = start(*python(PROGRAMS["mapped"], file))
    assert [found[::2] for found in open_files.writers([str(file.parent)])] == [(pid, str(file))]
    # Another file has the name that the kernel gives to one that is removed.
    file.unlink()
    (file.parent / f"{name} (deleted)").touch()
    assert open_files.writers([str(file.parent)]) == []


@pytest.mark.usefixtures("no_right")
def test_so_is_one_of_a_process_with_another_name_for_the_folder(
    open_files: Any, start_in_namespace: Callable[..., str], file: Path
) -> None:
    elsewhere = file.parent.parent / "elsewhere"
    elsewhere.mkdir()
    script = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
    program = python(PROGRAMS["mapped"], elsewhere / file.name)
    pid = start_in_namespace(script, str(file.parent), str(elsewhere), *program)
    assert [found.pid for found in open_files.writers([str(file.parent)])] == [pid]


def test_a_process_may_have_another_name_for_the_folder(
    open_files: Any, start_in_namespace: Callable[..., str], file: Path
) -> None:
    (file.parent / "\\ \t").mkdir()
    inner = file.parent / "\\ \t" / "log"
    inner.touch()
    elsewhere = file.parent.parent / "else where"
    elsewhere.mkdir()
    script = 'mount --bind "$1" "$2"; exec 9>>"$2/log"; echo ready; read answer'
    pid = start_in_namespace(script, str(inner.parent), str(elsewhere))
    (found,) = open_files.writers([str(file.parent)])
    assert found.pid == pid
    assert open_files.writers([str(elsewhere)]) == []


def test_services_that_will_be_stopped_do_not_count(
    open_files: Any, start: Callable[..., str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(*python(PROGRAMS["open"], file))
    read = open_files.read

    def in_unit(path: str) -> list[str]:
        if path == f"/proc/{pid}/cgroup":
            return ["0::/system.slice/mariadb.service/worker"]
        lines: list[str] = read(path)
        return lines

    monkeypatch.setattr(open_files, "read", in_unit)
    assert open_files.writers([str(file.parent)], ["slurmctld", "mariadb"]) == []
    for units in ([], ["slurmctld", "maria", "db"]):
        assert [found.pid for found in open_files.writers([str(file.parent)], units)] == [pid]


def test_a_strange_name_breaks_neither_the_search_nor_the_terminal(
    open_files: Any, start: Callable[..., str], file: Path
) -> None:
    strange = file.parent / os.fsdecode(b"a\x0b\x1b[2J \xc2\x85\xe2\x80\xa8\r\xff")
    strange.write_bytes(bytes(4096))
    with strange.open("r+b") as opened, mmap.mmap(opened.fileno(), 4096):
        start(*python(PROGRAMS["mapped"] + "\nf = open(sys.argv[1], 'a')", strange))
        (found,) = open_files.writers([str(file.parent)])
    assert str(found).endswith("/a??[2J ????")
    assert str(found).isprintable()


ID = "0x0000000a6a2f5c1d0000000b"
OWNER = 'owner: "open id:\\x00\\x00\\x004"'


@pytest.fixture
def nfs(open_files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel shows of its NFS server: no clients."""
    clients = tmp_path / "clients"
    clients.mkdir()
    monkeypatch.setattr(open_files, "NFS_CLIENTS", str(clients))
    return clients


def has_open(clients: Path, number: int, address: str, *states: str) -> None:
    """Add a client, as nfsd of Linux 6.1 and 6.12 shows it."""
    folder = clients / str(number)
    folder.mkdir()
    (folder / "info").write_text(
        f'clientid: 0xa6a2f5c1d\naddress: "{address}"\nstatus: confirmed\n'
        'name: "Linux NFSv4.2 node1"\nminor version: 2\n'
    )
    text = "".join(f"- {ID}: {{ {state} }}\n" for state in states)
    (folder / "states").write_bytes(os.fsencode(text))


def superblock(open_files: Any, folder: Path, *, further: int = 0) -> str:
    """Return the words for a file on the folder's device, or on another one."""
    mounts = open_files.mounts_of_all([])
    major, minor = open_files.place_of_folder(str(folder), mounts).device.split(":")
    return f'superblock: "{int(major):02x}:{int(minor) + further:02x}:13649"'


def test_nfs_clients_that_can_write_are_found_whatever_stops(
    open_files: Any, nfs: Path, file: Path
) -> None:
    on = superblock(open_files, file.parent)
    for number, (address, state) in enumerate(
        {
            "192.0.2.2:932": f'open, access: rw, deny: --, {on}, filename: "ada/log", {OWNER}',
            "[2001:db8::2]:932": f'open, access: -w, deny: -w, {on}, filename: "/x", {OWNER}',
            "192.0.2.3:700": f'open, access: -w, deny: --, {on}, filename: "a "b"/\udcff\r\x1b"',
            "192.0.2.4:700": f"open, access: rw, deny: --, {on}, {OWNER}",
        }.items(),
        start=8,
    ):
        has_open(nfs, number, address, f"type: lock, {on}", *[f"type: {state}"] * 2)
    assert [str(found) for found in open_files.writers([str(file.parent)], ["nfs-server"])] == [
        f"NFS client 192.0.2.2 ({nfs}/8) .../ada/log",
        f"NFS client 2001:db8::2 ({nfs}/9) .../x",
        f'NFS client 192.0.2.3 ({nfs}/10) .../a "b"/???',
        f"NFS client 192.0.2.4 ({nfs}/11) .../",
    ]
    assert open_files.writers([f"{file.parent}/none"]) == []


def test_nfs_clients_that_read_or_are_elsewhere_or_gone_are_not(
    open_files: Any, nfs: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on, beside = superblock(open_files, file.parent), superblock(open_files, file.parent, further=1)
    has_open(
        nfs,
        1,
        "192.0.2.2:932",
        f'type: open, access: r-, deny: -w, {on}, filename: "ada/log", {OWNER}',
        f'type: open, access: rw, deny: --, {beside}, filename: "ada/log", {OWNER}',
        f'type: deleg, access: w, {on}, filename: "ada/log"',
        f'type: open, access: r-, deny: --, {on}, filename: "access: rw, {on}"',
        f"type: open, access: rw, deny: --, {OWNER}, admin-revoked",
    )
    (nfs / "2").mkdir()
    assert open_files.writers([str(file.parent)]) == []
    monkeypatch.setattr(open_files, "NFS_CLIENTS", "/nowhere")
    assert open_files.writers([str(file.parent)]) == []
