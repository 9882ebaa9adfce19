"""A job opens the device files of its own GPUs and MIG instances, and no others.

Real cgroups and real daemons, and device files with nothing behind them: opening one gives ENXIO
if it is allowed, EPERM if not. The driver of the node with MIG is fake; muster-mig names its
instances, so this also tests gres.conf and slurmd with those names.
"""

import json
from collections.abc import Iterator

import pytest
from emulation import ADA, EMULATED_CGROUP, EMULATED_SLURM, Emulation, emulated, wait_for

from muster.cli.render import by_name
from muster.definition import PACKAGED_SLURM, validate
from muster.render.slurm import render
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import podman

pytestmark = pytest.mark.proof(
    "a minute and a half; the lab's jobs show it for one release in `make test`"
)

SHAPE = {"sockets": 1, "cores_per_socket": 8, "memory_mib": 16384}
LAYOUT = {"3g.40gb": 1, "1g.10gb": 2}
CUT = {"count": 1, "type": "h100", "devices": "/dev/nvidia2", "mig": LAYOUT}
NODES = ("lab-cut-01", "lab-whole-01")

# /proc/driver as the driver has it for /dev/nvidia2 with three instances, and a fake nvidia-smi.
DRIVER = """
mkdir -p /root/driver/nvidia/gpus/0000:3b:00.0 /dev/nvidia-caps
for gpu in 0 1 2; do mknod -m 0666 /dev/nvidia$gpu c 195 $gpu; done
echo "Device Minor: 2" >/root/driver/nvidia/gpus/0000:3b:00.0/information
for instance in 1 9 11; do
  folder=/root/driver/nvidia/capabilities/gpu2/mig/gi$instance
  minor=$((3 + 2 * 135 + instance * 9))
  mkdir -p $folder/ci0
  echo "DeviceFileMinor: $minor" >$folder/access
  echo "DeviceFileMinor: $((minor + 1))" >$folder/ci0/access
done
mount --bind /root/driver /proc/driver
cat >/usr/bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in
  --query-gpu=*) echo "00000000:3B:00.0, Enabled" ;;
  "mig -i 00000000:3B:00.0 -lgi") cat <<'LIST'
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          1:1     |
+-------------------------------------------------------+
|   0  MIG 1g.10gb         19       11          0:1     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        1          4:4     |
+-------------------------------------------------------+
LIST
  ;;
  *) exit 3 ;;
esac
END
cat >/usr/bin/nvidia-modprobe <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
  minor=$(sed 's/.*: //' "$2")
  # 195 is a major number that no driver has here: the real one differs from boot to boot.
  file=/dev/nvidia-caps/nvidia-cap$minor
  [ -e $file ] || mknod -m 0444 $file c 195 $minor
  shift 2
done
END
chmod 0755 /usr/bin/nvidia-smi /usr/bin/nvidia-modprobe
apt-get install -y -qq --no-install-recommends python3-minimal >/dev/null
"""


def files_of(release: str) -> dict[str, str]:
    system = base_image.RELEASES[release]
    cluster = {
        "name": "lab",
        "os": system,
        "slurm_version": PACKAGED_SLURM[system],
        "nodes": {
            "whole": {**SHAPE, "gpus": {"count": 2, "type": "l40"}},
            "cut": {**SHAPE, "gpus": CUT},
        },
        "partitions": {"main": {"nodes": ["whole", "cut"], "default": True}},
        "nvidia": {},
        "slurm": EMULATED_SLURM,
        "cgroup": EMULATED_CGROUP,
    }
    groups = {
        "controller": ["lab-access"],
        "database": [],
        "login": ["lab-access"],
        "whole": ["lab-whole-01"],
        "cut": ["lab-cut-01"],
        "compute": list(NODES),
    }
    return by_name(render(validate(cluster, groups)))


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def emulation(request) -> Iterator[Emulation]:
    release = request.param
    with emulated("muster-isolation", release, files_of(release), NODES) as lab:
        podman("exec", lab.name, "sh", "-ec", DRIVER)
        podman("cp", "roles/nvidia_driver/files/.", f"{lab.name}:/")
        podman("exec", lab.name, "mkdir", "-p", "/etc/muster")
        config = ["sh", "-c", 'echo "$1" >/etc/muster/mig.json', "sh", json.dumps(LAYOUT)]
        podman("exec", lab.name, *config)
        assert lab.run("muster-mig") == ""
        lab.starts_slurmctld("/var/log/slurm/slurmctld.log")
        lab.starts_slurmds()
        yield lab


