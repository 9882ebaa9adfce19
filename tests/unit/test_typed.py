"""All Python of the project but its tests is checked by `mypy --strict`: nothing is left out."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from host_python import ROOT, all_python, host_python, is_python
from mypy.main import process_options

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
OLDEST = "mypy --python-version 3.10"
"""The run for hosts."""


def given_to_mypy(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> set[str]:
    """What mypy reads when it is called so, by its own account."""
    monkeypatch.chdir(ROOT)
    sources, options = process_options([*arguments])
    assert options.strict_equality and options.disallow_untyped_defs
    assert not options.ignore_errors
    return {source.path for source in sources if source.path}


def test_all_python_is_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first = given_to_mypy(monkeypatch)
    second = given_to_mypy(monkeypatch, "--python-version", "3.10", *host_python())
    assert not first & second
    wanted = {name for name in all_python(ROOT) if not name.startswith("tests/")}
    assert wanted <= first | second
    # Programs without a suffix, modules that modules share, stand-ins.
    assert second >= {
        "ansible/plugins/module_utils/mount_keeper.py",
        "molecule/cephadm/stand_in/cluster.py",
        "muster_sandbox/fakecloud/backends/guest/usr/lib/fakecloud/startup-script",
        "roles/health/files/usr/local/sbin/muster-health",
        "roles/file_systems/files/disks.py",
    }
    assert (
        "muster_sandbox/containers/recipe/usr/lib/python3/dist-packages/compiled_once.py" in first
    )


def test_make_lint_makes_both_runs() -> None:
    recipe = MAKEFILE.partition("\nlint: ")[2].partition("\n.PHONY")[0]
    assert "\n\t@$(MYPY)\n" in recipe
    oldest = OLDEST.replace("mypy", "$(MYPY)")
    assert f"\n\t@{oldest} $$(python tests/host_python.py)\n" in recipe


def test_no_part_of_the_project_is_let_off() -> None:
    """Only what others wrote has settings of its own, and `ansible` that it may be called."""
    assert CONFIG["strict"] is True
    own = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"ansible", "pulumi"}
    for override in CONFIG["overrides"]:
        modules = override["module"]
        for module in [modules] if isinstance(modules, str) else modules:
            assert module.partition(".")[0] not in own
        assert not {"ignore_errors", "disallow_untyped_defs"} & override.keys()


UNTYPED = {
    "roles/new/files/usr/local/sbin/muster-new": "#!/usr/bin/python3 -IS\n",
    "roles/new/files/muster_new.py": "",
    "ansible/plugins/modules/new.py": "#!/usr/bin/python\n",
    "molecule/new/stand-in/usr/bin/new": "#!/usr/bin/env python3\n",
}
"""Programs without types, with their first lines."""

LATER = "roles/new/files/new_python.py"


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the run for hosts says of a checkout that has only what it must not have."""
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    untyped = "def double(number):\n    return 2 * number\n"
    planted = {name: head + untyped for name, head in UNTYPED.items()}
    planted[LATER] = "import tomllib\n\nprint(tomllib)\n"
    for name, text in planted.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    names = host_python(checkout)
    assert {*names} == {*planted}
    done = subprocess.run(
        [sys.executable, "-m", *OLDEST.split(), "--cache-dir", os.devnull, *names],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "head"), UNTYPED.items())
def test_a_program_without_types_is_noticed(complaints: str, name: str, head: str) -> None:
    line = 2 if head else 1
    assert f"{name}:{line}: error: Function is missing a type annotation" in complaints


def test_what_a_later_python_brought_is_noticed_in_a_host_s_program(complaints: str) -> None:
    assert re.search(f'^{LATER}:1: error: .*"tomllib"', complaints, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "head", "python"),
    [
        ("a.py", b"", True),
        ("a", b"#!/usr/bin/python3 -IS\n", True),
        ("a", b"#! /usr/bin/env python\n", True),
        ("a", b"#!/bin/sh\n# python\n", False),
        ("a", b"\x7fELF python\n", False),
        ("a", b"", False),
    ],
)
def test_python_is_known_by_its_suffix_or_first_line(
    tmp_path: Path, name: str, head: bytes, python: bool
) -> None:
    (tmp_path / name).write_bytes(head)
    assert is_python(tmp_path / name) is python
