"""How long slurmctld itself takes until a queue has its nodes, with each profile's slurm.conf.

Run: .venv/bin/python tests/bench/bench_slurmctld.py [bookworm | trixie ...]
     .venv/bin/python tests/bench/bench_slurmctld.py RELEASE PACKAGE
As root, with podman; twelve minutes a release. Prints counts first, then CPU and wall time:
* burst: an array of 1,000 exclusive tasks over 10,000 nodes that are off, until all are asked for;
  then with 2,000 jobs of another partition in the way. Goals: <= 15 s, <= 4 calls of ResumeProgram.
* cold: jobs at random moments, sbatch to script without the boot of 1 s. Goal: 95 % <= 2.5 s. The
  nodes are real slurmds in one container; the gate and the program that waits at it are Muster's.
* reading: the states of 10,000 nodes.
With a PACKAGE, made by `make slurmctld-package`, only `cold`: the archive's slurmctld and the
package's, first without the program that waits at the gate; fifteen minutes.
Not measured: authentication (auth/none instead of munge), accounting, the network.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import jinja2

from muster.autoscaler.slurm.job_start_gate import Gate, coming
from muster.autoscaler.slurm.slurmctld import Slurm
from muster.catalog.hostlists import expand, fold
from muster.definition import Definition, validate
from muster.definition.definition import cloud_hosts
from muster.definition.schema.cluster import Cluster
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import as_root, exists, podman, ulimits

NAME = "bench-slurmctld"
PROFILES = ("elastic", "throughput")
TASKS, NODES, BLOCKED = 1000, 10_000, 2000
COLD_JOBS, COLD_NODES = 50, 60
LARGEST_SET = 5000
FIRST_PORT = 20001
"""Below net.ipv4.ip_local_port_range, or an outgoing connection takes the port of a node."""

REPOSITORY = Path(__file__).parents[2]
WAIT = REPOSITORY / "roles/autoscaler/templates/usr/local/sbin/muster-wait-for-nodes.j2"

# Settings for a container without munge, its own cgroups and accounting, instead of the roles'.
REPLACED = {
    "AuthType": "auth/none",
    "CredType": "cred/none",
    "SlurmUser": "root",
    "SlurmctldHost": NAME,
    "StateSaveLocation": "/var/bench/state",
    "SlurmdSpoolDir": "/var/bench/spool/%n",
    "SlurmctldPidFile": "/var/bench/slurmctld.pid",
    "SlurmdPidFile": "/var/bench/spool/%n.pid",
    "SlurmctldLogFile": "/var/bench/slurmctld.log",
    "SlurmdLogFile": "/var/bench/spool/%n.log",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "SlurmdParameters": "config_overrides",
    "ResumeProgram": "/bench/resume",
    "SuspendProgram": "/bin/true",
    "ResumeFailProgram": "/bin/true",
}
LEFT_OUT = (
    "AuthInfo",
    "HealthCheckProgram",
    "HealthCheckInterval",
    "HealthCheckNodeState",
    "Prolog",
    "PrologFlags",
    "SrunPortRange",
    "AccountingStorageType",
    "AccountingStorageHost",
    "AccountingStorageEnforce",
    "JobAcctGatherType",
    "PriorityType",
    "PriorityWeightFairshare",
    "PriorityWeightAge",
)

RESUME = """#!/bin/bash
PATH=/usr/sbin:/usr/bin:/sbin:/bin
nodes=$(scontrol show hostnames "$1")
echo "$(date +%s.%N) $(wc -w <<<"$nodes")" >>/var/bench/resumes
[ -e /bench/boots ] || exit 0
for node in $nodes; do
  mkdir -p /var/bench/spool/"$node"
  setsid sh -c "sleep 1; exec slurmd -N $node -b -D" </dev/null >/dev/null 2>&1 &
done
sleep 0.3 # slurmctld ends the group of processes of this one; they have left it by then
"""


def definition(release: str, profile: str, nodes: int) -> Definition:
    machine = {"machine_type": "n1-standard-2"}
    sizes = [min(LARGEST_SET, nodes - begin) for begin in range(0, nodes, LARGEST_SET)]
    sets = {f"n{number}": {**machine, "max_nodes": size} for number, size in enumerate(sizes)}
    data = {
        "name": "bench",
        "os": base_image.RELEASES[release],
        "nodes": sets,
        "partitions": {
            "all": {"nodes": list(sets), "default": True, "max_time": "1-00:00:00"},
            "full": {"nodes": list(sets)},
        },
        "cloud": {
            "zone": "europe-west4-a",
            "controller": machine,
            "login": machine,
            "image": machine,
            "subnet": "10.0.0.0/16",
        },
        "scheduling": {"profile": profile},
    }
    return validate(data, cloud_hosts(Cluster.model_validate(data)).groups)


def slurm_conf(
    release: str, profile: str, nodes: int, *, waits: bool, settings: Mapping[str, str] = {}
) -> str:
    """The profile's slurm.conf, with a container's settings instead of the roles'."""
    replaced = {**REPLACED, **settings}
    lines = []
    port = FIRST_PORT
    for line in parse(render(definition(release, profile, nodes)).slurm_conf):
        if "NodeName" in line:
            line |= {"NodeHostname": NAME, "NodeAddr": "127.0.0.1"}
            last = port + len(expand(line["NodeName"])) - 1
            line["Port"] = f"[{port}-{last}]"
            port = last + 1
        elif "PartitionName" in line:
            if line["PartitionName"] == "full":
                line["Nodes"] = fold(expand(line["Nodes"])[:100])
        elif line.keys() & {*replaced, *LEFT_OUT}:
            continue
        if "PrologSlurmctld" in line:
            if not waits:
                continue
            line["PrologSlurmctld"] = "/bench/muster-wait-for-nodes"
        lines.append(line | {key: value for key, value in settings.items() if key in line})
    lines[:0] = [{key: value} for key, value in replaced.items()]
    return "".join(" ".join(f"{k}={v}" for k, v in line.items()) + "\n" for line in lines)


