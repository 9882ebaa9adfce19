"""Builds the image for all VMs of a cluster, on a VM that is deleted afterwards.

This VM is the builder. It starts from the distribution's own image, and downloads the image bundle
with its own service account. It runs install.yml of the roles and powers itself off. Then the image
is made from its disk. The bundle's digest identifies the image; the image's name is never used
again.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from muster.catalog.machine_types import machine_types
from muster.gcp import names, reports, sweep
from muster.gcp.api import CloudError, Compute, exists, last, new_request_id
from muster.gcp.builder_vm import BASE, DISK, startup_script
from muster.gcp.names import Names
from muster.gcp.reports import Progress, Watch

BUILD_TIMEOUT_S = 2700
"""Seconds for install.yml of all roles; ten minutes are usual."""
POWER_OFF_TIMEOUT_S = 300
CALL_TIMEOUT_S = 600
"""Seconds for one operation: make or delete a VM, or make an image from its disk."""
# After this time Google deletes a builder that nobody watches any more, for example because
# somebody closed the laptop or killed `pulumi up`.
MAX_RUN_S = BUILD_TIMEOUT_S + POWER_OFF_TIMEOUT_S + 600
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True)
class Build:
    """What an image is built from, and where."""

    project: str
    cluster: str
    zone: str
    os: str
    """As in the definition, such as debian-12."""
    digest: str
    """sha256 of the image bundle."""
    archive: str
    """Address of the image bundle, gs://BUCKET/NAME."""
    machine_type: str
    subnetwork: str
    """Path or link of the subnet."""
    account: str
    """Email of the builder's service account."""


@dataclass(frozen=True)
class Made:
    """An image that is ready."""

    name: str
    link: str


def build(compute: Compute, wanted: Build, progress: Progress) -> Made:
    """Build an image; also after an error, delete the builder and an unfinished image.

    Raises:
        CloudError: the build failed; the error says at which step and why.

    """
    sweep.builders(compute, wanted.cluster, progress)
    called = Names(wanted.cluster, wanted.project)
    vm = called.builder(wanted.digest)
    image = called.image(wanted.digest, secrets.token_hex(3))
    with _no_builder_left(compute, wanted.cluster, progress):
        progress(f"starting the builder {vm}")
        _insert(compute, f"zones/{wanted.zone}/instances", builder(wanted, vm))
        _follow(compute, wanted, vm, progress)
        progress(f"making the image {image} from its disk")
        return _make(compute, wanted, vm, image)


@contextmanager
def _no_builder_left(compute: Compute, cluster: str, progress: Progress) -> Iterator[None]:
    """At the end delete builders and unfinished images, also after an error or Ctrl-C."""
    try:
        yield
    except BaseException as error:
        try:
            sweep.builders(compute, cluster, progress)
        except CloudError as left:
            raise CloudError(f"{error}\nAnd {left}") from error
        raise
    sweep.builders(compute, cluster, progress)


def delete(compute: Compute, name: str) -> None:
    """Delete an image; it is no error if the image does not exist."""
    if exists(lambda: compute.get(f"global/images/{name}")):
        compute.wait(compute.delete(f"global/images/{name}"), CALL_TIMEOUT_S)


