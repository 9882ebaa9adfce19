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
def load(*_, **__):
    {load}
    return {{"model": None, "optimizer": None}}
torch.load = load
torch.distributed.get_rank = lambda: 0
torch.distributed.all_gather_object = gather
sys.modules.update({{"torch": torch, "torch.distributed": torch.distributed}})
sys.path.insert(0, {example!r})
sys.argv = ["stages.py", "stages-7"]
program = runpy.run_path({example!r} + "/stages.py", run_name={name!r})
checkpoints = program["Checkpoints"](Path({folder!r}))
for step in 1000, 2000:
    checkpoints.save(step, b"")
torch.distributed.barrier = lambda: print("both have read")
try:
    print(program["resume"](checkpoints, Anything(), Anything(), None))
    print(*sorted(path.name[:10] for path in checkpoints.folder.iterdir()))
except program["CheckpointError"] as error:
    print(error)
"""


def ran(
    folder: Path, name: str, other: str | None = None, load: str = "pass", **variables: str
) -> subprocess.CompletedProcess[str]:
    example = str(example_jobs.EXAMPLES / "stages")
    program = STAND_IN.format(
        name=name, other=other, folder=str(folder), load=load, example=example
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
        # A save of one, and not yet of the other.
        (
            None,
            [
                "the other stage has no checkpoint: both start from step 0",
                "both have read",
                "0",
                "",
            ],
        ),
        # This one was killed after it had saved, and the other one before: what it has saved more
        # is not of the run that goes on, and would else be taken together with that one's.
        ("0000001000-x.ckpt", ["both have read", "1000", "0000001000"]),
        ("0000003000-x.ckpt", ["both have read", "2000", "0000001000 0000002000"]),
    ],
)
def test_both_stages_go_on_from_the_same_step(
    tmp_path: Path, other: str | None, said: list[str]
) -> None:
    done = ran(tmp_path / "stage-0", "a module", other)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == said


@pytest.mark.parametrize(
    ("other", "load", "sentence"),
    [
        ("0000000500-x.ckpt", "pass", "has no checkpoint of step 500, the newest of the other sta"),
        ("0000002000-x.ckpt", "raise KeyError('model')", "is of another model: name another fold"),
        ("0000002000-x.ckpt", "raise RuntimeError('size')", "is of another model: name another f"),
        ("0000002000-x.ckpt", "import pickle; raise pickle.UnpicklingError", "is of another mode"),
    ],
)
def test_what_can_t_be_gone_on_from_is_told_and_stays(
    tmp_path: Path, other: str, load: str, sentence: str
) -> None:
    done = ran(tmp_path / "stage-0", "a module", other, load)
    assert done.returncode == 0, done.stderr
    assert sentence in done.stdout
    assert len(list((tmp_path / "stage-0").iterdir())) == 2


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
