"""What the programs that format disks share, and that each role installs it beside its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"
MODULE_UTILS = ROLES.parent / "ansible/plugins/module_utils"
EXAMPLES = ROLES.parent / "examples"
SHARED = ROLES / "file_systems/files/disks.py"
OTHERS = {"file_systems": ["mount_table.py", "open_files.py"]}
"""Role -> what its program needs besides."""
PROGRAMS = {
    "cloud_node": ("local_ssds.py", "int() with base 10: '--help'", "SLURM makes another"),
    "fscache": ("muster_cache_disk.py", "usage:", "apply the role fscache again"),
    "file_systems": ("muster_file_systems.py", "usage:", "apply the role file_systems again"),
}
"""Role -> its program, what that says to --help, and what to do without disks.py."""
FOLDER = "/usr/local/lib/muster"


@pytest.fixture
def disks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("disks", SHARED)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def blkid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What blkid does: a shell script, empty."""
    program = tmp_path / "blkid"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo TYPE=ext4; echo LABEL=muster-state", "ext4 labelled muster-state"),
        ("echo TYPE=swap", "swap labelled (nothing)"),
        ("echo PTTYPE=gpt", "gpt labelled (nothing)"),
        ("echo USAGE=other", "something unknown labelled (nothing)"),
        ("exit 2", "None"),
    ],
)
def test_content_is_what_libblkid_finds(
    disks: ModuleType, blkid: Path, script: str, words: str
) -> None:
    blkid.write_text(f"#!/bin/sh\n{script}\n")
    assert str(disks.content("/dev/sdz")) == words


def test_a_disk_that_can_not_be_read_is_not_blank(disks: ModuleType, blkid: Path) -> None:
    blkid.write_text("#!/bin/sh\necho 'error: /dev/sdz: Input/output error' >&2\nexit 4\n")
    with pytest.raises(disks.DiskError, match=r"blkid .*/dev/sdz: error: .*Input/output error"):
        disks.content("/dev/sdz")


def test_a_disk_whose_bytes_can_not_be_read_is_not_zero(disks: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(
        disks.DiskError, match=r"sdz can't be read \(.*\), so it is not .* `dmesg`$"
    ):
        disks.is_zero(str(tmp_path / "sdz"))


def test_a_program_that_is_missing_fails_or_hangs_is_one_sentence(disks: ModuleType) -> None:
    with pytest.raises(disks.DiskError, match="No such file or directory: '/nowhere/mkfs'"):
        disks.run("/nowhere/mkfs")
    with pytest.raises(disks.DiskError, match=r"^sh -c echo no >&2; exit 3: no$"):
        disks.run("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(disks.DiskError, match="timed out"):
        disks.run("sleep", "60", seconds=0.1)
    assert disks.run("sh", "-c", "echo yes; exit 3", codes=(0, 3)) == (3, "yes\n")


def test_a_device_may_come_late_but_must_come(disks: ModuleType, tmp_path: Path) -> None:
    device = tmp_path / "sdz"
    with pytest.raises(disks.DiskError, match=r"sdz: no such device; attach it$"):
        disks.wait_for(str(device), 0, "attach it")
    device.touch()
    disks.wait_for(str(device), 0, "attach it")


def installed(role: str, folder: Path) -> list[str]:
    """Write what a role has for FOLDER into a folder; return the names in the role's order."""
    variables = yaml.safe_load((ROLES / role / "vars/main.yml").read_text())[f"__{role}_files"]
    names = [Path(file["dest"]).name for file in variables if file["dest"].startswith(FOLDER)]
    for name in names:
        (source,) = (ROLES / role / "files").rglob(name)
        (folder / name).write_bytes(source.read_bytes())
    return names


def ask_for_help(program: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as an isolated one, which finds nothing by itself."""
    return subprocess.run(
        [sys.executable, "-IS", str(program), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("role", PROGRAMS)
def test_a_role_alone_installs_all_that_its_program_needs(role: str, tmp_path: Path) -> None:
    names = installed(role, tmp_path)
    program, answer, _ = PROGRAMS[role]
    # Before the program, so that a play that is killed leaves none without it.
    for needed in ("disks.py", *OTHERS.get(role, [])):
        assert names.index(needed) < names.index(program)
    done = ask_for_help(tmp_path / program)
    assert answer in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("role", "needed"),
    [(role, needed) for role in PROGRAMS for needed in ("disks.py", *OTHERS.get(role, []))],
)
@pytest.mark.parametrize("text", [None, "", "class DiskError(Exc", "\0" * 100])
def test_without_it_a_program_says_what_to_do(
    role: str, needed: str, text: str | None, tmp_path: Path
) -> None:
    installed(role, tmp_path)
    program, _, remedy = PROGRAMS[role]
    shared = tmp_path / needed
    shared.unlink()
    if text is not None:
        shared.write_text(text)
    done = ask_for_help(tmp_path / program)
    assert (done.returncode, done.stdout) == (1, "")
    *first, last = ["disks.py", *OTHERS.get(role, [])]
    names = " or ".join([", ".join(first), last] if first else [last])
    assert done.stderr.startswith(f"{tmp_path}/{names} is missing or damaged (")
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr


@pytest.mark.parametrize("link", [path for path in ROLES.rglob("*") if path.is_symlink()])
def test_links_of_roles_lead_to_files_of_the_collection(link: Path) -> None:
    target = link.resolve(strict=True)
    assert any(target.is_relative_to(folder) for folder in (ROLES, MODULE_UTILS, EXAMPLES))
    assert not link.readlink().is_absolute()


def test_there_is_one_file() -> None:
    copies = sorted(ROLES.rglob(SHARED.name))
    assert len(copies) == len(PROGRAMS)
    assert {path.resolve() for path in copies} == {SHARED}
