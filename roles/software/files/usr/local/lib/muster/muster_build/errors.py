# SPDX-License-Identifier: Apache-2.0
"""What can end a build."""


class RefusedError(Exception):
    """What can't be done, said in a sentence."""


class FailedError(Exception):
    """What went wrong with a command."""


class VerifyError(FailedError):
    """Why what was built does not work."""


class PackError(FailedError):
    """Why what was built can't be packed."""


class InterruptError(Exception):
    """Somebody ends this program, or nobody reads what it prints any more."""
