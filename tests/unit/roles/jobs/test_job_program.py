"""`muster-job`: all that it says of a job, with the programs of SLURM answering as recorded."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jobs_library import FILES
from muster_jobs import job, metrics, records

FOLDER = Path(__file__).parent
NOW = datetime.fromisoformat("2026-11-27T09:00:00")
UNKNOWN = "slurm_load_jobs error: Invalid job id specified"


def text(folder: str, release: str, name: str = "") -> str:
    path = FOLDER / folder / release / f"{name}.txt" if name else FOLDER / folder / f"{release}.txt"
    return path.read_text(encoding="utf-8")


class Slurm:
    """SLURM's programs: what each prints, or how it fails."""

    def __init__(self, **answers: "str | Exception") -> None:
        self.answers = {"squeue": UNKNOWN, "sacct": "", "sstat": "", "names": "7|7\n", **answers}
        self.answers.setdefault("runs", "")
        self.answers.setdefault("sprio", "error: you are not running a supported priority plugin")
        self.asked: list[Sequence[str]] = []

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        assert data is None
        self.asked.append(command)
        answer = self.answers[command[0].rpartition("/")[2]]
        if "--format=%Q" in command:
            answer = "500\n7\n300\n"
        if any(word.startswith("--Format=") for word in command):
            account, qos = self.answers["account"].strip().split("|")
            answer = f"{account:<256}{qos:<256}{'1:00:00':<32}cpu=2,node=1,gres/gpu=1\n"
        if "--weights" in command:
            answer = self.answers["weights"]
        if "--duplicates" in command:
            answer = self.answers["runs"]
        if records.NAMES in command:
            answer = self.answers["names"]
        if isinstance(answer, Exception):
            raise answer
        failed = "error" in answer
        out, err = ("", answer) if failed else (answer, "")
        return SimpleNamespace(returncode=int(failed), stdout=out.encode(), stderr=err.encode())


def line_of(release: str, number: str) -> str:
    lines = text("squeue", release).splitlines()
    return next(f"{line}\n" for line in lines if line.startswith(number))


def test_a_waiting_job(release: str) -> None:
    slurm = Slurm(squeue=line_of(release, "5|"))
    said = job.report("5", slurm, NOW)
    assert said.startswith("Job 5, of root: PENDING, 2 nodes in ml-gpu\n  It waits: nodes that it")
    assert "Elapsed" not in said


def test_a_job_that_waits_for_a_limit_is_told_all_of_it(release: str) -> None:
    slurm = Slurm(
        squeue="5|PENDING|N/A|61234|ml-gpu|1|eve|AssocGrpGRES\n",
        account="students|long\n",
        scontrol=text("assoc_mgr", f"{release}.assoc-eve"),
        sprio="61234 0 51000 234 10000 0 0 0\n",
        weights="100000 10000 50000 0 0 0\n",
    )
    lines = [line.strip() for line in job.report("5", slurm, NOW).splitlines()]
    assert lines[1:4] == [
        "It waits: the jobs of its account have together what they may have: GPUs (or another "
        "generic resource) (AssocGrpGRES)",
        "The limit: account students allows all of its jobs together at most 6 GPUs, in use: 6, "
        "and this job asks for 1",
        "What you can do: wait until others end (squeue --account=students lists them), or ask for "
        "less",
    ]
    assert lines[-1].startswith("Its priority is 61234: 51000 of 100000 for fairshare")


def test_a_job_that_waits_for_a_limit_that_slurm_hides_is_told_where_limits_are(release) -> None:
    slurm = Slurm(
        squeue="5|PENDING|N/A|9|ml-gpu|1|eve|QOSMaxWallDurationPerJobLimit\n",
        account="students|long\n",
        scontrol="error: Access/permission denied",
    )
    said = job.report("5", slurm, NOW)
    assert "The limit: " not in said
    assert "What you can do: ask for less; sacctmgr show associations" in said


def test_a_finished_job(release: str) -> None:
    said = job.report("1", Slurm(sacct=text("sacct", release, "train")), NOW)
    lines = said.splitlines()
    assert lines[0] == "Job 1, train, of root:"
    assert [line.split()[0] for line in lines[1:7]] == [
        "State",
        "Exit",
        "Elapsed",
        "CPU",
        "Memory",
        "GPUs",
    ]


