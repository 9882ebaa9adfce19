# SPDX-License-Identifier: Apache-2.0
"""What can't be done, said in a sentence with a remedy."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT)


class ModelsError(Exception):
    """What went wrong and what to do; `models` and `data` print it and end."""


def is_full(error: OSError) -> bool:
    """Whether a file system or a quota had no room."""
    return error.errno in _FULL


def of_system(error: OSError, path: str) -> ModelsError:
    """Return what the system's refusal to read or write `path` means."""
    at = error.filename or path
    why = (error.strerror or str(error)).lower()
    if is_full(error):
        return ModelsError(
            f"{at}: {why}; what did not fit was removed: make room, or ask for a larger folder or "
            "quota, and run it again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ModelsError(f"{at}: {why}; work on a host and in a folder where you may do this")
    return ModelsError(f"{at}: {why}; mend that and run it again")
