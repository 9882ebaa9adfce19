"""The command `make cloud-demo` on Debian 13."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.proof(
    "raises its own cloud cluster, whose steps are those of tests/cloud/cloudcluster"
)

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "build/cloud-demo-timeline.svg"


def test_demo_ends_with_nothing_left() -> None:
    done = subprocess.run(
        ["make", "cloud-demo", "RELEASE=trixie"],
        cwd=ROOT,
        env=os.environ | {"MAKEFLAGS": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for shown in (
        "debug*       up   infinite     10  idle~ slurm10-debug-[0-9]",
        "the job was given slurm10-debug-[0-3]",
        "VMs now: slurm10-controller, slurm10-debug-0, slurm10-debug-1, slurm10-debug-2, "
        "slurm10-debug-3, slurm10-login-0",
        "Connection refused",
        "COMPLETED",
        "nothing: no VM, disk, image",
        "how long it took",
        f"drawn in {PICTURE.relative_to(ROOT)}",
    ):
        assert shown in done.stdout, done.stdout
    drawn = ElementTree.parse(PICTURE)  # noqa: S314 (our own)
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {f"slurm10-debug-{n}" for n in range(4)} <= names
