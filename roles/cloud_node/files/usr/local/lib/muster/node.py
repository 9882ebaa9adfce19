#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""What a compute node does at its boot, before slurmd: `node.py key`, `gpus` and `mounts`.

`key` reads the instance's metadata once, writes what follows from it (/etc/hosts, slurmd's options,
the people's files) and fetches the munge key from Secret Manager. `gpus` has the GPUs made ready.
`mounts` mounts the shared folders. None ends before it is done: slurmd must not start without them.
After PATIENCE_S seconds the console and the guest attribute muster/report say what is missing; the
program goes on trying, for whatever it is may come back. What bounds it is ResumeTimeout: SLURM
gives the node up, and its VM is deleted.

Python's standard library alone, and little of it: each import is a part of the boot.
"""

from __future__ import annotations

import binascii
import functools
import http.client
import json
import os
import sys
import time
from urllib.parse import urlsplit

# As in typing, which takes longer to import than all this program does.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypedDict, TypeVar

    Result = TypeVar("Result")

    class Interface(TypedDict):
        """A network interface of the VM."""

        ip: str

    class Instance(TypedDict):
        """The part of the metadata that is the VM's."""

        name: str
        attributes: dict[str, str]
        networkInterfaces: list[Interface]
        scheduling: dict[str, str]

    class Project(TypedDict):
        """The part that is its project's."""

        projectId: str

    class Metadata(TypedDict):
        """What this program reads of the metadata."""

        instance: Instance
        project: Project

    class Mount(TypedDict):
        """A shared folder, of the attribute muster-mounts."""

        path: str
        type: str
        source: str
        options: str


# The address needs no DNS: https://cloud.google.com/compute/docs/metadata/querying-metadata
METADATA = "http://169.254.169.254/computeMetadata/v1/"
SECRETS = "https://secretmanager.googleapis.com/v1/"
SECRETS_VARIABLE = "GOOGLE_SECRET_MANAGER_CUSTOM_ENDPOINT"
PEOPLE = "/apps/.muster/extrausers"
"""Where the controller puts people, unless the attribute muster-people says otherwise."""

IMAGES = "/etc/muster/images"
"""File with the folder of packed releases, for autofs."""

