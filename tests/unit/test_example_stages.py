"""examples/stages: what stages.py refuses, with a stand-in for PyTorch; stages.sbatch."""

import subprocess
import sys
from pathlib import Path

import example_jobs
import pytest

STAND_IN = """
import runpy, sys
from pathlib import Path

class Anything:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = made = Anything()
        return made
    def __call__(self, *_, **__):
        return self

def gather(found, mine):
    found[:] = [mine, {other!r}]

torch = Anything()
torch.__dict__["__version__"] = "1.13.1"
torch.cuda.is_available = lambda: False
torch.load = lambda *_, **__: {{"model": None, "optimizer": None}}
torch.distributed.get_rank = lambda: 0
torch.distributed.all_gather_object = gather
sys.modules.update({{"torch": torch, "torch.distributed": torch.distributed}})
sys.path.insert(0, {example!r})
sys.argv = ["stages.py", "stages-7"]
program = runpy.run_path({example!r} + "/stages.py", run_name={name!r})
checkpoints = program["Checkpoints"](Path({folder!r}))
for step in 1000, 2000:
    checkpoints.save(step, b"")
try:
    print(program["resume"](checkpoints, Anything(), Anything(), None))
except program["CheckpointError"] as error:
    print(error)
"""


def ran(
    folder: Path, name: str, other: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    program = STAND_IN.format(
        name=name, other=other, folder=str(folder), example=str(example_jobs.EXAMPLES / "stages")
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "the model has 2 stages, and there are 1 tasks: ask for a node for each (--nodes=2 "),
        ({"WORLD_SIZE": "3"}, "the model has 2 stages, and there are 3 tasks: ask for a node for"),
        # The stand-in has as little of it as PyTorch 1.13.
        ({"WORLD_SIZE": "2"}, "pipeline parallelism needs PyTorch 2.6, and this is 1.13.1: load a"),
    ],
)
def test_what_it_needs_is_told(tmp_path: Path, variables: dict[str, str], sentence: str) -> None:
    done = ran(tmp_path, "__main__", **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"stages.py: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (None, "0"),
        # This one was killed after it had saved, and the other one before.
        ("0000001000-x.ckpt", "1000"),
        ("0000003000-x.ckpt", "2000"),
        ("0000000500-x.ckpt", "has no checkpoint of step 500, the newest of the other stage: name"),
    ],
)
def test_both_stages_go_on_from_the_same_step(tmp_path: Path, other: str | None, said: str) -> None:
    done = ran(tmp_path / "stage-0", "a module", other)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize(
    ("srun", "code", "requeued"),
    [("", 0, False), ("exit 1", 1, False), (">stages-7.stopped; exit 143", 75, True)],
)
def test_a_run_that_was_told_to_stop_goes_on_later(
    tmp_path: Path, srun: str, code: int, requeued: bool
) -> None:
    folder = example_jobs.copy("stages", tmp_path)
    (folder / "stages-7.stopped").touch()
    for program, does in {"module": "", "srun": srun, "scontrol": ""}.items():
        example_jobs.stand_in(tmp_path, program, does)
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2"}
    done = example_jobs.run(folder, "bash", "stages.sbatch", "--steps", "9", **job)
    assert done.returncode == code, done.stderr
    assert example_jobs.called(tmp_path, "scontrol") == (["requeue 7"] if requeued else [])
    [started] = example_jobs.called(tmp_path, "srun")
    assert started.endswith(" launch python3 stages.py stages-7 --steps 9")
