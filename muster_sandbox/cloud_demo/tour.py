"""What the demo shows once the cluster is up: each step checks what it shows."""

import subprocess
import time
from collections.abc import Callable
from itertools import groupby
from typing import Any

from muster_sandbox.cloud_demo.site import Site, Stack
from muster_sandbox.containers.podman import podman
from muster_sandbox.demo.showing import TourError, expect

PERSON, NEWCOMER = "ada", "bob"
MEMORIES = {"compute.operations", "compute.requests", "identity.tokens"}
"""Kinds that only record the past: operations, requests, access tokens."""

WATCHED_JOB = r"""
job=$(sbatch --parsable --nodes=4 --ntasks-per-node=1 --output=four-%j \
  --wrap "srun hostname; echo the job was given \$SLURM_JOB_NODELIST")
while state=$(squeue -h -t all -o %t -j $job); do
  echo "squeue: $state   sinfo: $(sinfo -h -p debug -o "%D %t" | paste -s -d ,)"
  case $state in PD|CF|R|CG) sleep 0.2;; *) break;; esac
done
cat four-$job
"""
"""Prints squeue's and sinfo's states until the job has ended, then the job's output."""

JOB_SECONDS = 300
"""Timeout of each command here: ResumeTimeout, the longest that nodes may take to come up."""


def login(stack: Stack) -> str:
    """The first login node."""
    return f"{stack.name}-login-0"


def run(stack: Stack, command: str, person: str = PERSON) -> str:
    """Run `command` in a login shell on the login node, and return what it printed.

    Raises:
        TourError: it failed, or took longer than JOB_SECONDS.

    """
    quoted = command.replace("'", "'\\''")
    try:
        done = subprocess.run(
            [*stack.ssh(person, login(stack)), f"bash -lc '{quoted}'"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TourError(f"`{command}` did not end within {JOB_SECONDS} s") from error
    if done.returncode != 0:
        raise TourError(f"`{command}` ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def nodes(stack: Stack) -> list[str]:
    """Return the names of the VMs that are compute nodes."""
    instances = stack.instances()
    return sorted(name for name, vm in instances.items() if vm["labels"]["muster-role"] == "node")


def logged_in(stack: Stack) -> str:
    """On the login node ada sees ten nodes, and none of them exists."""
    if nodes(stack):
        raise TourError(f"there are nodes already: {', '.join(nodes(stack))}")
    return expect(run(stack, "sinfo"), "debug*", "idle~")


def job(stack: Stack) -> str:
    """A job on four nodes that are created for it; meanwhile its state is CF (configuring)."""
    shown = [line for line, _ in groupby(run(stack, WATCHED_JOB).splitlines())]
    if not any("CF" in line and "4 alloc#" in line and "6 idle~" in line for line in shown):
        raise TourError(f"the job was never seen waiting for its nodes: {shown}")
    lines = "\n".join(shown)
    expect(lines, f"the job was given {stack.name}-debug-[0-3]")
    return f"{lines}\nVMs now: {', '.join(sorted(stack.instances()))}\n"


def batch(stack: Stack) -> str:
    """A batch job on one of the nodes that exist now: no new node is created."""
    started = time.monotonic()
    script = "#!/bin/sh\nhostname\n"
    number = run(stack, f"printf '{script}' | sbatch --parsable --wait -o out-%j").strip()
    shown = expect(run(stack, f"cat out-{number}"), f"{stack.name}-debug-")
    return f"job {number} after {time.monotonic() - started:.1f} s: {shown}"


def token(stack: Stack) -> str:
    """The metadata server, which hands out the VM's token, refuses ada."""
    probe = "(: </dev/tcp/169.254.169.254/80) 2>&1 | tail -n 1"
    shown = [run(stack, probe), run(stack, f'srun bash -c "{probe}"')]
    for text in shown:
        expect(text, "refused")
    return f"on the login node: {shown[0]}inside a job: {shown[1]}"


def accounting(stack: Stack) -> str:
    """What ada has run, and what it was charged to."""
    columns = "JobID,JobName%12,Partition,Account,NNodes,State,NodeList%30"
    return expect(run(stack, f"sacct -X -o {columns}"), stack.name, "COMPLETED")


def add_newcomer(site: Site) -> None:
    """Change the definition: another person, another partition."""

    def edit(cluster: Any) -> None:
        people = cluster["users"]["people"]
        people[NEWCOMER] = {
            "uid": 20002,
            "groups": list(people[PERSON]["groups"]),
            "ssh_keys": [site.public_key(NEWCOMER)],
        }
        cluster["accounts"][next(iter(cluster["accounts"]))]["users"].append(NEWCOMER)
        cluster["partitions"]["long"] = {
            "nodes": ["debug"],
            "max_time": "7-00:00:00",
            "groups": list(cluster["partitions"]["debug"]["groups"]),
        }

    site.change(edit)


def newcomer(stack: Stack) -> str:
    """bob, who was added, logs in and runs a job in the new partition."""
    shown = run(stack, "srun --partition=long sh -c 'id -un; hostname'", NEWCOMER)
    return expect(shown, NEWCOMER, f"{stack.name}-debug-")


def timeline(stack: Stack, since_s: float) -> str:
    """Return the picture that `muster timeline` draws on the controller, of the last seconds."""
    controller, file = stack.container(f"{stack.name}-controller"), "/root/timeline.svg"
    podman("exec", controller, "muster", "timeline", "--since", f"{since_s:.0f}s", file)
    return podman("exec", controller, "cat", file)


def held(stack: Stack) -> set[tuple[str, str, str]]:
    """Return all resources of the project: kind, place, name; without records of the past."""
    return stack.server.do(
        lambda cloud: {
            (kind, scope, name)
            for kind in cloud.store.kinds()
            for scope, name, resource in cloud.store.all(kind)
            # A deleted role stays listed for some weeks.
            if kind not in MEMORIES and not resource.get("deleted")
        }
    )


STEPS: tuple[tuple[str, Callable[[Stack], str]], ...] = (
    ("ada logs in", logged_in),
    ("a job on four nodes, which are created for it", job),
    ("a batch job on a node that exists", batch),
    ("the VM's token is not for ada", token),
    ("sacct", accounting),
)
