# SPDX-License-Identifier: Apache-2.0
"""Whether folders that may be on a server can be used: they answer, and they are mounted."""

from collections.abc import Iterable

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import (
    no_answer,
    not_mounted,
)


def refuse_silent(module: AnsibleModule, paths: Iterable[str]) -> None:
    """End the task at the first of `paths` that does not answer."""
    for path in paths:
        sentence = no_answer(path)
        if sentence is not None:
            module.fail_json(msg=sentence)


def refuse_unavailable(module: AnsibleModule, paths: Iterable[str]) -> None:
    """End the task at the first of `paths` that does not answer, or whose mount is missing.

    In check mode a missing mount is a warning: nothing is written, and the run may mount it before.
    """
    for path in paths:
        refuse_silent(module, [path])
        sentence = not_mounted(path)
        if sentence is not None:
            if not module.check_mode:
                module.fail_json(msg=sentence)
            module.warn(sentence)