def caps(*numbers: int) -> set[str]:
    return {f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers}


# The nodes share a container and its devices; each slurmd knows its own.
DEVICES = {
    "lab-whole-01": {"/dev/nvidia0", "/dev/nvidia1"},
    "lab-cut-01": {"/dev/nvidia2"} | caps(282, 283, 354, 355, 372, 373),
}


def opened_by(emulation: Emulation, node: str, *options: str) -> tuple[set[str], str]:
    """Run a job; return which of the node's device files it may open, and CUDA_VISIBLE_DEVICES."""
    # No srun: emulated nodes can't connect back to it.
    script = (
        f"for file in {' '.join(sorted(DEVICES[node]))}; do"
        ' case $(LC_ALL=C cat $file 2>&1) in *"No such device"*) echo $file;;'
        ' *"not permitted"*) ;; *) echo "strange: $file" ;; esac; done;'
        " echo cuda ${CUDA_VISIBLE_DEVICES-none}"
    )
    batch = ["sbatch", "--parsable", "--wait", "--mem=1G", "--output=job-%j.out"]
    said = emulation.run(*ADA, *batch, f"--nodelist={node}", *options, f"--wrap={script}")
    text = f"/home/ada/job-{said.split()[0]}.out"
    *files, cuda = emulation.run("cat", text).splitlines()
    return {*files}, cuda


@pytest.mark.parametrize("node", NODES)
def test_a_job_without_a_gpu_opens_none(emulation, node):
    assert opened_by(emulation, node) == (set(), "cuda none")


@pytest.mark.parametrize(
    ("options", "node", "files", "cuda"),
    [
        (["--gres=gpu:l40:1"], "lab-whole-01", {"/dev/nvidia0"}, "cuda 0"),
        (["--gpus=2"], "lab-whole-01", {"/dev/nvidia0", "/dev/nvidia1"}, "cuda 0,1"),
        (
            ["--gres=gpu:h100_3g.40gb:1"],
            "lab-cut-01",
            {"/dev/nvidia2"} | caps(282, 283),
            "cuda 0",
        ),
        # Of two equal ones the first by its placement on the GPU, which is instance 11.
        (
            ["--gres=gpu:h100_1g.10gb:1"],
            "lab-cut-01",
            {"/dev/nvidia2"} | caps(372, 373),
            "cuda 0",
        ),
        (
            ["--gres=gpu:h100_1g.10gb:2"],
            "lab-cut-01",
            {"/dev/nvidia2"} | caps(372, 373, 354, 355),
            "cuda 0,1",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_job_opens_what_it_was_given(emulation, options, node, files, cuda):
    assert opened_by(emulation, node, *options) == (files, cuda)


def test_jobs_side_by_side_have_an_instance_each(emulation):
    batch = ["sbatch", "--parsable", "--mem=1G", "--gres=gpu:h100_1g.10gb:1", "--wrap=sleep 100"]
    jobs = [emulation.run(*ADA, *batch).strip() for _ in range(3)]
    states = ["squeue", "--noheader", "--format=%T", f"--jobs={','.join(jobs)}"]
    try:
        wait_for(
            lambda: sorted(emulation.run(*states).split()) == ["PENDING", "RUNNING", "RUNNING"],
            lambda: emulation.run("squeue"),
        )
    finally:
        emulation.run("scancel", *jobs)


def test_a_profile_that_is_not_there_is_refused_with_those_that_are(emulation):
    asked = ["sbatch", "--gres=gpu:h100_2g.20gb:1", "--wrap=true"]
    said = emulation.run("sh", "-c", '"$@"; true', "sh", *ADA, *asked)
    assert "ask for one of these: h100_1g.10gb, h100_3g.40gb, l40" in said
