"""That the role alone installs all that its programs import, before them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROLE = Path(__file__).parents[4] / "roles/software"
FILES = ROLE / "files"
FOLDER = "{{ __software_lib }}/"
ENTRIES = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__software_files"]
NAMES = [file["dest"].removeprefix(FOLDER) for file in ENTRIES if file["dest"].startswith(FOLDER)]
"""What is beside each other on a host, in the order in which it is written."""

LINKS = {
    Path(file["dest"]).name: file["target"].removeprefix(FOLDER)
    for file in ENTRIES
    if file.get("state") == "link"
}
"""Command -> its program."""


def imported(name: str) -> set[str]:
    """Return the role's own files that one of them imports."""
    tree = ast.parse((FILES / name).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {f"{module}.py" for module in modules if (FILES / f"{module}.py").exists()}


def test_what_a_program_imports_is_written_before_it() -> None:
    assert [*LINKS] == ["muster-build", "muster-software"]
    for number, name in enumerate(NAMES):
        assert imported(name) <= {*NAMES[:number]}, name
    assert {*NAMES} == {*LINKS.values()}.union(*map(imported, LINKS.values()))


@pytest.mark.parametrize("command", LINKS)
def test_a_command_finds_what_is_beside_its_program(command: str, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in NAMES:
        (tmp_path / "lib" / name).write_bytes((FILES / name).read_bytes())
    (tmp_path / command).symlink_to(f"lib/{LINKS[command]}")
    done = subprocess.run(
        [sys.executable, str(tmp_path / command), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {command} ")