def builder(wanted: Build, name: str) -> dict[str, Any]:
    """Return the body of instances.insert: no public address, and a limited run time."""
    called = Names(wanted.cluster, wanted.project)
    labels = called.labels(names.BUILDER)
    metadata = {
        "enable-oslogin": "FALSE",
        "block-project-ssh-keys": "TRUE",
        "enable-guest-attributes": "TRUE",
        "muster-cluster": wanted.cluster,
        "muster-role": names.BUILDER,
        "muster-bundle": wanted.archive,
        "startup-script": startup_script(),
    }
    return {
        "name": name,
        "machineType": f"zones/{wanted.zone}/machineTypes/{wanted.machine_type}",
        "labels": labels,
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": BASE[wanted.os],
                    "diskSizeGb": str(DISK.size_gib),
                    "diskType": f"zones/{wanted.zone}/diskTypes/{DISK.type}",
                    "labels": labels,
                },
            }
        ],
        "networkInterfaces": [{"subnetwork": wanted.subnetwork, "nicType": "GVNIC"}],
        "serviceAccounts": [{"email": wanted.account, "scopes": [CLOUD_PLATFORM]}],
        "metadata": {"items": [{"key": key, "value": text} for key, text in metadata.items()]},
        # As for all VMs, see pulumi/components/vm.py.
        "shieldedInstanceConfig": {
            "enableSecureBoot": True,
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        },
        # https://cloud.google.com/compute/docs/instances/limit-vm-runtime
        "scheduling": {
            "maxRunDuration": {"seconds": str(MAX_RUN_S)},
            "instanceTerminationAction": "DELETE",
            "onHostMaintenance": machine_types()[wanted.machine_type].on_host_maintenance,
            "automaticRestart": False,
        },
    }


def _follow(compute: Compute, wanted: Build, vm: str, progress: Progress) -> None:
    """Wait until the builder is done and off."""
    instance = f"zones/{wanted.zone}/instances/{vm}"
    watch = Watch(compute, instance, wanted.digest, progress)
    off = ("", "TERMINATED")
    ended = watch.until(
        lambda now: now.state in (reports.DONE, reports.FAILED) or now.status in off,
        BUILD_TIMEOUT_S,
    )
    if watch.state != reports.DONE:
        if watch.state == reports.FAILED and watch.report:
            why = f"failed {watch.last_step}: {watch.report.message}"
        elif ended:
            why = f"ended {watch.last_step} without a report"
        else:
            why = f"took more than {BUILD_TIMEOUT_S // 60} minutes; it stopped {watch.last_step}"
        said = reports.console(compute, instance)
        raise CloudError(
            f"the image was not built: the builder {why}. Fix it, then `pulumi up` again. The "
            f"end of the builder's console:\n{said}"
        )
    if not watch.until(lambda now: now.status in off, POWER_OFF_TIMEOUT_S):
        raise CloudError(
            f"the image was not built: the builder {vm} is done, but not off after "
            f"{POWER_OFF_TIMEOUT_S} s; `pulumi up` builds another"
        )


def _make(compute: Compute, wanted: Build, vm: str, name: str) -> Made:
    """Make the image from the builder's disk.

    Until it is complete, the image has the builder's label. If the process is killed, the next
    sweep of builders also deletes the unfinished image.
    """
    called = Names(wanted.cluster, wanted.project)
    instance = compute.get(f"zones/{wanted.zone}/instances/{vm}")
    disk = next(disk["source"] for disk in instance["disks"] if disk.get("boot"))
    _insert(
        compute,
        "global/images",
        {
            "name": name,
            "family": called.image_family,
            "sourceDisk": disk,
            "description": f"Muster's image of the cluster {wanted.cluster}",
            "labels": called.labels(names.BUILDER),
        },
    )
    made = compute.get(f"global/images/{name}")
    if made.get("status") != "READY":
        raise CloudError(f"the image {name} is {made.get('status', 'unknown').lower()}, not ready")
    body = {
        "labels": called.labels(names.IMAGE, **{DIGEST_LABEL: wanted.digest[:12]}),
        "labelFingerprint": made["labelFingerprint"],
    }
    compute.wait(compute.post(f"global/images/{name}/setLabels", body), CALL_TIMEOUT_S)
    return Made(name, f"projects/{wanted.project}/global/images/{name}")


DIGEST_LABEL = "muster-digest"
"""Label of an image: the first digits of its bundle's digest."""


def _insert(compute: Compute, collection: str, body: dict[str, Any]) -> None:
    operation = compute.post(collection, body, requestId=new_request_id())
    try:
        compute.wait(operation, CALL_TIMEOUT_S)
    except CloudError as error:
        what = f"{last(collection).removesuffix('s')} {body['name']}"
        raise CloudError(
            f"the {what} could not be made: {error}", error.status, error.reason
        ) from error
