"""examples/jax: what data_parallel.py refuses, with a stand-in for JAX; jax.sbatch."""

import subprocess
from pathlib import Path

import example_frameworks
import example_jobs
import pytest

STAND_IN = """
class Shaped:
    def __init__(self, *shape):
        self.shape = shape

class File(dict):
    files = property(list)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass

numpy = Anything()
numpy.load = lambda *_, **__: File(weights=Shaped(64, 256))
for name in "jax", "jax.numpy", "jax.experimental", "jax.sharding":
    put(**{{name: Anything()}})
put(numpy=numpy)
program = begin({example!r}, "data_parallel.py", "jax-7", name={name!r})
fresh = {{"weights": Shaped(64, 256)}}
assert program["resumed"](b"", fresh)["weights"].shape == (64, 256)
try:
    program["resumed"](b"", {{"weights": Shaped(64, 128)}})
except program["CheckpointError"] as error:
    print(error)

def none(*_, **__):
    raise {fault}

numpy.load = none
try:
    program["resumed"](b"", fresh)
except program["CheckpointError"] as error:
    print(error)
"""


def ran(name: str, fault: str = "ValueError") -> subprocess.CompletedProcess[str]:
    example = str(example_jobs.EXAMPLES / "jax")
    program = STAND_IN.format(name=name, fault=fault, example=example)
    return subprocess.run(
        example_frameworks.command(program),
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_run_that_launch_did_not_start_says_how(tmp_path: Path) -> None:
    done = ran("__main__")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "data_parallel.py: JAX can't find the tasks: start it in a job by "
        "srun launch python3 data_parallel.py\n"
    )


@pytest.mark.parametrize("fault", ["ValueError", "__import__('zipfile').BadZipFile", "EOFError"])
def test_a_checkpoint_of_another_model_or_program_is_refused(fault: str) -> None:
    done = ran("a module", fault)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the checkpoint is of another model: name another folder\n" * 2


JOB = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2"}


@pytest.mark.parametrize(
    ("srun", "code", "requeued"),
    [
        ("", 0, False),
        ("exit 1", 1, False),
        # The first task that ends has the others killed.
        (">jax-7.stopped; exit 143", 75, True),
    ],
)
def test_a_run_that_was_told_to_stop_goes_on_later(
    tmp_path: Path, srun: str, code: int, requeued: bool
) -> None:
    folder = example_jobs.copy("jax", tmp_path)
    # Of an earlier run.
    (folder / "jax-7.stopped").touch()
    for program, does in {"module": "", "srun": srun, "scontrol": ""}.items():
        example_jobs.stand_in(tmp_path, program, does)
    done = example_jobs.run(folder, "bash", "jax.sbatch", "--steps", "9", **JOB)
    assert done.returncode == code, done.stderr
    assert example_jobs.called(tmp_path, "scontrol") == (["requeue 7"] if requeued else [])
    [started] = example_jobs.called(tmp_path, "srun")
    assert started == (
        "--kill-on-bad-exit=1 --cpus-per-task=2 launch python3 data_parallel.py jax-7 --steps 9"
    )
