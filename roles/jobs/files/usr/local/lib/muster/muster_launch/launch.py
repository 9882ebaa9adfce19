# SPDX-License-Identifier: Apache-2.0
"""The program launch."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from muster_launch import frameworks, inherited, network
from muster_launch.cores import narrowed, threads
from muster_launch.errors import LaunchError
from muster_launch.gpus import gpus_of
from muster_launch.settings import LAST_PORT, Facts, Setting, port_of, settings
from muster_launch.step import Step, step_of

FAILED, WRONG = 1, 2
_SCANCEL_TIMEOUT_S = 30


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="launch",
        usage="srun launch [--explain] COMMAND [WORD ...]",
        description="Start a program in each task of a job, with the variables that PyTorch, "
        "TensorFlow, JAX, NCCL, Gloo and OpenMP want. What is set already stays, unless launch has "
        "set it for another job or step; MPI finds its tasks itself, through PMIx (srun "
        "--mpi=pmix).",
        epilog=f"Exit code: the program's own; {FAILED}: it was not started; {WRONG}: the words "
        "are wrong.",
        allow_abbrev=False,
    )
    whole.add_argument(
        "--explain", action="store_true", help="say what would be set and why, and start nothing"
    )
    whole.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return whole


def main(words: Sequence[str]) -> int:
    """Become the program, or return the exit code with which it was not started."""
    whole = parser()
    options = whole.parse_args(words)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command and not options.explain:
        whole.error("there is no COMMAND to start")
    foreign = [*inherited.of_another_step(os.environ), *inherited.of_torchrun(os.environ)]
    own = {name: value for name, value in os.environ.items() if name not in foreign}
    try:
        step = step_of(own)
    except LaunchError as error:
        return _say(error)
    others = inherited.of_another(step, own)
    given = {name: value for name, value in own.items() if name not in others}
    try:
        wanted = prepare(step, command, given)
        if options.explain:
            if step.rank == 0:
                sys.stdout.write(explanation(step, wanted, given, others, foreign))
            return 0
        note = narrowed(given, os.sched_getaffinity(0))
        if note and step.rank == 0:
            sys.stderr.write(f"launch: {note}\n")
        # What is empty counts as not set.
        new = {one.name: one.value for one in wanted if not given.get(one.name)}
        mark = inherited.note(step, new, given)
        environment = {**given, **new, inherited.NOTE: mark}
        path = frameworks.program(command)
        try:
            os.execve(path, list(command), environment)
        except OSError as error:
            raise LaunchError(
                f"{path} can't be started ({error.strerror}): name a program for this machine, or "
                "begin the script with a line such as #!/bin/bash"
            ) from error
    except LaunchError as error:
        code = _say(error)
        _end(step)
        return code


def prepare(step: Step, command: Sequence[str], environment: Mapping[str, str]) -> list[Setting]:
    """Return the variables for this task, when the program can be started.

    Raises:
        LaunchError: it can't.

    """
    gpus = gpus_of(step, environment)
    port = port_of(step, environment)
    if step.size == 1 and not environment.get("MASTER_PORT"):
        port = network.free_port(port, LAST_PORT)
    others = [name for name in step.nodes if name != step.node][:1]
    if not environment.get("MASTER_ADDR"):
        network.address_of(step.nodes[0])
    facts = Facts(
        interface=network.interface(step.node, others[0] if others else None),
        threads=threads(step, environment, os.sched_getaffinity(0)),
        gpus=gpus,
    )
    # Once for all tasks: the first of them says it.
    if step.rank == 0:
        if step.size > 1 and network.is_taken(port):
            raise LaunchError(
                f"port {port} of {step.node} is in use: set MASTER_PORT to another one from 20000 "
                "to 24999, before srun"
            )
        script = frameworks.script_of(command) if command else None
        if script is not None:
            frameworks.check(frameworks.program(command), script)
    wanted = settings(step, facts, port, environment)
    of_files = network.set_for_nccl(environment)
    return [setting for setting in wanted if setting.name not in of_files]


def explanation(
    step: Step,
    wanted: Sequence[Setting],
    environment: Mapping[str, str],
    others: Sequence[str],
    foreign: Sequence[str],
) -> str:
    """Return what is set for a task and why, a line for each variable.

    Args:
        step: Of which it is a task.
        wanted: The variables for it.
        environment: Those that are set, without `others` and `foreign`.
        others: Those that `launch` has set for another step.
        foreign: Those that SLURM or torchrun has set for another step.

    """
    head = f"task {step.rank} of {step.size}, on {step.node}:\n"
    lines = []
    for setting in wanted:
        given = environment.get(setting.name)
        why = "it was set already, and stays" if given else setting.why
        lines.append(f"{setting.name}={given or setting.value}  # {why}\n")
    names = [setting.name for setting in wanted]
    if "TF_CONFIG" not in names:
        lines.append("# TF_CONFIG: not set, as the tasks are too many, or in an unknown order\n")
    if "GLOO_SOCKET_IFNAME" not in names:
        lines.append("# NCCL and Gloo find their interface: none holds the address of this node\n")
    elif "NCCL_SOCKET_IFNAME" not in names:
        lines.append("# NCCL_SOCKET_IFNAME: not set, as a file of NCCL's (nccl.conf) has it\n")
    note = narrowed(environment, os.sched_getaffinity(0))
    if note:
        lines.append(f"# {note}\n")
    if foreign:
        lines.append(f"# not kept, as they are of another step: {', '.join(foreign)}\n")
    if others:
        origin = inherited.origin(environment)
        lines.append(f"# not kept, as launch has set them for {origin}: {', '.join(others)}\n")
    lines.append(
        f"# {inherited.NOTE}: names job, step and what is set here; a launch in another job or "
        "step, which inherits it, sets these itself\n"
    )
    lines.append("# MPI: left to PMIx (srun --mpi=pmix)\n")
    return head + "".join(lines)


def _say(error: LaunchError) -> int:
    sys.stderr.write(f"launch: {error}\n")
    return FAILED


def _end(step: Step) -> None:
    """End the tasks that did start: they would wait for this one, up to the time limit."""
    if step.size == 1:
        return
    if os.environ.get("SLURM_HET_SIZE"):
        # The job's number is that of its first component, which may have a step of this number.
        sys.stderr.write(f"launch: the other tasks go on: end the job by scancel {step.job}\n")
        return
    try:
        subprocess.run(
            ["scancel", f"{step.job}.{step.number}"],
            stdin=subprocess.DEVNULL,
            timeout=_SCANCEL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(
            f"launch: the other tasks could not be ended ({error}): "
            f"type scancel {step.job}.{step.number}\n"
        )
