"""The command that looks whether a release works before it is published; pure.

It runs as the account that builds, closed off in the same way (role `software`).
"""

import shlex
from collections.abc import Iterable, Sequence

from muster.render.releases import Release

PROGRAM = "/usr/local/sbin/muster-check-release"
"""Of the role software."""


def command(
    release: Release,
    imports: Sequence[str],
    variables: Iterable[tuple[str, str]],
    folders: Iterable[tuple[str, str]],
) -> str:
    """Return the command.

    Args:
        release: What is looked at.
        imports: Python packages that must be importable.
        variables: Variables and values that the module and what it depends on set.
        folders: Variables of paths, each with a folder that they put in front, in their order.

    """
    words = [f"export {name}={shlex.quote(value)}" for name, value in variables]
    words += [
        f'export {name}={shlex.quote(folder)}"${{{name}:+:${name}}}"' for name, folder in folders
    ]
    options = [
        *(f"--import {name}" for name in imports),
        *(f"--beside {folder}" for folder in release.beside),
    ]
    return " && ".join([*words, " ".join([PROGRAM, *options, release.root])])
