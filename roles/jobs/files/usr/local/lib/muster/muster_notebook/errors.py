# SPDX-License-Identifier: Apache-2.0
"""What keeps a notebook from being reached, said in a sentence with a remedy."""


class NotebookError(Exception):
    """What went wrong and what to do; `notebook` prints it."""