def slurm_image(release: str) -> str:
    """Debian's own packages of SLURM on the base image."""
    name = f"localhost/muster-bench-slurm:{release}"
    if not exists("image", name):
        recipe = (
            f"FROM {base_image.ensure(release)}\n"
            "RUN apt-get update && printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && "
            "chmod 0755 /usr/sbin/policy-rc.d && DEBIAN_FRONTEND=noninteractive "
            "apt-get install -y --no-install-recommends slurmctld slurmd slurm-client\n"
        )
        podman("build", "--network", "host", "--tag", name, "-", stdin=recipe, timeout=600)
    return name


@contextmanager
def container(
    release: str,
    profile: str,
    nodes: int,
    *,
    boots: bool,
    waits: bool = True,
    package: Path | None = None,
    name: str = NAME,
    settings: Mapping[str, str] = {},
    programs: Mapping[str, str] = {"resume": RESUME},
    inside: str = "inside.py",
    image: str = "",
) -> Iterator[str]:
    """A container with the profile's configuration; its process id on this machine.

    `settings` are other settings of slurm.conf, `programs` lie in /bench.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "etc").mkdir()
        conf = slurm_conf(release, profile, nodes, waits=waits, settings=settings)
        (folder / "etc/slurm.conf").write_text(conf)
        # 22.05 can't be configured without cgroups, but these measurements don't need them.
        (folder / "etc/cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\n" if release == "bookworm" else "CgroupPlugin=disabled\n"
        )
        environment = jinja2.Environment(autoescape=False)  # noqa: S701
        environment.filters["comment"] = lambda text: f"# {text}"
        wait = environment.from_string(WAIT.read_text()).render(
            ansible_managed=NAME, autoscaler_resume_timeout_seconds=300
        )
        for program, text in {**programs, "muster-wait-for-nodes": wait}.items():
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)
        if boots:
            (folder / "boots").touch()
        podman(
            *("run", "--detach", "--rm", "--name", name, "--hostname", NAME, "--privileged"),
            *("--volume", f"{folder}:/bench", "--volume", f"{folder}/etc:/etc/slurm"),
            *("--volume", f"{Path(__file__).parent}/slurmctld/{inside}:/inside.py:ro", *ulimits()),
            *(image or slurm_image(release), "sleep", "infinity"),
        )
        try:
            if package:
                podman("cp", str(package), f"{name}:/slurmctld.deb")
                podman("exec", name, "dpkg", "--install", "/slurmctld.deb")
            yield podman("inspect", "--format", "{{.State.Pid}}", name).strip()
        finally:
            podman("rm", "--force", "--time", "1", name)


def measure(
    release: str,
    profile: str,
    nodes: int,
    *work: str,
    waits: bool = True,
    package: Path | None = None,
) -> dict[str, Any]:
    """The output of inside.py; with Muster's gate running if the profile waits at it."""
    boots = work[0] == "cold"
    with container(release, profile, nodes, boots=boots, waits=waits, package=package) as pid:
        gated = work[0] != "reading" and profile == "elastic" and waits
        with gate(pid) if gated else nullcontext():
            said = podman("exec", NAME, "python3", "/inside.py", *work, timeout=500)
    return json.loads(said.splitlines()[-1])  # type: ignore[no-any-return]


@contextmanager
def gate(pid: str) -> Iterator[None]:
    """Muster's gate, in the container's network, where the waiting programs connect to it."""
    enter = ["nsenter", "--net", f"--target={pid}", sys.executable, __file__]
    keeper = subprocess.Popen(as_root([*enter, "--gate", pid]))
    try:
        yield
    finally:
        keeper.terminate()
        keeper.wait(30)


def keep_gate(pid: str) -> None:
    """Run Muster's gate for the slurmctld in the container of process `pid`."""
    programs = Path(f"/proc/{pid}/root/bench")
    scontrol = programs / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nexec nsenter --mount --target={pid} scontrol "$@"\n')
    scontrol.chmod(0o755)
    slurm = Slurm(programs)
    Gate(lambda: coming(slurm.nodes())).run(Event())


def compare(release: str, package: Path) -> None:
    """Measure cold nodes with the archive's slurmctld and with that of a package."""
    for profile, waits in (("elastic", False), ("throughput", False), ("elastic", True)):
        for name, file in (("the archive's slurmctld", None), (package.name, package)):
            result = measure(
                *(release, profile, COLD_NODES, "cold", str(COLD_JOBS)), waits=waits, package=file
            )
            way = "" if waits else ", nothing waits at the gate"
            print(f"{release} {profile}{way}, cold, {name}: {result} {load()}", flush=True)


def main() -> None:
    """Measure the releases named on the command line, or both."""
    for release in sys.argv[1:] or list(base_image.RELEASES):
        for profile in PROFILES:
            for blocked in (0, BLOCKED):
                result = measure(release, profile, NODES, "burst", str(TASKS), str(blocked))
                print(f"{release} {profile} burst, {blocked} jobs in the way: {result} {load()}")
            result = measure(release, profile, COLD_NODES, "cold", str(COLD_JOBS))
            print(f"{release} {profile} cold, {COLD_JOBS} jobs: {result} {load()}")
        for way, result in measure(release, "elastic", NODES, "reading").items():
            print(f"{release} reading, {way}: {result}")


def load() -> str:
    """Load of the machine now, and its processors."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--gate"]:
        keep_gate(sys.argv[2])
    elif sys.argv[2:] and sys.argv[2].endswith(".deb"):
        compare(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
