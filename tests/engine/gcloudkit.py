"""gcloud, pointed at `muster cloud fake` by the variables that it prints."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND_SECONDS = 120
START_SECONDS = 60

INSTALLED = shutil.which("gcloud")
MISSING = "gcloud is not installed: https://cloud.google.com/sdk/docs/install"

QUIET = {
    "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
    "CLOUDSDK_COMPUTE_REGION": "europe-west4",
    "CLOUDSDK_COMPUTE_ZONE": "europe-west4-a",
    # Both call Google, whatever the endpoints are.
    "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
}


class Gcloud:
    """`gcloud("compute instances list")` -> what it prints; the command must succeed."""

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        others = ("CLOUDSDK_", "GOOGLE_")
        own = {key: value for key, value in os.environ.items() if not key.startswith(others)}
        config = {"HOME": str(home), "CLOUDSDK_CONFIG": str(home / "gcloud")}
        self.environment = own | QUIET | config | dict(variables)

    def __call__(self, command: str) -> str:
        done = self._run(command)
        assert done.returncode == 0, f"gcloud {command}\n{done.stdout}{done.stderr}"
        # A list of which a part was refused is only warned of.
        assert "did not succeed" not in done.stderr, f"gcloud {command}\n{done.stderr}"
        return done.stdout

    def json(self, command: str) -> Any:
        """What the command prints as JSON."""
        return json.loads(self(f"{command} --format=json"))

    def values(self, command: str, fields: str = "name") -> list[str]:
        """Some fields of each resource, in lines."""
        return self(f"{command} --format='value({fields})'").splitlines()

    def refused(self, command: str) -> str:
        """What a command that must fail says."""
        done = self._run(command)
        assert done.returncode == 1, f"gcloud {command}\n{done.stdout}{done.stderr}"
        return done.stderr

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        assert INSTALLED
        return subprocess.run(
            [INSTALLED, *shlex.split(command)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )


@contextmanager
def pointed_at_fakecloud(home: Path) -> Iterator[Gcloud]:
    """gcloud with a `muster cloud fake` of its own, whose instances are records.

    At the end fakecloud must have printed nothing: neither a bug of its own nor a host of Google
    that gcloud tried to reach.
    """
    errors = home / "fakecloud.err"
    with errors.open("w") as file:
        fake = subprocess.Popen(
            [sys.executable, "-m", "muster", "cloud", "fake", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    limit = threading.Timer(START_SECONDS, fake.kill)
    limit.start()
    try:
        assert fake.stdout
        variables = dict(_printed(iter(fake.stdout)))
        limit.cancel()
        assert variables, errors.read_text()
        yield Gcloud(home, variables)
    finally:
        limit.cancel()
        fake.send_signal(signal.SIGTERM)
        fake.communicate(timeout=START_SECONDS)
    assert errors.read_text() == ""


def _printed(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The variables in `export NAME=VALUE`, up to the line that says where fakecloud is."""
    for line in lines:
        words = shlex.split(line, comments=True)
        if not words:
            return
        name, _, value = words[1].partition("=")
        yield name, value
