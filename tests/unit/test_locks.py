"""The locks: all that the project needs, and of it what a VM of a cluster and some hosts need."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)


def entries(lock: str) -> dict[str, str]:
    """Package -> its version and hashes; without its marker: more is asked for by more."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return {
        match["name"]: re.sub(r" ;.*(?= \\\n)", "", match["rest"]) for match in ENTRY.finditer(text)
    }


def names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace(".", "-")
        for requirement in requirements
    }


def test_the_lock_of_vms_is_a_part_of_the_whole() -> None:
    whole, part = entries("requirements.txt"), entries("requirements-vm.txt")
    assert len(part) > 20
    assert {name: whole.get(name) for name in part} == part
    assert all("--hash=sha256:" in rest for rest in part.values())


@pytest.mark.parametrize(
    "lock",
    [
        "roles/models/files/usr/local/lib/muster/muster_models/requirements.txt",
        "roles/software/files/usr/local/lib/muster/uv.txt",
    ],
)
def test_a_host_gets_a_version_that_the_tests_have(lock: str) -> None:
    whole, part = entries("requirements.txt"), entries(lock)
    assert part
    assert {name: whole.get(name) for name in part} == part


def project_of(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]


def test_a_vm_gets_what_it_needs_and_nothing_of_a_laptop() -> None:
    project = project_of("pyproject.toml")
    part = entries("requirements-vm.txt").keys()
    assert names(project["dependencies"]) <= part
    # cryptography is in both: ansible-core needs it.
    extras = project["optional-dependencies"]
    assert names(extras["laptop"]) & part == {"cryptography"}
    assert names(extras["dev"]) & part == set()
    assert names(project_of("muster_sandbox/pyproject.toml")["dependencies"]) & part == {
        "cryptography"
    }


def test_what_the_stand_ins_need_is_in_the_lock() -> None:
    needed = names(project_of("muster_sandbox/pyproject.toml")["dependencies"])
    assert needed <= entries("requirements.txt").keys()
