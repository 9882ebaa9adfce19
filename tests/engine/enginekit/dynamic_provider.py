#!/usr/bin/env python3
"""A `pulumi-resource-pulumi-python`: serves `pulumi.dynamic`, and ends when its engine is gone.

Pulumi's own is a shell script around `python -m pulumi.dynamic`, which outlives a killed engine.
As it, this one takes the virtual environment that Pulumi.yaml names, else the Python on the path.
"""

import os
import runpy
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    """Become the right Python, then serve."""
    named = os.environ.pop("PULUMI_RUNTIME_VIRTUALENV", "")
    if named:
        python = Path.cwd() / named / "bin" / "python"
        os.execv(python, [str(python), "-u", __file__, *sys.argv[1:]])  # noqa: S606
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # The engine reads the port, and what providers print, line by line.
    sys.stdout = os.fdopen(sys.stdout.fileno(), "w", buffering=1)
    runpy.run_module("pulumi.dynamic", run_name="__main__")


if __name__ == "__main__":
    main()
