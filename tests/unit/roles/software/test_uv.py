"""On which hosts uv is installed, and from where: what the role does with its variables."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

ROLE = Path(__file__).parents[4] / "roles/software"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
TASKS = yaml.safe_load((ROLE / "tasks/configure.yml").read_text(encoding="utf-8"))


def value(name: str, lock: str = "uv==1", **given: Any) -> Any:
    """Return what a variable of the role is on a host."""
    environment = NativeEnvironment()
    environment.filters["hash"] = lambda text, _: f"hash-of-{text}"
    variables: dict[str, Any] = {"lookup": lambda *_, **__: lock, **given}
    for needed in ("__software_builds_environments", "__software_uv"):
        if needed != name and needed in VARIABLES[name]:
            variables[needed] = value(needed, lock, **given)
    return environment.from_string(VARIABLES[name]).render(variables)


@pytest.mark.parametrize(
    ("installations", "environments"),
    [
        ([], False),
        ([{"root": "/a", "build": "make"}, {"root": "/b", "requirements": None}], False),
        ([{"root": "/a"}, {"root": "/b", "requirements": "a==1"}], True),
        # An administrator builds it by hand.
        ([{"root": "/b", "build": None, "requirements": "a==1"}], True),
    ],
)
def test_it_is_where_an_environment_is_built(
    installations: list[dict[str, Any]], environments: bool
) -> None:
    given: dict[str, Any] = {
        "software_installations": installations,
        # As Muster renders it.
        "software_build_packages": ("curl",),
    }
    assert value("__software_builds_environments", **given) is environments
    packages = ["curl", "python3-venv"] if environments else ["curl"]
    assert value("__software_packages", **given) == packages


def test_another_lock_gets_another_folder() -> None:
    assert value("__software_uv") == "/opt/muster-uv/hash-of-uv==1"
    assert value("__software_uv", "uv==2") == "/opt/muster-uv/hash-of-uv==2"


def test_it_comes_from_a_folder_where_one_is_named() -> None:
    words = value("__software_uv_command", software_uv_wheels="")
    assert words[:4] == [
        "/usr/local/lib/muster/install-locked",
        "/opt/muster-uv/hash-of-uv==1",
        "/usr/local/lib/muster/uv.txt",
        "uv",
    ]
    assert len(words) == 5
    more = value("__software_uv_command", software_uv_wheels="/data/wheels")
    assert more[:4] == words[:4]
    assert more[4] == "put the wheel that uv.txt names into /data/wheels"
    assert more[5:] == ["--no-index", "--find-links", "/data/wheels"]


def test_what_installs_it_is_written_before_and_builds_come_after() -> None:
    names = [name for task in TASKS for name in task if name.startswith(("muster", "ansible"))]
    files, program, build = (
        names.index(name, 1)
        for name in (
            "muster.slurm.managed_files",
            "ansible.builtin.command",
            "muster.slurm.software_build",
        )
    )
    assert files < program < build
    (task,) = [task for task in TASKS if "ansible.builtin.command" in task]
    assert task["ansible.builtin.command"] == {
        "argv": "{{ __software_uv_command }}",
        "creates": "{{ __software_uv }}",
    }
    # `muster software build` runs the tasks of this tag alone.
    assert task["tags"] == TASKS[names.index("muster.slurm.software_build")]["tags"]
