# SPDX-License-Identifier: Apache-2.0
"""How modules run the programs of a host.

Not by AnsibleModule.run_command: on a busy host that returns exit code 0 without the output of a
program that ended while nobody looked (https://github.com/ansible/ansible/issues/51393, in
ansible-core 2.19 too). An empty list of users or units is not to be told from that.
"""

import contextlib
import os
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, cast

from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

NO_PROGRAM = 127
"""Exit code where a program is missing or can't be started, as shells have it."""

LOOK_SECONDS = 1.0
"""How often to look whether a program has ended whose output others keep open."""


def run(
    argv: Sequence[str], *, data: str | None = None, environ: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Return exit code, output and errors of a program, with 127 and the reason if it can't start.

    It has the module's environment with that of `environ`. On stdin it gets `data` with an end of
    line, which must be short enough for a pipe, or nothing. Nothing of `argv` is expanded. What it
    leaves running in the background is not waited for, even if that could still print. Bytes that
    are no UTF-8 come as \\xNN: Ansible takes no others from a module.
    """
    try:
        process = subprocess.Popen(
            [word.encode(errors="surrogateescape") for word in argv],
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environ or {})},
        )
    except OSError as error:
        return NO_PROGRAM, "", f"{argv[0]}: {error.strerror}"
    except ValueError as error:  # a null byte
        return NO_PROGRAM, "", f"{argv[0]}: {error}"
    out, err = bytearray(), bytearray()
    with process, selectors.DefaultSelector() as pipes:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{data}\n".encode(errors="surrogateescape"))
                process.stdin.close()
        for stream, text in ((process.stdout, out), (process.stderr, err)):
            pipes.register(cast("IO[bytes]", stream), selectors.EVENT_READ, text)
        while pipes.get_map():
            # Before the pipes: if it has ended by now, all that it printed is in them.
            ended = process.poll() is not None
            ready = pipes.select(0 if ended else LOOK_SECONDS)
            for key, _ in ready:
                part = os.read(key.fd, 2**16)
                key.data.extend(part)
                if not part:
                    pipes.unregister(key.fileobj)
            if ended and not ready:
                break
    return (
        process.returncode,
        out.decode(errors="backslashreplace"),
        err.decode(errors="backslashreplace"),
    )


def output(argv: Sequence[str], *, environ: Mapping[str, str] | None = None) -> str:
    """Return what a program prints, as `run`. Raises RefusedError where it does not end well."""
    code, out, err = run(argv, environ=environ)
    if code != 0:
        said = err.strip() or out.strip()
        raise RefusedError(f"`{' '.join(argv)}` ended with {code}; fix what it says: {said}")
    return out