def test_a_running_job_shows_what_it_has_used_so_far(release: str) -> None:
    slurm = Slurm(
        squeue="7|RUNNING|2026-11-27T09:13:05|9|ml-gpu|1|root|None\n",
        sacct=text("sacct", release, "running"),
        sstat=text("sacct", release, "sstat"),
    )
    said = job.report("7", slurm, NOW)
    assert "State        RUNNING\n" in said
    assert "MiB at most in one task: " in said
    assert "It waits" not in said
    without = Slurm(sacct=text("sacct", release, "running"), sstat="error: not yours")
    assert "Memory       not measured\n" in job.report("7", without, NOW)


def test_steps_that_run_and_steps_that_are_over_are_counted_together() -> None:
    empty = dict.fromkeys(records.FIELDS.split(","), "")
    known = [
        empty | {"JobID": "7", "State": "RUNNING", "TotalCPU": "00:10.000"},
        empty | {"JobID": "7.0", "TotalCPU": "00:10.000", "MaxRSS": "5M"},
        empty | {"JobID": "7.1", "TotalCPU": "00:00:00"},
    ]
    slurm = Slurm(sstat="7.1|4|00:00:05|20M\n")
    merged = records.with_running_steps("7", known, slurm)
    assert [record["TotalCPU"] for record in merged] == ["00:00:30", "00:10.000", "00:00:20"]
    assert merged[2]["MaxRSS"] == "20M"


def test_running_tasks_of_an_array_are_known_by_their_own_numbers() -> None:
    empty = dict.fromkeys(records.FIELDS.split(","), "")
    known = [
        empty | {"JobID": "12_1", "State": "COMPLETED", "TotalCPU": "00:07.000"},
        empty | {"JobID": "12_2", "State": "RUNNING", "TotalCPU": "00:00:00"},
        empty | {"JobID": "12_2.0"},
        empty | {"JobID": "12_3", "State": "RUNNING", "TotalCPU": "00:00:00"},
        empty | {"JobID": "12_3.batch"},
    ]
    slurm = Slurm(
        names="13|12_1\n14|12_2\n12|12_3\n", sstat="14.0|2|00:00:05|20M\n12.batch|1|00:03|1M\n"
    )
    merged = records.with_running_steps("12", known, slurm)
    assert "--jobs=14,12" in slurm.asked[-1]
    assert [record["TotalCPU"] for record in merged] == [
        "00:07.000",
        "00:00:10",
        "00:00:10",
        "00:00:03",
        "00:00:03",
    ]
    assert [record["MaxRSS"] for record in merged] == ["", "", "20M", "", "1M"]


def test_an_array_that_waits_and_runs_shows_both(release: str) -> None:
    done = text("sacct", release, "array")
    slurm = Slurm(squeue=line_of(release, "9_").replace("9_", "4_"), sacct=done)
    # Short as they were, they have run.
    slurm.answers["sacct"] = done.replace("0:0|0|", "0:0|5|")
    said = job.report("4", slurm, NOW)
    assert said.startswith("Job 4_[1-6%1], of root: PENDING")
    assert "\nJob 4, arr, of root:\n  State        COMPLETED 1, FAILED 1\n" in said


def test_a_task_of_an_array_has_its_name_whatever_was_typed(tmp_path: Path, release: str) -> None:
    lines = text("sacct", release, "array").splitlines(keepends=True)
    one = "".join(line for line in lines if line.startswith("4_2")).replace(
        "|/out|", f"|{tmp_path}|"
    )
    metrics.path(str(tmp_path), "4_2").write_text('{"loss": 1}\n')
    said = job.report("6", Slurm(sacct=one), NOW)
    assert said.startswith("Job 4_2, arr, of root:\n")
    assert "  Metrics      loss 1\n" in said


def test_a_cluster_without_accounting_still_says_why_a_job_waits(release: str) -> None:
    off = "error: Slurm accounting storage is disabled"
    said = job.report("5", Slurm(squeue=line_of(release, "5|"), sacct=off), NOW)
    assert "It waits: " in said


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(slurm: Slurm, *words: str) -> tuple[int, str, str]:
        try:
            code = job.main(words, slurm)
        except SystemExit as ended:
            code = int(str(ended.code))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_a_job_that_nobody_knows_is_one_sentence(main) -> None:
    assert main(Slurm(), "4711") == (
        2,
        "",
        "error: there is no job 4711; sacct lists yours of today\n",
    )


