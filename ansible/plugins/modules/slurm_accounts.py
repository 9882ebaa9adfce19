#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring a cluster's accounts, users, QoS and limits in slurmdbd to a wanted state, in one run.

Reading (accounting_state), what is wanted (accounting_wish), what is to be reached
(accounting_target), by which commands (accounting_plan), what is said of it (accounting_words) and
doing (sacctmgr) are apart, below module_utils: all but the last are functions of text and data, so
their tests need no slurmdbd.
"""

import shlex
import time
from contextlib import nullcontext
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.accounting_plan import plan
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import State
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import (
    unlisted,
    unlisted_qos,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_wish import (
    AccountOptions,
    QosOptions,
    UserOptions,
    checked_name,
    unknown_tres,
    wanted,
    without_tres,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_words import (
    by_hand,
    by_others,
    described,
    limits_changed,
    shown,
)
from ansible_collections.muster.slurm.plugins.module_utils.one_run import one_run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.sacctmgr import (
    REMEDY,
    NoAnswerError,
    Sacctmgr,
    apply,
    by_qos,
    decide,
)

DOCUMENTATION = r"""
module: slurm_accounts
short_description: Accounts, users, QoS and limits of a SLURM cluster
description:
  - Reads what slurmdbd holds (C(sacctmgr show)), compares it with what is wanted and runs only the
    C(sacctmgr) commands that lead there. Exit codes of sacctmgr tell little (adding what exists is
    an error, setting what is set is a change), so the module reads again afterwards and fails if
    something did not come true.
  - sacctmgr stores names and texts in lower case, so C(LAB-test) and C(lab-test) are one account.
    Jobs may use either spelling.
  - Needs C(sacctmgr), munge and root, but no slurm.conf on the host.
  - Account C(root), user C(root) and QoS C(normal) are never removed, and of C(root) nothing is
    changed.
  - >-
    Limits have sacctmgr's full names. TRES are mappings (C(MaxTRESPerUser={gres/gpu: 4}), memory
    in MiB) and so are flags (C(Flags={DenyOnLimit: true})), names are lists, a job's longest time
    is in minutes. A limit that is not given and was set by hand is kept, and named in a warning,
    unless O(prune) is true.
  - Coordinators may give accounts and users any name and text. Associations and coordinators with
    names that sacctmgr would take for others are left as they are, and named in a warning. Where a
    line end or a bar breaks the rows that are read, the module refuses, with the row.
  - In check mode, where slurmdbd does not answer, a warning says so and nothing is shown as to be
    made. Before its first run, without C(/etc/slurm/slurmdbd.conf), all is. Limits of TRES that
    slurmdbd does not know yet are shown.
  - If slurmdbd stops answering while the module changes things, the error names the commands that
    were done and those that were not; another run does the rest.
  - One run at a time on a host changes accounts and limits; another one waits for it.
  - A QoS that pending or running jobs use is not taken from them; the module refuses, with their
    numbers, unless O(drain_qos) is true. Nothing is taken away while slurmctld, which knows the
    jobs, does not answer.
