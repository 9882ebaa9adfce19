"""examples/ddp: how ddp.py stops and goes on, with a stand-in for PyTorch; and its losses."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest.mock import MagicMock

import example_frameworks
import example_jobs
import pytest

EXAMPLE = example_jobs.EXAMPLES / "ddp"

# -- the losses -----------------------------------------------------------------------------------


@pytest.fixture
def metrics() -> ModuleType:
    return example_jobs.module("ddp", "metrics")


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_run_that_goes_on_writes_no_step_twice(metrics: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "metrics-7.jsonl"
    first = metrics.Metrics(path)
    first.begin(0)
    assert not path.exists()
    for step in (1000, 2000, 3000):
        first.add(step, loss=1 / step)
    # Its newest checkpoint that is whole is that of step 2000.
    again = metrics.Metrics(path)
    again.begin(2000)
    for step in (3000, 4000):
        again.add(step, loss=2 / step)
    assert steps(path) == [1000, 2000, 3000, 4000]
    assert json.loads(path.read_text().splitlines()[2]) == {"step": 3000, "loss": 2 / 3000}
    assert list(tmp_path.iterdir()) == [path]


def test_a_half_line_of_a_killed_run_goes_and_lines_of_others_stay(
    metrics: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "metrics-7.jsonl"
    # Python's lines end at the last two signs too, and JSON's do not.
    other = '{"accuracy": 0.5}\nno JSON\n[]\n{"note": "a\u2028b\x0cc"}\r\n'
    path.write_text(f'{other}{{"step": 1000, "loss": 1}}\n{{"step": 2000, "lo', newline="")
    metrics.Metrics(path).begin(2000)
    assert path.read_bytes() == f'{other}{{"step": 1000, "loss": 1}}\n'.encode()


def test_bytes_that_are_no_text_stop_no_run(metrics: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "metrics-7.jsonl"
    kept = b'{"step": 1000, "loss": 1}\n\xff\x00\n'
    path.write_bytes(kept + b'{"step": 3000, "loss": 1}\n')
    metrics.Metrics(path).begin(2000)
    assert path.read_bytes() == kept


def test_a_full_disk_leaves_the_file_as_it_was(
    metrics: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics-7.jsonl"
    one = metrics.Metrics(path)
    one.add(1000, loss=1)
    one.add(2000, loss=2)
    text = path.read_text()

    def full(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        one.begin(1000)
    assert path.read_text() == text


def test_a_loss_that_can_t_be_written_ends_no_training(
    metrics: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is computed may still be saved."""
    path = tmp_path / "none/metrics-7.jsonl"
    metrics.Metrics(path).add(1000, loss=1)
    told = f"{path} can't be written (No such file or directory): the loss of step 1000 is left out"
    assert capsys.readouterr().out == f"{told}\n"


# -- ddp.py, with a stand-in for PyTorch ----------------------------------------------------------

STAND_IN = """
import pickle, threading, time

def save(state, file):
    print("saves", flush=True)
    if {full}:
        # As a full disk has it.
        def full(_):
            raise OSError(28, "No space left on device")
        os.fsync = full
    time.sleep({saving})
    pickle.dump({{key: state[key] for key in ("step", "seen", "fsdp")}}, file)

def told(what):
    return lambda *_: print(what, flush=True)

def broadcast(objects):
    print(f"sent {{len(pickle.dumps(objects))}} bytes", flush=True)

if {hangs}:
    # As PyTorch's own threads were seen to.
    threading.Thread(target=threading.Event().wait).start()
torch = torch_of("1.13.1")
torch.zeros = lambda *_, **__: Number(0)
torch.nn.functional.mse_loss = lambda *_: Number()
torch.device = lambda kind, *_: Anything(type=kind, index=None)
torch.save = save

def load(file, **_):
    if "NO_ROOM" in os.environ:
        raise OutOfMemoryError("CUDA out of memory")
    return {{"model": None, "optimizer": None, **pickle.load(file)}}

torch.load = load
torch.distributed.get_rank = lambda: int(os.environ["RANK"])
torch.distributed.get_world_size = lambda: int(os.environ["WORLD_SIZE"])
if "SEEDS" in os.environ:
    torch.manual_seed = lambda number: print("seed", number, flush=True)
    # None that look for each other: the others are not there.
    put(workers=Anything(Workers=Anything(meeting=None)))
torch.distributed.barrier = told("all meet")
torch.distributed.broadcast_object_list = broadcast
put(**{{"torch.distributed.algorithms.ddp_comm_hooks": torch.distributed}})
begin({example!r}, *{words!r})
"""


