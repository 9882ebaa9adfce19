"""What the tests do to a raised cluster, and what they see of it."""

import os
import subprocess
from typing import Any

import httpx
import pytest

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import Stack
from muster_sandbox.containers.podman import podman

UP_SECONDS = 1500

ON_DEBIAN_13 = pytest.mark.skipif(
    os.environ.get("RELEASE") != "trixie", reason="a part of `make proof LAYER=cloud-trixie`"
)
"""For tests of the proof: on Debian 12 its cluster is that of test_frameworks_on_vms.py."""


def up(stack: Stack, *options: str) -> str:
    """`pulumi up`, with all that it prints."""
    command = stack.command("--non-interactive", "up", "--yes", "--skip-preview", *options)
    done = subprocess.run(
        [*command, "--stack", stack.name],
        env=stack.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=UP_SECONDS,
        check=False,
    )
    # The errors first: `make test` repeats a few lines of a failure.
    errors = "".join(line for line in done.stdout.splitlines(True) if "error:" in line)
    assert done.returncode == 0, errors + done.stdout + consoles(stack)
    return done.stdout


def consoles(stack: Stack) -> str:
    """The ends of all machines' consoles, for the message of a failure."""
    texts = [""]
    for name in stack.instances():
        text = console(stack, name)
        texts.append(f"--- console of {name}:\n{text[-4000:]}")
    return "\n".join(texts)


def console(stack: Stack, instance: str) -> str:
    """All that a machine has written to its console."""
    resource = stack.instances()[instance]
    return stack.server.do(lambda cloud: cloud.backend.console(resource)).decode(errors="replace")


def inside(stack: Stack, instance: str, *command: str) -> str:
    """Run a command in a machine as root, beside all that Muster has set up."""
    return podman("exec", stack.container(instance), *command)


def controller(stack: Stack) -> str:
    """The controller's name."""
    return f"{stack.name}-controller"


def state(stack: Stack, job: str) -> str:
    """A job's state as squeue has it, such as RUNNING; empty where SLURM has forgotten it."""
    return tour.run(stack, f"squeue -h -t all -o %T -j {job}").strip()


def ask(stack: Stack, instance: str, what: str) -> None:
    """Call a method of an instance as the project's owner: `reset`..."""
    zone = stack.instances()[instance]["zone"].rpartition("/")[2]
    path = f"compute/v1/projects/{stack.project}/zones/{zone}/instances/{instance}/{what}"
    headers = {"Authorization": "Bearer owner"}
    answer = httpx.post(f"{stack.server.url}/{path}", headers=headers, trust_env=False)
    answer.raise_for_status()


def operations(stack: Stack, kind: str) -> list[dict[str, Any]]:
    """Return all operations of a type that there have been: `bulkInsert`, `insert`..."""
    return stack.server.do(
        lambda cloud: [
            resource
            for _, _, resource in cloud.store.all("compute.operations")
            if resource["operationType"] == kind
        ]
    )
