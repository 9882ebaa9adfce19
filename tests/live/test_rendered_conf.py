"""The rendered files start real daemons: the lab's hardware, emulated in a container per release.

slurmd reports the definition's cores and memory as its own (config_overrides); each node is a
slurmd in its own namespaces, with its name, address and spool folder. Not tested here: accounting
(the other tests of this folder have it) and the lab's GPUs.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from emulation import ADA, EMULATED_CGROUP, EMULATED_SLURM, Emulation, emulated, wait_for

from muster.cli.render import by_name
from muster.definition import PACKAGED_SLURM, NodeSet, load
from muster.definition.schema.node_sets import Machines
from muster.render.slurm import render
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import MachineError, podman

ROOT = Path(__file__).parents[2]
NODES = ("lab-cpu-01", "lab-cpu-02", "lab-gpu-01", "lab-gpu-02")
# Shards have the type of their GPUs.
GRES = "gpu:rtx4080:4,shard:rtx4080:32"

# The cloud's controller beside the lab's, with its own names, network and files. It prints its log,
# then its nodes.
CLOUD_SLURMCTLD = """
hostname slurm10-controller
ip link set lo up
# Not 127.0.0.1: where there is no other address SLURM finds no name (AI_ADDRCONFIG).
ip address add 198.51.100.100/32 dev lo
echo "198.51.100.100 slurm10-controller" >>/etc/hosts
mount --bind /root/cloud /etc/slurm
for folder in /var/lib/slurm/slurmctld /run/slurmctld; do
  mount -t tmpfs -o mode=0755 none $folder
  chown slurm: $folder
done
for program in muster-resume muster-suspend muster-resume-failed muster-wait-for-nodes; do
  printf '#!/bin/sh\\n' >/usr/local/sbin/$program
  chmod 0755 /usr/local/sbin/$program
done
start() {
  setpriv --reuid=slurm --regid=slurm --init-groups slurmctld -D -f /etc/slurm/slurm.conf 2>&1 &
  for i in $(seq 300); do scontrol ping | grep -q 'is UP' && return; sleep 0.1; done
  return 1
}
# The first start finds no state, which it calls an error.
start >/dev/null
kill $!
wait $! || true # its code is that of a daemon that was killed
start
scontrol --oneliner show nodes
kill $!
"""


def typed(nodes: NodeSet) -> NodeSet:
    """A node set whose GPUs, if it has any, have a type and shards."""
    if not isinstance(nodes, Machines) or nodes.gpus is None:
        return nodes
    gpus = nodes.gpus.model_copy(update={"type": "rtx4080", "shards": 8})
    return nodes.model_copy(update={"gpus": gpus})


def files_of(inventory: str, release: str) -> dict[str, str]:
    """A cluster for one release, without its database, with what emulation needs."""
    definition = load(ROOT / "inventories" / inventory)
    system = base_image.RELEASES[release]
    cluster = definition.cluster.model_copy(
        update={
            "os": system,
            "nodes": {name: typed(nodes) for name, nodes in definition.cluster.nodes.items()},
            "slurm_version": PACKAGED_SLURM[system],
            "slurm": EMULATED_SLURM,
            "cgroup": EMULATED_CGROUP,
        }
    )
    hosts = replace(definition.hosts, groups={**definition.hosts.groups, "database": []})
    return by_name(render(replace(definition, cluster=cluster, hosts=hosts)))


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def emulation(request) -> Iterator[Emulation]:
    release = request.param
    with emulated("muster-rendered", release, files_of("lab", release), NODES) as lab:
        for gpu in range(4):
            lab.run("mknod", "-m", "0666", f"/dev/nvidia{gpu}", "c", "195", str(gpu))
        podman("cp", str(ROOT / "examples/ddp/ddp.sbatch"), f"{lab.name}:/home/ada")
        # The first start logs the missing state as an error; the test reads the second one's log.
        lab.starts_slurmctld("/var/log/slurm/first.log")
        lab.run("pkill", "-x", "slurmctld")
        wait_for(lambda: "DOWN" in lab.run("sh", "-c", "scontrol ping || :"), lambda: "running")
        lab.starts_slurmctld("/var/log/slurm/second.log")
        lab.starts_slurmds()
        yield lab


def errors_in(log: str) -> list[str]:
    """slurmctld's error lines, except those that no configuration changes."""
    # Logged when the machine is busy.
    harmless = "High latency for 1000 calls to gettimeofday"
    return [
        line
        for line in log.splitlines()
        if ("error:" in line or "fatal:" in line) and harmless not in line
    ]


