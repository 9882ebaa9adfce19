"""Commands that work on a cluster's controller, typed on another machine: they run there."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from muster.catalog.printable import lines
from muster.cli.definition_argument import INVENTORIES, definition_of, inventory_of, is_in_cloud
from muster.cli.exit_codes import UNREACHED, WRONG
from muster.gcp import pulumi_stack, remote
from muster.gcp.pulumi_stack import Stack


@dataclass(frozen=True)
class Controller:
    """The controller of a cluster in the cloud, seen from another machine."""

    stack: Stack
    user: str | None

    def run(self, *command: str) -> NoReturn:
        """Run a program there with its output here, and end this one with its exit code."""
        done = self._run(command)
        if done.output:
            typer.echo(lines(done.output.decode(errors="replace")))
        self._end(done)

    def fetch(self, *command: str, seconds: int = remote.RUN_S) -> tuple[bytes, str]:
        """Run a program as root there; return its output, and what it said beside it.

        Ends this program with that one's exit code if it failed.
        """
        done = self._run(("sudo", *command), as_root=True, seconds=seconds)
        # sudo's own errors begin so.
        if done.code and (refusal := re.search(r"^sudo: (.*)", done.errors, re.MULTILINE)):
            raise _stop(
                f"sudo on {self.stack.controller} refuses you: {refusal[1]}; the person needs "
                "`admin: true`, and `ssh-add` the key that is in `ssh_keys`",
                UNREACHED,
            )
        if done.code:
            self._end(done)
        return done.output, done.errors

    def _run(
        self, command: tuple[str, ...], *, as_root: bool = False, seconds: int = remote.RUN_S
    ) -> remote.Ended:
        host = self.stack.controller
        typer.echo(f"asking {host}", err=True)
        try:
            return remote.run(
                self.stack,
                host,
                command,
                user=self.user,
                forwards_agent=as_root,
                seconds=seconds,
            )
        except remote.RemoteError as error:
            raise _stop(str(error), UNREACHED) from error

    @staticmethod
    def _end(done: remote.Ended) -> NoReturn:
        if done.errors:
            typer.echo(done.errors, err=True)
        raise typer.Exit(done.code)


def controller_of(cluster: str | None, user: str | None, file: Path | None) -> Controller | None:
    """Return the controller that a command has to run on; None: none is known.

    Ends the program if nobody can tell which cluster is meant, or where its controller is.

    Args:
        cluster: what was typed for it.
        user: login there.
        file: what was typed to be read here instead of the controller's own file.

    """
    if cluster is not None and file is not None:
        raise _stop(f"--cluster asks a controller, and {file} is here; leave out one of them")
    inventory = inventory_of(cluster) if cluster is not None else _only_one()
    return None if inventory is None else controller_in(inventory, user)


def _only_one() -> Path | None:
    """The only cluster in the cloud below inventories/; None: there is none."""
    folders = [folder for folder in sorted(INVENTORIES.glob("*")) if is_in_cloud(folder)]
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise _stop(f"which cluster? There are {names} in the cloud; name one with --cluster")
    return folders[0] if folders else None


def controller_in(inventory: Path, user: str | None) -> Controller:
    """Return the controller of a cluster in the cloud. Ends the program if it is not known."""
    definition = definition_of(inventory)
    name, people = definition.cluster.name, definition.cluster.users.people
    if definition.cluster.cloud is None:
        host = definition.hosts.groups["controller"][0]
        raise _stop(
            f"{inventory} has no nodes in the cloud, so nothing makes or deletes them; on {host} "
            "`sinfo -R` says why nodes are out of service; `muster why JOB` says why a job waits"
        )
    if user is not None and user not in people:
        raise _stop(f"nobody in {inventory} has the login {user}; add the person to cluster.yml")
    typer.echo(f"{inventory}: asking Pulumi where its controller is", err=True)
    try:
        stack = pulumi_stack.stack_of(name, pulumi_stack.outputs(name))
    except pulumi_stack.StackError as error:
        raise _stop(f"{error}; or name another cluster with --cluster", UNREACHED) from error
    return Controller(stack, user)


def _stop(message: str, code: int = WRONG) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(code)
