"""slurmd finds a node's GPUs itself (`autodetect: nvidia`), here through SLURM's fake GPUs.

Real daemons; fake_gpus.conf replaces the driver's answers, as in SLURM's own tests (gres_gpu.c,
24.11), and the device files have nothing behind them.
"""

from collections.abc import Iterator

import pytest
from emulation import ADA, EMULATED_CGROUP, EMULATED_SLURM, Emulation, emulated, wait_for

from muster.cli.render import by_name
from muster.definition import PACKAGED_SLURM, validate
from muster.render.slurm import render
from muster_sandbox.containers.podman import podman

pytestmark = pytest.mark.proof("boots a node three times, for one option of one release")

NODE = "lab-gpu-01"
# The only packaged release that can do it (see the check gpu-autodetect-release).
RELEASE, SYSTEM = "trixie", "debian-13"
MAKE_DEVICES = "for gpu in 0 1; do mknod -m 0666 /dev/nvidia$gpu c 195 $gpu; done"
# Type, CPUs of the machine, those near the GPU, links to the others, device file, UUID, flags.
DEVICES = [
    "nvidia_h100_80gb_hbm3|8|0-3|-1,0|/dev/nvidia0|(null)|nvidia_gpu_env",
    "nvidia_h100_80gb_hbm3|8|4-7|0,-1|/dev/nvidia1|(null)|nvidia_gpu_env",
]


def files() -> dict[str, str]:
    gpus = {"count": 2, "type": "h100", "autodetect": "nvidia"}
    shape = {"sockets": 2, "cores_per_socket": 4, "memory_mib": 16384}
    cluster = {
        "name": "lab",
        "os": SYSTEM,
        "slurm_version": PACKAGED_SLURM[SYSTEM],
        "nodes": {"gpu": {**shape, "gpus": gpus}},
        "partitions": {"main": {"nodes": ["gpu"], "default": True}},
        "slurm": EMULATED_SLURM,
        "cgroup": EMULATED_CGROUP,
    }
    access = ["lab-access"]
    groups = {"controller": access, "database": [], "login": access}
    return by_name(render(validate(cluster, groups | {"gpu": [NODE], "compute": [NODE]})))


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with emulated("muster-detection", RELEASE, files(), [NODE]) as lab:
        podman("exec", lab.name, "sh", "-ec", MAKE_DEVICES)
        lab.starts_slurmctld("/var/log/slurm/slurmctld.log")
        yield lab


def boot(emulation: Emulation, devices: list[str]) -> None:
    """Restart the node's slurmd on a machine with these GPUs."""
    script = (
        "pkill -x slurmd && while pgrep -x slurmd >/dev/null; do sleep 0.1; done;"
        ' printf "%s\\n" "$@" >/etc/slurm/fake_gpus.conf'
    )
    podman("exec", emulation.name, "sh", "-c", script, "sh", *devices)
    run = (
        f"hostname {NODE}; mkdir -p /run/slurm /var/spool/slurmd;"
        f" exec slurmd -D >/var/log/slurm/{NODE}.log 2>&1"
    )
    emulation.start("unshare", "--mount", "--uts", "sh", "-ec", run)


def state(emulation: Emulation) -> str:
    return emulation.run("sinfo", "--noheader", "--Node", "--format=%T %E").strip()


def log(emulation: Emulation) -> str:
    return emulation.run("tail", "-n", "40", f"/var/log/slurm/{NODE}.log")


def test_the_gpus_that_are_found_are_given_to_jobs(emulation: Emulation) -> None:
    boot(emulation, DEVICES)
    wait_for(lambda: state(emulation).startswith("idle"), lambda: state(emulation) + log(emulation))
    script = (
        "for gpu in 0 1; do LC_ALL=C cat /dev/nvidia$gpu 2>&1; done; echo $CUDA_VISIBLE_DEVICES"
    )
    batch = ["sbatch", "--parsable", "--wait", "--mem=1G", "--output=job-%j.out"]
    said = emulation.run(*ADA, *batch, "--gres=gpu:h100:1", f"--wrap={script}")
    text = emulation.run("cat", f"/home/ada/job-{said.split()[0]}.out")
    first, second, cuda = text.splitlines()
    # No driver is behind the file, but it may be opened.
    assert first.endswith("No such device or address")
    assert second.endswith("Operation not permitted")
    assert cuda == "0"


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (DEVICES[:1], "gres/gpu count reported lower than configured (1 < 2)"),
        (
            [line.replace("h100_80gb_hbm3", "l4") for line in DEVICES],
            "gres/gpu count reported lower than configured (0 < 2)",
        ),
    ],
    ids=["one is gone", "others"],
)
def test_a_node_with_fewer_or_other_gpus_gets_no_jobs(
    emulation: Emulation, devices: list[str], reason: str
) -> None:
    boot(emulation, devices)
    wait_for(lambda: reason in state(emulation), lambda: state(emulation) + log(emulation))
    assert state(emulation).split()[0] in ("drained", "inval", "invalid")
