# SPDX-License-Identifier: Apache-2.0
"""Show the Python environments that modules have loaded to virtual environments of users.

Python runs this file at its start if its folder is in PYTHONPATH; modules with an environment put
it there, and nothing else. The packages come behind those of the user's virtual environment, which
may have other versions of some, and before those of the distribution.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def show(environments: list[str]) -> None:
    """Add the packages of loaded environments behind those of this virtual environment."""
    # Programs of the distribution, and the environment's own, find what they need without this.
    if sys.prefix == sys.base_prefix or sys.prefix in environments:
        return
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [f"{root}/lib/{version}/site-packages" for root in environments]
    own = [number for number, path in enumerate(sys.path) if path.startswith(f"{sys.prefix}/")]
    behind = own[-1] + 1 if own else len(sys.path)
    # Packages of another version of Python can't be used.
    sys.path[behind:behind] = [path for path in folders if os.path.isdir(path)]


def run_the_next() -> None:
    """Run the sitecustomize that this one hides, such as the distribution's."""
    others = [path for path in sys.path if os.path.abspath(path) != FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


show([root for root in os.environ.get("MUSTER_ENVIRONMENTS", "").split(":") if root])
run_the_next()
