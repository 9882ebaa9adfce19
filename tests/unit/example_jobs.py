"""Programs of examples/ as a job or a user starts them, with stand-ins for SLURM's programs."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from documentation import ROOT

EXAMPLES = ROOT / "examples"


def copy(name: str, folder: Path) -> Path:
    """Copy an example as a user does; return where it is."""
    return Path(shutil.copytree(EXAMPLES / name, folder / name))


def module(name: str, program: str) -> ModuleType:
    """Import a program of an example."""
    spec = importlib.util.spec_from_file_location(program, EXAMPLES / name / f"{program}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def stand_in(folder: Path, name: str, script: str) -> None:
    """Put a program of SLURM's into the folder `programs`; its words go to a file beside it."""
    program = folder / "programs" / name
    program.parent.mkdir(exist_ok=True)
    log = folder / f"{name}.log"
    program.write_text(f'#!/bin/bash\necho "$*" >>"{log}"\n{script}\n', encoding="utf-8")
    program.chmod(0o755)


def called(folder: Path, name: str) -> list[str]:
    """Return the words of each call of a stand-in."""
    log = folder / f"{name}.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment in which the stand-ins are found first, and python3 is this one."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    python = programs / "python3"
    if not python.exists():
        python.symlink_to(sys.executable)
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), **variables}


def run(
    folder: Path, *words: str, timeout: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of an example; its stand-ins are in the folder above."""
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(folder.parent, **variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
