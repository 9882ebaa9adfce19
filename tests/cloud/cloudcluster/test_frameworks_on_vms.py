"""PyTorch and TensorFlow as docs/software.md adds them, on nodes that are made for a job."""

import shutil
from pathlib import Path
from typing import Any

import frameworks
import pytest
from cloudkit import inside, up
from documentation import ROOT
from ruamel.yaml import YAML
from waiting import until

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import Stack

pytestmark = pytest.mark.proof("raises its own cloud cluster, with PyTorch in the image")

FOLDER = "/data/wheels"
JOB_SECONDS = 420
"""Timeout of a job: two nodes boot, and TensorFlow starts in a minute on two busy cores."""


def with_modules(cluster: Any) -> None:
    """Add the page's modules to the definition, and the Python of the demo that they are on."""
    demo = ROOT / "inventories/demo/group_vars/all/cluster.yml"
    python = YAML().load(demo.read_text(encoding="utf-8"))["cluster"]["software"]["modules"][
        "apps/python"
    ]["3.11"]
    cluster["software"] = {"modules": {"apps/python": {"3.11": python}, **frameworks.modules()}}


@pytest.fixture(scope="module", autouse=True)
def _cluster(stack: Stack) -> None:
    """Raise the cluster with the modules; the controller builds them as it sets itself up."""
    if stack.site.release != "bookworm":
        pytest.skip("the page's modules are those of Debian 12")
    source = frameworks.REQUIREMENTS / "tensorflow-2.15.txt"
    for name in (source, frameworks.UV):
        wheels = frameworks.wheels(name, "3.11")
        shutil.copytree(wheels, f"{stack.site.folder}/shared{FOLDER}", dirs_exist_ok=True)
    variables = stack.site.inventory / "group_vars/all/uv.yml"
    variables.write_text(f"software_uv_wheels: {FOLDER}\n", encoding="utf-8")
    file = stack.site.inventory / "software" / source.name
    file.parent.mkdir()
    file.write_text(frameworks.from_folder(source, FOLDER), encoding="utf-8")
    stack.site.change(with_modules)
    up(stack)
    for folder in ("ddp", "multiworker"):
        for path in filter(Path.is_file, (ROOT / "examples" / folder).iterdir()):
            text = path.read_text(encoding="utf-8")
            tour.run(stack, f"cat >{path.name} <<'end of it'\n{text}end of it\n")


def trained(stack: Stack, script: str) -> dict[str, str]:
    """Run an example on two nodes; return the loss by the node of each worker."""
    job = tour.run(
        stack,
        f"sbatch --parsable --partition=debug --account={stack.name} --output=out-%j {script}",
    ).strip()
    state = f"sacct -nXP -j {job} -o State"
    until(
        lambda: tour.run(stack, state).startswith(("COMPLETED", "FAILED", "OUT_OF", "TIMEOUT")),
        f"job {job} is over",
        JOB_SECONDS,
        lambda: tour.run(stack, f"squeue -j {job}; cat out-{job} || true"),
    )
    written = tour.run(stack, f"cat out-{job}")
    assert tour.run(stack, state).strip() == "COMPLETED", written
    return frameworks.losses(written)


@pytest.mark.parametrize("script", ["ddp-cpu.sbatch", "multiworker.sbatch"])
def test_an_example_trains_on_nodes_from_the_image(stack: Stack, script: str) -> None:
    losses = trained(stack, script)
    assert len(losses) == 2
    assert losses.keys() <= set(tour.nodes(stack))
    assert len(set(losses.values())) == 1


def test_a_node_got_its_packages_with_the_image(stack: Stack) -> None:
    tour.run(stack, "srun true")
    node = tour.nodes(stack)[0]
    # A machine gets its id at its first boot.
    later = "find /var/lib/dpkg/info/python3-torch.list -newer /etc/machine-id"
    assert inside(stack, node, *later.split()) == ""
