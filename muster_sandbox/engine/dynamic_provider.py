#!/usr/bin/env python3
"""A `pulumi-resource-pulumi-python`: serves `pulumi.dynamic`, and ends when its engine is gone.

Pulumi's is a shell script around `python -m pulumi.dynamic`, which outlives a killed engine. Both
use the virtual environment that Pulumi.yaml names, else the Python on the path.
"""

import io
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
    # The engine waits for the port, which pulumi.dynamic writes without flushing.
    sys.stdout = io.TextIOWrapper(
        open(sys.stdout.fileno(), "wb", buffering=0),  # noqa: PTH123, SIM115
        write_through=True,
    )
    # As `python -m` does: the engine starts this in the program's folder, and providers are
    # unpickled with the program's modules.
    sys.path[0] = os.getcwd()  # noqa: PTH109
    runpy.run_module("pulumi.dynamic", run_name="__main__")


if __name__ == "__main__":
    main()