@pytest.mark.parametrize("word", ["train", "-1", "12;id", "12_[1-3]", "١٢"])
def test_what_is_no_number_is_refused(main, word: str) -> None:
    slurm = Slurm()
    code, _, err = main(slurm, "--", word)
    assert code == 2
    assert "is no number of a job, such as 12 or 12_3" in err
    assert slurm.asked == []


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"squeue": FileNotFoundError(2, "No such file")}, "squeue did not answer"),
        ({"squeue": subprocess.TimeoutExpired("squeue", 10)}, "squeue did not answer"),
        ({"squeue": "error: Unable to contact slurm controller"}, "squeue failed: error: Unable"),
        ({"sacct": "error: Slurm accounting storage is disabled"}, "sacct failed: error: Slurm"),
    ],
)
def test_slurm_that_fails_is_one_sentence(main, answers, why: str) -> None:
    code, out, err = main(Slurm(**answers), "12")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {why}")
    assert err.endswith("; try again on a login node, or tell an administrator\n")
    assert err.count("\n") == 1


def test_slurm_s_programs_print_in_their_own_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """People set these for themselves."""
    for name in ("SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_TIME_FORMAT", "LC_TIME"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    shown = job.run_program(["env"], 10).stdout.decode()
    assert "mine" not in shown
    assert "SLURM_CONF=/etc/other.conf" in shown


# -- a job that was queued again ------------------------------------------------------------------

LAST = """\
41|COMPLETED|0:0|240|14-00:00:00|960|00:40.000||1||billing=4,cpu=4,mem=8G,node=1|||ada|ml|/out|train
41.batch|COMPLETED|0:0|240||960|00:40.000|307200K|1|1|cpu=4,mem=8G,node=1||||||batch
"""
LATER = "41|2026-11-20T10:00:01|COMPLETED|240|ada|/out|train\n"
EARLIER = """\
41|2026-11-01T10:00:00|PREEMPTED|864000|ada|/out|train
41|2026-11-12T10:00:00|REQUEUED|345600|ada|/out|train
"""
NO_RUNS = """\
41|2021-02-03T10:00:00|COMPLETED|9000|eve|/out|train
41|2021-03-03T10:00:00|COMPLETED|9000|ada|/out|another | one
41|2026-11-01T09:00:00|NODE_FAIL|0|ada|/out|train
41|2026-11-01T09:30:00|RESIZING|500|ada|/out|train
"""
"""Of another job, years ago; what never began; and what is a part of a run."""


def test_a_job_that_ran_once_is_told_what_would_have_been_enough() -> None:
    said = job.report("41", Slurm(sacct=LAST, runs=NO_RUNS + LATER), NOW)
    assert "  Run " not in said
    assert "--time=00:10:00 would have been enough" in said
    assert "--mem=400M would have been enough" in said


@pytest.mark.parametrize("runs", [EARLIER + LATER, LATER + NO_RUNS + EARLIER])
def test_the_last_run_of_a_job_says_nothing_of_what_the_whole_needs(runs: str) -> None:
    slurm = Slurm(sacct=LAST, runs=runs)
    said = job.report("41", slurm, NOW)
    assert said.splitlines()[1] == (
        "  Run          3 of 3: the lines below are of this run, all runs together took 14-00:04:00"
    )
    assert "Elapsed      00:04:00 of 14-00:00:00\n" in said
    assert "would have been enough" not in said
    assert "busy: ask for fewer" not in said
    assert sum("--duplicates" in command for command in slurm.asked) == 1


def test_a_run_that_has_just_begun_is_counted_once() -> None:
    """A second passes between two questions."""
    running = LAST.replace("COMPLETED|0:0|240", "RUNNING|0:0|0")
    now = LATER.replace("COMPLETED|240", "RUNNING|1")
    slurm = Slurm(sacct=running, runs=EARLIER + now)
    assert [records.runs_of(one) for one in records.asked("41", slurm)] == [3, 1]
    slurm.answers["runs"] = now
    assert [records.runs_of(one) for one in records.asked("41", slurm)] == [1, 1]


def test_how_it_ended_is_said_of_the_last_run() -> None:
    last = LAST.replace("COMPLETED|0:0", "TIMEOUT|0:0")
    said = job.report("41", Slurm(sacct=last, runs=EARLIER + LATER), NOW)
    assert "It ran into its time limit: ask for --time=21-00:00:00, or let it save" in said


def test_tasks_of_an_array_that_were_queued_again_are_counted() -> None:
    both = LAST.replace("41", "40_1") + LAST.replace("41", "40_2") + LAST.replace("41", "40_3")
    runs = EARLIER.replace("41|", "40_2|") + "".join(
        LATER.replace("41|", f"40_{task}|") for task in (1, 2, 3)
    )
    said = job.report("40", Slurm(sacct=both, runs=runs), NOW)
    assert said.splitlines()[1] == (
        "  Runs         1 of 3 jobs were queued again and ran up to 3 times: the lines below are "
        "of the last run of each"
    )
    assert "would have been enough" not in said
    one = job.report("40_2", Slurm(sacct=LAST.replace("41", "40_2"), runs=runs), NOW)
    assert "Run          3 of 3: " in one


def test_runs_that_sacct_does_not_tell_are_not_taken_for_one(main) -> None:
    code, out, err = main(Slurm(sacct=LAST, runs="error: no connection to slurmdbd"), "41")
    assert (code, out) == (1, "")
    assert err.startswith("error: sacct failed: error: no connection")


# -- what the job wrote ---------------------------------------------------------------------------


def test_the_last_number_of_each_name_is_shown(tmp_path: Path, release: str) -> None:
    lines = [{"loss": 2.5, "step": 1}, {"loss": 0.125, "accuracy": 0.98, "step": 2}]
    file = metrics.path(str(tmp_path), "1")
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = text("sacct", release, "train").replace("|/out|", f"|{tmp_path}|")
    said = job.report("1", Slurm(sacct=done), NOW)
    assert "  Metrics      loss 0.125, step 2, accuracy 0.98\n" in said
    file.unlink()
    assert "Metrics" not in job.report("1", Slurm(sacct=done), NOW)


def test_what_is_no_number_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "metrics-1.jsonl"
    file.write_text(
        '{"a\\u001b[31m": 1, "b": "text", "c": NaN, "d": true, "e": [1], "f": 1e999, "loss": 1}\n'
        + "[1]\n7\n"
        + '{"long": '
        + "9" * 5000
        + '}\n{"deep": '
        + "[" * 60000
        + "\n"
        + '{"cut": 1'
    )
    assert metrics.last(file) == {"loss": 1.0}


def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    file = tmp_path / "metrics-1.jsonl"
    file.write_text("".join(f'{{"step": {n}}}\n' for n in range(100_000)))
    assert metrics.last(file) == {"step": 99_999.0}
    file.write_text(json.dumps({f"name{n}": n for n in range(1000)}))
    assert len(metrics.last(file)) <= 20


def test_a_folder_that_is_closed_is_no_error(tmp_path: Path, release: str) -> None:
    (tmp_path / "metrics-1.jsonl").mkdir()
    done = text("sacct", release, "train").replace("|/out|", f"|{tmp_path}|")
    assert "Metrics" not in job.report("1", Slurm(sacct=done), NOW)


def test_the_wrapper_starts_what_the_role_installs() -> None:
    wrapper = (FILES / "bin/muster-job").read_text(encoding="utf-8")
    assert wrapper.startswith("#!/usr/bin/python3 -I\n")
    assert "from muster_jobs.job import main" in wrapper


@pytest.mark.parametrize("leads_to", ["/dev/ptmx", "others.jsonl"])
def test_a_link_in_place_of_the_metrics_is_not_followed(
    tmp_path: Path, release: str, monkeypatch: pytest.MonkeyPatch, leads_to: str
) -> None:
    """Root types muster-job too, and to open some devices is to do something."""
    (tmp_path / "others.jsonl").write_text('{"loss": 1}\n')
    (tmp_path / "metrics-1.jsonl").symlink_to(leads_to)
    opens, opened = os.open, []

    def seen(*words: Any, **more: Any) -> int:
        handle = opens(*words, **more)
        opened.append(Path(f"/proc/self/fd/{handle}").readlink())
        return handle

    monkeypatch.setattr(os, "open", seen)
    done = text("sacct", release, "train").replace("|/out|", f"|{tmp_path}|")
    assert "Metrics" not in job.report("1", Slurm(sacct=done), NOW)
    assert opened == []


def test_a_fifo_in_place_of_the_metrics_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics-12.jsonl")
    assert metrics.last(tmp_path / "metrics-12.jsonl") == {}