options:
  cluster:
    description: ClusterName. It is registered if slurmdbd does not know it.
    type: str
    required: true
  accounts:
    description: The accounts, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the account.
        type: str
        required: true
      parent:
        description: Account above it; C(root) when left out.
        type: str
      description:
        description: Free text; empty means the account's name, as sacctmgr does it.
        type: str
        default: ""
      organization:
        description: Free text; empty means the parent's name, or the account's own below C(root).
        type: str
        default: ""
      fairshare:
        description: Shares, relative to the accounts beside it.
        type: int
        default: 1
      users:
        description: Logins that may charge jobs to it.
        type: list
        elements: str
        default: []
      limits: &limits
        description:
          - Limits of the association, such as C(GrpTRES), C(GrpTRESRunMins), C(GrpJobs),
            C(GrpSubmitJobs), C(MaxTRESPerJob), C(MaxTRESPerNode), C(MaxJobs), C(MaxSubmitJobs)
            and C(MaxWallDurationPerJob). Null in place of a number removes one that is there.
        type: dict
        default: {}
      qos: &qos
        description: QoS that its jobs may use; those of the account above when left out.
        type: list
        elements: str
      default_qos: &default_qos
        description: QoS of jobs that name none.
        type: str
      coordinators:
        description: Logins that may manage it and the accounts below.
        type: list
        elements: str
        default: []
      associations:
        description: Settings of some of its users.
        type: list
        elements: dict
        default: []
        suboptions:
          user:
            description: Login, one of the account's users.
            type: str
            required: true
          fairshare:
            description: Shares, relative to the users beside it.
            type: int
          limits: *limits
          qos: *qos
          default_qos: *default_qos
  qos:
    description: The QoS, in any order. They belong to all clusters of the slurmdbd.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the QoS.
        type: str
        required: true
      limits:
        description:
          - Its settings, such as C(Priority), C(Preempt), C(PreemptMode), C(GraceTime) (seconds),
            C(Flags), C(UsageFactor), C(MaxWallDurationPerJob), C(MaxTRESPerUser) and
            C(MinTRESPerJob).
        type: dict
        default: {}
  users:
    description: Further settings of users, beyond the accounts that list them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Login.
        type: str
        required: true
      default_account:
        description:
          - Account of jobs that name none.
          - When left out, the first of O(accounts) that lists the user.
        type: str
      admin_level:
        description:
          - Rights over all accounts, of all clusters of the slurmdbd. Users of the cluster whom no
            account lists have V(none). Where the slurmdbd has several clusters, V(none) leaves them
            as they are.
        type: str
        choices: [none, operator, administrator]
        default: none
  prune:
    description:
      - Remove the accounts, associations, QoS, limits and coordinators that are not wanted.
        Accounts and associations with jobs, pending or running, are kept and named in a warning.
        So are all QoS and coordinators where the slurmdbd has other clusters, which may use them.
        Without O(prune) all are kept, and named in a warning.
    type: bool
    default: false
  drain_qos:
    description:
      - What happens to a QoS that is taken away and that pending or running jobs use. If true, it is
        left to their accounts until a run finds no such job, and the run names the jobs. One that
        is not listed any more takes no new jobs meanwhile (C(GrpSubmitJobs=0)); of C(normal), and of
        one that other accounts or clusters go on using, new jobs of these accounts still come. If
        false, the module refuses.
    type: bool
    default: false
  slurmctld_runs:
    description:
      - Whether slurmctld runs with the slurm.conf that belongs to the limits. It tells slurmdbd
        which GPUs there are, and does not start if a partition names a QoS that is missing.
      - If not, limits of TRES that slurmdbd does not know, and all that is to be removed, are left
        for a later run.
    type: bool
    default: true
  host:
    description: Where slurmdbd runs.
    type: str
    default: localhost
  port:
    description: Its TCP port.
    type: int
    default: 6819
  timeout_seconds:
    description: How long to wait for slurmdbd to answer.
    type: int
    default: 60
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Keep the accounts
  muster.slurm.slurm_accounts:
    cluster: lab
    accounts:
      - name: LAB-test
        users: [ada, alan]
        fairshare: 10
        qos: [normal, long]
        limits: {GrpTRES: {gres/gpu: 8}}
        associations:
          - {user: alan, limits: {MaxJobs: 4}}
    qos:
      - {name: long, limits: {MaxWallDurationPerJob: 10080, MaxTRESPerUser: {gres/gpu: 2}}}
    users:
      - {name: ada, default_account: LAB-test}
"""

RETURN = r"""
commands:
  description: The sacctmgr commands that were run, or would be in check mode.
  type: list
  elements: str
  returned: always
changes:
  description: What changed of limits and QoS, in words.
  type: list
  elements: str
  returned: always
unlisted:
  description: Accounts, associations, QoS and settings that are there and not wanted.
  type: list
  elements: str
  returned: always
draining:
  description: Jobs that keep a QoS which is taken away, by O(drain_qos).
  type: list
  elements: str
  returned: always
kept:
  description: Those of RV(unlisted) that O(prune) could not remove, each with the reason.
  type: list
  elements: str
  returned: always
deferred:
  description: TRES whose limits are left for a later run, without O(slurmctld_runs).
  type: list
  elements: str
  returned: always