def test_slurmctld_starts_without_an_error_line(emulation):
    log = emulation.run("cat", "/var/log/slurm/second.log")
    assert "slurmctld version" in log
    assert errors_in(log) == []


SILENT = """
import socket, subprocess, time
held = [socket.create_connection(("{host}", 6817)) for _ in range(200)]
time.sleep(1)
begin = time.monotonic()
print(subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=20).stdout)
print("seconds:", time.monotonic() - begin)
"""


def test_slurmctld_answers_while_somebody_holds_connections_and_says_nothing(emulation):
    """A job can: by default slurmctld of 24.11 and later takes 50."""
    host = emulation.run("hostname").strip()
    said = emulation.run("python3", "-c", SILENT.format(host=host))
    assert " is UP" in said
    assert float(said.partition("seconds:")[2]) < 1, said


def test_each_node_has_the_hardware_of_the_definition(emulation):
    got = emulation.run("sinfo", "--Node", "--noheader", "--format=%N %P %c %m %G %f")
    assert [line.split() for line in got.splitlines()] == [
        ["lab-cpu-01", "ml-cpu*", "48", "122880", "(null)", "(null)"],
        ["lab-cpu-02", "ml-cpu*", "48", "122880", "(null)", "(null)"],
        ["lab-gpu-01", "ml-gpu", "48", "122880", GRES, "rtx4080"],
        ["lab-gpu-02", "ml-gpu", "48", "122880", GRES, "rtx4080"],
    ]


def test_the_labs_batch_script_would_run(emulation):
    said = emulation.run(*ADA, "sbatch", "--test-only", "ddp.sbatch")
    assert "using 40 processors on nodes lab-gpu-[01-02] in partition ml-gpu" in said


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        (["--partition=ml-cpu", "--cpus-per-task=2"], "5G"),
        (["--partition=ml-gpu", "--cpus-per-task=4"], "10G"),
        (["--partition=ml-gpu", "--gres=gpu:1"], "30G"),
        (["--partition=ml-gpu", "--gpus=2"], "60G"),
        (["--partition=ml-gpu", "--gres=gpu:1", "--mem=1G"], "1G"),
    ],
)
def test_a_job_has_its_share_of_memory_and_not_the_node(emulation, options, memory):
    job = emulation.run(*ADA, "sbatch", "--parsable", *options, "--wrap=srun true").strip()
    show = ["scontrol", "show", "job", job]
    wait_for(lambda: "JobState=COMPLETED" in emulation.run(*show), lambda: emulation.run(*show))
    shown = emulation.run(*show)
    # 22.05 writes TRES=, 24.11 ReqTRES= and AllocTRES=.
    allocated = [line for line in shown.split() if line.startswith(("TRES=", "AllocTRES="))]
    assert len(allocated) == 1
    assert f"mem={memory}" in allocated[0].split("=", 1)[1].split(",")


def test_a_job_that_can_never_run_is_refused_at_once(emulation):
    with pytest.raises(MachineError, match="time limit is invalid"):
        emulation.run(*ADA, "sbatch", "--partition=ml-gpu", "--time=10-0", "--wrap=true")


