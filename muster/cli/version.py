"""`muster --version`."""

import subprocess
from pathlib import Path

from muster import __version__

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, where Muster runs from one."""
GIT_SECONDS = 10


def version() -> str:
    """Return Muster's version, with the commit of a checkout: `muster 0.1.0 (4692e3c)`."""
    commit = _commit() if (ROOT / ".git").exists() else ""
    return f"muster {__version__}" + (f" ({commit})" if commit else "")


def _commit() -> str:
    """Return what git calls this checkout, with `-dirty` if a file differs; "" without git."""
    commit = _git("describe", "--always", "--exclude=*")
    # `describe --dirty` would write git's index, and leave a lock behind where that fails.
    changed = commit and _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
