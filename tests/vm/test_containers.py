"""Jobs that run programs of an OCI image, on two nodes, with the image in a folder on NFS.

The image is made by mmdebstrap of one package: a busybox that needs no library.
"""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci_images
import pytest
from vmkit import site
from vmkit.machine import Machine
from vmkit.site import Site
from waiting import until

from muster.definition.schema.people import first_container_id
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import run as run_as_root

pytestmark = pytest.mark.proof("three emulated machines, which unpack images")

ROLES = "munge,users,file_systems,nfs_server,nfs_client,containers,health,scratch,slurmctld,slurmd"
CLUSTER: dict[str, Any] = {
    "name": "vm",
    "os": base_image.RELEASES[site.RELEASE],
    "users": {
        "groups": {"curators": {"gid": 20100}},
        "people": {"ada": {"uid": 20001, "groups": ["curators"]}, "bob": {"uid": 20002}},
    },
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 512}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
    "storage": {
        "home": {"kind": "nfs", "path": "/home", "size_gib": 1},
        "images": {"kind": "nfs", "path": "/images", "size_gib": 1, "group": "curators"},
        "scratch": "/scratch",
    },
}
JOB_SECONDS = 400
"""Timeout of a job: an emulated node starts podman in tens of seconds."""


APPLETS = "sh cat id ls sleep tail true"
"""Programs of the image: only its shell finds those of busybox that have no link."""
SYSTEM_LINE, OLD_LINE = "games:300000:1000", "gone:100000:65536"


def busybox(folder: Path) -> bytes:
    """Make the image's one layer."""
    archive = folder / "root.tar"
    hook = (
        'mkdir -p "$1"/bin "$1"/tmp; [ -e "$1"/bin/busybox ] || mv "$1"/usr/bin/busybox "$1"/bin/; '
        f'for name in {APPLETS}; do ln -sf busybox "$1"/bin/$name; done'
    )
    run_as_root(
        [
            *("mmdebstrap", "--variant=extract", "--include=busybox-static"),
            *("--format=tar", f"--extract-hook={hook}", site.RELEASE, str(archive)),
        ],
        timeout=JOB_SECONDS,
    )
    return archive.read_bytes()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A controller, which is storage and login host, two nodes, and the image in the store."""
    folder = tmp_path_factory.mktemp("images")
    layer = busybox(folder)
    for name in ("image", "newer"):
        oci_images.layout(folder / name, layer, variables=("PATH=/bin", f"KIND={name}"))
    oci_images.layout(folder / "foreign", b"no tar", architecture="arm64")
    with site.booted(clients=2, cores=2) as machines:
        machines.define(CLUSTER)
        for node in machines.clients:
            node.check(f"printf '%s\\n' {SYSTEM_LINE} {OLD_LINE} >/etc/subuid")
        machines.play(roles=ROLES)
        until(lambda: idle(machines), "both nodes are in service", 120)
        for name in ("image", "newer", "foreign"):
            copy(machines.server, folder / name, f"/srv/{name}")
        pulled = as_person(machines, "ada", "muster-container pull oci:/srv/image busybox:1")
        assert pulled.returncode == 0, pulled.stderr
        # It is read from the store alone.
        machines.server.check("rm -r /srv/image")
        yield machines


def copy(machine: Machine, folder: Path, target: str) -> None:
    archive = subprocess.run(
        ["tar", "--create", "--directory", str(folder), "."], capture_output=True, check=True
    )
    subprocess.run(
        [
            *("ssh", "-F", f"{machine.folder}/ssh_config", machine.name),
            f"mkdir {target} && tar --extract --directory {target} && chmod -R a+rX {target}",
        ],
        input=archive.stdout,
        timeout=JOB_SECONDS,
        check=True,
    )


def idle(machines: Site) -> bool:
    return machines.server.ssh("sinfo --noheader --format=%T%D").stdout.strip() == "idle2"


def as_person(machines: Site, who: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a login shell of a person."""
    return machines.server.ssh(f"runuser -l {who} -c {shlex.quote(command)}", timeout=JOB_SECONDS)


