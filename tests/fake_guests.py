"""Fake guests for fakecloud: a builder, a controller or a login node that only reports.

They are for tests of programs that wait for guests.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from muster_sandbox.fakecloud import Cloud
from muster_sandbox.fakecloud.backends import Done
from muster_sandbox.fakecloud.backends.memory import MemoryBackend
from muster_sandbox.fakecloud.guest import attributes
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services.compute import lifecycle
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES
from muster_sandbox.fakecloud.services.compute.resources import Reference, from_link

STEPS = {
    "builder": ("Fetch the bundle", "Install SLURM"),
    "controller": ("Fetch the bundle", "Start slurmctld"),
    "login": ("Fetch the bundle", "Mount the folders"),
}


@dataclass
class Script:
    """How guests behave; a test changes it while the cloud runs, by `server.do`."""

    step_seconds: float = 0.05
    lasts: Callable[[str], bool] = lambda _step: False
    """Whether a step goes on though its seconds are over: until a test has seen it."""
    fails: dict[str, str] = field(default_factory=dict)
    """Role -> the message with which its last step fails."""
    silent: set[str] = field(default_factory=set)
    """Roles that report nothing."""
    stays_on: bool = False
    """A builder that is done doesn't power itself off."""
    applied: list[tuple[str, str]] = field(default_factory=list)
    """(machine, digest) in the order in which they were done."""


class Guests(MemoryBackend):
    """Instances that report according to `muster-role` in their metadata; others do nothing."""

    def __init__(self, cloud: Cloud, script: Script) -> None:
        super().__init__()
        self.cloud = cloud
        self.script = script

    def start(self, instance: Resource, done: Done) -> None:
        """Start the machine and its programs."""
        super().start(instance, done)
        role = attributes(instance).get("muster-role", "")
        if role in STEPS and role not in self.script.silent:
            target = from_link(instance["selfLink"])
            self.cloud.later(0, lambda: self._apply(target, instance["id"], role))

    def again(self, name: str) -> None:
        """Restart a machine's programs, as a user on it would."""
        for _, _, instance in list(self.cloud.store.all("compute.instances")):
            if instance["name"] == name:
                role = attributes(instance)["muster-role"]
                self._apply(from_link(instance["selfLink"]), instance["id"], role)

    def _apply(self, target: Reference, identity: str, role: str) -> None:
        """Apply the bundle that the metadata names now."""
        instance = self._present(target, identity)
        if instance is not None:
            name = attributes(instance)["muster-bundle"].rpartition("/")[2]
            digest = name.removesuffix(".tar.gz").rpartition("-")[2]
            self._step(target, identity, role, digest, 0)

    def _step(self, target: Reference, identity: str, role: str, digest: str, number: int) -> None:
        instance = self._present(target, identity)
        if instance is None:
            return
        steps = STEPS[role]
        failure = self.script.fails.get(role)
        console = self.consoles.get(identity, b"")
        if number < len(steps):
            self.consoles[identity] = console + f"[muster] {steps[number]}\r\n".encode()
            self._report(target, digest, "running", steps[number])

            def over() -> None:
                if self.script.lasts(steps[number]):
                    self.cloud.later(self.script.step_seconds, over)
                else:
                    self._step(target, identity, role, digest, number + 1)

            self.cloud.later(self.script.step_seconds, over)
        elif failure:
            self.consoles[identity] = console + f"fatal: {failure}\r\n".encode()
            self._report(target, digest, "failed", steps[-1], failure)
            self._await_change(target, identity, role, digest)
        else:
            self.script.applied.append((target.name, digest))
            self._report(target, digest, "done", steps[-1])
            if role == "builder":
                if not self.script.stays_on:
                    lifecycle.powered_off(self.cloud, instance)
            else:
                self._await_change(target, identity, role, digest)

    def _await_change(self, target: Reference, identity: str, role: str, digest: str) -> None:
        """Start again when the metadata names another bundle."""

        def changed() -> None:
            instance = self._present(target, identity)
            if instance is None:
                return
            if digest in attributes(instance)["muster-bundle"]:
                self._await_change(target, identity, role, digest)
            else:
                self._apply(target, identity, role)

        # Soon, not immediately: the watchers of a change are called one after another.
        watchers = self.cloud.watchers.setdefault(target.link, [])
        watchers.append(lambda: self.cloud.later(0, changed))

    def _present(self, target: Reference, identity: str) -> Resource | None:
        """The machine, if it still exists and is on."""
        instance = target.find(self.cloud)
        same = instance is not None and instance["id"] == identity
        return instance if same and instance["status"] in ("STAGING", "RUNNING") else None

    def _report(
        self, target: Reference, bundle: str, state: str, step: str, message: str = ""
    ) -> None:
        text = json.dumps({"bundle": bundle, "state": state, "step": step, "message": message})
        scope = f"{target.scope}/{target.name}"
        self.cloud.store.put(GUEST_ATTRIBUTES, scope, "muster/report", {"value": text})
