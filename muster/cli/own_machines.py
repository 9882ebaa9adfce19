"""`muster why JOB` of a cluster on own machines: muster-job answers on its controller.

Ansible asks it, as for the other commands that need a host: no other way there is needed.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from muster.catalog.printable import one_line
from muster.cli.definition_argument import INVENTORIES, definition_of, inventory_of
from muster.cli.exit_codes import DONE, SILENT, UNREACHED, WRONG
from muster.cli.host_programs import PROGRAMS, become
from muster.definition import DefinitionError, load
from muster.verify.ansible_query import ENDED, AskError, ask, sound

PROGRAM = "muster-job"
_JOB = re.compile(r"([0-9]+(?:[_+][0-9]+)?)(?:_\[.*)?", re.ASCII)
"""A job, a task of an array, a part of a heterogeneous job, or tasks that wait, as in squeue."""


@dataclass(frozen=True)
class OwnController:
    """The controller of a cluster on own machines, seen from another machine."""

    inventory: Path
    host: str

    def why_job(self, job: str) -> NoReturn:
        """Print what muster-job says there, and end this program with its exit code."""
        number = number_of(job)
        typer.echo(f"asking {self.host}", err=True)
        try:
            asked = ask(self.inventory, "job.yml", [self.host], "stdout", {"job": number})
        except AskError as error:
            raise _stop(str(error), UNREACHED) from None
        found = sound(asked, ENDED)
        if found.unreached:
            raise _stop(found.unreached[0], UNREACHED)
        self._end(found.answers[self.host])

    def _end(self, result: Mapping[str, Any]) -> NoReturn:
        said = result["stderr"].strip().splitlines()
        if result["rc"] == DONE:
            # Texts of users, such as the job's name, are among it.
            typer.echo("\n".join(one_line(line) for line in result["stdout"].splitlines()))
            raise typer.Exit(DONE)
        if not said:
            raise _stop(f"{self.host} has no {PROGRAM}; run site.yml, which installs it", UNREACHED)
        problem = one_line(said[-1]).removeprefix("error: ")
        if result["rc"] == WRONG:
            raise _stop(f"{self.host}: {problem}", WRONG)
        problem = problem.partition("; try again on a login node")[0]
        raise _stop(f"{self.host}: {problem}; look at `systemctl status slurmctld` there", SILENT)


def number_of(job: str) -> str:
    """Return what muster-job calls a job. Ends the program for what is the number of none."""
    match = _JOB.fullmatch(job)
    if not match:
        raise _stop(f"{one_line(job)} is no number of a job, such as 12 or 12_3", WRONG)
    return match[1]


def controller_of(cluster: str | None, user: str | None) -> OwnController | None:
    """Return the controller that is to be asked; None: that of a cluster in the cloud.

    Ends the program if nobody can tell which cluster is meant.

    Args:
        cluster: what was typed for it.
        user: login there, which is for the cloud alone.

    """
    inventory = inventory_of(cluster) if cluster is not None else _only_one()
    if inventory is None:
        return None
    definition = definition_of(inventory)
    if definition.cluster.cloud is not None:
        return None
    refuse_user(inventory, user)
    return OwnController(inventory, definition.hosts.groups["controller"][0])


def refuse_user(inventory: Path, user: str | None) -> None:
    """End the program if a login was typed: Ansible has one of the inventory."""
    if user is not None:
        raise _stop(
            f"{inventory} has machines of its own, where Ansible logs in as hosts.yml says "
            "(ansible_user); leave out --user",
            WRONG,
        )


def ask_here(job: str) -> None:
    """Go on as muster-job if this host has it, as all but compute nodes do; else return."""
    if os.access(PROGRAMS / PROGRAM, os.X_OK):
        become(PROGRAM, ["--", number_of(job)], "")


def _only_one() -> Path | None:
    """The only cluster below inventories/; None: there is none, or one is in the cloud."""
    folders = []
    for folder in sorted(INVENTORIES.glob("*")):
        try:
            cloud = load(folder).cluster.cloud
        except DefinitionError:
            continue
        if cloud is not None:
            return None
        folders.append(folder)
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise _stop(f"which cluster? There are {names}; name one with --cluster", WRONG)
    return folders[0] if folders else None


def _stop(message: str, code: int) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)
