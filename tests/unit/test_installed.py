"""What makes another image of a machine that has what the roles install."""

import shutil
from pathlib import Path

import installed
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ansible", "roles"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    for name in ("ansible.cfg", "requirements-vm.txt"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    monkeypatch.setattr(installed, "CONFIG", tmp_path / "ansible.cfg")
    return tmp_path


def test_each_release_has_its_image(checkout):
    names = [installed.tag(release) for release in installed.base_image.RELEASES]
    assert len(set(names)) == len(names)
    assert names == [installed.tag(release) for release in installed.base_image.RELEASES]


@pytest.mark.parametrize(
    ("path", "another"),
    [
        ("roles/munge/tasks/install.yml", True),
        ("ansible/plugins/modules/managed_packages.py", True),
        ("ansible/image.yml", True),
        ("ansible.cfg", True),
        ("roles/munge/tasks/configure.yml", False),
        ("roles/munge/README.md", False),
        ("ansible/site.yml", False),
    ],
)
def test_it_changes_with_what_is_installed(checkout, path, another):
    before = installed.tag("bookworm")
    with (checkout / path).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert (installed.tag("bookworm") != before) is another
