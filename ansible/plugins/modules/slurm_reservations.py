#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring a slurmctld's reservations to a wanted state, in one run.

Comparing is in module_utils (reservation_plan): functions of text and data.
"""

import os
import shlex
import subprocess
from contextlib import nullcontext
from datetime import datetime
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.one_run import one_run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.reservation_plan import (
    Reservation,
    ReservationOptions,
    commands,
    parse,
    restored,
    shown,
    wanted,
)

DOCUMENTATION = r"""
module: slurm_reservations
short_description: Reservations of a SLURM cluster
description:
  - Compares what C(scontrol show reservation) says with what is wanted and runs only the
    C(scontrol) commands that lead there. Runs on the controller, as root.
  - A reservation that repeats is compared by its present or next time. One that is over for good is
    not made again. Others than those listed are kept, and named in a warning.
  - Jobs that may run in a reservation do so without C(--reservation) (SLURM's flag MAGNETIC).
  - Nodes of another partition, another repetition, and another begin of one that has begun, need a
    new reservation; SLURM refuses that while jobs run in it, and the module says so. If SLURM does
    not make the new one, the old one is made again. Another number of nodes does not need it.
  - One run at a time changes reservations; another one waits for it.
options:
  reservations:
    description: The reservations, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      start:
        description: Day and time of the first begin, C(YEAR-MONTH-DAYThour:min) by the host's clock.
        type: str
        required: true
      minutes:
        description: How long it lasts.
        type: int
        required: true
      repeat:
        description: When it comes again; left out, it does not.
        type: str
        choices: [daily, weekday, weekend, weekly]
      partition:
        description: Partition of the nodes; left out, all nodes of the cluster.
        type: str
      node_count:
        description: How many nodes of the partition; left out, all of them.
        type: int
      accounts:
        description: Accounts, in small letters, whose jobs may run there.
        type: list
        elements: str
        default: []
      users:
        description: Logins whose jobs may run there.
        type: list
        elements: str
        default: []
      maintenance:
        description: Whether it is for administrators alone.
        type: bool
        default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Keep a node for a course each Monday
  muster.slurm.slurm_reservations:
    reservations:
      - name: course
        start: "2027-01-11T14:00"
        minutes: 120
        repeat: weekly
        partition: ml-gpu
        node_count: 1
        accounts: [students]
"""

RETURN = r"""
commands:
  description: The scontrol commands that were run, or would be in check mode.
  type: list
  elements: str
  returned: always
unlisted:
  description: Reservations that are there and not listed.
  type: list
  elements: str
  returned: always
"""

COMMAND_SECONDS = 60


class Params(TypedDict):
    """What the module is asked for."""

    reservations: list[ReservationOptions]


def scontrol(*words: str) -> str:
    """Return what scontrol printed.

    Raises:
        RefusedError: it failed, or did not end.

    """
    try:
        done = subprocess.run(
            ["scontrol", *words],
            # Another SLURM_TIME_FORMAT would print times otherwise.
            env={**os.environ, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise RefusedError("no scontrol on this host; install the package slurm-client") from error
    except subprocess.TimeoutExpired as error:
        raise RefusedError(f"scontrol did not end within {COMMAND_SECONDS} s") from error
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).splitlines()
        raise RefusedError("; ".join(line.strip() for line in lines if line.strip()))
    return done.stdout


def read(module: AnsibleModule) -> list[Reservation]:
    """Return the reservations that are there; in check mode none where no slurmctld answers."""
    try:
        return parse(scontrol("--oneliner", "show", "reservation"))
    except RefusedError as error:
        if module.check_mode:
            module.warn(f"slurmctld does not answer, so all is shown as to be made: {error}")
            return []
        raise


def run(name: str, words: "list[str]", there: Reservation | None) -> None:
    """Run a command of a plan.

    Raises:
        RefusedError: SLURM refuses it.

    """
    try:
        scontrol(*words)
    except RefusedError as error:
        is_used = there is not None and words[0] == "delete"
        remedy = (
            f"squeue --reservation={name} shows its jobs: wait for them or cancel them, and run "
            "again"
            if is_used
            else "scontrol show reservation shows those that are there, and squeue the jobs on the "
            "nodes; change the reservation or wait, and run again"
        )
        raise RefusedError(f"SLURM refuses the reservation {name}: {error}; {remedy}") from error


def replace(name: str, plan: "list[list[str]]", there: Reservation | None, now: datetime) -> None:
    """Run the commands of a reservation; one that was deleted is made again if the last one fails.

    Raises:
        RefusedError: SLURM refuses a command.

    """
    deleted = False
    for words in plan:
        try:
            run(name, words, there)
        except RefusedError as error:
            if not deleted or there is None:
                raise
            again = restored(there, now)
            try:
                scontrol(*again)
            except RefusedError as second:
                raise RefusedError(
                    f"{error}; the old one is deleted, and SLURM does not make it again: {second}; "
                    f"scontrol {shlex.join(again)} makes it"
                ) from error
            raise RefusedError(f"{error}; the old one is there again") from error
        deleted = words[0] == "delete"


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "reservations": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "start": {"type": "str", "required": True},
                    "minutes": {"type": "int", "required": True},
                    "repeat": {
                        "type": "str",
                        "choices": ["daily", "weekday", "weekend", "weekly"],
                    },
                    "partition": {"type": "str"},
                    "node_count": {"type": "int"},
                    "accounts": {"type": "list", "elements": "str", "default": []},
                    "users": {"type": "list", "elements": "str", "default": []},
                    "maintenance": {"type": "bool", "default": False},
                },
            },
        },
        supports_check_mode=True,
    )
    options: Params = module.params
    # What is only shown needs no lock.
    lock = nullcontext() if module.check_mode else one_run("reservations", "the reservations")
    try:
        with lock:
            change(module, options)
    except RefusedError as error:
        module.fail_json(msg=str(error))


def change(module: AnsibleModule, options: Params) -> None:
    """Bring the reservations to what is wanted, and end the module.

    Raises:
        RefusedError: SLURM does not do it.

    """
    now = datetime.now()  # noqa: DTZ005 - scontrol's times have no zone
    wishes = [wish for one in options["reservations"] if (wish := wanted(one, now)) is not None]
    done: list[list[str]] = []
    current = {reservation.name: reservation for reservation in read(module)}
    for wish in wishes:
        there = current.get(wish.name)
        plan = commands(there, wish, now)
        if not module.check_mode:
            replace(wish.name, plan, there, now)
        done += plan
    for wish in [] if module.check_mode or not done else wishes:
        _came_true(wish)
    listed = {one["name"] for one in options["reservations"]}
    unlisted = sorted(current.keys() - listed)
    if unlisted:
        module.warn(
            "reservations that the definition does not have, or has for absent people alone, and "
            f"kept: {', '.join(unlisted)}; "
            "`scontrol delete ReservationName=NAME` on the controller removes one"
        )
    module.exit_json(
        changed=bool(done),
        commands=[shlex.join(["scontrol", *words]) for words in done],
        unlisted=unlisted,
        diff={
            "before": _lines([current[wish.name] for wish in wishes if wish.name in current]),
            "after": _lines(wishes),
        },
    )


def _came_true(wish: Reservation) -> None:
    """Read a reservation again.

    Raises:
        RefusedError: it is not as wanted.

    """
    current = parse(scontrol("--oneliner", "show", "reservation"))
    there = next((one for one in current if one.name == wish.name), None)
    if left := commands(there, wish, datetime.now()):  # noqa: DTZ005
        raise RefusedError(
            f"SLURM did not take: scontrol {'; scontrol '.join(map(shlex.join, left))}; see "
            "slurmctld's log, fix the cause and run again"
        )


def _lines(reservations: list[Reservation]) -> str:
    return "".join(f"{shown(one)}\n" for one in sorted(reservations, key=lambda one: one.name))


if __name__ == "__main__":
    main()
