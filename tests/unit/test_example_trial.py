"""examples/trial: what SLURM has measured of two slices, and what follows for all of the data."""

import re
from pathlib import Path

import pytest
from example_jobs import called, copy, module, run, stand_in

limits = module("trial", "limits")

SACCT = """\
41_10|COMPLETED|12|00:11.500|2||
41_10.batch|COMPLETED|12|00:11.500|2|102400K|1
41_10.extern|COMPLETED|12|00:00:00|2|0|1
41_20|COMPLETED|22|00:21.500|2||
41_20.batch|COMPLETED|22|00:21.500|2|153600K|1
41_20.extern|COMPLETED|22|00:00:00|2|0|1
"""
"""What sacct of 22.05 prints of a trial: 2 s and 50 MiB anyhow, 1 s and 5 MiB for each percent."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy("trial", tmp_path)


def said(folder: Path, printed: str, code: int = 0) -> str:
    """Return what limits.py says where sacct prints this."""
    (folder / "printed").write_text(printed)
    stand_in(folder.parent, "sacct", f'cat "{folder}/printed"; exit {code}')
    done = run(folder, "python3", "limits.py", "41")
    assert done.returncode == (0 if not done.stderr else 1)
    assert len(done.stderr.splitlines()) <= 1
    return done.stdout + done.stderr


def test_what_to_ask_for_is_on_the_line_through_the_slices_with_a_margin(folder: Path) -> None:
    text = said(folder, SACCT)
    # 23 s of at most 22 and a part, and 11 s for each 10 %; then half as much again, in minutes.
    assert "at 100 %: 00:01:51, by a straight line" in text
    assert "#SBATCH --time=00:05:00\n" in text
    assert "at 100 %: 550 MiB, by a straight line" in text
    assert "#SBATCH --mem=700M\n" in text
    assert "#SBATCH --cpus-per-task=1\n" in text
    assert "all" not in text.splitlines()[-1]
    assert called(folder.parent, "sacct") == [
        "--noheader --parsable2 --units=K "
        "--format=JobID,State,ElapsedRaw,TotalCPU,AllocCPUS,MaxRSS,NTasks --jobs=41"
    ]


def test_what_grows_faster_than_the_data_is_told_and_counted(folder: Path) -> None:
    text = said(folder, SACCT.replace("|22|00:21.500", "|100|01:30.000"))
    power = re.search(r"at 100 %: (\S+), as the data to the power of 3\.1", text)
    assert power
    # A straight line would have said some 13 minutes.
    assert limits.seconds(power[1]) == pytest.approx(101 * 5**3.07, rel=0.02)
    more = said(folder, SACCT.replace("153600K", "409600K"))
    assert "MiB, as the data to the power of 2.0" in more
    assert "#SBATCH --mem=12G" in more


def test_what_does_not_grow_stays(folder: Path) -> None:
    text = said(folder, SACCT.replace("153600K", "102300K"))
    assert "at 100 %: 100 MiB, by a straight line" in text


def test_a_second_more_or_less_is_no_faster_growth() -> None:
    """SLURM counts whole seconds: 10.9 s shows as 10, and 21.8 s as 21."""
    small = limits.Slice(10, 10, 2**20, 1, 1)
    assert limits.time(small, limits.Slice(20, 21, 2**20, 1, 1)).rule == "by a straight line"
    assert limits.time(small, limits.Slice(20, 22, 2**20, 1, 1)).rule == "by a straight line"
    assert "power" in limits.time(small, limits.Slice(20, 23, 2**20, 1, 1)).rule


@pytest.mark.parametrize("start", [0.0, 3.0, 60.0])
@pytest.mark.parametrize("each", [0.9, 1.5, 7.3])
def test_the_time_limit_is_never_too_short_for_what_grows_by_a_line(
    start: float, each: float
) -> None:
    small, large = (limits.Slice(n, int(start + n * each), 2**20, 1, 1) for n in (10, 20))
    needed = start + 100 * each
    asked = limits.seconds(limits.time_option(limits.time(small, large).value * limits.MORE_TIME))
    assert needed <= asked <= 2 * needed + 600


def test_busy_cpus_are_asked_for_again(folder: Path) -> None:
    text = said(folder, SACCT.replace("|22|00:21.500", "|22|00:43.000"))
    assert "#SBATCH --cpus-per-task=2\n" in text
    assert text.splitlines()[-1].startswith("all 2 CPUs were busy")


TASKS = """\
41_10|COMPLETED|12|00:46.000|8||
41_10.batch|COMPLETED|12|00:00.500|8|5120K|1
41_10.extern|COMPLETED|12|00:00:00|8|0|2
41_10.0|COMPLETED|12|00:45.500|8|102400K|4
41_20|COMPLETED|22|01:26.000|8||
41_20.batch|COMPLETED|22|00:00.500|8|5120K|1
41_20.extern|COMPLETED|22|00:00:00|8|0|2
41_20.0|COMPLETED|22|01:25.500|8|153600K|4
"""
"""Four tasks of srun on two nodes, with two CPUs each, that keep one busy."""


def test_of_several_tasks_the_limits_are_those_of_one(folder: Path) -> None:
    text = said(folder, TASKS)
    assert " 20 %  00:00:22    155 MiB  1.0 of 2\n" in text
    assert "CPUs busy, each of 4 tasks\n" in text
    assert "#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=1\n#SBATCH --mem-per-cpu=700M\n" in text
    assert "#SBATCH --mem=" not in text
    busy = said(folder, TASKS.replace("01:26.000", "02:52.000"))
    assert "#SBATCH --cpus-per-task=2\n#SBATCH --mem-per-cpu=400M\n" in busy
    assert "all 2 CPUs of each task were busy" in busy


def test_steps_may_run_side_by_side_so_their_memory_counts_together(folder: Path) -> None:
    """Four of srun, in the background of the script."""
    steps = [
        f"41_{percent}.{n}|COMPLETED|12|00:02.000|1|{memory}|1\n"
        for percent, memory in ((10, "102400K"), (20, "153600K"))
        for n in range(4)
    ]
    text = said(folder, TASKS.replace("K|4", "K|1") + "".join(steps))
    assert " 10 %  00:00:12    505 MiB" in text
    assert " 20 %  00:00:22    755 MiB" in text


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("", "job 41 has 0 tasks that began"),
        ("41|COMPLETED|12|00:11|2||\n", "job 41 has 0 tasks that began"),
        (SACCT.partition("41_20|")[0], "job 41 has 1 tasks that began"),
        (SACCT.replace("41_20|COMPLETED", "41_20|RUNNING"), "41_20 has not ended"),
        (SACCT.replace("41_20|COMPLETED", "41_20|OUT_OF_MEMORY"), "41_20 ended as OUT_OF_MEMORY"),
        (SACCT.replace("41_20|COMPLETED", "41_20|CANCELLED by 20001"), "41_20 ended as CANCELLED,"),
        (SACCT.replace("41_10|COMPLETED|12", "41_10|COMPLETED|9"), "41_10 took 9 s, which is too"),
        (SACCT.replace("153600K", ""), "the memory of 41_20 was not measured"),
        (SACCT.replace("41_20", "41_2000"), "are no percents"),
        (TASKS.replace("153600K|4", "153600K|2"), "in 4 and 2 tasks: run both with the same"),
    ],
)
def test_what_can_t_be_said_is_told_with_a_remedy(folder: Path, printed: str, told: str) -> None:
    text = said(folder, printed)
    assert text.startswith("limits.py: ")
    assert told in text
    assert "#SBATCH --mem" not in text


def test_sacct_that_fails_or_is_not_there_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "sacct failed: 3" in said(folder, "", code=3)
    monkeypatch.setattr(limits, "SACCT", ["sacct-is-not-here"])
    with pytest.raises(limits.TrialError, match="try it on a login node"):
        limits.measured("41")


def test_the_program_takes_a_slice(folder: Path) -> None:
    done = run(folder, "python3", "work.py", "--percent", "0.1")
    assert done.returncode == 0
    assert done.stdout.startswith("400 points, 0.1 % of all\npass 1: ")
    right = float(re.findall(r": (\S+) % are right", done.stdout)[-1])
    assert right > 90
