"""The VM that builds the image: what it starts from, and its program; pure."""

from pathlib import Path

from muster.definition.schema.node_sets import Disk

# https://cloud.google.com/compute/docs/images/os-details
BASE = {
    "debian-12": "projects/debian-cloud/global/images/family/debian-12",
    "debian-13": "projects/debian-cloud/global/images/family/debian-13",
    "ubuntu-24.04": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
}
"""Operating system in the definition -> the image that a builder starts from."""

KERNEL_FLAVOURS = {
    "debian-12": "cloud-amd64",
    "debian-13": "cloud-amd64",
    "ubuntu-24.04": "gcp",
}
"""Operating system -> the kind of kernel that this image has, by which packages are named."""

DISK = Disk(size_gib=10)
"""The builder's; the image is as large, so no VM of the cluster can have a smaller one."""


def startup_script() -> str:
    """Return the text of the program: one Python file that needs nothing but Debian's Python."""
    return Path(__file__).with_name("build_image.py").read_text(encoding="utf-8")
