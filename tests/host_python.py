"""Print the paths of the Python that hosts run with their own interpreter, for `make lint`.

That is all Python that git knows or would take, with suffix or without, except the tests and what
[tool.mypy] names in pyproject.toml.
"""
# ruff: noqa: T201

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests"


def is_python(path: Path) -> bool:
    """Whether a file is Python, by its suffix or its first line."""
    if path.suffix == ".py":
        return True
    with path.open("rb") as stream:
        return re.match(rb"#!.*\bpython3?\b", stream.readline(200)) is not None


def all_python(root: Path) -> list[str]:
    """Return all Python of a checkout; a link is left out, as the file itself is among them."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted({*listing.split("\0")} - {""})
    paths = {name: root / name for name in names}
    return [
        name
        for name, path in paths.items()
        if path.is_file() and not path.is_symlink() and is_python(path)
    ]


def host_python(root: Path = ROOT) -> list[str]:
    """Return what hosts run: neither a test nor among the files of [tool.mypy]."""
    with (root / "pyproject.toml").open("rb") as stream:
        roots = tomllib.load(stream)["tool"]["mypy"]["files"]
    return [
        name
        for name in all_python(root)
        # In a folder that it is given, mypy sees what ends in .py.
        if not (name.endswith(".py") and any(Path(name).is_relative_to(path) for path in roots))
        and not Path(name).is_relative_to(TESTS)
    ]


if __name__ == "__main__":
    print("\n".join(host_python()))
