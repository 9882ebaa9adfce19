"""The bucket with the archives that VMs configure themselves from, named by their digest."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_gcp as gcp

from muster.gcp.bundle import BundleError, digest
from muster.gcp.names import CLUSTER_LABEL, Names

READS = "roles/storage.objectViewer"


@dataclass(frozen=True)
class Archive:
    """An archive as a file on this machine."""

    kind: str
    """bundle or image: what its name begins with."""
    file: Path
    digest: str
    """sha256, as hexadecimal digits."""


def archive(kind: str, make: Callable[[], bytes], folder: Path) -> Archive:
    """Write an archive where the provider can read it from.

    Raises:
        pulumi.RunError: a file must not be in it; the text names the file and the remedy.

    """
    try:
        content = make()
    except BundleError as error:
        raise pulumi.RunError(str(error)) from None
    sha256 = digest(content)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kind}-{sha256}.tar.gz"
    file.write_bytes(content)
    return Archive(kind, file, sha256)


@dataclass(frozen=True, kw_only=True)
class BundlesArgs:
    """What is in the bucket, and who reads it; members are `serviceAccount:EMAIL`."""

    names: Names
    region: str
    machine: Archive
    image: Archive
    machine_readers: dict[str, pulumi.Input[str]]
    """Name in the program -> member, of the VMs that configure themselves."""
    image_reader: pulumi.Input[str]


class Bundles(pulumi.ComponentResource):
    """Bucket, archives, and who may read them.

    `machine` and `image` are addresses, gs://BUCKET/NAME. They are valid once the component's
    resources exist, so depend on the component. They are not outputs: a new archive, which has a
    new name, exists before a VM gets its address, and the old one is deleted when no VM has its
    address any more.
    """

    machine: str
    image: str

    def __init__(
        self, name: str, *, args: BundlesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("muster:gcp:Bundles", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        bucket = gcp.storage.Bucket(
            name,
            name=args.names.bucket,
            location=args.region.upper(),
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            # The archives are made from the checkout: nothing in them needs to be kept.
            force_destroy=True,
            soft_delete_policy={"retention_duration_seconds": 0},
            labels={CLUSTER_LABEL: args.names.cluster},
            opts=inside,
        )
        for bundle in (args.machine, args.image):
            gcp.storage.BucketObject(
                f"{name}-{bundle.kind}-{bundle.digest[:12]}",
                bucket=bucket.name,
                name=bundle.file.name,
                source=pulumi.FileAsset(str(bundle.file)),
                content_type="application/gzip",
                opts=inside,
            )

        def grant_read(reader: str, member: pulumi.Input[str], kind: str) -> None:
            start = f"projects/_/buckets/{args.names.bucket}/objects/{kind}-"
            gcp.storage.BucketIAMMember(
                f"{name}-{reader}",
                bucket=bucket.name,
                role=READS,
                member=member,
                condition={
                    "title": f"{kind} archives",
                    "expression": f'resource.name.startsWith("{start}")',
                },
                opts=inside,
            )

        for reader, member in args.machine_readers.items():
            grant_read(reader, member, args.machine.kind)
        grant_read("builder", args.image_reader, args.image.kind)
        self.machine, self.image = (
            f"gs://{args.names.bucket}/{bundle.file.name}" for bundle in (args.machine, args.image)
        )
        self.register_outputs({})
