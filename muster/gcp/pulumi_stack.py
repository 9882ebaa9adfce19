"""The VMs of a cluster as its Pulumi stack has them, asked from the program `pulumi`."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[2] / "pulumi"
ASK_SECONDS = 60
"""Time limit of one call; even a stack with a distant backend answers in seconds."""

# They are put into a shell command (ProxyCommand), so only what Google allows may be in them.
# https://cloud.google.com/compute/docs/naming-resources; projects may belong to a domain.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")

Run = Callable[..., subprocess.CompletedProcess[str]]


class StackError(Exception):
    """The stack can't be used; the text is one sentence with a remedy."""


@dataclass(frozen=True)
class Stack:
    """The outputs of a stack that is up."""

    cluster: str
    project: str
    zone: str
    controller: str
    """Name of the controller's VM."""
    logins: tuple[str, ...]
    """Names of the login nodes' VMs."""
    addresses: Mapping[str, str]
    """VM -> its address in the cluster's network, of those whose address is fixed."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """All VMs that stay."""
        return (self.controller, *self.logins)


def outputs(name: str, *, program: Path = PROGRAM, run: Run = subprocess.run) -> dict[str, Any]:
    """Return the outputs of the stack `name` as pulumi prints them.

    Raises:
        StackError: there is no pulumi, no such stack, or no right to see it.

    """
    command = ["pulumi", "stack", "output", "--json", "--cwd", str(program), "--stack", name]
    try:
        done = run(
            [*command, "--non-interactive"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise StackError(
            "the program pulumi is not installed here, and only it knows where the cluster's VMs "
            "are; install it as https://www.pulumi.com/docs/install says"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StackError(
            f"pulumi did not answer within {ASK_SECONDS} s; see whether `pulumi whoami` does"
        ) from error
    if done.returncode != 0:
        raise StackError(_refusal(name, done.stderr.strip() or done.stdout.strip()))
    values: dict[str, Any] = json.loads(done.stdout or "{}")
    return values


def _refusal(name: str, said: str) -> str:
    if re.search(r"no stack named|not found", said):
        return f"there is no stack {name} here; make it as docs/cloud.md says: pulumi up"
    last = said.splitlines()[-1] if said else "(nothing)"
    return f"pulumi can't read the outputs of the stack {name}: {last.removeprefix('error: ')}"


def stack_of(name: str, values: Mapping[str, Any]) -> Stack:
    """Return the stack `name` whose outputs are `values`.

    Raises:
        StackError: it is not up, or another cluster's.

    """
    wanted = ("cluster", "project", "zone", "controller", "logins", "addresses")
    if any(not values.get(key) for key in wanted):
        raise StackError(f"the stack {name} is not up (yet); run: pulumi -C pulumi up -s {name}")
    stack = Stack(
        cluster=values["cluster"],
        project=values["project"],
        zone=values["zone"],
        controller=values["controller"],
        logins=tuple(values["logins"]),
        addresses=dict(values["addresses"]),
    )
    if stack.cluster != name:
        raise StackError(
            f"the stack {name} is of the cluster {stack.cluster}; see `pulumi config` for the "
            "inventory that it was made from"
        )
    odd = [text for text in (stack.zone, *stack.hosts) if not _NAME.fullmatch(text)]
    odd += [] if _PROJECT.fullmatch(stack.project) else [stack.project]
    if odd:
        raise StackError(f"the stack {name} has names that Google does not allow: {', '.join(odd)}")
    return stack
