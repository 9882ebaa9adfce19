"""What resume and suspend share: settings, node sets, this cluster's VMs, scontrol, the log.

Both are started by slurmctld as user slurm, with an empty environment: what they must know lies in
SETTINGS, which the role `autoscaler` writes, and in the controller's metadata.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import requests
from ClusterShell.NodeSet import RESOLVER_NOGROUP  # type: ignore[import-untyped]
from ClusterShell.NodeSet import NodeSet as HostList
from requests.adapters import HTTPAdapter

from muster.cloud.api import ALREADY_EXISTS, NOT_FOUND, RETRIES, CloudError, Compute, last

log = logging.getLogger("muster")

SETTINGS = Path("/etc/muster/autoscaler.json")
LABEL = "muster-cluster"
ATTRIBUTE = "muster-templates"
AT_ONCE = 8
"""Requests under way at a time: some 30 a second, the limit is 1,500 a minute for all kinds.

https://cloud.google.com/compute/api-quota
"""
POLL_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between looks; the last one from then on."""
SCONTROL_S = 60
REASON_CHARACTERS = 200
"""Longest reason: the accounting database keeps 255 bytes of it."""


class SettingsError(Exception):
    """Settings or metadata that can't be used; the message is one sentence."""


@dataclass(frozen=True)
class Settings:
    """The file SETTINGS: JSON with these names."""

    cluster: str
    resume_timeout_s: float
    """ResumeTimeout of slurm.conf: when SLURM gives up a node that has not registered."""
    suspend_timeout_s: float
    """SuspendTimeout: when SLURM takes a node for gone."""
    log_file: str
    compute_endpoint: str = ""
    """Address of Compute Engine where it isn't Google's."""
    scontrol: str = "/usr/bin/scontrol"


def read_settings(path: Path) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: there are none, or they are wrong.

    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in fields(Settings)}
        return Settings(**{name: value for name, value in found.items() if name in names})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"{path} can't be read: {error}; run site.yml") from error


def prepare(settings: Settings) -> None:
    """Point the API's client at its address, and begin to log to the file and to stderr."""
    if settings.compute_endpoint:
        os.environ["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] = settings.compute_endpoint
    form = logging.Formatter("%(asctime)s %(levelname)s %(process)d %(message)s")
    handlers: list[logging.Handler] = [
        # logrotate moves the file away.
        WatchedFileHandler(settings.log_file, encoding="utf-8"),
        logging.StreamHandler(sys.stderr),
    ]
    for handler in handlers:
        handler.setFormatter(form)
    log.handlers = handlers
    log.setLevel(logging.INFO)


def metadata(path: str) -> str:
    """Return a value of this VM's metadata; path such as `project/project-id`.

    Raises:
        CloudError: it isn't there, or nobody answers.

    """
    # The variable of Google's own libraries: google.auth.environment_vars.GCE_METADATA_HOST.
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/{path}"
    try:
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=RETRIES))
            answer = session.get(url, headers={"Metadata-Flavor": "Google"}, timeout=10)
    except requests.RequestException as error:
        raise CloudError(f"the metadata server does not answer: {error}") from error
    if not answer.ok:
        raise CloudError(f"the metadata server answers {answer.status_code} to {path}")
    return answer.text


@dataclass(frozen=True)
class NodeSet:
    """What the VMs of one node set are made of, and where, in this order."""

    template: str
    zones: tuple[str, ...]