SLURMCTLD_PORT = 6817
SHORTEST_KEY = 32
"""Bytes of a munge key: munged takes no shorter one."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0
PATIENCE_S = 60.0
REQUEST_S = 10.0
MOUNT_S = 60.0
GPUS_S = 150.0
"""A little more than TimeoutStartSec of muster-nvidia.service."""
KINDS = {"muster-hosts": dict, "muster-mounts": list, "muster-local-ssds": int, "muster-gpus": int}
"""Attributes that are JSON, and what they are."""
BEGIN, END = "# muster: begin\n", "# muster: end\n"


class TroubleError(Exception):
    """What keeps the node from its work, in one sentence."""


class Node:
    """The machine: its files below `root`, its metadata server and Secret Manager."""

    def __init__(
        self,
        root: str = "/",
        metadata: str = METADATA,
        secrets: str = SECRETS,
        owner: str = "munge",
    ) -> None:
        """Take the root folder, the services' addresses and the user whom the key belongs to."""
        self.root = root
        self.metadata = metadata
        self.secrets = secrets
        self.owner = owner

    def path(self, name: str) -> str:
        """Return where a file of the machine is; `name` is its absolute path."""
        return os.path.join(self.root, name.lstrip("/"))

    def key(self) -> None:
        """Do all that needs no mount: files, then the munge key."""
        metadata = persist(self, "read the metadata", self.facts)
        self.write_hosts(metadata)
        self.link_people(metadata)
        self.name_images(metadata)
        key = persist(self, "fetch the munge key", lambda: self.munge_key(metadata))
        self.write_key(key)
        # Last: what lets slurmd start.
        self.write_options(metadata)

    def facts(self) -> Metadata:
        """Read all metadata by one request, and refuse what the boot could not work with."""
        # 404 while the server doesn't know the machine yet: nothing else has this address.
        text = request("the metadata server", f"{self.metadata}?recursive=true", FLAVOR)
        metadata: Metadata = parsed("the metadata server", text)
        attributes = look(metadata, "the metadata", "instance", "attributes")
        missing = [name for name in ("muster-cluster", "muster-hosts") if not attributes.get(name)]
        if missing:
            raise TroubleError(f"the metadata has no {' and no '.join(missing)}; run `pulumi up`")
        for path in (
            ("instance", "name"),
            ("instance", "networkInterfaces", 0, "ip"),
            ("project", "projectId"),
        ):
            look(metadata, "the metadata", *path)
        for name, kind in KINDS.items():
            text = attributes.get(name)
            if text is not None and not isinstance(parsed(name, text), kind):
                raise TroubleError(f"{name} can't be {text}; run `pulumi up`")
        return metadata

    def munge_key(self, metadata: Metadata) -> bytes:
        """Return the munge key's bytes."""
        text = request(
            "the metadata server",
            f"{self.metadata}instance/service-accounts/default/token",
            FLAVOR,
        )
        token = look(parsed("the metadata server", text), "the token", "access_token")
        name = f"{metadata['instance']['attributes']['muster-cluster']}-munge-key"
        project = metadata["project"]["projectId"]
        try:
            text = request(
                "Secret Manager",
                f"{self.secrets}projects/{project}/secrets/{name}/versions/latest:access",
                {"Authorization": f"Bearer {token}"},
            )
        except StatusError as error:
            if error.status == 404:
                raise TroubleError(
                    f"the secret {name} has no version yet; the controller's first boot adds it"
                ) from error
            raise
        data = look(
            parsed("Secret Manager", text), "the answer of Secret Manager", "payload", "data"
        )
        # A secret's bytes come in base64, and these are a text that is base64 itself.
        try:
            key = binascii.a2b_base64(binascii.a2b_base64(data))
        except (ValueError, TypeError):
            # Without the cause: a traceback would show the secret.
            key = b""
        if len(key) < SHORTEST_KEY:
            raise TroubleError(f"the secret {name} is no munge key; add a version that is one")
        return key

    def write_key(self, key: bytes) -> None:
        """Write the munge key; a munged that runs with another one is restarted."""
        place = self.path("/etc/munge/munge.key")
        try:
            with open(place, "rb") as file:
                before = file.read()
        except FileNotFoundError:
            before = None
        if before == key:
            return
        import pwd

        user = pwd.getpwnam(self.owner)
        write(place, key, 0o400, (user.pw_uid, user.pw_gid))
        if before is not None:
            command(["systemctl", "--no-block", "try-restart", "munge.service"], REQUEST_S)

    def write_hosts(self, metadata: Metadata) -> None:
        """Name the hosts with a fixed address, and this one, in /etc/hosts."""
        instance = metadata["instance"]
        hosts = json.loads(instance["attributes"]["muster-hosts"])
        hosts[instance["name"]] = instance["networkInterfaces"][0]["ip"]
        place = self.path("/etc/hosts")
        with open(place, encoding="utf-8") as file:
            text = file.read()
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        lines = "".join(f"{address} {name}\n" for name, address in sorted(hosts.items()))
        if before and not before.endswith("\n"):
            before += "\n"
        # In place: it may be mounted from elsewhere, and then no other file can take its name.
        with open(place, "w", encoding="utf-8") as file:
            file.write(f"{before}{BEGIN}{lines}{END}{after}")

    def link_people(self, metadata: Metadata) -> None:
        """Let libnss-extrausers read people from the shared folder."""
        target = metadata["instance"]["attributes"].get("muster-people", PEOPLE)
        place = self.path("/var/lib/extrausers")
        if os.path.islink(place):
            os.unlink(place)
        elif os.path.isdir(place):
            os.rmdir(place)
        os.symlink(target, place)

    def name_images(self, metadata: Metadata) -> None:
        """Say where packed releases are to what mounts them (role lmod); there may be none."""
        images = metadata["instance"]["attributes"].get("muster-images")
        if images:
            os.makedirs(self.path("/etc/muster"), exist_ok=True)
            write(self.path(IMAGES), f"{images}\n".encode(), 0o644)

    def write_options(self, metadata: Metadata) -> None:
        """Write slurmd's options, ready for use unless folders are to be mounted first.

        Separate files get a spot VM's name, for muster-spot.service, and the number of local SSDs,
        for the cache.
        """
        instance = metadata["instance"]
        attributes = instance["attributes"]
        server = f"{attributes['muster-cluster']}-controller:{SLURMCTLD_PORT}"
        options = f"--conf-server {server} -N {instance['name']}"
        mounts = attributes.get("muster-mounts", "[]")
        run = self.path("/run/muster-node")
        os.makedirs(run, exist_ok=True)
        if instance.get("scheduling", {}).get("preemptible") == "TRUE":
            # What spot.py waits for comes to such VMs alone.
            write(f"{run}/spot", f"{instance['name']}\n".encode(), 0o644)
        if "muster-gpus" in attributes:
            # slurmd does not start as long as it is there.
            write(f"{run}/gpus", attributes["muster-gpus"].encode(), 0o644)
        if "muster-local-ssds" in attributes:
            number = f"LOCAL_SSDS={attributes['muster-local-ssds']}\n"
            write(f"{run}/cache", number.encode(), 0o644)
        name = "slurmd"
        if json.loads(mounts):
            write(f"{run}/mounts.json", mounts.encode(), 0o644)
            name = "slurmd.mounting"
        write(f"{run}/{name}", f'SLURMD_OPTIONS="{options}"\n'.encode(), 0o644)

    def gpus(self) -> None:
        """Make the GPUs ready; slurmd may start when all are there."""
        waiting = self.path("/run/muster-node/gpus")
        with open(waiting, encoding="utf-8") as file:
            wanted = int(file.read())
        persist(self, "make the GPUs ready", lambda: self.ready_gpus(wanted))
        os.unlink(waiting)

    def ready_gpus(self, wanted: int) -> None:
        """Start the unit that makes device files, and check that there are enough."""
        try:
            command(["systemctl", "start", "muster-nvidia.service"], GPUS_S)
        except TroubleError as error:
            words = ["journalctl", "--unit=muster-nvidia", "--lines=3", "--output=cat"]
            said = " | ".join(command(words, REQUEST_S).splitlines())
            raise TroubleError(f"{error} {said}") from error
        names = [name.removeprefix("nvidia") for name in os.listdir(self.path("/dev"))]
        there = sum(name.isdecimal() for name in names)
        if there < wanted:
            raise TroubleError(f"the driver has {there} of {wanted} GPUs")

    def mounts(self) -> None:
        """Mount the shared folders, in order; slurmd's options become valid when all are there."""
        run = self.path("/run/muster-node")
        with open(f"{run}/mounts.json", encoding="utf-8") as file:
            wanted: list[Mount] = json.load(file)
        for folder in wanted:
            persist(self, f"mount {folder['path']}", functools.partial(self.mount, folder))
        if os.path.exists(self.path(IMAGES)):
            start = ["systemctl", "start", "autofs.service"]
            persist(self, "start autofs", functools.partial(command, start, MOUNT_S))
        os.rename(f"{run}/slurmd.mounting", f"{run}/slurmd")

    def mount(self, folder: Mount) -> None:
        """Mount one folder unless it is mounted."""
        place = self.path(folder["path"])
        os.makedirs(place, exist_ok=True)
        if os.path.ismount(place):
            return
        options = ["-o", folder["options"]] if folder["options"] else []
        command(["mount", "-t", folder["type"], *options, folder["source"], place], MOUNT_S)

    def report(self, state: str, step: str, message: str = "") -> None:
        """Write the state to the console and the guest attribute."""
        print(f"muster: {step}: {message or state}", flush=True)
        body = {"bundle": "", "state": state, "step": step, "message": message}
        address = f"{self.metadata}instance/guest-attributes/muster/report"
        try:
            request("the metadata server", address, FLAVOR, "PUT", json.dumps(body))
        except TroubleError as error:
            print(f"muster: no report: {error}", flush=True)


