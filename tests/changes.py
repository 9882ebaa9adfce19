"""What changed in the checkout, and its files, as git lists them."""

import os
import subprocess
from collections.abc import Collection
from pathlib import Path

from file_dependencies import FileDependencies

LISTED = ("--exclude-standard", "-z")


class UnknownRefError(Exception):
    """Git knows no such commit."""


def changed_since(root: Path, ref: str) -> list[str]:
    """Return the paths that changed since the branch left `ref`, and the untracked ones.

    Raises:
        UnknownRefError: there is no such commit, or no repository.

    """
    base = _git(root, "merge-base", ref, "HEAD").strip()
    # Not as a rename: its old path may have users too.
    paths = _git(root, "diff", "--name-only", "--no-renames", "-z", base).split("\0")
    return sorted({*paths, *_git(root, "ls-files", "--others", *LISTED).split("\0")} - {""})


def read(root: Path, changed: Collection[str] = ()) -> FileDependencies:
    """Read the repository; a removed file has no text."""
    paths = {*_git(root, "ls-files", "--cached", "--others", *LISTED).split("\0"), *changed} - {""}
    links = {
        path: os.path.relpath((root / path).parent / (root / path).readlink(), root)
        for path in paths
        if (root / path).is_symlink()
    }
    files = {path: "" if path in links else _text(root / path) for path in paths}
    return FileDependencies(files, links)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise UnknownRefError(done.stderr.strip())
    return done.stdout
