#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep a systemd unit enabled, active and running with the configuration that is on disk."""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.service_unit import OPTIONS, keep_running

DOCUMENTATION = r"""
module: managed_service
short_description: Run a daemon with the configuration that is on disk
description:
  - Enables and starts a unit, and restarts or reloads it exactly when it runs with other files
    than those on disk.
  - A handler is lost when a play is killed between "file written" and "daemon restarted"; and a handler
    restarts a daemon that somebody else has restarted since. So the unit itself records, at each
    start, the SHA-256 of the files it is about to read (a drop-in with an ExecStartPre, written by
    this module, into /run/muster); this module compares and acts.
options:
  name:
    description: Unit without C(.service).
    type: str
    required: true
  config:
    description: Files that the daemon reads only at its start; a change means a restart.
    type: list
    elements: path
    default: []
  reload_config:
    description: Files that the daemon reads again on a reload.
    type: list
    elements: path
    default: []
  reload_command:
    description: How to reload, as a list; C(systemctl reload NAME) when left out.
    type: list
    elements: str
  reload_after_start:
    description:
      - The daemon hands O(reload_config) to other hosts on a reload, and not at its start. So a
        start with files that were not handed out yet is followed by a reload.
    type: bool
    default: false
  log_file:
    description:
      - Where the daemon says more than in the journal; its end is a part of a failure's message.
    type: path
  pending:
    description:
      - C(digests) of the C(managed_files) before. In check mode those contents are not on disk yet.
    type: dict
    default: {}
  port:
    description: TCP port on this host that must listen before the task ends.
    type: int
  timeout_seconds:
    description: How long to wait for the unit, and for O(port).
    type: int
    default: 60
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Run munged
  muster.slurm.managed_service:
    name: munge
    config: [/etc/munge/munge.key, /etc/default/munge]
    pending: "{{ __munge_files.digests }}"
"""

RETURN = r"""
action:
  description: What was done to the daemon, or would be in check mode.
  type: str
  sample: none, start, restart, reload
  returned: always
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        outcome = keep_running(module, module.params)
    except RefusedError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
