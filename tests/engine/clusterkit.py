"""Muster's own program in tests: a copy of the checkout, a definition, and a cloud."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

ROOT = Path(__file__).parents[2]
CLUSTER = "slurm10"
PROJECT = "/compute/v1/projects/demo-project"
ZONE = f"{PROJECT}/zones/europe-west4-a"
NEEDED = ("ansible", "ansible.cfg", "muster", "pulumi", "requirements-vm.txt", "roles")
"""The parts of the checkout that `pulumi up` reads."""


@dataclass
class Definition:
    """The inventory of the cluster, which a test changes."""

    file: Path

    @property
    def inventory(self) -> Path:
        """Its folder."""
        return self.file.parents[2]

    def change(self, work: Callable[[dict], None]) -> None:
        """Change the mapping `cluster`."""
        whole = yaml.safe_load(self.file.read_text())
        work(whole["cluster"])
        self.file.write_text(yaml.safe_dump(whole))


def check_out(folder: Path) -> None:
    """Copy these parts of the checkout into a folder, over existing files."""
    ignore = shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml")
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, folder)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(sys.prefix)


def names(outside: httpx.Client, path: str) -> list[str]:
    """Names of a list's resources."""
    return sorted(item["name"] for item in items(outside, path))


def items(outside: httpx.Client, path: str) -> list[dict]:
    """A list's resources."""
    listed = outside.get(path)
    assert listed.status_code == 200, listed.text
    return list(listed.json().get("items", []))