FLAVOR = {"Metadata-Flavor": "Google"}


class StatusError(TroubleError):
    """An answer that is none."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def request(
    who: str, address: str, headers: Mapping[str, str], verb: str = "GET", body: str | None = None
) -> str:
    """Return the text of an answer; `who` answers is for the sentence of an error.

    Raises:
        TroubleError: there is no answer, or it is an error.

    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=REQUEST_S)
    try:
        query = f"?{parts.query}" if parts.query else ""
        connection.request(verb, parts.path + query, body, dict(headers))
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise TroubleError(f"{who} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise StatusError(f"{who} answers {answer.status}: {sentence(text)}", answer.status)
    return text


def parsed(who: str, text: str) -> Any:
    """Return what an answer says as JSON.

    Raises:
        TroubleError: it is no JSON, such as an empty answer.

    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise TroubleError(f"{who}: no JSON ({error})") from error


def look(document: Any, what: str, *path: str | int) -> Any:
    """Return what lies at a path in an answer.

    Raises:
        TroubleError: nothing does.

    """
    for name in path:
        try:
            document = document[name]
        except (LookupError, TypeError) as error:
            where = ".".join(str(step) for step in path)
            raise TroubleError(f"{what} has no {where}") from error
    return document


def sentence(text: str) -> str:
    """Return an error's message: Google's, or the first line of what it is."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip().partition("\n")[0][:200]


def command(words: list[str], seconds: float) -> str:
    """Run a program; return what it prints.

    Raises:
        TroubleError: it fails, or takes longer than `seconds`.

    """
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TroubleError(str(error)) from error
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise TroubleError(f"{' '.join(words)}: {last}")
    return done.stdout


def persist(node: Node, step: str, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, however often it must be tried; after a while say why not."""
    begin = time.monotonic()
    wait = FIRST_WAIT_S
    said = ""
    while True:
        try:
            result = work()
            break
        except TroubleError as error:
            message = str(error)
        if time.monotonic() - begin >= PATIENCE_S and message != said:
            node.report("failed", step, message)
            said = message
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_S)
    if said:
        node.report("done", step)
    return result


def write(place: str, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file whole or not at all; it never has more rights than `mode`."""
    new = f"{place}.new"
    if os.path.exists(new):
        os.unlink(new)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if owner:
            os.fchown(file.fileno(), *owner)
        file.write(content)
    os.rename(new, place)


if __name__ == "__main__":
    machine = Node(secrets=os.environ.get(SECRETS_VARIABLE, SECRETS))
    try:
        {"key": machine.key, "gpus": machine.gpus, "mounts": machine.mounts}[sys.argv[1]]()
    except Exception as unforeseen:
        # The unit tries again, a few times.
        machine.report("failed", sys.argv[1], f"{type(unforeseen).__name__}: {unforeseen}")
        raise
