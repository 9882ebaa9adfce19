# SPDX-License-Identifier: Apache-2.0
"""Whether the program and what it imports are there, before it is started many times."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from muster_launch.errors import LaunchError

FRAMEWORKS = (
    "torch",
    "tensorflow",
    "jax",
    "keras",
    "lightning",
    "transformers",
    "mpi4py",
    "horovod",
)
"""What modules of the cluster have, by the names under which Python imports them."""

_TRY = """
import importlib.util, sys
sys.path.insert(0, sys.argv[1])
found = {name: importlib.util.find_spec(name) for name in sys.argv[2:]}
# Any folder of that name is one too, without an origin.
print(*[name for name, spec in found.items() if spec is None or spec.origin is None])
"""
_TRY_TIMEOUT_S = 60


def program(command: Sequence[str]) -> str:
    """Return the path of a command's program.

    Raises:
        LaunchError: there is none.

    """
    found = shutil.which(command[0])
    if found is None and Path(command[0]).is_file():
        raise LaunchError(
            f"{command[0]} is no program: type the one that runs it first (python, bash), or type "
            f"chmod +x {command[0]} and name it by its path, such as "
            f"./{os.path.basename(command[0])}"
        )
    if found is None:
        raise LaunchError(
            f"{command[0]} is not there: load the module that has it (module load, before srun), "
            "or name it by its path"
        )
    return found


def script_of(command: Sequence[str]) -> Path | None:
    """Return the Python script that a command runs, if it says so in the simplest way."""
    if not re.fullmatch(r"python[0-9.]*", os.path.basename(command[0])):
        return None
    words = [word for word in command[1:] if not word.startswith("-")][:1]
    return Path(words[0]) if words and words[0].endswith(".py") else None


def imports(text: str) -> list[str]:
    """Return the frameworks that a script imports when it is started.

    Imports in `try` are not among them: the script may do without. Nothing for a text that is no
    Python: its own interpreter says why.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    tops = [name.partition(".")[0] for name in names]
    return [name for name in FRAMEWORKS if name in tops]


def check(interpreter: str, script: Path) -> None:
    """Check that the script and the frameworks that it imports are there.

    A script that names further folders of modules finds there what is not looked for here.

    Raises:
        LaunchError: one is not.

    """
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LaunchError(
            f"{script} can't be read here ({error.strerror}): name it by a path in a folder that "
            "all nodes have, such as your home"
        ) from error
    wanted = imports(text)
    if not wanted or "sys.path" in text or "site.addsitedir" in text:
        return
    try:
        done = subprocess.run(
            [interpreter, "-c", _TRY, str(script.parent), *wanted],
            capture_output=True,
            text=True,
            timeout=_TRY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return  # a slow file system; the program itself will tell
    missing = done.stdout.split() if done.returncode == 0 else []
    if missing:
        raise LaunchError(
            f"{script} imports {' and '.join(missing)}, which {interpreter} does not have: load "
            "the module that has it (module avail, module load), before srun"
        )