JOB = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "20000"}
"""What launch and torchrun set, in part."""


class Run:
    """ddp.py in a folder, one process of one."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        saving: float = 0.0,
        full: bool = False,
        hangs: bool = False,
        environment: Mapping[str, str] = JOB,
    ) -> None:
        example = str(EXAMPLE)
        words = ("ddp.py", "ddp-7", *words)
        program = STAND_IN.format(
            words=list(words), example=example, saving=saving, full=full, hangs=hangs
        )
        self.process = subprocess.Popen(
            example_frameworks.command(program),
            cwd=folder,
            env={**os.environ, "MUSTER_METRICS": "metrics-7.jsonl", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until(self, word: str) -> None:
        """Wait for a line with a word."""
        assert self.process.stdout
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if word in line:
                return
        raise AssertionError("".join(seen))

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what it has printed since."""
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    begun: list[Run] = []
    yield begun
    for run in begun:
        run.process.kill()
        run.process.communicate()


def test_a_run_that_is_told_to_stop_saves_and_ends_with_75_and_the_next_goes_on(
    tmp_path: Path, runs: list[Run]
) -> None:
    runs.append(Run(tmp_path, "--steps", "100000"))
    runs[0].until("step 1000:")
    runs[0].process.send_signal(signal.SIGTERM)
    code, output = runs[0].end()
    assert code == 75, output
    assert (tmp_path / "ddp-7.stopped").exists()
    [*_, last] = steps(tmp_path / "metrics-7.jsonl")
    runs.append(Run(tmp_path, "--steps", str(last + 100)))
    code, output = runs[1].end()
    assert code == 0, output
    assert f"1 processes, from step {last}\n" in output
    written = steps(tmp_path / "metrics-7.jsonl")
    assert written == sorted(set(written))
    assert written[-1] == last + 100


def test_what_is_drawn_at_random_is_another_in_each_process_and_step_and_the_same_again(
    tmp_path: Path, runs: list[Run]
) -> None:
    """Such as dropout: a run that goes on does as the undisturbed one would."""

    def seeds(folder: str, steps: int, rank: int = 0, processes: int = 1) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        job = {**JOB, "SEEDS": "1", "RANK": str(rank), "WORLD_SIZE": str(processes)}
        runs.append(Run(tmp_path / folder, "--steps", str(steps), environment=job))
        code, output = runs[-1].end()
        assert code == 0, output
        # The first one is that of the model, the same in all processes.
        model, *steps_of_it = [line for line in output.splitlines() if line.startswith("seed ")]
        assert model == "seed 1"
        return steps_of_it

    whole = seeds("whole", 5)
    others = [seed for rank in (0, 1) for seed in seeds(f"rank-{rank}", 5, rank, 2)]
    assert len({*whole, *others}) == 15
    assert seeds("parts", 3) + seeds("parts", 5) == whole


