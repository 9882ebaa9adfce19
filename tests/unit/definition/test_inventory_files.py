"""Which files of an inventory's folder count: the same as for Ansible, and none in silence."""

import configparser
import os
import re
from pathlib import Path

import pytest
from ansible import constants
from ansible.inventory import manager
from ansible.parsing.dataloader import DataLoader

from muster.definition import inventory_files, sources
from muster.definition.inventory_files import variable_files
from muster.definition.loading import examine

ROOT = Path(__file__).resolve().parents[3]
BASE = Path(__file__).parent / "base"

TREE = [
    "group_vars/all/cluster.yml",
    "group_vars/all/more/own.yaml",
    "group_vars/all/more/deep/own",
    "group_vars/all/old.d/own.yml",
    "group_vars/all/own.json",
    "group_vars/all/own.yml~",
    "group_vars/all/.own.yml",
    "group_vars/all/notes.md",
    "group_vars/all.yml",
    "group_vars/gpu.yaml",
    "group_vars/gpu.json",
    "group_vars/cpu",
    "host_vars/one.yml",
    "host_vars/one/own.yml",
    "host_vars/two.ini",
]


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a: 1\n")


def test_files_with_variables_are_those_that_ansible_reads(tmp_path: Path) -> None:
    made(tmp_path, *TREE)
    loader = DataLoader()
    owners = [("group_vars", name) for name in ("all", "gpu", "cpu")]
    owners += [("host_vars", name) for name in ("one", "two")]
    seen = {
        Path(file)
        for folder, name in owners
        for file in loader.find_vars_files(str(tmp_path / folder), name)
    }
    found = variable_files(tmp_path)
    assert set(found.files) == seen
    assert {str(t.path.relative_to(tmp_path)): t.kind for t in found.troubles} == dict.fromkeys(
        ["group_vars/all.yml", "group_vars/gpu.json", "group_vars/all/old.d", "host_vars/one.yml"],
        "file-never-read",
    )


@pytest.mark.parametrize(
    "name",
    ["more.yml", "hosts", "old", "inventory.ini", "script.sh", "x.yaml", "site.json"]
    + [f"x{ending}" for ending in inventory_files.NO_LIST_ENDINGS]
    + [*inventory_files.NO_LISTS, ".machines"],
)
def test_lists_of_hosts_are_what_ansible_takes_for_them(name: str, tmp_path: Path) -> None:
    made(tmp_path, name)
    config = configparser.ConfigParser()
    config.read(ROOT / "ansible.cfg")
    patterns = config["inventory"]["ignore_patterns"].split(",")
    ours = any(re.search(pattern.strip(), name) for pattern in patterns)
    ignored = ours or manager.IGNORED.search(name.encode())
    assert inventory_files.further_lists(tmp_path, "hosts.yml") == ([] if ignored else [name])


def test_the_endings_are_ansible_s() -> None:
    own = {".deb"}  # by a pattern of ansible.cfg
    assert set(inventory_files.NO_LIST_ENDINGS) == set(constants.INVENTORY_IGNORE_EXTS) | own
    assert set(inventory_files.ENDINGS) == set(constants.YAML_FILENAME_EXTENSIONS)


def test_a_folder_that_a_link_leads_back_to_has_an_error(tmp_path: Path) -> None:
    made(tmp_path, "group_vars/all/own.yml", "group_vars/all/more/own.yml")
    (tmp_path / "group_vars/all/more/back").symlink_to("..")
    (tmp_path / "group_vars/all/more/again").symlink_to(tmp_path)
    (tmp_path / "host_vars").symlink_to("host_vars")
    found = variable_files(tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in found.files] == [
        "group_vars/all/more/own.yml",
        "group_vars/all/own.yml",
    ]
    assert {trouble.path.name for trouble in found.troubles} == {"back", "again", "host_vars"}


def test_a_folder_that_a_link_leads_to_is_read(tmp_path: Path) -> None:
    """As Ansible does: variables that many clusters share."""
    made(tmp_path, "elsewhere/own.yml", "lab/group_vars/all/cluster.yml")
    (tmp_path / "lab/group_vars/all/shared").symlink_to("../../../elsewhere")
    found = variable_files(tmp_path / "lab")
    assert "shared" in [file.parent.name for file in found.files]
    assert found.troubles == []


@pytest.mark.parametrize("folder", ["group_vars", "group_vars/all", "group_vars/gpu", "host_vars"])
def test_a_folder_that_can_t_be_read_is_one_error(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("hosts.yml", "group_vars/all/cluster.yml"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((BASE / file).read_text())
    made(tmp_path, "group_vars/gpu/own.yml", "host_vars/base-ctl.yml")
    refused = tmp_path / folder
    real_stat, real_scandir = Path.stat, os.scandir

    # Root, as whom tests may run, is refused nothing.
    def stat(path: Path, **options: bool) -> os.stat_result:
        if refused in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return real_stat(path, **options)

    def scandir(path: Path) -> "os._ScandirIterator[str]":
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return real_scandir(path)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(inventory_files.os, "scandir", scandir)
    _, problems = examine(sources.read(tmp_path, frozenset(), {}))
    assert [problem.check for problem in problems] == ["file-unreadable"]
    assert "permission denied" in str(problems[0])
    wanted = "group_vars/all/cluster.yml" if folder in ("group_vars", "group_vars/all") else folder
    assert problems[0].file == str(tmp_path / wanted)
