"""Keep what Python compiles of zip files: with each task Ansible sends the same library as source.

Python compiles each module of a zip file twice, once to tell its name. Together that is a quarter
of a task's time, on a virtual machine that is emulated two fifths.
"""

import hashlib
import marshal
import os
import zipimport
from types import CodeType

PLACE = "/var/cache/compiled-once"

_compile = zipimport._compile_source  # type: ignore[attr-defined]


def compiled(pathname: str, source: bytes) -> CodeType:
    """Return the code of a module's source: kept by a task before, or compiled and kept."""
    kept = f"{PLACE}/{hashlib.blake2b(source, digest_size=16).hexdigest()}"
    code: CodeType
    try:
        with open(kept, "rb") as stream:
            code = marshal.load(stream)
    except (OSError, EOFError, ValueError, TypeError):
        # None was kept, or a machine that was cut off has left a part.
        code = _compile(pathname, source)
        _keep(kept, code)
    return code


def _keep(kept: str, code: CodeType) -> None:
    new = f"{kept}.{os.getpid()}"
    try:
        with open(new, "wb") as stream:
            marshal.dump(code, stream)
        os.rename(new, kept)
    except OSError:
        pass  # not root's process, or a full disk


zipimport._compile_source = compiled  # type: ignore[attr-defined]
