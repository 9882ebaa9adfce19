"""examples/stages: what stages.py refuses, with a stand-in for PyTorch; stages.sbatch."""

import subprocess
from pathlib import Path

import example_frameworks
import example_jobs
import pytest

STAND_IN = """
from pathlib import Path

def gather(found, mine):
    found[:] = [mine, {other!r}]

torch = torch_of("1.13.1")
def load(*_, map_location):
    # Beside the model and the optimizer that it goes into, a GPU may have no room for it.
    assert map_location == "cpu"
    {load}
    return {{"model": None, "optimizer": None}}
torch.load = load
torch.distributed.get_rank = lambda: 0
torch.distributed.all_gather_object = gather
program = begin({example!r}, "stages.py", "stages-7", name={name!r})
checkpoints = program["Checkpoints"](Path({folder!r}))
for step in 1000, 2000:
    checkpoints.save(step, b"")
torch.distributed.barrier = lambda: print("both have read")
try:
    print(program["resume"](checkpoints, Anything(), Anything()))
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
        example_frameworks.command(program),
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


def test_a_gpu_without_room_is_not_taken_for_another_model(tmp_path: Path) -> None:
    load = "raise OutOfMemoryError('CUDA out of memory')"
    done = ran(tmp_path / "stage-0", "a module", "0000002000-x.ckpt", load)
    assert done.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory" in done.stderr.splitlines()[-1]
    assert "another model" not in done.stdout


TRAINS = """
weight, frozen = Anything(), Anything()
frozen.grad = None

class ScheduleGPipe:
    def __init__(self, stage, n_microbatches, loss_fn=None{more}):
        pass
    def step(self, *_, **__):
        weight.grad = 16.0

class Later(ScheduleGPipe):
    pass

def gather(found, mine):
    found[:] = [mine, mine]

steps = []
def reduce(stop, **_):
    steps.append(stop)
    stop.fill_(len(steps) == {stop_after})

torch = torch_of("2.6.0")
torch.zeros = lambda *_, **__: Number(0.0)
torch.stack = lambda _: Number()
torch.manual_seed = lambda number: print("seed", number)
torch.save = lambda _, file: file.write(b"saved")
torch.load = lambda *_, **__: {{"model": None, "optimizer": None}}
for layers in torch.nn.Sequential, torch.nn.Linear:
    layers.to.parameters = lambda: [weight, frozen]
torch.optim.AdamW.step = lambda: print("gradient", weight.grad)
torch.distributed.get_rank = lambda: {stage}
torch.distributed.all_gather_object = gather
torch.distributed.all_reduce = reduce
torch.empty = lambda *shape, **_: shape
torch.distributed.pipelining.PipelineStage = lambda *words, **_: print("shapes", *words[4:])
# A class that inherits its __init__, as PyTorch's does.
torch.distributed.pipelining.ScheduleGPipe = Later
put(**{{"torch.distributed.pipelining": torch.distributed.pipelining}})
begin({example!r}, "stages.py", "stages-7", "--steps", "{steps}")
"""


def trained(
    folder: Path, stage: int, steps: int = 6, stop_after: int = 0, more: str = ""
) -> tuple[int, list[str]]:
    """Train one stage; return the exit code, and what is said of seeds and gradients."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        example_frameworks.command(
            TRAINS.format(
                stage=stage,
                steps=steps,
                stop_after=stop_after,
                more=more,
                example=str(example_jobs.EXAMPLES / "stages"),
            )
        ),
        cwd=folder,
        env={"WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    said = [
        line
        for line in done.stdout.splitlines()
        if line.split()[0] in {"seed", "gradient", "shapes"}
    ]
    return done.returncode, said


def test_the_stage_on_the_node_of_the_script_says_that_both_have_stopped(tmp_path: Path) -> None:
    """What another node has written a file server's client may not see yet."""
    for stage in (0, 1):
        folder = tmp_path / str(stage)
        assert trained(folder, stage, stop_after=3)[0] == 75
        assert (folder / "stages-7.stopped").exists() == (stage == 0)
        assert len(list((folder / f"stages-7/stage-{stage}").iterdir())) == 1
        assert trained(folder, stage)[0] == 0


@pytest.mark.parametrize(("more", "gradient"), [("", 2.0), (", scale_grads=True", 16.0)])
def test_gradients_are_those_of_the_mean_also_where_a_schedule_adds_them(
    tmp_path: Path, more: str, gradient: float
) -> None:
    _, said = trained(tmp_path, 0, more=more)
    assert [line for line in said if line.startswith("gradient")] == [f"gradient {gradient}"] * 6


@pytest.mark.parametrize(("stage", "shapes"), [(0, "(32, 64) (32, 256)"), (1, "(32, 256) (32, 1)")])
def test_the_first_step_of_a_run_computes_once_as_each_other_does(
    tmp_path: Path, stage: int, shapes: str
) -> None:
    """Without the shapes PyTorch computes in it to find them, and draws random numbers for that."""
    _, said = trained(tmp_path, stage)
    assert f"shapes {shapes}" in said


def test_what_is_drawn_at_random_is_another_in_each_stage_and_step_and_the_same_again(
    tmp_path: Path,
) -> None:
    """Such as dropout: a run that goes on does as the undisturbed one would."""

    def seeds(folder: str, stage: int, stop_after: int = 0) -> list[str]:
        _, said = trained(tmp_path / folder, stage, stop_after=stop_after)
        # The first one is that of the layers.
        return [line for line in said if line.startswith("seed")][1:]

    whole, other = seeds("whole", 0), seeds("other", 1)
    assert len({*whole, *other}) == 12
    assert seeds("parts", 0, 4) + seeds("parts", 0) == whole


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