def test_a_run_ends_though_a_thread_does_not(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(Run(tmp_path, "--steps", "10", hangs=True))
    code, output = runs[0].end()
    assert code == 0, output
    assert "loss 0.500000\n" in output


def test_a_signal_while_it_saves_waits_for_that(tmp_path: Path, runs: list[Run]) -> None:
    """What ends one process ends all (srun), so none leaves before the first one has saved."""
    runs.append(Run(tmp_path, "--steps", "100000", saving=1.0))
    runs[0].until("saves")
    runs[0].process.send_signal(signal.SIGTERM)
    code, output = runs[0].end()
    assert code == 75, output
    said = [line for line in output.splitlines() if line in {"saves", "all meet"}]
    # The save after the one in progress is that of the stop.
    assert said == ["saves", "all meet", "all meet"]
    names = [path.name for path in (tmp_path / "ddp-7").iterdir()]
    assert len(names) == 2
    assert all(name.endswith(".ckpt") for name in names)


def test_of_a_checkpoint_only_the_name_is_sent(tmp_path: Path, runs: list[Run]) -> None:
    folder = tmp_path / "ddp-7"
    checkpoints = example_jobs.module("ddp", "checkpoints").Checkpoints(folder)
    import pickle

    state = {"step": 1000, "seen": 128000, "fsdp": False, "more": b"x" * 1_000_000}
    checkpoints.save(1000, pickle.dumps(state))
    runs.append(Run(tmp_path, "--steps", "1100"))
    code, output = runs[0].end()
    assert code == 0, output
    assert "1 processes, from step 1000\n" in output
    [sent] = [line for line in output.splitlines() if line.startswith("sent ")]
    assert int(sent.split()[1]) < 1000


def test_a_disk_that_is_full_while_it_saves_is_told_in_a_sentence(
    tmp_path: Path, runs: list[Run]
) -> None:
    runs.append(Run(tmp_path, "--steps", "1000", full=True))
    code, output = runs[0].end()
    assert code == 1
    assert output.endswith(
        "\nddp.py: ddp-7 can't be written (No space left on device): make room there (df, "
        "muster-quota); older checkpoints are still there\n"
    )
    assert "Traceback" not in output


def test_damaged_checkpoints_leave_room_for_those_of_the_next_run(
    tmp_path: Path, runs: list[Run]
) -> None:
    checkpoints = example_jobs.module("ddp", "checkpoints").Checkpoints(tmp_path / "ddp-7")
    for step in (8000, 9000, 10000):
        checkpoints.save(step, b"")
    for path in checkpoints.folder.iterdir():
        path.write_bytes(b"damaged")
    runs.append(Run(tmp_path, "--steps", "1000"))
    code, output = runs[0].end()
    assert code == 0, output
    assert output.count(" is damaged") == 3
    assert [path.name[:10] for path in checkpoints.folder.iterdir()] == ["0000001000"]


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_run_that_neither_launch_nor_torchrun_has_started_says_how(
    tmp_path: Path, runs: list[Run], missing: str
) -> None:
    variables = {name: value for name, value in JOB.items() if name != missing}
    runs.append(Run(tmp_path, environment=variables))
    code, output = runs[0].end()
    assert (code, output) == (
        1,
        "ddp.py: PyTorch can't find the processes: start it in a job by srun launch python3 "
        "ddp.py, or by torchrun\n",
    )


@pytest.mark.parametrize("wait", ["0", "14", "3601", "-1", "soon"])
def test_how_long_processes_wait_for_each_other_has_bounds(
    tmp_path: Path, runs: list[Run], wait: str
) -> None:
    runs.append(Run(tmp_path, f"--wait={wait}"))
    code, output = runs[0].end()
    assert code == 2
    assert "argument --wait: " in output
    assert "patience" not in output


def test_packed_data_is_read_and_what_is_wrong_with_it_ends_the_run(
    tmp_path: Path, runs: list[Run]
) -> None:
    runs.append(Run(tmp_path, "--steps", "100", "--data", "data"))
    code, output = runs[0].end()
    assert code == 1
    assert output.startswith("ddp.py: data/index.jsonl can't be read (No such file or directory)")
    assert output.count("\n") == 1
    packed = example_jobs.module("ddp", "packed")
    packed.pack(packed.points(1000), tmp_path / "data")
    runs.append(Run(tmp_path, "--steps", "100", "--data", "data"))
    code, output = runs[1].end()
    assert code == 0, output
    archive = tmp_path / "data/00000.tar"
    archive.write_bytes(archive.read_bytes()[:500_000])
    runs.append(Run(tmp_path, "--steps", "200", "--data", "data"))
    code, output = runs[2].end()
    assert code == 1
    assert "00000.tar is damaged: pack or copy the data again\n" in output
    assert "Traceback" not in output


def test_samples_that_are_no_points_are_told(tmp_path: Path, runs: list[Run]) -> None:
    packed = example_jobs.module("ddp", "packed")
    packed.pack([("cat.jpg", b"a cat")], tmp_path / "data")
    runs.append(Run(tmp_path, "--steps", "100", "--data", "data"))
    code, output = runs[0].end()
    assert code == 1
    assert "or change decoded() in model.py for your data\n" in output


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--fsdp", "--compress=fp16"], 2, "leave it out with --fsdp"),
        # The stand-in has as little of it as PyTorch 1.13.
        (["--fsdp"], 1, "ddp.py: --fsdp needs PyTorch 2.6, and this is 1.13.1: load a module that"),
    ],
)
def test_what_fsdp_needs_is_told(
    tmp_path: Path, runs: list[Run], words: list[str], code: int, sentence: str
) -> None:
    runs.append(Run(tmp_path, *words))
    ended, output = runs[0].end()
    assert ended == code
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize("fsdp", [True, False])
def test_with_fsdp_no_gpu_ever_has_the_whole_model(
    monkeypatch: pytest.MonkeyPatch, fsdp: bool
) -> None:
    torch, sharded = MagicMock(__version__="2.6.0"), MagicMock()
    names = ("", ".nn", ".distributed", ".distributed.algorithms.ddp_comm_hooks")
    torch.distributed.algorithms.ddp_comm_hooks = torch
    stand_ins = {f"torch{name}": torch.distributed for name in names}
    stand_ins |= {"torch": torch, "torch.nn": torch.nn, "sharded": sharded}
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("checkpoints", "metrics", "model", "packed", "workers", "judge"):
        monkeypatch.setitem(sys.modules, name, example_jobs.module("ddp", name))
    program = example_jobs.module("ddp", "ddp")
    options, gpu = argparse.Namespace(fsdp=fsdp, compress=None), MagicMock(index=2)
    model = torch.nn.Sequential.return_value
    program.model_on(gpu, None, options)
    assert model.to.called != fsdp
    if fsdp:
        sharded.shard.assert_called_once_with(model, gpu, None)
    states = {"fsdp": fsdp, "model": 1, "optimizer": 2, "step": 1000, "seen": 5}
    torch.load.return_value = states
    assert program.resume(b"", model, MagicMock(), fsdp=fsdp) == (1000, 5)
    # Beside the model and the optimizer that it goes into, a GPU may have no room for it.
    assert torch.load.call_args.kwargs == {"map_location": "cpu"}


