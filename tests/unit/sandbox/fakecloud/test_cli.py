"""`muster cloud fake` as a process."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from muster_sandbox.fakecloud.environment import environment

NETWORKS = "/compute/v1/projects/my-project/global/networks"


class Process:
    """A running fakecloud that has printed its address."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "muster", "cloud", "fake", "--project", "my-project"]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        # A process that doesn't start is killed, and the test fails.
        self.limit = threading.Timer(60, self.process.kill)
        self.limit.start()
        self.variables: dict[str, str] = {}
        assert self.process.stdout
        for line in self.process.stdout:
            words = shlex.split(line, comments=True)
            if not words:
                return
            name, _, value = words[1].partition("=")
            self.variables[name] = value

    @property
    def url(self) -> str:
        return self.variables["STORAGE_EMULATOR_HOST"]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        self.limit.cancel()
        assert "Traceback" not in errors, errors
        return self.process.returncode


def test_gcloud_finds_the_owner_s_token_in_a_file_which_goes_with_fakecloud():
    fake = Process("--port", "0")
    token = Path(fake.variables["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"])
    headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
    answer = httpx.get(f"{fake.url}{NETWORKS}", headers=headers, trust_env=False)
    assert answer.is_success, answer.text
    assert fake.end(signal.SIGTERM) == 0
    assert not token.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_keeps_its_state(tmp_path: Path, number: int):
    headers = {"Authorization": "Bearer owner"}
    first = Process("--port", "0", "--state", str(tmp_path))
    body = {"name": "lab", "autoCreateSubnetworks": False}
    made = httpx.post(f"{first.url}{NETWORKS}", json=body, headers=headers, trust_env=False)
    assert made.status_code == 200, made.text
    assert Path(first.variables["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]).read_text() == "owner\n"
    assert first.end(number) == 0
    second = Process("--port", "0", "--state", str(tmp_path))
    answer = httpx.get(f"{second.url}{NETWORKS}/lab", headers=headers, trust_env=False)
    assert answer.json()["name"] == "lab"
    assert second.end(number) == 0


def test_a_port_that_is_taken_is_one_sentence():
    first = Process("--port", "0")
    port = first.url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "muster", "cloud", "fake", "--port", port],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert first.end(signal.SIGTERM) == 0
    assert done.returncode == 1
    assert done.stderr == (
        f"fakecloud can't listen on 127.0.0.1:{port}: Address already in use; give another with "
        "--port or --metadata-port\n"
    )


def test_every_endpoint_of_the_provider_ends_with_a_segment():
    """Pulumi's provider needs values that end with "/segment/"."""
    variables = environment("http://127.0.0.1:1", "p")
    endpoints = {
        name: value for name, value in variables.items() if name.endswith("_CUSTOM_ENDPOINT")
    }
    assert len(endpoints) == 8
    for value in endpoints.values():
        assert value.endswith("/"), value
        assert value.count("/") >= 5, value


def test_machines_and_a_state_that_stays_are_refused_in_one_sentence(tmp_path: Path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "muster", "cloud", "fake", "--machines"),
            *("--state", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "machines end with fakecloud: leave out --state or --machines\n"
