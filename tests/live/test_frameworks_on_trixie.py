"""PyTorch of Debian 13 and JAX from PyPI, as docs/software.md adds them to a cluster.

The examples that need them run with two tasks on the one node of this cluster.
"""

import re
import shlex
import subprocess

import frameworks
import pytest
from conftest import ROOT, Lab
from environments import add_requirements
from waiting import until

pytestmark = pytest.mark.proof("adds modules to the cluster of test_split.py")

NODE, LOGIN = "split-cpu-01", "split-login"
FOLDER = "/srv/examples"
"""Of the login node and of the node: the cluster shares homes alone. Not in /var/tmp: what people
have there on a node is removed when their last job on it ends."""
JOB_SECONDS = 300

PROGRAMS = {
    "libs/python/torch/2.6": (
        "import torch; print(torch.__version__, torch.arange(10.).square().sum().item())",
        "2.6.",
    ),
    "libs/python/jax/0.12": (
        "import jax; square = jax.jit(lambda x: (x * x).sum()); "
        "print(jax.__version__, square(jax.numpy.arange(10.)))",
        "0.12.",
    ),
}
"""Module -> a program, and how the version that it prints begins; then it prints 285.0."""


@pytest.fixture(scope="module", autouse=True)
def _modules(split: Lab) -> None:
    add_requirements(split, "split-ctl", "jax-0.12", "3.13")
    modules = frameworks.modules("libs/python/jax")
    split.change(lambda cluster: cluster.update(software={"modules": modules}))
    run = split.play()
    assert run.code == 0, run.output[-6000:]


@pytest.mark.parametrize("module", PROGRAMS)
def test_a_job_computes_with_a_module(split: Lab, module: str) -> None:
    program, version = PROGRAMS[module]
    python = f"module load {module} && python3 -c {shlex.quote(program)}"
    job = f"srun -n 1 --mem=1500M bash -lc {shlex.quote(python)}"
    shown = split.on("split-login", f"runuser -l ada -c {shlex.quote(job)}", timeout=200)
    told, result = shown.split()[-2:]
    assert told.startswith(version)
    assert result == "285.0"


@pytest.fixture(scope="module")
def _examples(split: Lab) -> None:
    """Ada's copies of the examples."""
    names = ("ddp", "jax", "stages")
    # Links among them, as `cp -rL` does.
    packing = ["tar", "-C", str(ROOT / "examples"), "-chf", "-", *names]
    archive = subprocess.run(packing, stdout=subprocess.PIPE, check=True).stdout
    unpacking = f"mkdir -p {FOLDER} && tar -C {FOLDER} -xf - && chown -R ada: {FOLDER}"
    for host in (LOGIN, NODE):
        ssh = ["ssh", "-F", str(split.fleet.ssh_config), host, unpacking]
        subprocess.run(ssh, input=archive, check=True, timeout=60)


def submitted(split: Lab, name: str, script: str, *options: str) -> tuple[str, str]:
    """Submit an example with two tasks on one node; return its number and its output's path."""
    batch = (
        f"cd {FOLDER}/{name} && sbatch --parsable --partition=debug --account=team --nodes=1 "
        f"--ntasks-per-node=2 --cpus-per-task=1 --output=out-%j {script} {shlex.join(options)}"
    )
    job = split.on(LOGIN, f"runuser -l ada -c {shlex.quote(batch)}").strip()
    return job, f"{FOLDER}/{name}/out-{job}"


def ended(split: Lab, job: str, output: str) -> str:
    """Wait until a job is over; return what it has written. It must have ended well."""
    shown = f"scontrol show job {job}"

    def written() -> str:
        return split.on(NODE, f"cat {output} 2>&1", check=False)

    over = re.compile(r"JobState=(COMPLETED|FAILED|OUT_OF_MEMORY|TIMEOUT|NODE_FAIL|CANCELLED)")
    until(
        lambda: bool(over.search(split.on(LOGIN, shown))),
        f"job {job} is over",
        JOB_SECONDS,
        written,
    )
    assert "JobState=COMPLETED" in split.on(LOGIN, shown), written()
    return written()


def same_loss(written: str) -> float:
    """Return the loss with which both tasks have ended."""
    found = re.findall(r"process \d of 2, loss (\S+)$", written, re.MULTILINE)
    assert len(found) == 2, written
    assert len(set(found)) == 1, written
    return float(found[0])


@pytest.mark.usefixtures("_examples")
def test_a_model_in_parts_learns_from_packed_data(split: Lab) -> None:
    for host, command in {
        LOGIN: "sed -i s/1.13.1/2.6/ ddp-cpu.sbatch",
        NODE: "python3 packed.py points points",
    }.items():
        split.on(host, f"cd {FOLDER}/ddp && {command}")
    options = ("--fsdp", "--data", "points", "--steps", "1000")
    job, output = submitted(split, "ddp", "ddp-cpu.sbatch", *options)
    assert same_loss(ended(split, job, output)) < 8


@pytest.mark.usefixtures("_examples")
@pytest.mark.parametrize("name", ["jax", "stages"])
def test_an_example_trains_in_two_tasks(split: Lab, name: str) -> None:
    job, output = submitted(split, name, f"{name}.sbatch", "--steps", "1000")
    assert same_loss(ended(split, job, output)) < 8


@pytest.mark.usefixtures("_examples")
def test_an_elastic_training_outlives_a_worker(split: Lab) -> None:
    # One node counts as two.
    split.on(
        LOGIN,
        f"cd {FOLDER}/ddp && sed 's/\"$least:$SLURM_NNODES\"/1:2/' elastic.sbatch >two.sbatch",
    )
    job, output = submitted(split, "ddp", "two.sbatch", "--steps", "6000")

    def written() -> str:
        return split.on(NODE, f"cat {output} 2>&1", check=False)

    until(lambda: "step 1000:" in written(), "there is a checkpoint", JOB_SECONDS, written)
    split.on(NODE, f"kill -KILL $(pgrep -nf 'python[0-9.]* -u ddp.py ddp-{job}')")
    done = ended(split, job, output)
    assert re.search(r"worker \d on \S+ (has ended|is lost) in step \d+", done), done
    assert re.search(r"^[12] processes, from step [1-9]000$", done, re.MULTILINE), done


def test_a_second_run_changes_nothing(split: Lab) -> None:
    run = split.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed_tasks == []