def node_sets() -> dict[str, NodeSet]:
    """Return the node sets as the metadata says them now: a new template counts at once.

    Raises:
        CloudError: they can't be read.

    """
    try:
        found = json.loads(metadata(f"instance/attributes/{ATTRIBUTE}"))
        return {
            name: NodeSet(each["template"], tuple(each["zones"])) for name, each in found.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CloudError(f"the metadata's {ATTRIBUTE} can't be read: {error!r}") from error


def expand(hostlist: str) -> list[str]:
    """Return the names of a hostlist such as `lab-debug-[0-2]`."""
    # "@" must not send ClusterShell to the group files of the machine.
    return list(HostList(hostlist, resolver=RESOLVER_NOGROUP))


def fold(names: Iterable[str]) -> str:
    """Return names as one hostlist that SLURM reads."""
    nodes = HostList.fromlist(list(names), resolver=RESOLVER_NOGROUP)
    # SLURM wants a range at the end of a name.
    nodes.fold_axis = (-1,)
    return str(nodes)


@dataclass(frozen=True)
class Vm:
    """A VM of this cluster."""

    name: str
    zone: str
    status: str
    created: datetime

    def age_s(self) -> float:
        """Seconds since it was asked for."""
        return (datetime.now(UTC) - self.created).total_seconds()

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"zones/{self.zone}/instances/{self.name}"


class Fleet:
    """The VMs of a cluster: those that bear its label."""

    def __init__(self, compute: Compute, cluster: str) -> None:
        self.compute = compute
        self.cluster = cluster

    def vms(self) -> list[Vm]:
        """Return all VMs, wherever they are, by one request per 500."""
        wanted = "items/*/instances(name,zone,status,creationTimestamp),nextPageToken"
        return [
            Vm(
                name=found["name"],
                zone=last(found["zone"]),
                status=found["status"],
                created=datetime.fromisoformat(found["creationTimestamp"]),
            )
            for found in self.compute.everywhere(
                "instances", filter=f"labels.{LABEL}={self.cluster}", fields=wanted
            )
        ]

    def create(self, name: str, template: str, zone: str) -> dict[str, Any] | None:
        """Make a VM from a template; return the operation, or None where it is there already.

        Raises:
            CloudError: it can't be made, or a VM of somebody else has the name.

        """
        where = f"zones/{zone}/instances"
        try:
            return self.compute.post(where, {"name": name}, sourceInstanceTemplate=template)
        except CloudError as error:
            if error.status != ALREADY_EXISTS:
                raise
            if self._is_ours(f"{where}/{name}"):
                return None
            raise CloudError(
                f"a VM of this name in {zone} is not one of cluster {self.cluster}",
                ALREADY_EXISTS,
                "alreadyExists",
            ) from error

    def _is_ours(self, path: str) -> bool:
        try:
            found = self.compute.get(path)
        except CloudError as error:
            if error.status == NOT_FOUND:
                # Gone since; the next round makes it.
                return True
            raise
        return bool(found.get("labels", {}).get(LABEL) == self.cluster)

    def delete(self, vm: Vm) -> dict[str, Any] | None:
        """Delete a VM; return the operation, or None where it is gone."""
        try:
            return self.compute.delete(vm.path)
        except CloudError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def ended(self, operation: dict[str, Any]) -> bool:
        """Look whether an operation has ended.

        Raises:
            CloudError: it has failed.

        """
        if operation["status"] != "DONE":
            zone = last(operation["zone"])
            operation = self.compute.get(f"zones/{zone}/operations/{operation['name']}")
        # It waits for what has ended already, so for its error alone.
        return operation["status"] == "DONE" and bool(self.compute.wait(operation, 0))


def pauses() -> Iterator[float]:
    """Yield the seconds between looks, without end."""
    yield from POLL_S
    while True:
        yield POLL_S[-1]


def at_once(work: Any, items: Iterable[Any]) -> list[Any]:
    """Return `work` of each item, in order, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


class Slurm:
    """slurmctld, as scontrol reaches it."""

    def __init__(self, scontrol: str) -> None:
        self.scontrol = scontrol

    def give_back(self, names: Iterable[str], reason: str) -> bool:
        """Take nodes that won't come out of their jobs and power them down; whether it worked.

        The jobs are queued again. SLURM runs SuspendProgram for the nodes, and after SuspendTimeout
        they are idle as before, with the reason, and may be tried again.
        """
        nodes = f"nodename={fold(names)}"
        said = self._run(
            "update", nodes, "state=down", f"reason=muster: {reason[:REASON_CHARACTERS]}"
        )
        return said and self.power_down(names)

    def power_down(self, names: Iterable[str]) -> bool:
        """Have SLURM run SuspendProgram for nodes; whether it was told."""
        return self._run("update", f"nodename={fold(names)}", "state=power_down")

    def _run(self, *words: str) -> bool:
        try:
            done = subprocess.run(
                [self.scontrol, *words],
                capture_output=True,
                text=True,
                timeout=SCONTROL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.error("scontrol %s: %s", " ".join(words), error)
            return False
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            log.error("scontrol %s: exit status %d: %s", " ".join(words), done.returncode, said)
        return done.returncode == 0
