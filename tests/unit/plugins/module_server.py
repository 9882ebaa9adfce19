"""Runs modules in forks of this process, which has imported what all modules of Ansible share.

A request is a line of JSON on stdin, an answer one on stdout.
"""

import atexit
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
from typing import IO, Any, NoReturn

import ansible.module_utils.basic  # noqa: F401 (most of a module's start)

SECONDS = 120
"""Bound of a module's run."""


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run a module; return its exit code and what it printed."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(request["input"].encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            as_a_host_does(request, given, printed, errors)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (printed, errors):
            file.seek(0)
            texts.append(file.read().decode())
        return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def as_a_host_does(request: dict[str, Any], *files: IO[bytes]) -> NoReturn:
    """Be the module's process."""
    signal.alarm(SECONDS)
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # The folder of this file is none of a host's.
    sys.path[0] = request["cwd"]
    # Ansible packs what modules share beside them, under the collection's name.
    sys.path.append(request["collections"])
    sys.argv = [request["module"]]
    code = 0
    try:
        exec(request["before"], {})  # noqa: S102 (a test's own)
        runpy.run_path(request["module"], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)  # noqa: T201
