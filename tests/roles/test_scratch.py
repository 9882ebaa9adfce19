"""A job's scratch on a host; slurmd, which calls the programs, is simulated."""

import pytest

CONF = "/run/slurm/conf/slurm.conf"
PROLOG = "/etc/slurm/prolog.d/60-muster-scratch"
EPILOG = "/etc/slurm/epilog.d/60-muster-scratch"
PROGRAM = "/usr/local/lib/muster/scratch.py"
LEFTOVERS = "/etc/slurm/epilog.d/70-muster-leftovers"
TASK_PROLOG = "/usr/local/lib/muster/task-prolog"


def slurmd(host, program, job="7", uid="65534"):
    """Run a program as slurmd does: nothing else is in its environment."""
    return host.run(f"env -i SLURM_JOB_ID={job} SLURM_JOB_UID={uid} {program}")


@pytest.fixture
def scratch(host):
    """Give the host a slurm.conf with TmpFS."""
    host.check_output(f"mkdir -p /run/slurm/conf && echo TmpFS=/scratch >{CONF}")
    yield "/scratch"
    host.check_output(f"rm -rf {CONF} /scratch")


@pytest.mark.usefixtures("scratch")
def test_a_job_s_folder_comes_and_goes(host):
    assert slurmd(host, PROLOG).rc == 0
    folder = host.file("/scratch/7")
    assert (folder.mode, folder.uid) == (0o700, 65534)
    assert host.file("/scratch").mode == 0o755
    made = "mkdir -p /scratch/7/a/b; ln -s /etc /scratch/7/l"
    host.check_output("runuser -u nobody -- sh -c %s", made)
    assert slurmd(host, EPILOG).rc == 0
    assert host.check_output("ls /scratch") == ""
    assert host.file("/etc/passwd").exists


@pytest.mark.usefixtures("scratch")
def test_what_a_job_mounted_is_unmounted_and_not_emptied(host):
    assert slurmd(host, PROLOG).rc == 0
    host.check_output("mkdir -p /scratch/7/mnt /srv/kept && touch /srv/kept/file")
    if host.run("mount --bind /srv/kept /scratch/7/mnt").rc != 0:
        pytest.skip("this machine lets containers mount nothing")
    assert slurmd(host, EPILOG).rc == 0
    assert host.file("/srv/kept/file").exists
    assert host.check_output("ls /scratch") == ""


@pytest.fixture(params=["", "TmpFS=/scratch"])
def private_tmp(host, request):
    """Give the host a slurm.conf; return the folder of its jobs' /tmp."""
    host.check_output(f"mkdir -p /run/slurm/conf && echo {request.param} >{CONF}")
    base = "/scratch/.private-tmp" if request.param else "/var/spool/muster-tmp"
    yield f"{base}/{host.check_output('uname -n')}"
    host.check_output(f"rm -rf {CONF} /scratch /var/spool/muster-tmp")


def test_later_steps_of_a_job_without_a_private_tmp_find_the_node_s(host, private_tmp):
    assert slurmd(host, PROLOG).rc == 0
    # As a step joins it: slurmstepd opens it and calls setns.
    inside = f"nsenter --mount={private_tmp}/7/.ns readlink /proc/self/ns/mnt"
    assert host.check_output(inside) == host.check_output("readlink /proc/1/ns/mnt")
    assert slurmd(host, EPILOG).rc == 0
    assert host.check_output(f"ls -A {private_tmp}") == ""


def test_what_slurm_left_of_a_job_s_tmp_is_removed(host, private_tmp):
    folder = f"{private_tmp}/7"
    host.check_output(f"mkdir -p {folder} && mount --bind {folder} {folder}")
    # A namespace of another kind: to hold that of a mount takes one more process.
    host.check_output(f"touch {folder}/.ns && mount --bind /proc/1/ns/uts {folder}/.ns")
    host.check_output(f"mkdir -p {folder}/.7/_tmp && touch {folder}/.7/_tmp/file")
    assert slurmd(host, EPILOG).rc == 0
    assert host.check_output(f"ls -A {private_tmp}") == ""
    assert private_tmp not in host.check_output("cat /proc/self/mountinfo")


def test_without_tmpfs_nothing_is_made(host):
    host.check_output(f"mkdir -p /run/slurm/conf && echo ClusterName=x >{CONF}")
    assert slurmd(host, PROLOG).rc == 0
    assert slurmd(host, EPILOG).rc == 0
    assert host.check_output(f"env -i SLURM_JOB_ID=7 {TASK_PROLOG}; rm {CONF}") == ""
    assert not host.file("/scratch").exists


@pytest.mark.usefixtures("scratch")
def test_a_prolog_that_can_t_make_it_fails_and_says_why(host):
    host.check_output("mkdir -m 0777 /scratch")
    refused = slurmd(host, PROLOG)
    assert refused.rc == 1
    assert "/scratch is not root's alone to write to" in refused.stderr
    assert slurmd(host, EPILOG).rc == 0


def test_a_disk_that_holds_no_more_files_is_blamed_on_a_job(host):
    host.check_output(f"mkdir -p /run/slurm/conf /scratch && echo TmpFS=/scratch >{CONF}")
    host.check_output("mount -t tmpfs -o nr_inodes=50 none /scratch")
    try:
        assert host.check_output(f"{PROGRAM} check") == "/scratch takes folders"
        for job in ("7", "8"):
            assert slurmd(host, PROLOG, job=job).rc == 0
        host.check_output("touch /scratch/7/one; cd /scratch/8; ! touch $(seq 60) 2>/dev/null")
        said = host.run(f"{PROGRAM} check")
        assert said.rc == 3
        assert said.stdout.strip() == (
            "no folder can be made in /scratch: No space left on device; "
            "job 8 of nobody has most files"
        )
        assert slurmd(host, PROLOG, job="9").rc == 1
        assert slurmd(host, EPILOG, job="8").rc == 0
        assert slurmd(host, PROLOG, job="9").rc == 0
    finally:
        host.check_output(f"umount /scratch; rm -rf {CONF} /scratch")