# Every way to ask for GPUs of a type.
WAYS = [
    ["--gres=gpu:{}:1"],
    ["--gpus={}:1"],
    ["--gpus-per-node={}:1"],
    ["--gpus-per-socket={}:1", "--sockets-per-node=1"],
    ["--gpus-per-task={}:1", "--ntasks=1"],
    ["--gres=gpu:{}"],
    ["--gres=gpu:rtx4080:1,gpu:{}:1"],
    ["--gres=shard:{}:1"],
    ["--gres=gpu:{}:1", "--array=1-2"],
]
UNKNOWN = 'no node has GPUs of type "nosuch"; ask for rtx4080, the only one'


def submit(emulation, way: list[str], gpu: str) -> str:
    asked = [option.format(gpu) for option in way]
    return emulation.run(
        *ADA, "sbatch", "--partition=ml-gpu", "--hold", "--parsable", *asked, "--wrap=true"
    ).strip()


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_type_of_gpu_that_is_not_there_is_refused_with_those_that_are(emulation, way):
    with pytest.raises(MachineError) as refused:
        submit(emulation, way, "nosuch")
    assert UNKNOWN in str(refused.value)
    assert "Invalid generic resource (gres) specification" in str(refused.value)


@pytest.mark.proof("a job for each of nine ways on two releases; tests/unit tries them all")
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_type_of_gpu_that_is_there_is_accepted(emulation, way):
    emulation.run("scancel", submit(emulation, way, "rtx4080"))


def test_each_component_of_a_heterogeneous_job_is_looked_at(emulation):
    with pytest.raises(MachineError) as refused:
        emulation.run(
            *(*ADA, "sbatch", "--partition=ml-gpu", "--gres=gpu:rtx4080:1"),
            *(":", "--partition=ml-gpu", "--gres=gpu:nosuch:1", "--wrap=true"),
        )
    assert UNKNOWN in str(refused.value)


def test_a_queued_job_can_not_be_changed_to_a_type_that_is_not_there(emulation):
    job = submit(emulation, ["--gres=gpu:{}:1"], "rtx4080")
    change = ["scontrol", "update", f"JobId={job}"]
    try:
        with pytest.raises(MachineError, match=r"no node has GPUs|Invalid generic resource"):
            emulation.run(*change, "Gres=gpu:nosuch:1")
        emulation.run(*change, "Gres=gpu:rtx4080:2")
    finally:
        emulation.run("scancel", job)


def test_jobs_share_a_gpu_by_its_shards(emulation):
    # No srun: emulated nodes can't connect back to it.
    batch = ["sbatch", "--partition=ml-gpu", "--nodelist=lab-gpu-01", "--parsable", "--mem=1G"]
    jobs = [
        emulation.run(*ADA, *batch, "--gres=shard:1", "--wrap=sleep 100").strip() for _ in range(2)
    ]

    states = ["squeue", "--noheader", "--format=%T", f"--jobs={','.join(jobs)}"]
    node = ["scontrol", "--details", "show", "node", "lab-gpu-01"]
    try:
        wait_for(
            lambda: emulation.run(*states).split() == ["RUNNING"] * 2,
            lambda: emulation.run("squeue"),
        )
        # Both on GPU 0, in either release's notation.
        assert re.search(
            r"GresUsed=\S*shard:rtx4080:\d\((IDX:0|2/8,0/8,0/8,0/8)\)", emulation.run(*node)
        )
    finally:
        emulation.run("scancel", *jobs)


def test_the_cloud_s_slurmctld_starts_without_an_error_line(emulation, tmp_path):
    for name, content in files_of("cloud", emulation.release).items():
        (tmp_path / name).write_text(content)
    podman("exec", emulation.name, "mkdir", "/root/cloud")
    podman("cp", f"{tmp_path}/.", f"{emulation.name}:/root/cloud")
    said = emulation.run(
        *("unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child"),
        *("sh", "-ec", CLOUD_SLURMCTLD),
    )
    assert "slurmctld version" in said
    assert errors_in(said) == []
    nodes = re.findall(r"^NodeName=(\S+).* State=(\S+)", said, re.M)
    assert nodes == [(f"slurm10-debug-{n}", "IDLE+CLOUD+POWERED_DOWN") for n in range(10)]