def test_a_gpu_without_room_is_not_taken_for_another_model(tmp_path: Path, runs: list[Run]) -> None:
    import pickle

    checkpoints = example_jobs.module("ddp", "checkpoints").Checkpoints(tmp_path / "ddp-7")
    checkpoints.save(1000, pickle.dumps({"step": 1000, "seen": 128000, "fsdp": False}))
    runs.append(Run(tmp_path, "--steps", "1100", environment={**JOB, "NO_ROOM": "1"}))
    code, output = runs[0].end()
    assert code == 1
    assert "OutOfMemoryError: CUDA out of memory" in output.splitlines()[-1]
    assert "another model" not in output


def test_a_checkpoint_of_a_run_with_other_options_is_told(tmp_path: Path, runs: list[Run]) -> None:
    import pickle

    checkpoints = example_jobs.module("ddp", "checkpoints").Checkpoints(tmp_path / "ddp-7")
    checkpoints.save(1000, pickle.dumps({"step": 1000, "seen": 128000, "fsdp": True}))
    runs.append(Run(tmp_path, "--steps", "1100"))
    code, output = runs[0].end()
    assert code == 1
    told = output.splitlines()[-1]
    assert told.startswith("ddp.py: the checkpoint is of a run with --fsdp: start it so again, or")
    assert "Traceback" not in output


def test_a_checkpoint_of_another_program_is_told(tmp_path: Path, runs: list[Run]) -> None:
    import pickle

    checkpoints = example_jobs.module("ddp", "checkpoints").Checkpoints(tmp_path / "ddp-7")
    for content in (b"no pickle", pickle.dumps({"epochs": 3})):
        checkpoints.save(1000 + len(content), content)
        runs.append(Run(tmp_path))
        code, output = runs[-1].end()
        assert code == 1
        told = output.splitlines()[-1]
        assert told.startswith("ddp.py: the checkpoint is of another model: name another folder (")
        assert "Traceback" not in output


# -- the job scripts, with stand-ins for SLURM's programs ------------------------------------------


