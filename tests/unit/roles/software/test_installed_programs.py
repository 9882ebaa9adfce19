"""That the role alone installs all that its programs import, before them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROLE = Path(__file__).parents[4] / "roles/software"
FILES = ROLE / "files"
LIBRARY = "/usr/local/lib/muster"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
ENTRIES, OF_UV = VARIABLES["__software_files"], VARIABLES["__software_uv_files"]
INSTALLED = [file["dest"] for file in ENTRIES if (FILES / file["dest"].removeprefix("/")).is_file()]
"""Programs and what they import, in the order in which they are written."""

COMMANDS = [path for path in INSTALLED if path.startswith("/usr/local/sbin/")]


def imported(path: str) -> set[str]:
    """Return what a file imports of the role's own files."""
    tree = ast.parse((FILES / path.removeprefix("/")).read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = [f"{LIBRARY}/{name.replace('.', '/')}" for name in names]
    found = {path for stem in paths for path in (f"{stem}.py", f"{stem}/__init__.py")}
    return {path for path in found if (FILES / path.removeprefix("/")).is_file()}


def test_each_file_is_installed_from_the_place_that_it_has_on_a_host() -> None:
    below = [path for path in (FILES / "usr").rglob("*") if path.is_file()]
    own = {f"/{path.relative_to(FILES)}" for path in below if "__pycache__" not in path.parts}
    assert {*INSTALLED, *(file["dest"] for file in OF_UV)} == own
    for file in [*ENTRIES, *OF_UV]:
        if file["dest"] in own:
            assert f"'{file['dest'].removeprefix('/')}'" in file["content"]


def test_a_program_is_written_after_all_that_it_imports() -> None:
    assert [Path(path).name for path in COMMANDS] == ["muster-build", "muster-software"]
    needed, ahead = {*COMMANDS}, [*COMMANDS]
    while ahead:
        new = imported(ahead.pop()) - needed
        needed |= new
        ahead += new
    packages = {path for path in INSTALLED if path.endswith("/__init__.py")}
    assert needed | packages == {*INSTALLED}
    assert INSTALLED[-len(COMMANDS) :] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_finds_what_is_installed(command: str, tmp_path: Path) -> None:
    for path in INSTALLED:
        copy = tmp_path / path.removeprefix("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = (FILES / path.removeprefix("/")).read_text(encoding="utf-8")
        copy.write_text(
            text.replace(f'path.insert(0, "{LIBRARY}', f'path.insert(0, "{tmp_path}{LIBRARY}')
        )
    done = subprocess.run(
        [sys.executable, "-I", f"{tmp_path}{command}", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {Path(command).name} ")
