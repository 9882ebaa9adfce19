# SPDX-License-Identifier: Apache-2.0
"""What keeps a program from being started, said in a sentence with a remedy."""


class LaunchError(Exception):
    """What went wrong and what to do; `launch` prints it, and ends the step."""
