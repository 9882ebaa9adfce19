"""`launch` in a job whose variables are made up, and `muster-job` on a host without SLURM."""

import pytest

STEP = (
    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=2 "
    "SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_CPUS_ON_NODE=2 SLURM_SUBMIT_DIR=/tmp"
)


@pytest.fixture
def as_person(host):
    """Return what runs a command as somebody without rights."""
    return lambda command: host.run(f"runuser -u nobody -- env HOME=/tmp {command}")


def test_a_task_gets_its_variables_and_the_program_is_that_process(as_person):
    done = as_person(
        f"{STEP} launch sh -c 'echo $RANK $WORLD_SIZE $MASTER_ADDR $GLOO_SOCKET_IFNAME'"
    )
    assert done.rc == 0, done.stderr
    assert done.stdout.split() == ["0", "2", "localhost", "lo"]


def test_it_explains_what_it_sets_and_starts_nothing(as_person):
    done = as_person(f"{STEP} launch --explain touch /tmp/started")
    assert done.rc == 0, done.stderr
    assert (
        "OMP_NUM_THREADS=1  # OpenMP, PyTorch: a thread for each core of this task" in done.stdout
    )
    assert as_person("test -e /tmp/started").rc != 0


def test_outside_of_a_job_it_says_what_to_type(as_person):
    done = as_person("launch true")
    assert done.rc == 1
    assert done.stderr == (
        "launch: this is no job: type `srun launch COMMAND` in a script for sbatch, or after "
        "salloc\n"
    )


def test_a_taken_port_is_said_and_the_program_is_not_started(as_person):
    taken = as_person(
        "sh -c 'python3 -m http.server 20017 --bind 127.0.0.1 >/dev/null 2>&1 & "
        f"sleep 2; MASTER_PORT=20017 {STEP} launch echo started; rc=$?; kill $!; exit $rc'"
    )
    assert taken.rc == 1
    assert "port 20017 of localhost is in use: set MASTER_PORT to another one" in taken.stderr
    assert "started" not in taken.stdout


def test_a_host_without_slurm_says_so(as_person):
    done = as_person("muster-job 12")
    assert done.rc == 1
    assert done.stderr.startswith("error: squeue ")
    assert done.stderr.count("\n") == 1


def test_what_is_no_number_of_a_job_is_refused(as_person):
    done = as_person("muster-job train")
    assert done.rc == 2
    assert "'train' is no number of a job, such as 12 or 12_3" in done.stderr


def test_a_notebook_without_jupyterlab_is_refused_before_it_is_submitted(as_person):
    done = as_person("notebook --time=1")
    assert done.rc == 1
    assert done.stderr.startswith("error: jupyter-lab is not there: load the module that has it")


def test_in_a_job_without_jupyterlab_it_says_so(as_person):
    done = as_person("/usr/local/lib/muster/notebook-server start")
    assert done.rc == 1
    assert done.stderr.startswith("notebook: jupyter-lab is not there: load the module")


def test_people_copy_examples_and_can_t_change_them(host, as_person):
    done = as_person("sh -c 'cp -r /usr/local/share/muster/examples/train /tmp/copied'")
    assert done.rc == 0, done.stderr
    for name in ("README.md", "train.py", "train.sbatch"):
        file = host.file(f"/usr/local/share/muster/examples/train/{name}")
        assert (file.user, file.mode) == ("root", 0o644)
        assert as_person(f"cmp {file.path} /tmp/copied/{name}").rc == 0
    host.run("rm -r /tmp/copied")
