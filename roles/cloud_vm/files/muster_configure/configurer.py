# SPDX-License-Identifier: Apache-2.0
"""Configures this VM as its metadata says, and repeats that after each change."""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from . import bundles
from .cloud import Cloud, TroubleError
from .keys import Keys
from .playbook import Playbook, RunError
from .report import Reporter, broadcast
from .wanted import Wanted, Watch

PAUSES_S = (30, 120)
"""Between tries of a run that fails. After the last one only a new bundle or a boot starts one."""
PATIENCE_S = 600
"""After so long a wait the report says `failed`; the wait continues."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 20.0
SLURMCTLD_PORT = 6817
CONNECT_S = 5
FLUSH_S = 60


Result = TypeVar("Result")


class SupersededError(Exception):
    """The metadata has changed meanwhile."""


@dataclass(frozen=True)
class Places:
    """Paths on this VM."""

    opt: Path = Path("/opt/muster")
    """Bundles, and `current`."""
    applied: Path = Path("/var/lib/muster/applied.json")
    """What the last successful run applied."""
    host_keys: Path = Path("/etc/ssh")


class Configurer:
    """The program: waits for a change of the metadata, applies it, reports."""

    def __init__(
        self,
        cloud: Cloud,
        *,
        watch: Watch,
        reporter: Reporter,
        keys: Keys,
        playbook: Playbook,
        name: str,
        places: Places | None = None,
        tell: Callable[[str], None] = broadcast,
    ) -> None:
        """`name`: of this VM, in the inventory too; `tell`: says a sentence to all who are in."""
        self._cloud = cloud
        self._watch = watch
        self._reporter = reporter
        self._keys = keys
        self._playbook = playbook
        self._name = name
        self._places = places or Places()
        self._tell = tell
        self.patience_s = PATIENCE_S
        self.first_wait_s = FIRST_WAIT_S
        self.slurmctld_port = SLURMCTLD_PORT
        self.pauses_s = PAUSES_S

    def bring(self, wanted: Wanted) -> None:
        """Bring one thing about, in several tries; return when it is, or something else is wanted.

        After a reboot there is nothing to do: all that a run configures outlives a boot, so jobs
        and logins need neither Ansible nor Secret Manager for it.
        """
        if self._applied() == wanted:
            self._reporter.done(wanted.digest)
            return
        try:
            for pause in (*self.pauses_s, None):
                try:
                    self._try(wanted)
                except RunError as error:
                    self._failed(wanted, error, pause)
                else:
                    return
        except SupersededError:
            return

    def _failed(self, wanted: Wanted, error: RunError, pause: float | None) -> None:
        """Say so; unless it was the last try (`pause` is None) wait before the next one."""
        if pause is None:
            self._reporter.failed(wanted.digest, error.step, str(error))
            self._tell(f"Muster: {self._name} could not be set up; the next login says why.")
        else:
            again = f"{error}; tried again in {pause} s"
            self._reporter.running(wanted.digest, error.step, again)
            self._wait(wanted, pause)

    def _try(self, wanted: Wanted) -> None:
        """Fetch, run, note.

        Raises:
            RunError: this try failed.
            SupersededError: something else is wanted.

        """
        place = self._persist(wanted, "Fetch the bundle", lambda: self._fetch(wanted))
        secrets = self._persist(
            wanted, "Read the secrets", lambda: self._keys.read(wanted.cluster, wanted.role)
        )
        if wanted.role == "login":
            controller = f"{wanted.cluster}-controller"
            address = wanted.addresses.get(controller, controller)
            self._persist(wanted, "Wait for the controller", lambda: self._reach(address))
        self._reporter.running(wanted.digest, "Read the definition")
        self._playbook.prepare(place, self._name, wanted.addresses)
        # From here on this VM is neither as before nor as wanted: going back to the old bundle
        # needs a run too.
        self._places.applied.unlink(missing_ok=True)
        # Now, not at the end: what the run configures may call programs of its bundle.
        bundles.make_current(place, self._places.opt)
        self._playbook.run(
            place, self._name, secrets, lambda step: self._reporter.running(wanted.digest, step)
        )
        self._note(wanted)
        self._tell_host_keys()
        self._reporter.done(wanted.digest)
        self._tell(f"Muster: {self._name} is set up; SLURM's commands and the folders are there.")

    def _fetch(self, wanted: Wanted) -> Path:
        archive = self._cloud.download(wanted.bucket, wanted.object)
        try:
            bundles.check(archive, wanted.digest)
            return bundles.unpack(archive, wanted.digest, self._places.opt)
        except TroubleError as error:
            raise RunError("Fetch the bundle", str(error)) from error

    def _reach(self, address: str) -> None:
        try:
            socket.create_connection((address, self.slurmctld_port), CONNECT_S).close()
        except OSError as error:
            raise TroubleError(
                f"slurmctld at {address}:{self.slurmctld_port} does not answer ({error}); the "
                "report of the controller says how far it is"
            ) from error

    def _persist(self, wanted: Wanted, step: str, work: Callable[[], Result]) -> Result:
        """Return what `work` returns, however often it must be tried.

        Raises:
            RunError: `work` says that it is of no use.
            SupersededError: something else is wanted meanwhile.

        """
        self._reporter.running(wanted.digest, step)
        begin = time.monotonic()
        wait = self.first_wait_s
        while True:
            try:
                return work()
            except RunError:
                raise
            except TroubleError as error:
                patient = time.monotonic() - begin < self.patience_s
                tell = self._reporter.running if patient else self._reporter.failed
                tell(wanted.digest, step, str(error))
            self._wait(wanted, wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _wait(self, wanted: Wanted, seconds: float) -> None:
        if self._watch.other_than(wanted, seconds):
            raise SupersededError

    def _applied(self) -> Wanted | None:
        try:
            data = json.loads(self._places.applied.read_text(encoding="utf-8"))
            return Wanted(**data)
        except (FileNotFoundError, ValueError, TypeError):
            return None  # none, or of another version of this program: a run more

    def _note(self, wanted: Wanted) -> None:
        place = self._places.applied
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = place.with_name(place.name + ".new")
        new.write_text(json.dumps(asdict(wanted)), encoding="utf-8")
        new.replace(place)

    def _tell_host_keys(self) -> None:
        """Say which host keys are this VM's, as Google's guest agent would.

        https://cloud.google.com/compute/docs/connect/ssh-best-practices/network-access
        """
        for file in self._places.host_keys.glob("ssh_host_*_key.pub"):
            kind, key = file.read_text(encoding="utf-8").split()[:2]
            try:
                self._cloud.tell(f"hostkeys/{kind}", key)
            except TroubleError as error:
                self._reporter.say(f"no host key told: {error}")


def serve(
    configurer: Configurer,
    watch: Watch,
    reporter: Reporter,
    changed: Callable[[], bool],
    restart: Callable[[], object],
) -> None:
    """Apply each change, for ever.

    `changed` says whether this program was replaced by a run; `restart` then puts the new one in
    its place.
    """
    wanted: Wanted | None = None
    while True:
        wanted = watch.other_than(wanted)
        try:
            configurer.bring(wanted)
        except Exception as error:
            # Unforeseen: systemd restarts this program, but a report says why.
            reporter.failed(wanted.digest, "Configure this VM", f"{type(error).__name__}: {error}")
            reporter.flush(FLUSH_S)
            raise
        if changed() and reporter.flush(FLUSH_S):
            restart()
