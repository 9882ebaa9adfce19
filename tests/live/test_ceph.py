"""Homes, modules and data from CephFS: three storage hosts with one OSD each, by the same play.

Containers have no own kernel, so ceph-fuse mounts the folders; in tests/vm a kernel mounts them.
"""

import json
from collections.abc import Iterator

import pytest
from conftest import ROOT, Lab, raise_lab
from waiting import until

from muster_sandbox.containers.podman import podman

pytestmark = pytest.mark.proof("raises a Ceph cluster of three hosts and a SLURM cluster on it")

FIRST, NODE, LOST = "ceph-1", "ceph-cpu-01", "ceph-3"
WRITER = """\
#!/bin/bash
for i in $(seq 10000); do
    dd if=/dev/zero of=part bs=64K count=16 conv=fsync status=none && echo $i >>lines
    test -e enough && exit
done
exit 1
"""


@pytest.fixture(scope="module")
def ceph() -> Iterator[Lab]:
    """The cluster on its four machines."""
    template = ROOT / "tests/live/inventories/ceph"
    for lab in raise_lab(template, "muster-ceph", "bookworm", "10.214.46.0/24"):
        run = lab.play()
        assert run.code == 0, run.output[-6000:]
        yield lab


def as_ada(ceph: Lab, command: str) -> str:
    return ceph.on(FIRST, f"runuser -l ada -c '{command}'").strip()


def health(ceph: Lab) -> str:
    return ceph.on(FIRST, "ceph --connect-timeout 10 health", check=False).strip()


def test_a_job_finds_on_its_node_what_was_written_where_people_log_in(ceph: Lab) -> None:
    as_ada(ceph, "echo from the login node >found")
    assert as_ada(ceph, "srun -n 1 --mem=50M cat found") == "from the login node"
    table = ceph.on(NODE, "cat /proc/self/mountinfo")
    kinds = {line.split()[4]: line.partition(" - ")[2].split()[0] for line in table.splitlines()}
    assert {kinds.get(path) for path in ("/home", "/apps", "/data")} == {"fuse.ceph-fuse"}


def test_second_run_changes_nothing(ceph: Lab) -> None:
    run = ceph.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed_tasks == []


def test_each_host_has_a_monitor_and_an_osd_and_two_have_the_rest(ceph: Lab) -> None:
    status = json.loads(ceph.on(FIRST, "ceph status --format json"))
    assert sorted(status["quorum_names"]) == ["ceph-1", "ceph-2", "ceph-3"]
    tree = json.loads(ceph.on(FIRST, "ceph osd tree --format json"))
    hosts = {
        item["name"]: len(item["children"]) for item in tree["nodes"] if item["type"] == "host"
    }
    assert hosts == {"ceph-1": 1, "ceph-2": 1, "ceph-3": 1}
    rule = json.loads(ceph.on(FIRST, "ceph osd pool get cephfs.cephfs.data size --format json"))
    assert rule["size"] == 3
    for host, wanted in (("ceph-1", 2), ("ceph-2", 2), ("ceph-3", 0)):
        shown = ceph.on(host, "ps --no-headers -C ceph-mgr,ceph-mds", check=False)
        assert (host, len(shown.splitlines())) == (host, wanted)


def test_a_node_may_do_with_its_key_what_its_folders_need_and_no_more(ceph: Lab) -> None:
    assert ceph.on(NODE, "ls /etc/ceph/*admin*", check=False).startswith("ls: cannot access")
    own = "ceph --conf /etc/ceph/muster.conf --id muster-compute --connect-timeout 20"
    for command in ("auth ls", "osd pool delete cephfs.cephfs.data", "config set mon debug_mon 1"):
        assert "EACCES" in ceph.on(NODE, f"{own} {command}", check=False), command
    mount = "ceph-fuse --conf /etc/ceph/muster.conf --id muster-compute --client_mount_timeout 20"
    said = ceph.on(NODE, f"mkdir -p /mnt/all && {mount} -r / /mnt/all", check=False)
    assert "Permission denied" in said or "Operation not permitted" in said, said
    # Modules are read-only, whatever the mount's options say.
    ceph.on(NODE, f"mkdir -p /mnt/apps && {mount} -r /apps /mnt/apps")
    try:
        assert "Permission denied" in ceph.on(NODE, "touch /mnt/apps/planted", check=False)
    finally:
        ceph.on(NODE, "umount /mnt/apps")


def test_a_project_is_its_group_s_whatever_the_umask_and_has_a_quota(ceph: Lab) -> None:
    as_ada(ceph, 'umask 077; srun -n 1 --mem=50M sh -c "echo shared >/data/speech/file"')
    shown = ceph.on(FIRST, "stat --format='%G %A' /data/speech /data/speech/file").splitlines()
    assert shown == ["ml-users drwxrws---", "ml-users -rw-rw----"]
    quota = "import os; print(os.getxattr('/data/speech', 'ceph.quota.max_bytes'))"
    assert ceph.on(FIRST, f'python3 -c "{quota}"').strip() == str(str(2**30).encode())


def test_a_storage_host_that_dies_under_writes_takes_nothing_along(ceph: Lab) -> None:
    as_ada(ceph, "rm -f enough; : >lines; dd if=/dev/urandom of=before bs=1M count=16 status=none")
    whole = as_ada(ceph, "sha256sum <before")
    ceph.on(FIRST, f"cat >/home/ada/writer <<'END'\n{WRITER}END")
    job = as_ada(ceph, "sbatch --parsable --mem=50M writer")
    written = "wc -l <lines"
    until(lambda: int(as_ada(ceph, written)) > 3, "the job writes", 60)
    podman("kill", ceph.container(LOST))
    try:
        then = int(as_ada(ceph, written))
        until(lambda: int(as_ada(ceph, written)) > then + 10, "it writes on", 120)
        until(lambda: "osds down" in health(ceph) or "osd down" in health(ceph), "Ceph says so", 60)
        as_ada(ceph, "touch enough")
        state = f"scontrol show job {job}"
        until(lambda: "JobState=COMPLETED" in as_ada(ceph, state), "the job has ended", 60)
        count = int(as_ada(ceph, written))
        assert as_ada(ceph, "cat lines").split() == [str(number) for number in range(1, count + 1)]
        assert as_ada(ceph, "srun -n 1 --mem=50M sha256sum <before") == whole
    finally:
        podman("start", ceph.container(LOST))
    until(lambda: health(ceph) == "HEALTH_OK", "all is as before", 180)


def test_it_is_not_ended_without_its_uuid(ceph: Lab) -> None:
    run = ceph.play(playbook="ceph-purge.yml")
    assert run.code != 0
    said = " ".join(run.output.split())
    assert f"it needs the cluster's UUID as -e fsid=UUID; `ceph fsid` on {FIRST} tells it" in said
    assert health(ceph) == "HEALTH_OK"
