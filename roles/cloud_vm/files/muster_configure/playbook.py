# SPDX-License-Identifier: Apache-2.0
"""One run of site.yml on this VM only."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from . import processes
from .cloud import TroubleError

RUN_S = 3600
"""Time limit of a run; a first one takes some minutes."""
PREPARE_S = 120


class RunError(TroubleError):
    """The run failed; `step` is the title of the task."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class Playbook:
    """Runs the bundle's site.yml with the programs of Muster's virtual environment."""

    def __init__(self, venv: str | Path, private: str | Path) -> None:
        """`venv`: folder of the environment; `private`: folder for root alone, in memory."""
        self._venv = Path(venv)
        self._private = Path(private)

    def prepare(self, bundle: Path, name: str, addresses: Mapping[str, str]) -> None:
        """Write the bundle's inventory: the cluster's groups, as this VM sees them.

        Raises:
            RunError: the definition is wrong.

        """
        command = [
            *(str(self._venv / "bin/python"), "-m", "muster.gcp.inventory"),
            *("inventory", name, json.dumps(addresses)),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=bundle,
                env=self._environment(bundle),
                capture_output=True,
                text=True,
                timeout=PREPARE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError("Read the definition", str(error)) from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            # The last line of a traceback, all lines of what a check found.
            said = said[-1:] if said[0].startswith("Traceback") else said
            raise RunError("Read the definition", " ".join(said))
        # Not hosts.yml, which `muster check` refuses in the folder of a cluster in the cloud.
        (Path(bundle) / "inventory" / "machines.json").write_text(done.stdout, encoding="utf-8")

    def run(
        self, bundle: Path, name: str, keys: Mapping[str, str], on_step: Callable[[str], object]
    ) -> None:
        """Run site.yml; `on_step` gets the title of each task as it begins.

        Raises:
            RunError: it failed.

        """
        variables = self._private / "secrets.json"
        reading, writing = os.pipe()
        still_open = [reading, writing]
        command = [
            str(self._venv / "bin/ansible-playbook"),
            *("--inventory", "inventory", "--limit", name),
            *("--extra-vars", f"@{variables}", "ansible/site.yml"),
        ]
        environment = self._environment(bundle) | {"MUSTER_PROGRESS_FD": str(writing)}
        steps = Steps(on_step)
        try:
            write_private(variables, json.dumps({"secrets": keys}))
            # What it prints goes to the journal with what this program prints.
            with subprocess.Popen(
                command, cwd=bundle, env=environment, pass_fds=[writing], stdin=subprocess.DEVNULL
            ) as process:
                os.close(writing)
                still_open.remove(writing)
                reader = threading.Thread(target=steps.read, args=(reading,), daemon=True)
                reader.start()
                try:
                    code = process.wait(RUN_S)
                except subprocess.TimeoutExpired as error:
                    processes.end(process)
                    late = f"no end after {RUN_S // 60} minutes"
                    raise RunError(steps.step, late) from error
                # Its workers have ended with it, so this does too.
                reader.join(10)
        except OSError as error:
            raise RunError("Run ansible-playbook", str(error)) from error
        finally:
            variables.unlink(missing_ok=True)
            for end in still_open:
                os.close(end)
        if code != 0:
            step, message = steps.failure or (
                steps.step or "Run ansible-playbook",
                f"ansible-playbook ended with {code} and without a failed task; "
                "journalctl -u muster-configure says more",
            )
            raise RunError(step, message)

    def _environment(self, bundle: Path) -> dict[str, str]:
        bundle = Path(bundle)
        return os.environ | {
            "PATH": f"{self._venv}/bin:{os.environ.get('PATH', os.defpath)}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(bundle),
            "ANSIBLE_CONFIG": str(bundle / "ansible.cfg"),
            "ANSIBLE_CALLBACKS_ENABLED": "muster.slurm.muster_progress",
            "ANSIBLE_NOCOLOR": "1",
            # Arguments of modules may hold secrets: they go through pipes, files are in memory.
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_HOME": str(self._private / "ansible"),
            "ANSIBLE_REMOTE_TEMP": str(self._private / "tmp"),
        }


class Steps:
    """Reads what the callback plugin muster_progress writes: JSON lines."""

    def __init__(self, on_step: Callable[[str], object]) -> None:
        self._on_step = on_step
        self.step = ""
        self.failure: tuple[str, str] | None = None
        """Title and sentence of the last task that failed."""

    def read(self, descriptor: int) -> None:
        """Read lines until the writers are gone."""
        try:
            with open(descriptor, encoding="utf-8", closefd=False) as lines:
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            return  # the run took too long, and the rest is not read

    def _take(self, event: Mapping[str, str]) -> None:
        if "failed" in event:
            self.failure = (event["task"], event["failed"])
        else:
            self.step = event["task"]
            self._on_step(self.step)


def write_private(path: Path, text: str) -> None:
    """Write a file that only root can read at any moment."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
