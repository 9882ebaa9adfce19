"""An image builder runs once: the next one with the same digest reuses its result."""

from pathlib import Path

import pytest
from computekit import DEBIAN, ZONE, Compute, in_network, instance
from waiting import until

from muster_sandbox.containers.podman import podman
from muster_sandbox.fakecloud.backends import kept
from muster_sandbox.fakecloud.machines import with_machines

pytestmark = pytest.mark.proof("boots builders in three clouds of its own")

NAME = "muster-cloud-kept"
PUT = (
    "import sys, urllib.request as u; u.urlopen(u.Request("
    "'http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/build/made',"
    "headers={'Metadata-Flavor': 'Google'}, method='PUT', data=sys.argv[1].encode()))"
)
BUILD = f"""#!/bin/sh
cat /proc/sys/kernel/random/uuid >/root/made
echo "made $(cat /root/made)"
python3 -c "{PUT}" "$(cat /root/made)"
systemctl poweroff
"""
"""A value that differs in each run."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "NAME", f"localhost/{NAME}")
    yield tmp_path
    images = podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    for name in images:
        if name.startswith(f"localhost/{NAME}:"):
            podman("rmi", name)


def built(folder: Path, run: str, script: str = BUILD, *, image: bool = True) -> str:
    """The value that a builder of a new cloud made; an image of its disk has it, too."""
    with (
        with_machines(f"{NAME}-{run}", folder / run, kept=kept.Kept(folder / "kept")) as server,
        in_network(server, "10.214.56.0/24") as compute,
    ):
        compute.do("POST", f"{ZONE}/instances", instance("builder", DEBIAN, script))
        machine = f"{ZONE}/instances/builder"
        until(lambda: compute.get(machine)["status"] == "TERMINATED", "the builder is off", 90)
        made = compute.attribute("builder", "build/made")
        compute.wait_for_console("builder", f"made {made}")
        if image:
            assert in_image(compute, f"{NAME}-{run}") == made
        return made


def in_image(compute: Compute, cloud: str) -> str:
    compute.do("POST", "global/images", {"name": "baked", "sourceDisk": f"{ZONE}/disks/builder"})
    compute.do("DELETE", f"{ZONE}/instances/builder")
    compute.do("POST", f"{ZONE}/instances", instance("one", "global/images/baked", "#!/bin/sh\n"))
    number = compute.get(f"{ZONE}/instances/one")["id"]
    return podman("exec", f"{cloud}-{number}", "cat", "/root/made")


def test_a_builder_that_is_made_alike_leaves_the_same(folder: Path) -> None:
    # No image was made of the first one's disk: the builder may have failed.
    assert built(folder, "a", image=False) != built(folder, "b") == built(folder, "c")
