"""The job scripts of examples/ do what they say, and fit the clusters that they are for.

tests/live/test_jobs.py has SLURM run those of the demo, tests/live/test_frameworks.py those that
need modules of docs/software.md.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import example_jobs
import frameworks
import pytest
import yaml
from documentation import ROOT

from muster import definition
from muster.definition import Definition, requirements
from muster.definition.schema.node_sets import Machines
from muster_sandbox.demo import tour

EXAMPLES = ROOT / "examples"
ON_HOSTS = "/usr/local/share/muster/examples"
SCRIPTS = sorted(EXAMPLES.glob("*/*.sbatch"))
PROGRAMS = sorted(EXAMPLES.glob("*/*.py"))
FOLDERS = sorted({path.parent for path in SCRIPTS})
DEMO = definition.load(ROOT / "inventories/demo")
LAB = definition.load(ROOT / "inventories/lab")


def demo_with(module: str) -> Definition:
    """Return the demo with the modules that a definition of docs/software.md adds."""
    text = (ROOT / "inventories/demo/group_vars/all/cluster.yml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)["cluster"]
    for name, versions in frameworks.modules(module).items():
        data["software"]["modules"].setdefault(name, {}).update(versions)
    return definition.validate(data, DEMO.hosts.groups)


CLUSTERS = {
    "report": [DEMO, LAB],
    "train": [DEMO, LAB],
    "ddp": [LAB],
    "ddp-cpu": [demo_with("libs/python/tensorflow")],
    "elastic": [demo_with("libs/python/jax")],
    "jax": [demo_with("libs/python/jax")],
    "stages": [demo_with("libs/python/jax")],
    "multiworker": [demo_with("libs/python/tensorflow")],
    "search": [DEMO, LAB],
    "table": [DEMO, LAB],
    "serve": [DEMO, LAB],
    "trial": [DEMO, LAB],
    "study": [demo_with("libs/python/optuna")],
    "prepare": [demo_with("libs/python/optuna")],
    "fit": [DEMO, LAB],
    "evaluate": [DEMO, LAB],
    "mpi": [demo_with("libs/python/mpi4py")],
}
"""Script -> the clusters that it is sized for."""
NOT_BUILT = {"ddp"}
"""Scripts that say that they need a module that site.yml does not build."""

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def options_of(script: Path) -> dict[str, str]:
    """Return what the script asks sbatch for."""
    lines = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", script.read_text(), re.MULTILINE)
    return dict(lines)


def test_each_script_is_looked_at() -> None:
    assert {script.stem for script in SCRIPTS} == set(CLUSTERS)


@each_script
def test_a_script_is_shell_and_its_programs_are_beside_it(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    programs = set(re.findall(r"[\w/$.]+\.(?:py|sh)\b", script.read_text()))
    assert programs
    assert {name for name in programs if not (script.parent / name).is_file()} == set()


@each_script
def test_a_task_that_fails_ends_those_that_wait_for_it(script: Path) -> None:
    """Else the job keeps its nodes to the time limit."""
    text = script.read_text()
    if script.stem == "report":
        return  # Its tasks know nothing of each other.
    if script.stem == "elastic":
        return  # Programs of its tasks find out, and those that are left go on.
    if "\nsrun " in text:
        assert "--kill-on-bad-exit=1" in text


@each_script
def test_a_script_that_goes_on_after_its_time_limit_has_its_program_told_before(
    script: Path,
) -> None:
    if ".stopped" in script.read_text():
        assert "signal" in options_of(script)


@each_script
def test_a_script_loads_modules_that_are_built_or_says_so(script: Path) -> None:
    text = script.read_text()
    loaded = re.findall(r"^module load (.+)$", text, re.MULTILINE)
    names = {name for line in loaded for name in line.split()}
    for cluster in CLUSTERS[script.stem]:
        built = {name: version_of(cluster, name) for name in names}
        missing = {name for name, is_built in built.items() if not is_built}
        assert bool(missing) == (script.stem in NOT_BUILT)
    assert ("needs the module below built" in " ".join(text.split("\n# "))) == (
        script.stem in NOT_BUILT
    )


def version_of(cluster: Definition, name: str) -> bool:
    """Whether site.yml builds a module; `name` is with or without a version."""
    modules = cluster.cluster.software.modules
    if name in modules:
        [version] = [version for version in modules[name].values() if version.default]
        return version.built
    folder, _, number = name.rpartition("/")
    return modules[folder][number].built


@each_script
def test_a_script_fits_the_nodes_of_its_partition(script: Path) -> None:
    asked = options_of(script)
    for cluster in (found.cluster for found in CLUSTERS[script.stem]):
        partition = cluster.partitions[asked["partition"]]
        [name] = partition.nodes
        nodes = cluster.nodes[name]
        assert isinstance(nodes, Machines)
        assert asked["account"] in cluster.accounts
        cpus = int(asked.get("ntasks-per-node", asked.get("ntasks", 1)))
        cpus *= int(asked.get("cpus-per-task", 1))
        assert cpus <= nodes.sockets * nodes.cores_per_socket * nodes.threads_per_core
        memory = mib(asked["mem"]) if "mem" in asked else cpus * mib(asked["mem-per-cpu"])
        assert memory <= nodes.memory_mib
        assert asked.get("constraint") in {None, *nodes.features}
        gpus = int(asked.get("gres", "gpu:0").removeprefix("gpu:"))
        assert gpus <= (nodes.gpus.count if nodes.gpus else 0)


def mib(text: str) -> int:
    """Return a size of sbatch in MiB."""
    number, unit = re.fullmatch(r"(\d+)([MG])B?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"M": 1, "G": 1024}[unit]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_is_python(program: Path) -> None:
    compile(program.read_text(encoding="utf-8"), program.name, "exec")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_has_a_short_page_that_names_its_scripts(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 15
    assert f"cp -r {ON_HOSTS}/{folder.name} . && cd {folder.name}\n" in page
    # On hosts there is no page beside it.
    assert "](" not in page
    for script in folder.glob("*.sbatch"):
        assert script.name in page


def test_login_nodes_get_all_examples_as_they_are_here() -> None:
    """The role's files are links: a bundle and the collection take what they lead to."""
    role = ROOT / "roles/jobs"
    table = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))["__jobs_examples"]
    files = {
        path.relative_to(EXAMPLES).as_posix(): path
        for folder in FOLDERS
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {entry["dest"] for entry in table} == {f"{ON_HOSTS}/{name}" for name in files}
    for name, path in files.items():
        link = role / f"files{ON_HOSTS}/{name}"
        assert link.resolve() == path.resolve()
        assert f"'{link.relative_to(role / 'files')}'" in json.dumps(table)
    links = {path for path in (role / f"files{ON_HOSTS}").rglob("*") if not path.is_dir()}
    assert len(links) == len(files)
    (task,) = yaml.safe_load((role / "tasks/configure.yml").read_text(encoding="utf-8"))
    # What is no longer among them is removed.
    assert task["muster.slurm.managed_files"]["whole_folders"] == [ON_HOSTS]


def test_a_program_has_no_name_of_a_package_that_it_imports() -> None:
    """Python looks first in the folder of the program: keras.py would be TensorFlow's keras."""
    packages = {"jax", "keras", "mpi4py", "numpy", "tensorflow", "torch", *sys.stdlib_module_names}
    assert {path.stem for path in PROGRAMS} & packages == set()


def test_the_demo_s_user_has_the_examples_that_are_sized_for_it() -> None:
    fit = {name for name, clusters in CLUSTERS.items() if clusters != [LAB]}
    assert set(tour.RUN_THERE) == {path.parent.name for path in SCRIPTS if path.stem in fit}


@pytest.mark.parametrize("file", sorted(frameworks.REQUIREMENTS.glob("*.txt")), ids=str)
def test_requirements_name_all_packages_with_their_hashes_and_no_address(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert list(requirements.faults(text)) == []
    assert "://" not in text
    wanted = file.with_suffix(".in").read_text(encoding="utf-8").splitlines()[0]
    name, version = re.fullmatch(r"([a-z-]+)(?:\[cpu\])?==(\d+(?:\.\d+)?)\.\*", wanted).groups()  # type: ignore[union-attr]
    assert re.search(rf"^{name}=={re.escape(version)}\.", text, re.MULTILINE)
    assert file.stem == f"{name.removesuffix('-cpu')}-{version}"


# -- what scripts do that queue their job again ----------------------------------------------------

AGAIN = [script for script in SCRIPTS if "scontrol requeue" in script.read_text()]
each_that_goes_on = pytest.mark.parametrize("script", AGAIN, ids=lambda path: path.stem)

LEAVES = {
    "ddp": "stopped",
    "ddp-cpu": "lost",
    "elastic": "stopped",
    "jax": "stopped",
    "stages": "stopped",
}
"""Script -> what its program leaves to say that the job has to go on."""


def ran_again(script: Path, tmp_path: Path, **variables: str) -> tuple[Path, str]:
    """Run a script whose program ends early; return its folder and what scontrol was told."""
    folder = example_jobs.copy(script.parent.name, tmp_path)
    name = "jax" if script.stem == "jax" else script.parent.name
    # Programs write it beside the folder, whether that is named with a slash or without.
    leaves = f"{variables.get('RUN', f'{name}-41').rstrip('/')}.{LEAVES.get(script.stem)}"
    stand_ins = {
        "module": "",
        "srun": f"echo worker 1 is lost >{leaves}; exit 75",
        "scontrol": '[ "$1" = requeue ] || echo n1',
        "squeue": "echo 2",
    }
    if script.stem == "train":
        # train.py is told to stop, as it is before the time limit.
        stand_ins["python3"] = (
            "trap 'exit 75' TERM; while sleep 0.2 && kill -USR1 $PPID; do :; done"
        )
    if script.stem == "elastic":
        stand_ins["python3"] = ""
    for program, does in stand_ins.items():
        example_jobs.stand_in(tmp_path, program, does)
    job = {
        "SLURM_JOB_ID": "41",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NNODES": "2",
    }
    done = example_jobs.run(folder, "bash", script.name, **job, **variables)
    assert done.returncode == 75, done.stderr
    told = [call for call in example_jobs.called(tmp_path, "scontrol") if "requeue" in call]
    assert len(told) == 1
    return folder, told[0]


def test_scripts_that_queue_their_job_again_are_known() -> None:
    assert {script.stem for script in AGAIN} == {"train", *LEAVES}


@each_that_goes_on
@pytest.mark.parametrize(
    ("array", "told"),
    [
        ({}, "requeue 41"),
        # SLURM gives one task of an array the array's own number, and the others further ones.
        ({"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "3"}, "requeue 41_3"),
        ({"SLURM_ARRAY_JOB_ID": "38", "SLURM_ARRAY_TASK_ID": "2"}, "requeue 41"),
    ],
)
def test_of_an_array_one_task_alone_is_queued_again(
    tmp_path: Path, script: Path, array: dict[str, str], told: str
) -> None:
    _, said = ran_again(script, tmp_path, **array)
    assert said == told


@pytest.mark.parametrize("name", LEAVES)
# Tab adds the slash in a shell.
@pytest.mark.parametrize("named", ["ddp-7", "ddp-7/"])
def test_a_job_may_go_on_in_the_folder_of_another(tmp_path: Path, name: str, named: str) -> None:
    [script] = EXAMPLES.glob(f"*/{name}.sbatch")
    folder, _ = ran_again(script, tmp_path, RUN=named)
    [started] = example_jobs.called(tmp_path, "srun")
    assert re.search(r"\.py ddp-7( |$)", started)
    assert [path.name for path in folder.glob(f"*.{LEAVES[name]}")] == [f"ddp-7.{LEAVES[name]}"]
    readme = (script.parent / "README.md").read_text()
    assert re.search(r"sbatch --export=ALL,RUN=\S+ \S+\.sbatch", readme)


@pytest.mark.parametrize("name", ["ddp", "ddp-cpu", "elastic"])
def test_what_another_node_has_left_is_looked_for_at_the_file_server(name: str) -> None:
    """Clients of NFS remember that a file was not there, until its folder is opened."""
    text = (EXAMPLES / f"ddp/{name}.sbatch").read_text()
    assert text.index("\nsrun ") < text.index("\nls ") < text.index("[ -e ")


# -- train.py -------------------------------------------------------------------------------------


def trained(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "train/train.py"), name, *options]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_run_that_goes_on_ends_as_one_that_was_never_stopped(tmp_path: Path) -> None:
    assert trained(tmp_path, "whole.json", "--epochs", "40").returncode == 0
    assert trained(tmp_path, "parts.json", "--epochs", "15").returncode == 0
    again = trained(tmp_path, "parts.json", "--epochs", "40")
    assert "15 of 40 epochs are done" in again.stdout
    whole, parts = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("whole", "parts"))
    assert whole == parts
    assert whole["epochs"] == 40


# -- train.sbatch, with a stand-in for scontrol ---------------------------------------------------


class Job:
    """train.sbatch as slurmd starts it, in a folder with train.py."""

    def __init__(self, folder: Path, checkpoint: str = "") -> None:
        self.folder = folder
        for name in ("train.sbatch", "train.py"):
            (folder / name).write_text((EXAMPLES / "train" / name).read_text())
        programs = folder / "programs"
        programs.mkdir()
        scontrol = programs / "scontrol"
        scontrol.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(folder))}/scontrol.log\n')
        scontrol.chmod(0o755)
        (programs / "python3").symlink_to(sys.executable)
        self.checkpoint = folder / "train-7.json"
        if checkpoint:
            self.checkpoint.write_text(checkpoint)
        self.shell = subprocess.Popen(
            ["bash", "train.sbatch"],
            cwd=folder,
            env={"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.first = self.next_line()

    def next_line(self) -> str:
        """Wait for the next line that it prints."""
        assert self.shell.stdout
        return self.shell.stdout.readline()

    def end(self) -> str:
        """Wait for its end; return what it printed since."""
        assert self.shell.stdout
        try:
            self.shell.wait(timeout=60)
        finally:
            if self.shell.poll() is None:
                os.killpg(self.shell.pid, signal.SIGKILL)
        # communicate() would leave out what was read together with an earlier line.
        with self.shell.stdout as rest:
            return rest.read()

    @property
    def requeued(self) -> str:
        log = self.folder / "scontrol.log"
        return log.read_text() if log.exists() else ""


def test_a_minute_before_the_limit_the_job_saves_and_queues_itself_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.next_line().startswith("epoch 100:")
    job.shell.send_signal(signal.SIGUSR1)
    assert "which are saved" in job.end()
    assert job.shell.returncode == 75
    assert job.requeued == "requeue 7\n"
    done = json.loads(job.checkpoint.read_text())["epochs"]
    assert 100 <= done < 1000


def test_a_cancelled_job_saves_and_stays_cancelled(tmp_path: Path) -> None:
    job = Job(tmp_path)
    # As scancel does: to the shell alone.
    job.shell.send_signal(signal.SIGTERM)
    assert "which are saved" in job.end()
    assert job.checkpoint.exists()
    assert job.requeued == ""


def test_a_job_that_is_done_is_not_queued_again(tmp_path: Path) -> None:
    job = Job(tmp_path, json.dumps({"epochs": 1000, "weights": [0.0] * 10}))
    assert "1000 of 1000 epochs are done" in job.first
    assert "done" in job.end()
    assert job.shell.returncode == 0
    assert job.requeued == ""


def test_a_job_that_fails_is_not_queued_again(tmp_path: Path) -> None:
    job = Job(tmp_path, "no checkpoint")
    job.end()
    assert job.shell.returncode == 1
    assert job.requeued == ""
