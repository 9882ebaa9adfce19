# SPDX-License-Identifier: Apache-2.0
"""How a module says that it does not do what it was asked for."""


class RefusedError(Exception):
    """What can't be done, said in a sentence."""
