"""A job's scratch on a host; slurmd, which calls the programs, is simulated."""

import pytest

CONF = "/run/slurm/conf/slurm.conf"
PROLOG = "/etc/slurm/prolog.d/60-muster-scratch"
EPILOG = "/etc/slurm/epilog.d/60-muster-scratch"
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
    assert host.check_output("ls -A /scratch") == ""
    assert host.file("/etc/passwd").exists


@pytest.mark.usefixtures("scratch")
def test_what_a_job_mounted_is_unmounted_and_not_emptied(host):
    assert slurmd(host, PROLOG).rc == 0
    host.check_output("mkdir -p /scratch/7/mnt /srv/kept && touch /srv/kept/file")
    if host.run("mount --bind /srv/kept /scratch/7/mnt").rc != 0:
        pytest.skip("this machine lets containers mount nothing")
    assert slurmd(host, EPILOG).rc == 0
    assert host.file("/srv/kept/file").exists
    assert host.check_output("ls -A /scratch") == ""


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


def test_a_login_shell_keeps_compiled_code_out_of_tmp(host):
    shown = host.check_output("runuser -u nobody -- env -i HOME=/h bash -lc 'env'")
    assert "TORCHINDUCTOR_CACHE_DIR=/h/.cache/torchinductor" in shown.splitlines()
    own = host.check_output("env -i HOME=/h TORCHINDUCTOR_CACHE_DIR=/x bash -lc 'env'")
    assert "TORCHINDUCTOR_CACHE_DIR=/x" in own.splitlines()
