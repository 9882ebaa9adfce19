"""Runs a program on a VM of a cluster by ssh, which needs no configuration here."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from muster.catalog import printable
from muster.gcp import ssh
from muster.gcp.pulumi_stack import Stack

CONNECT_S = 30
"""Seconds for the connection through IAP and ssh's own handshake."""
RUN_S = 300
"""Seconds until a program there is given up, if nobody says otherwise."""
SSH_FAILED, NOT_FOUND = 255, 127
"""Exit codes of ssh itself, https://man.openbsd.org/ssh#EXIT_STATUS, and of a shell for a program
that is not there."""

# What ssh, or gcloud as its tunnel, says -> what to do. Codes of IAP:
# https://cloud.google.com/iap/docs/faq
_REMEDIES = (
    (
        r"gcloud: .*not found|gcloud: No such file",
        "install gcloud: https://cloud.google.com/sdk/docs/install",
    ),
    (r"active account|auth tokens|Reauthentication", "run `gcloud auth login`"),
    (
        r"\[4033|not authorized|permission for '|PERMISSION_DENIED",
        "add your Google account to cloud.iap_admins, then `pulumi up`",
    ),
    (
        r"\[4003|\[4047|was not found",
        "see whether the VM runs: gcloud compute instances list --project {project}",
    ),
    (
        r"IDENTIFICATION HAS CHANGED|Host key verification failed",
        "if its VM was replaced: ssh-keygen -R {alias} -f {known_hosts}",
    ),
    (
        r"Permission denied",
        "it lets in people with `admin: true` and a key in `ssh_keys`: `ssh-add` yours, and name "
        "your login with --user",
    ),
    (r"", "docs/cloud-access.md says what it needs"),
)


class RemoteError(Exception):
    """A program could not be run on a VM; the text is one sentence with a remedy."""


@dataclass(frozen=True)
class Ended:
    """A program that has ended on a VM."""

    code: int
    """Its exit code."""
    errors: str
    """What it wrote to its standard error, fit for a terminal."""
    output: bytes
    """What it wrote to its standard output."""


def run(
    stack: Stack,
    host: str,
    command: Sequence[str],
    *,
    user: str | None = None,
    forwards_agent: bool = False,
    seconds: int = RUN_S,
) -> Ended:
    """Run a program on a VM, as a person with a login there.

    Args:
        stack: the cluster.
        host: name of the VM.
        command: the program and its arguments; no shell changes them.
        user: login there; None: as ssh's configuration says, else as here.
        forwards_agent: sudo there can ask the ssh agent for a key.
        seconds: how long it may take.

    Raises:
        RemoteError: it could not be reached, has no such program, or takes too long.

    """
    options = ssh.options(stack, host, forwards_agent=forwards_agent)
    options["ConnectTimeout"] = str(CONNECT_S)
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    login = ["-l", user] if user else []
    try:
        done = subprocess.run(
            ["ssh", *words, *login, host, shlex.join(command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise RemoteError(
            f"the program ssh is not installed here, and only it reaches {host}; install OpenSSH's "
            "client"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RemoteError(
            f"`{shlex.join(command)}` on {host} has not ended after {seconds} s; log in there "
            f"(ssh {host}) and look"
        ) from error
    errors = printable.lines(done.stderr.decode(errors="replace"))
    if done.returncode == SSH_FAILED:
        raise RemoteError(_refusal(stack, host, errors))
    if done.returncode == NOT_FOUND:
        raise RemoteError(
            f"{host} has no program {command[0]} yet: `pulumi up` waits until it has configured "
            "itself"
        )
    return Ended(done.returncode, errors, done.stdout)


def _refusal(stack: Stack, host: str, errors: str) -> str:
    """Return the line that says why ssh failed, and what to do."""
    facts = {
        "project": stack.project,
        "alias": ssh.alias(stack, host),
        "known_hosts": ssh.known_hosts(stack),
    }
    lines = [line.strip().rstrip(".") for line in errors.splitlines() if line.strip()]
    # ssh's own last line is mostly that the connection was closed; gcloud's is before it.
    for pattern, remedy in _REMEDIES:
        for line in reversed(lines):
            if re.search(pattern, line):
                return f"{host} can't be reached: {line}; {remedy.format(**facts)}"
    return f"{host} can't be reached: ssh said nothing; try `ssh -v {host}`"
