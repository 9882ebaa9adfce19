"""The map that autofs asks, and the program that looks whether a host mounts packed releases.

That autofs mounts by this map, tests/vm/test_packed_modules.py shows.
"""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from muster.render.releases import IMAGES

FILES = Path(__file__).parents[4] / "roles/lmod/files"
SPEC = importlib.util.spec_from_file_location(
    "muster_check_packed", FILES / "muster_check_packed.py"
)
assert SPEC is not None and SPEC.loader is not None
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)

NAME = "0123456789abcdef"
SERVED = f"31 29 0:28 / {program.PLACE} rw,relatime shared:2 - autofs /etc/auto rw,fd=6\n"


def test_all_that_know_the_places_name_the_same() -> None:
    """They are programs and data of two roles, which can be used without each other."""
    roles = FILES.parents[1]
    library = roles / "software/files/usr/local/lib/muster"
    place = f'RELEASES = "{program.PLACE}"'
    assert place in (library / "muster_build/packing.py").read_text()
    assert f"{program.PLACE} program:" in (roles / "lmod/vars/main.yml").read_text()
    assert f'{{self.apps}}/{IMAGES}"' in (library / "muster_software/settings.py").read_text()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / f"{NAME}.squashfs").touch()
    (folder / f"{NAME}.squashfs").chmod(0o644)
    (tmp_path / "images.txt").write_text(f"{folder}\n")
    return folder


def asked(tmp_path: Path, key: str) -> "subprocess.CompletedProcess[str]":
    """Ask the map, whose settings are in a file of the test."""
    text = (FILES / "packed-release").read_text()
    assert text.count("/etc/muster/images") == 1
    script = tmp_path / "map"
    script.write_text(text.replace("/etc/muster/images", f"{tmp_path}/images.txt"))
    return subprocess.run(
        ["/bin/sh", script, key], capture_output=True, text=True, timeout=10, check=False
    )


CHANGES = [
    pytest.param(
        lambda path: os.chown(path, 65534, 65534),
        id="its owner is another user",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away, as root"),
    ),
    pytest.param(lambda path: path.chmod(0o664), id="its group may write"),
    pytest.param(lambda path: path.chmod(0o646), id="all may write"),
]


class TestMap:
    def test_a_release_is_mounted_read_only_without_devices_and_set_uid_programs(
        self, tmp_path, images
    ):
        done = asked(tmp_path, NAME)
        assert (done.returncode, done.stderr) == (0, "")
        options, source = done.stdout.split()
        assert options == "-fstype=squashfs,loop,ro,nosuid,nodev"
        assert source == f":{images}/{NAME}.squashfs"

    @pytest.mark.parametrize(
        "key",
        [
            "",
            NAME[1:],
            f"{NAME}0",
            f"{NAME[:-1]}G",
            f"{NAME[:-2]}/.",
            f"{NAME}\t:/home/ada/evil",
            f"{NAME[:8]} -fstype",
            "../images/012345",
            "$(id)           ",
        ],
    )
    def test_any_other_name_is_nothing_even_if_there_is_such_a_file(self, tmp_path, images, key):
        path = images / f"{key}.squashfs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(0o644)
        done = asked(tmp_path, key)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")

    @pytest.mark.usefixtures("images")
    def test_a_release_that_is_not_there_is_nothing(self, tmp_path):
        done = asked(tmp_path, "f" * 16)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_file_that_others_could_write_is_not_mounted(self, tmp_path, images, change):
        change(images / f"{NAME}.squashfs")
        done = asked(tmp_path, NAME)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")

    @pytest.mark.usefixtures("images")
    def test_without_settings_there_is_nothing(self, tmp_path):
        (tmp_path / "images.txt").unlink()
        assert (asked(tmp_path, NAME).returncode, asked(tmp_path, NAME).stdout) == (1, "")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What autofs would mount, on a host whose kernel has squashfs."""
    folder = tmp_path / "releases"
    (folder / NAME).mkdir(parents=True)
    monkeypatch.setattr(program, "has_squashfs", lambda: True)
    return folder


def faults(images: Path, place: Path, served: str = SERVED) -> list[str]:
    return list(program.faults(str(images), str(place), served.replace(program.PLACE, str(place))))


class TestCheck:
    def test_a_host_that_mounts_the_newest_is_well(self, images, place):
        assert faults(images, place) == []

    def test_without_releases_there_is_nothing_to_mount(self, tmp_path, images, place):
        (images / f"{NAME}.squashfs").rename(images / f"{NAME}.squashfs.new")
        assert faults(images, place) == []
        assert faults(tmp_path / "none", place) == []

    def test_a_mount_with_a_strange_name_hides_no_other(self, images, place):
        row = "36 24 0:31 / /tmp/.\r\x85\xa0\u2028\udcff\x1f rw - fuse.x\r  rw,user_id=20077\n"
        assert faults(images, place, row + SERVED) == []
        assert faults(images, place, row) != []

    def test_a_kernel_without_squashfs_is_named(self, images, place, monkeypatch):
        monkeypatch.setattr(program, "has_squashfs", lambda: False)
        [said] = faults(images, place)
        assert "has no squashfs" in said
        assert "boot the distribution's own kernel" in said

    def test_a_host_whose_autofs_does_not_run_is_told_so(self, images, place):
        [said] = faults(images, place, SERVED.replace("autofs", "tmpfs"))
        assert said.startswith(f"autofs does not serve {place}, so modules with `form: squashfs`")

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_file_that_others_could_write_is_named(self, images, place, change):
        change(images / f"{NAME}.squashfs")
        [said] = faults(images, place)
        assert said.startswith(f"{images}/{NAME}.squashfs is not mounted on this host, since other")

    def test_a_release_that_can_not_be_mounted_is_named(self, images, place):
        (place / NAME).rmdir()
        [said] = faults(images, place)
        assert said.startswith(f"{images}/{NAME}.squashfs can't be mounted on this host: No such")
