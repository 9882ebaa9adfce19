"""What was built is packed into one file; builds see the packed releases that they need."""

import json
import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from build_kit import left, put, until, with_constant

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to an account, as root")

MKSQUASHFS = """[ -e "$2" ] && { echo "$2 is there already" >&2; exit 1; }
(cd "$1" && find . -type f) >"$2"; echo "$@" >>"$(dirname "$0")/packed" """

NAME = "0123456789abcdef"


@dataclass
class Packing:
    """A folder of programs with its images, and what autofs would mount."""

    apps: Path
    programs: Path
    command_line: list[str]

    @property
    def root(self) -> Path:
        return self.apps / "tool" / NAME

    @property
    def image(self) -> Path:
        return self.apps / f"images/{NAME}.squashfs"

    def run(self, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
        words = [f"--image={self.image}", *options, str(self.root), command]
        return subprocess.run(
            [*self.command_line, *words], capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def packing(command_line: list[str], apps: Path, programs: Path, tmp_path: Path) -> Packing:
    put(programs / "mksquashfs", MKSQUASHFS)
    (tmp_path / "releases" / NAME).mkdir(parents=True)
    constants = (
        f"packing.RELEASES = '{tmp_path}/releases'\npacking.KNOWN_SECONDS = 1\n"
        f"programs.PATH = '{programs}:' + programs.PATH"
    )
    return Packing(apps, programs, with_constant(command_line, constants))


def test_what_was_built_is_packed_and_the_folder_is_a_link_to_where_hosts_mount_it(
    packing: Packing, tmp_path: Path
) -> None:
    root = packing.root
    verify = f"stat -c %F {root}; cat {root}/what"
    done = packing.run(f"echo works >{root}/what", "--verify", verify)
    assert (done.returncode, done.stdout, done.stderr) == (0, "directory\nworks\n", "")
    assert root.readlink() == tmp_path / "releases" / NAME
    assert packing.image.read_text() == "./what\n"
    assert stat.S_IMODE(packing.image.stat().st_mode) == 0o644
    assert left(packing.apps) == ["images", f"images/{NAME}.squashfs", "tool", f"tool/{NAME}"]
    # Python compares the time of a module with that in its compiled file.
    options = (packing.programs / "packed").read_text()
    assert "-mkfs-time 0" in options
    assert "-all-time" not in options


def test_what_autofs_did_not_know_a_moment_ago_is_waited_for(
    packing: Packing, tmp_path: Path
) -> None:
    # As after somebody has asked for the release before it was there.
    place = tmp_path / "releases" / NAME
    later = f"rmdir {place}; (sleep 0.3; mkdir {place}) >/dev/null 2>&1 &"
    put(packing.programs / "mksquashfs", f"{MKSQUASHFS}\n{later}")
    done = packing.run(f"touch {packing.root}/x")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_release_whose_file_has_gone_is_built_again(packing: Packing) -> None:
    assert packing.run(f"touch {packing.root}/x").returncode == 0
    again = packing.run("true")
    assert f"{packing.root} is there already; remove it" in again.stderr
    packing.image.unlink()
    done = packing.run(f"touch {packing.root}/y")
    assert (done.returncode, done.stderr) == (0, "")
    assert packing.image.read_text() == "./y\n"


CAN_T_PACK = {
    "mksquashfs fails": (
        {"mksquashfs": "echo half >$2; echo Probably out of space >&2; exit 1"},
        "Probably out of space",
    ),
    "no room": (
        {"du": "echo 99999999999999999 /x"},
        "MiB left, and needs 95367432664 MiB, of which",
    ),
    "autofs does not run": (
        {"mksquashfs": f"{MKSQUASHFS}; rmdir $(dirname $0)/../releases/*"},
        "does not mount",
    ),
}


@pytest.mark.parametrize("case", CAN_T_PACK)
def test_what_can_not_be_packed_leaves_nothing_and_says_why(packing: Packing, case: str) -> None:
    programs, said = CAN_T_PACK[case]
    for name, text in programs.items():
        put(packing.programs / name, text)
    failed = packing.run(f"touch {packing.root}/x")
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        f"{packing.root} was built, but can't be packed into {packing.image}, so it was removed"
    )
    assert said in failed.stderr
    assert left(packing.apps) == ["images", "tool"]


def test_a_quota_that_only_the_server_knows_is_named(packing: Packing) -> None:
    # Over NFS a write succeeds and fsync fails; its error names no file.
    full = "def full(_): raise OSError(122, 'Disk quota exceeded')\npacking.sync = full"
    packing.command_line = with_constant(packing.command_line, full)
    failed = packing.run(f"touch {packing.root}/x")
    assert failed.returncode == 1
    assert f"is not published: {packing.image}: Disk quota exceeded; run again" in failed.stderr
    assert left(packing.apps) == ["images", "tool"]


def test_without_mksquashfs_nothing_is_built(
    packing: Packing, command_line: list[str], tmp_path: Path
) -> None:
    packing.command_line = with_constant(command_line, "programs.PATH = '/nowhere'")
    refused = packing.run(f"touch {tmp_path}/started")
    assert refused.returncode == 1
    assert "was not built, since this host has no mksquashfs to pack it; install" in refused.stderr
    assert not (tmp_path / "started").exists()
    assert left(packing.apps) == []


@pytest.mark.parametrize("when", ["in the middle", "when the file is there"])
def test_packing_that_was_killed_is_done_again(packing: Packing, when: str) -> None:
    kill = "kill -9 $(ps -o ppid= $$); sleep 1"
    put(packing.programs / "mksquashfs", f"echo half >$2; {kill}")
    if when == "when the file is there":
        put(packing.programs / "mksquashfs", MKSQUASHFS)
        put(packing.programs / "rm", f"case $* in *.new) exec /bin/rm $*;; *) {kill};; esac")
    assert packing.run(f"touch {packing.root}/x").returncode != 0
    assert Path(f"{packing.root}.building").exists()
    put(packing.programs / "mksquashfs", MKSQUASHFS)
    (packing.programs / "rm").unlink(missing_ok=True)
    until(lambda: packing.run(f"touch {packing.root}/y").returncode == 0)
    assert packing.image.read_text() == "./y\n"
    assert left(packing.apps) == ["images", f"images/{NAME}.squashfs", "tool", f"tool/{NAME}"]


def test_a_build_sees_the_packed_releases_that_it_names_and_what_they_are_built_on(
    packing: Packing, tmp_path: Path
) -> None:
    # As long as somebody is in it, autofs takes no release away.
    base, above = (
        packing.apps / name / (digit * 16) for name, digit in (("base", "1"), ("above", "2"))
    )
    for root in (base, above):
        there = tmp_path / "releases" / root.name
        there.mkdir()
        root.parent.mkdir()
        root.symlink_to(there)
    Path(f"{base}.json").write_text('{"built_on": []}')
    Path(f"{above}.json").write_text(json.dumps({"built_on": [str(base)]}))
    root = packing.root
    shown = packing.run(
        f": {above}/bin/python; ls -l /proc/*/fd >{root}/open 2>&1 || true; cat {root}/open"
    )
    assert shown.returncode == 0, shown.stderr
    for release in (base, above):
        assert f"-> {tmp_path}/releases/{release.name}\n" in shown.stdout
    (tmp_path / "releases" / base.name).rmdir()
    Path(packing.root).unlink()
    refused = packing.run(f": {above}/bin/python")
    assert refused.returncode == 1
    assert (
        f"this host does not mount {tmp_path}/releases/{base.name}: No such file" in refused.stderr
    )