@pytest.fixture
def person(host):
    """Somebody who may not log in, and a squeue that shows the jobs in /run/jobs."""
    host.check_output("useradd --uid 20077 --no-create-home zed")
    host.check_output("mkdir -p /etc/security && echo zed >/etc/security/muster-no-login")
    stub = "#!/bin/sh\ncat /run/jobs\n"
    host.check_output("printf %%s %s >/usr/local/sbin/squeue", stub)
    host.check_output("chmod 0755 /usr/local/sbin/squeue; echo 7 >/run/jobs")
    yield "zed"
    host.run("systemctl stop stray")
    host.check_output(
        "rm -rf /usr/local/sbin/squeue /run/jobs /etc/security/muster-no-login /tmp/*-of-zed"
        " /var/tmp/*-of-zed /dev/shm/*-of-zed; ipcrm --all; userdel zed"
    )


LITTER = """
set -eu
touch /tmp/file-of-zed /dev/shm/file-of-zed
mkdir -p /var/tmp/folder-of-zed/deep
ln -s /etc /tmp/link-of-zed
ipcmk --shmem 64 --semaphore 1 --queue >/dev/null
"""
LEFT = (
    "ls -d /tmp/*-of-zed /var/tmp/*-of-zed /dev/shm/*-of-zed 2>/dev/null; ipcs | grep -w zed; true"
)


def litter(host):
    host.check_output("runuser -u zed -- sh -c %s", LITTER)
    host.check_output("systemd-run --collect --unit=stray --uid=zed sleep infinity")
    assert len(host.check_output(LEFT).splitlines()) == 7


def ends(host, job="7"):
    """End a job of the person as slurmd does."""
    done = host.run(f"env -i SLURM_JOB_ID={job} SLURM_JOB_UID=20077 SLURMD_NODENAME=n1 {LEFTOVERS}")
    assert done.rc == 0, done.stderr


def test_nothing_stays_after_the_last_job(host, person):
    litter(host)
    host.check_output("touch /tmp/of-root; ipcmk --shmem 64")
    ends(host)
    assert host.check_output(LEFT) == ""
    assert host.run("systemctl is-active stray").rc != 0
    assert host.file("/etc/passwd").exists
    assert host.file("/tmp/of-root").exists
    assert "root" in host.check_output("ipcs --shmems; rm /tmp/of-root")


@pytest.mark.parametrize("jobs", ["printf '7\\n8\\n' >/run/jobs", "rm /run/jobs"])
def test_what_another_job_may_use_stays(host, person, jobs):
    litter(host)
    host.check_output(jobs)
    ends(host)
    assert len(host.check_output(LEFT).splitlines()) == 7
    # What is in no job goes at once.
    assert host.run("systemctl is-active stray").rc != 0


IN_A_JOB = """
set -eu
systemd-run --collect --unit=job --uid=zed sleep infinity
group=/sys/fs/cgroup
[ ! -d $group/freezer ] || group=$group/freezer
mkdir -p $group/job_8
systemctl show --property=MainPID --value job >$group/job_8/cgroup.procs
"""


def test_a_process_of_another_job_is_left_alone(host, person):
    litter(host)
    host.check_output("sh -c %s", IN_A_JOB)
    try:
        ends(host)
        assert len(host.check_output(LEFT).splitlines()) == 7
        assert host.run("systemctl is-active job").rc == 0
        assert host.run("systemctl is-active stray").rc != 0
    finally:
        host.check_output(
            "systemctl stop job; rmdir /sys/fs/cgroup/freezer/job_8 /sys/fs/cgroup/job_8; true"
        )


def test_who_may_log_in_keeps_everything(host, person):
    host.check_output(">/etc/security/muster-no-login")
    litter(host)
    ends(host)
    assert len(host.check_output(LEFT).splitlines()) == 7
    assert host.run("systemctl is-active stray").rc == 0


@pytest.mark.usefixtures("person")
def test_what_people_of_a_directory_left_goes_too(host):
    """No file of this host has their logins."""
    also = "/etc/security/muster-no-login-directory"
    end = f"env -i SLURM_JOB_ID=7 SLURM_JOB_UID=30077 SLURMD_NODENAME=n1 {LEFTOVERS}"
    left = host.file("/tmp/file-of-zed")
    host.check_output("setpriv --reuid=30077 --clear-groups touch /tmp/file-of-zed")
    host.check_output(end)
    assert left.exists
    host.check_output(f"touch {also}; {end}; rm {also}")
    assert not left.exists


def test_a_login_shell_keeps_compiled_code_out_of_tmp(host):
    shown = host.check_output("runuser -u nobody -- env -i HOME=/h bash -lc 'env'")
    assert "TORCHINDUCTOR_CACHE_DIR=/h/.cache/torchinductor" in shown.splitlines()
    own = host.check_output("env -i HOME=/h TORCHINDUCTOR_CACHE_DIR=/x bash -lc 'env'")
    assert "TORCHINDUCTOR_CACHE_DIR=/x" in own.splitlines()