def run(
    machines: Site, who: str, words: str, options: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a job whose tasks run a program of an image."""
    return as_person(
        machines, who, f"srun --mem=300 --time=10 {options} muster-container run {words}"
    )


def left(node: Machine) -> str:
    """Return the processes of people and of their ranges, and what they left on a node's disk."""
    first, last = first_container_id(20001), first_container_id(20002) + 65535
    return node.check(
        "ps -e -o uid=,args= | awk "
        f"'$1 == 20001 || $1 == 20002 || ($1 >= {first} && $1 <= {last})'; "
        "find /scratch -mindepth 1 -maxdepth 1 -name '[0-9]*'; grep /scratch/ /proc/mounts || true"
    )


def sleeps(node: Machine) -> bool:
    """Whether the program of a container runs there, and not only what starts it."""
    return "20002 sleep 3000" in [" ".join(line.split()) for line in left(node).splitlines()]


def nothing_is_left(machines: Site) -> None:
    until(lambda: idle(machines), "no job runs", JOB_SECONDS)
    for node in machines.clients:
        until(lambda node=node: left(node) == "", "nothing is left of the job", 120)


def test_its_tasks_are_root_inside_and_the_person_outside(three: Site) -> None:
    script = "id -u; echo $KIND; echo mine >/home/bob/of-$SLURMD_NODENAME"
    done = run(three, "bob", f"busybox:1 sh -c '{script}'", "--nodes=2 --label")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0: 0", "0: image", "1: 0", "1: image"]
    owners = three.server.check("stat --format='%n %U' /home/bob/of-*").splitlines()
    assert owners == ["/home/bob/of-node1 bob", "/home/bob/of-node2 bob"]
    # Podman keeps what it unpacks in the job's folder: a shared home can't hold it.
    three.server.check("test ! -e /home/bob/.local/share/containers/storage")
    nothing_is_left(three)


def test_its_processes_are_in_the_job_s_cgroup_and_hold_its_limit(three: Site) -> None:
    done = run(three, "bob", "busybox:1 cat /proc/self/cgroup", "--nodelist=node1")
    assert done.returncode == 0, done.stderr
    assert "/job_" in done.stdout
    assert "/step_0/" in done.stdout
    assert "podman" not in done.stdout
    # tail of a line without an end keeps all of it.
    eats = run(three, "bob", "busybox:1 tail /dev/zero", "--nodelist=node1 --mem=120")
    assert eats.returncode != 0
    nothing_is_left(three)


def test_two_tasks_of_a_node_unpack_it_once(three: Site) -> None:
    # The task that unpacks has a link to the image.
    script = "ls -d /scratch/$SLURM_JOB_ID/.containers/run-*/image"
    done = run(three, "bob", f"busybox:1 sh -c '{script}'", "--nodelist=node1 --ntasks=2")
    links = done.stdout.split()
    assert (len(links), len(set(links))) == (2, 1), done.stderr
    nothing_is_left(three)


def test_a_job_keeps_its_version_when_another_one_is_pulled(three: Site) -> None:
    prints = "srun muster-container run busybox:1 sh -c 'echo $KIND'"
    script = f"{prints}\nuntil test -e go; do sleep 1; done\n{prints}"
    three.server.check(f"printf '#!/bin/sh\\n%s\\n' {shlex.quote(script)} >/home/bob/twice")
    done = as_person(
        three, "bob", "sbatch --parsable --nodelist=node1 --mem=300 --time=20 --output=said twice"
    )
    said = "cat /home/bob/said"
    until(lambda: three.server.ssh(said).stdout == "image\n", "it has a step", JOB_SECONDS)
    pulled = as_person(three, "ada", "muster-container pull --again oci:/srv/newer busybox:1")
    assert pulled.returncode == 0, pulled.stderr
    three.server.check("touch /home/bob/go")
    until(lambda: idle(three), "it is over", JOB_SECONDS)
    assert three.server.check(said).splitlines() == ["image", "image"], done.stderr
    listed = as_person(three, "bob", "muster-container list").stdout.split("\t")
    assert (listed[0], listed[3], listed[-1]) == ("busybox:1", "oci:/srv/newer", "ada\n")
    # A node sees a new link up to a minute late.
    until(
        lambda: run(three, "bob", "busybox:1 sh -c 'echo $KIND'").stdout == "newer\n",
        "later jobs have the new one",
        JOB_SECONDS,
    )
    nothing_is_left(three)


def test_numbers_of_people_are_those_of_the_definition(three: Site) -> None:
    of_people = [
        f"{name}:{first_container_id(uid)}:65536" for name, uid in (("ada", 20001), ("bob", 20002))
    ]
    for node in three.clients:
        assert node.check("cat /etc/subuid").splitlines() == [SYSTEM_LINE, *of_people]
        assert node.check("cat /etc/subgid").splitlines() == of_people


def test_a_cancelled_job_leaves_no_process(three: Site) -> None:
    wrapped = "srun muster-container run busybox:1 sleep 3000"
    done = as_person(
        three, "bob", f'sbatch --parsable --nodes=2 --mem=300 --time=20 --wrap="{wrapped}"'
    )
    for node in three.clients:
        until(lambda node=node: sleeps(node), "it runs", JOB_SECONDS)
    three.server.check(f"scancel {done.stdout.strip()}")
    nothing_is_left(three)


def test_two_jobs_of_one_person_do_not_end_each_other(three: Site) -> None:
    waits = as_person(
        three,
        "bob",
        "sbatch --parsable --nodelist=node1 --ntasks=1 --mem=150 --time=20 "
        '--wrap="srun muster-container run busybox:1 sleep 3000"',
    ).stdout.strip()
    until(lambda: sleeps(three.client), "it runs", JOB_SECONDS)
    done = run(three, "bob", "busybox:1 true", "--nodelist=node1 --mem=150")
    assert done.returncode == 0, done.stderr
    assert sleeps(three.client)
    three.server.check(f"scancel {waits}")
    nothing_is_left(three)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("busybox:9", "has no image busybox:9 (there is busybox:1): pull it on a login node"),
        ("/srv/nowhere", "is no whole image"),
    ],
)
def test_what_is_not_there_is_a_sentence(three: Site, name: str, sentence: str) -> None:
    done = run(three, "bob", f"{name} true")
    assert done.returncode != 0
    assert sentence in done.stderr


def test_an_image_for_another_architecture_does_not_come_in(three: Site) -> None:
    done = as_person(three, "ada", "muster-container pull oci:/srv/foreign foreign:1")
    assert done.returncode == 1
    assert "is for linux/arm64 and this host is linux/amd64" in done.stderr
    assert as_person(three, "ada", "muster-container list").stdout.startswith("busybox:1\t")
    assert "foreign" not in three.server.check("ls /images")


def test_a_full_disk_of_a_node_is_a_sentence(three: Site) -> None:
    node = three.clients[1]
    node.check("mount -t tmpfs -o size=1200k tmpfs /scratch")
    try:
        done = run(three, "bob", "busybox:1 true", "--nodelist=node2")
        assert "takes no more files (the disk is full)" in done.stderr
    finally:
        node.check("umount --lazy /scratch")
    nothing_is_left(three)