@pytest.mark.parametrize("script", ["ddp.sbatch", "ddp-cpu.sbatch"])
def test_options_behind_a_script_are_those_of_its_program(tmp_path: Path, script: str) -> None:
    folder = example_jobs.copy("ddp", tmp_path)
    for program in ("module", "srun", "scontrol"):
        example_jobs.stand_in(tmp_path, program, "")
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = example_jobs.run(folder, "bash", script, "--data", "points", "--fsdp", **job)
    assert done.returncode == 0, done.stderr
    [call] = example_jobs.called(tmp_path, "srun")
    assert " ddp.py ddp-7 " in call
    assert call.endswith(" --data points --fsdp")


@pytest.mark.parametrize(
    ("array", "file"),
    [
        ({}, "metrics-43.jsonl"),
        # As sacct calls the task, which has a number of its own too.
        ({"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "3"}, "metrics-41_3.jsonl"),
    ],
)
def test_losses_go_where_muster_job_looks_for_them(
    tmp_path: Path, array: dict[str, str], file: str
) -> None:
    folder = example_jobs.copy("ddp", tmp_path)
    for program in ("module", "scontrol"):
        example_jobs.stand_in(tmp_path, program, "")
    example_jobs.stand_in(tmp_path, "srun", 'echo "$MUSTER_METRICS"')
    job = {"SLURM_JOB_ID": "43", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = example_jobs.run(folder, "bash", "ddp.sbatch", **job, **array)
    assert (done.returncode, done.stdout) == (0, f"{folder / file}\n")


@pytest.mark.parametrize("script", ["ddp.sbatch", "ddp-cpu.sbatch"])
def test_a_job_whose_worker_is_lost_is_queued_again_three_times_at_most(
    tmp_path: Path, script: str
) -> None:
    """However often it was queued again before, as at its time limit."""
    folder = example_jobs.copy("ddp", tmp_path)
    example_jobs.stand_in(tmp_path, "module", "")
    example_jobs.stand_in(tmp_path, "srun", "echo 'worker 1 is lost' >ddp-7.lost\nexit 75")
    example_jobs.stand_in(tmp_path, "scontrol", "")
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    for run in range(5):
        done = example_jobs.run(folder, "bash", script, **job, SLURM_RESTART_COUNT=str(9 + run))
        assert done.returncode == 75, done.stderr
    calls = [call for call in example_jobs.called(tmp_path, "scontrol") if "requeue" in call]
    assert calls == ["requeue 7"] * 3
    # On a full disk the file is there, and empty.
    example_jobs.stand_in(tmp_path, "srun", ">ddp-7.lost; exit 75")
    (folder / "ddp-7.all-lost").unlink()
    assert example_jobs.run(folder, "bash", script, **job).returncode == 75
    # A run in which none is lost is not queued again for those before it.
    example_jobs.stand_in(tmp_path, "srun", "exit 1")
    assert example_jobs.run(folder, "bash", script, **job).returncode == 1
    assert len([c for c in example_jobs.called(tmp_path, "scontrol") if "requeue" in c]) == 3


@pytest.mark.parametrize("script", ["ddp.sbatch", "ddp-cpu.sbatch"])
def test_a_run_that_was_told_to_stop_is_queued_again_each_time(tmp_path: Path, script: str) -> None:
    """As at its time limit, or in a QoS that gives way, whose notice goes to the tasks of srun."""
    folder = example_jobs.copy("ddp", tmp_path)
    example_jobs.stand_in(tmp_path, "module", "")
    example_jobs.stand_in(tmp_path, "scontrol", "")
    # srun ends the other tasks when the first of them has ended.
    example_jobs.stand_in(tmp_path, "srun", ">ddp-7.stopped; exit 137")
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    for _ in range(5):
        assert example_jobs.run(folder, "bash", script, **job).returncode == 75
    # What an earlier run has left is not that of this one.
    example_jobs.stand_in(tmp_path, "srun", "exit 1")
    assert example_jobs.run(folder, "bash", script, **job).returncode == 1
    calls = [call for call in example_jobs.called(tmp_path, "scontrol") if "requeue" in call]
    assert calls == ["requeue 7"] * 5


@pytest.mark.parametrize("script", ["ddp.sbatch", "ddp-cpu.sbatch"])
def test_losses_before_the_last_progress_don_t_count(tmp_path: Path, script: str) -> None:
    """A training of weeks may lose a worker in each of them."""
    folder = example_jobs.copy("ddp", tmp_path)
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    saves = "mkdir -p ddp-7; >ddp-7/$(date +%s%N).ckpt"
    lost = "echo 'worker 1 is lost' >ddp-7.lost; exit 75"
    for program, does in {"module": "", "scontrol": ""}.items():
        example_jobs.stand_in(tmp_path, program, does)
    example_jobs.stand_in(tmp_path, "srun", f"sleep 0.02; {saves}; {lost}")
    for _ in range(5):
        assert example_jobs.run(folder, "bash", script, **job).returncode == 75
    # From here on there is none.
    example_jobs.stand_in(tmp_path, "srun", lost)
    for _ in range(5):
        assert example_jobs.run(folder, "bash", script, **job).returncode == 75
    calls = [call for call in example_jobs.called(tmp_path, "scontrol") if "requeue" in call]
    assert calls == ["requeue 7"] * 7


# -- elastic.sbatch ------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a run of torchrun ended, and what elastic.sbatch makes of it."""

    leaves: str
    code: int
    left: object
    """Nodes, by squeue."""
    ends: int
    requeued: bool
    sentence: str


@pytest.mark.parametrize(
    "ended",
    [
        # A worker was lost, whose exit code is srun's, and the others have done all steps.
        Ended("done", 137, 1, 0, False, ""),
        Ended("stopped", 1, 2, 75, True, ""),
        Ended("lost", 137, 1, 137, True, "1 of 3 nodes are left, and it needs 2: the job waits"),
        # A job that has ended is soon forgotten, and can't be queued again.
        Ended(
            *("lost", 1, 2, 1, False),
            "not done: see above who failed, and go on with sbatch --export=ALL,RUN=ddp-7 "
            "elastic.sbatch --fsdp\n",
        ),
        # squeue may get no answer.
        Ended("lost", 1, "", 1, False, "not done"),
    ],
)
def test_an_elastic_job_says_how_it_ended(tmp_path: Path, ended: Ended) -> None:
    done = elastic(tmp_path, f">ddp-7.{ended.leaves}; exit {ended.code}", left=ended.left)
    assert done.returncode == ended.ends, done.stderr
    assert ("requeue 7" in example_jobs.called(tmp_path, "scontrol")) == ended.requeued
    assert ended.sentence in done.stdout
    assert bool(done.stdout) == bool(ended.sentence)
    [started] = example_jobs.called(tmp_path, "srun")
    assert started.startswith("--no-kill --kill-on-bad-exit=0 ")
    assert " --nnodes=2:3 " in started
    assert " --rdzv_endpoint=n1:20007 " in started
    assert started.endswith(" ddp.py ddp-7 --steps 2000 --fsdp")


def test_too_few_nodes_and_a_torchrun_that_does_not_start_are_told(tmp_path: Path) -> None:
    done = elastic(tmp_path, "", nodes=1)
    assert (done.returncode, done.stdout) == (
        1,
        "elastic.sbatch: the job has 1 nodes, and the training needs 2: ask for more (--nodes)\n",
    )
    done = elastic(tmp_path, "", python="exit 1")
    assert done.returncode == 1
    assert done.stdout.startswith("elastic.sbatch: PyTorch is older than 2.0, or not there: load")
    assert example_jobs.called(tmp_path, "srun") == []


def elastic(
    tmp_path: Path, srun: str, *, nodes: int = 3, left: object = 3, python: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run elastic.sbatch, which needs two nodes, with what srun does; return how it ended."""
    folder = tmp_path / "ddp"
    if not folder.exists():
        example_jobs.copy("ddp", tmp_path)
    script = folder / "elastic.sbatch"
    script.write_text(script.read_text().replace("least=1", "least=2"))
    stand_ins = {"module": "", "srun": srun, "python3": python, "squeue": f"echo {left}"}
    for name, does in stand_ins.items():
        example_jobs.stand_in(tmp_path, name, does)
    example_jobs.stand_in(tmp_path, "scontrol", '[ "$1" = requeue ] || echo n1')
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-3]"}
    return example_jobs.run(folder, "bash", script.name, "--fsdp", **job, SLURM_NNODES=str(nodes))
