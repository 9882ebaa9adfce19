# SPDX-License-Identifier: Apache-2.0
"""Paths of a model's files below its folder, and names of models."""

import re
from collections.abc import Collection

from muster_models.errors import ModelsError

_LONGEST_NAME = 96
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def leads_below(path: str) -> bool:
    """Whether a path leads to something below a folder, and not to the folder or elsewhere."""
    parts = path.split("/")
    is_wrong = any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts)
    return not is_wrong and path.isprintable()


def checked(path: str, where: str) -> str:
    """Return a path below a folder as it is. Raises ModelsError if it leads elsewhere."""
    if not leads_below(path):
        raise ModelsError(
            f"{where} has a file {path!r}, which can't be a path below a folder; rename it there"
        )
    return path


def refuse_file_and_folder(paths: Collection[str], where: str) -> None:
    """Raise ModelsError where one of the paths is a folder of another one."""
    files = set(paths)
    for path in paths:
        folder = path
        while folder := folder.rpartition("/")[0]:
            if folder in files:
                raise ModelsError(
                    f"{where} has a file {folder!r} and a folder of that name, which a file system "
                    "can't have both; rename one of them there"
                )


def model_name(name: str) -> str:
    """Return the name of a model as it is. Raises ModelsError if the hub's client refuses it.

    The rules are those of huggingface_hub (validate_repo_id).
    """
    parts = name.split("/")
    is_name = (
        len(parts) <= 2
        and all(_PART.fullmatch(part) for part in parts)
        and len(name) <= _LONGEST_NAME
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )
    if not is_name:
        raise ModelsError(
            f'"{name}" can\'t be the name of a model; write NAME or TEAM/NAME of letters, digits '
            f"and single _ - . between them, {_LONGEST_NAME} characters at most"
        )
    return name