"""


class Params(TypedDict):
    """What the module is asked for."""

    cluster: str
    accounts: list[AccountOptions]
    users: list[UserOptions]
    qos: list[QosOptions]
    prune: bool
    drain_qos: bool
    slurmctld_runs: bool
    host: str
    port: int
    timeout_seconds: int


ASSOCIATION = {
    "limits": {"type": "dict", "default": {}},
    "qos": {"type": "list", "elements": "str"},
    "default_qos": {"type": "str"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "accounts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "parent": {"type": "str"},
                    "description": {"type": "str", "default": ""},
                    "organization": {"type": "str", "default": ""},
                    "fairshare": {"type": "int", "default": 1},
                    "users": {"type": "list", "elements": "str", "default": []},
                    **ASSOCIATION,
                    "coordinators": {"type": "list", "elements": "str", "default": []},
                    "associations": {
                        "type": "list",
                        "elements": "dict",
                        "default": [],
                        "options": {
                            "user": {"type": "str", "required": True},
                            "fairshare": {"type": "int"},
                            **ASSOCIATION,
                        },
                    },
                },
            },
            "qos": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "limits": {"type": "dict", "default": {}},
                },
            },
            "users": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "default_account": {"type": "str"},
                    "admin_level": {
                        "type": "str",
                        "default": "none",
                        "choices": ["none", "operator", "administrator"],
                    },
                },
            },
            "prune": {"type": "bool", "default": False},
            "drain_qos": {"type": "bool", "default": False},
            "slurmctld_runs": {"type": "bool", "default": True},
            "host": {"type": "str", "default": "localhost"},
            "port": {"type": "int", "default": 6819},
            "timeout_seconds": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    options: Params = module.params
    # What is only shown needs no lock.
    lock = nullcontext() if module.check_mode else one_run("accounts", "accounts and limits")
    try:
        with lock:
            change(module, options)
    except RefusedError as error:
        module.fail_json(msg=str(error))


def change(module: AnsibleModule, options: Params) -> None:
    """Bring slurmdbd to what is wanted, and end the module.

    Raises:
        RefusedError: it can't be done.

    """
    prune = options["prune"] and options["slurmctld_runs"]
    cluster = checked_name("cluster", options["cluster"])
    wish = wanted(options["accounts"], options["users"], options["qos"])
    slurmdbd = Sacctmgr(cluster, options["host"], options["port"], options["timeout_seconds"])
    current = read(module, slurmdbd)
    if current is None:
        module.exit_json(
            changed=False,
            commands=[],
            changes=[],
            unlisted=[],
            draining=[],
            kept=[],
            deferred=[],
            diff=[],
        )
    if current.left_out:
        module.warn(
            f"{cluster}: left as they are, as sacctmgr can't name them or would take them for "
            f"others: {', '.join(current.left_out)}"
        )
    current, wish, deferred = with_known_tres(module, slurmdbd, current, wish)
    goal, busy, draining = decide(slurmdbd, current, wish, prune, options["drain_qos"])
    commands = plan(cluster, current, goal)
    if commands and not module.check_mode:
        commands = apply(slurmdbd, current, wish, prune, busy, draining=draining)
    kept = described(*unlisted(goal, wish), unlisted_qos(goal, wish)) + by_hand(goal, wish)
    if kept and prune:
        module.warn(
            f"{cluster}: kept, for jobs, user root, other clusters or what is left as it is use "
            f"them: {', '.join(kept)}"
        )
    elif kept and options["slurmctld_runs"]:
        module.warn(
            f"{cluster}: not in the definition, and kept: {', '.join(kept)}; "
            "accounts_prune: true removes them"
        )
    rights = by_others(current, goal, wish)
    if rights and options["slurmctld_runs"]:
        module.warn(
            f"{cluster}: kept, as other clusters may have given them: {', '.join(rights)}; "
            "`sacctmgr delete coordinator` and `sacctmgr modify user` take them"
        )
    if draining:
        module.warn(
            f"{cluster}: {by_qos(sorted(draining), 'is left to jobs')}; run again when they have ended"
        )
    changed = limits_changed(current, goal)
    module.exit_json(
        changed=bool(commands),
        commands=[shlex.join(["sacctmgr", *command]) for command in commands],
        changes=changed,
        unlisted=described(*unlisted(current, wish), unlisted_qos(current, wish))
        + by_hand(current, wish),
        draining=sorted(job.number for job in draining),
        kept=kept if prune else [],
        deferred=deferred,
        diff=[
            {
                "before_header": f"slurmdbd: {cluster}",
                "after_header": f"slurmdbd: {cluster}",
                "before": shown(cluster, current),
                "after": shown(cluster, goal),
            },
            {"prepared": "".join(f"{line}\n" for line in changed)},
        ],
    )


def read(module: AnsibleModule, slurmdbd: Sacctmgr) -> State | None:
    """Return the current State; in check mode None where slurmdbd does not answer.

    Before slurmdbd's first run the State is empty in check mode.
    """
    if not module.check_mode:
        return slurmdbd.first_state()
    if not slurmdbd.is_set_up():
        module.warn(
            f"{slurmdbd.cluster}: slurmdbd has not been set up yet, so all is shown as to be made"
        )
        return State()
    try:
        return slurmdbd.state()
    except NoAnswerError as error:
        module.warn(
            f"slurmdbd on {slurmdbd.address} does not answer ({error}), so QoS, accounts and "
            "limits could not be read and what a run would change of them is not shown; "
            f"{REMEDY}"
        )
        return None


def with_known_tres(
    module: AnsibleModule, slurmdbd: Sacctmgr, current: State, wish: State
) -> tuple[State, State, list[str]]:
    """Return both States and the TRES that were left out of the second, for a later run.

    Raises:
        RefusedError: slurmctld runs, and does not make known what is limited.

    """
    if module.check_mode and module.params["slurmctld_runs"]:
        return current, wish, []  # a run starts slurmctld before it sets the limits
    if not current.tres:
        return current, wish, []  # check mode before the first run
    deadline = time.monotonic() + slurmdbd.timeout_seconds
    while unknown := unknown_tres(wish, current.tres):
        if not module.params["slurmctld_runs"]:
            return current, without_tres(wish, unknown), sorted(unknown)
        if time.monotonic() >= deadline:
            tres, whose = min(unknown.items())
            raise RefusedError(
                f"{whose} limits {tres}, which slurmdbd does not know; start slurmctld with "
                f"{tres} in AccountingStorageTRES of slurm.conf and run again"
            )
        time.sleep(1)
        current = slurmdbd.first_state()
    return current, wish, []


if __name__ == "__main__":
    main()
