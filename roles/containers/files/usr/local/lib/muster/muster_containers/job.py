# SPDX-License-Identifier: Apache-2.0
"""What a job keeps of images on a node: unpacked once, for all of its tasks there.

It lies in the job's folder, which the epilog removes. Layers are unpacked by the person, so their
files belong to the person's own range of numbers (subuid(5)), as the user namespace of a container
shows them: a copy that several people read would show all files as nobody's.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from muster_containers import errors, images
from muster_containers.errors import ContainerError
from muster_containers.images import Image
from muster_containers.settings import Settings

_CONF = "/etc/muster/containers/containers.conf"
_STORAGE_CONF = "/etc/muster/containers/storage.conf"


@dataclass(frozen=True)
class Task:
    """A task of a job on this node, and its folders."""

    folder: str
    """Of the job, on this node's disk."""
    name: str
    """Different for each task of the job on this node, and for each process of one."""

    @property
    def runtime(self) -> str:
        """Where podman keeps what is of no use after the task."""
        return os.path.join(self.folder, f"run-{self.name}")


def task_of(settings: Settings, environment: Mapping[str, str], process: int, user: int) -> Task:
    """Return the task that this process is, and make its folders.

    Raises ContainerError where it is in no job, or on a host that runs no containers.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if not (job.isascii() and job.isdigit()):
        raise ContainerError(
            "this is no job: type `srun muster-container run IMAGE COMMAND` in a script for "
            "sbatch, or after salloc"
        )
    if shutil.which("podman", path=environment.get("PATH")) is None:
        raise ContainerError(
            "this host runs no containers: in a shell of salloc put srun before it, which starts "
            "it on the job's nodes; if it was there, have an administrator run site.yml on them"
        )
    of_job = f"{settings.scratch}/{job}"
    try:
        if settings.scratch is not None and os.path.isdir(of_job):
            base = f"{of_job}/.containers"
        else:
            above = f"/tmp/.muster-containers-{user}"  # noqa: S108 (checked below)
            _make_own(above, user)
            base = f"{above}/{job}"
        _make_own(base, user)
        task = Task(base, f"{environment.get('SLURM_STEP_ID', 'job')}-{process}")
        _make_own(task.runtime, user)
    except OSError as error:
        raise _no_folder(of_job, error) from error
    return task


def _make_own(path: str, user: int) -> None:
    """Make a folder that nobody else can open. Raises ContainerError if it is somebody else's."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        state = os.lstat(path)
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != user:
            raise ContainerError(
                f"{path} belongs to somebody else: have an administrator remove it"
            ) from None


def storage(graph: str, unpacked: str | None = None) -> list[str]:
    """Return podman's options for the kernel's overlay, in a folder of the job.

    podman 4.3 of a person takes neither `graphroot` nor additional stores from a storage.conf: it
    would unpack in the home. What it keeps of mounts is in XDG_RUNTIME_DIR, since it refuses the
    option --runroot with more than 50 characters. Of its warnings one comes in every job: it finds
    no systemd of the person, on purpose. `unpacked`: a folder of unpacked images that is only read.
    """
    more = [] if unpacked is None else ["--storage-opt", f"overlay.imagestore={unpacked}"]
    return ["--log-level=error", "--root", graph, "--storage-driver", "overlay", *more]


def environment_of(task: Task, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of podman.

    Without a bus podman can't ask systemd to move it out of the job's cgroup, and with a runtime
    folder of its own no other job ends the process that holds its user namespace. What the person
    has set for podman in the home is for other machines.
    """
    left = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("CONTAINERS_", "DBUS_", "STORAGE_"))
        and name not in ("CONTAINER_HOST", "CONTAINER_CONNECTION", "NOTIFY_SOCKET")
    }
    return left | {
        "CONTAINERS_CONF": _CONF,
        "CONTAINERS_STORAGE_CONF": _STORAGE_CONF,
        "XDG_RUNTIME_DIR": task.runtime,
    }


def unpack(task: Task, image: Image, environment: Mapping[str, str]) -> list[str]:
    """Unpack an image, unless a task of the job has done so; return podman's options to run it.

    It is for one task at a time. Raises ContainerError.
    """
    unpacked = os.path.join(task.folder, "images")
    options = storage(unpacked)
    podman = environment_of(task, environment)
    try:
        exists = _podman([*options, "image", "exists", image.digest], task.runtime, podman)
        if exists.returncode != 0:
            words = ["pull", "--quiet", _linked(task, image.path)]
            done = _podman([*options, *words], task.runtime, podman)
            if done.returncode != 0:
                raise errors.of_unpacking(done.stderr, image.name, task.folder)
    except OSError as error:
        raise errors.full(os.strerror(error.errno or 0), task.folder) or ContainerError(
            f"{image.name} could not be unpacked ({error}): have an administrator look at the node"
        ) from error
    return storage(os.path.join(task.folder, f"task-{task.name}"), unpacked)


@contextmanager
def one_at_a_time(task: Task) -> Iterator[None]:
    """Let the tasks of the job on this node in one after the other. Raises ContainerError."""
    try:
        lock = os.open(os.path.join(task.folder, "lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise _no_folder(task.folder, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def image_of(task: Task, name: str, store: str) -> Image:
    """Return an image: of a name in a store the version that the job has on this node already.

    Raises ContainerError where there is none.
    """
    try:
        with open(_kept(task, name, store), encoding="utf-8") as file:
            given = json.load(file)
        return Image(**{**given, "variables": frozenset(given["variables"])})
    except FileNotFoundError:
        return images.find(name, store)
    except OSError as error:
        raise _no_folder(task.folder, error) from error


def keep(task: Task, name: str, store: str, image: Image) -> None:
    """Have later tasks of the job on this node take this version, which is unpacked.

    A folder that is named by its path is the job's to change. Raises ContainerError.
    """
    if images.is_path(name):
        return
    try:
        text = json.dumps({**asdict(image), "variables": sorted(image.variables)})
        path = _kept(task, name, store)
        _write(f"{path}.new", text)
        os.rename(f"{path}.new", path)
    except OSError as error:
        raise _no_folder(task.folder, error) from error


def _kept(task: Task, name: str, store: str) -> str:
    place = name if images.is_path(name) else images.folder(store, name)
    return os.path.join(task.folder, f"{hashlib.sha256(place.encode()).hexdigest()}.json")


def _no_folder(folder: str, error: OSError) -> ContainerError:
    return errors.full(os.strerror(error.errno or 0), folder) or ContainerError(
        f"{folder} can't be used for containers ({error}): have an administrator look at that disk "
        "of the node"
    )


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _linked(task: Task, path: str) -> str:
    """Return the image at a path as podman takes it: by a link in the folder of the task.

    podman 4.3 makes a name of the path, and refuses one with other characters than names have.
    """
    link = os.path.join(task.runtime, "image")
    with suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(path, link)
    return "oci:image"


def _podman(
    words: list[str], folder: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=dict(environment),
        check=False,
    )
