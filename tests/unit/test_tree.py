"""What must not be where: names that shadow packages, and tests in what they test."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMESAKES = ["pulumi", "ansible", "molecule"]
"""Folders called like packages that the project imports."""


def sources(folder: str, pattern: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob(pattern) if ".ansible" not in path.parts]


@pytest.mark.parametrize("folder", [*NAMESAKES, "tests"])
def test_no_folder_shadows_a_package(folder):
    """With an __init__.py, `import ansible` in the root would give the folder."""
    assert sources(folder, "__init__.py") == []


@pytest.mark.parametrize("folder", NAMESAKES)
def test_no_tests_where_pytest_would_register_a_namespace(folder):
    assert sources(folder, "test_*.py") + sources(folder, "*_test.py") == []


@pytest.mark.parametrize("name", ["ansible", "molecule"])
def test_packages_are_importable_from_the_root(name):
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}; print({name}.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "site-packages" in done.stdout


def test_roles_and_plays_know_nothing_of_the_test_machines():
    """What a container needs lives in its image or its inventory: the same roles run on metal."""
    word = re.compile(r"\b(containers?|podman|docker|molecule|testinfra)\b", re.IGNORECASE)
    mentions = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("roles", "ansible")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
        # Ceph's own way runs its daemons in containers, on metal as well; jobs have some of users.
        if "cephadm" not in path.name and not {"cephadm", "containers"} & {*path.parts}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(re.sub(r"(Run |name: )containers\b", "", line))
    ]
    assert mentions == []
