"""What a job used and how it ended, from what sacct of both releases has printed."""

from pathlib import Path

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs import advice, records, units, usage

FIELDS = records.FIELDS.split(",")


@pytest.fixture
def of(release: str):
    """Return what is on record about a job, by name."""

    def read(name: str) -> list[records.Record]:
        folder = Path(__file__).parent / "sacct" / release
        return records.parse((folder / f"{name}.txt").read_text(encoding="utf-8"))

    return read


def made(**values: str) -> list[records.Record]:
    """Return the records of a job with a batch step, on one node."""
    job = dict.fromkeys(FIELDS, "") | {
        "JobID": "12",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "ElapsedRaw": "3000",
        "Timelimit": "01:00:00",
        "CPUTimeRAW": "12000",
        "TotalCPU": "03:00:00",
        "NNodes": "1",
        "AllocTRES": "billing=4,cpu=4,mem=8G,node=1",
        "User": "ada",
    }
    own = {name: value for name, value in values.items() if name not in ("MaxRSS", "NTasks")}
    job |= own
    step = job | {
        "JobID": "12.batch",
        "State": job["State"].split()[0],
        "NTasks": values.get("NTasks", "1"),
        "MaxRSS": values.get("MaxRSS", "5242880K"),
    }
    return [job, step]


def test_a_training_on_two_nodes(of) -> None:
    rows = dict(usage.rows(of("train")))
    assert rows["State"] == "COMPLETED"
    assert rows["Elapsed"].endswith(" of 00:10:00")
    assert rows["CPU"].endswith(" % of 4 allotted")
    assert rows["GPUs"] == "4 allotted, their use is not measured"
    peak = units.shown(max(units.size(record["MaxRSS"]) for record in of("train")))
    assert rows["Memory"].startswith(f"{peak} at most in one task, 2 tasks on a node: ")
    assert rows["Memory"].endswith(" % of 2.93 GiB allotted on each node")


def test_short_jobs_were_not_measured(of) -> None:
    assert dict(usage.rows(of("fails")))["Memory"] == "not measured"
    rows = dict(usage.rows(of("killed")))
    assert (rows["Memory"], rows["CPU"]) == ("not measured", "no time used")


def test_a_zero_is_not_a_measurement() -> None:
    """The first sample of a task, before its program has started, has nothing."""
    assert dict(usage.rows(made(MaxRSS="0")))["Memory"] == "not measured"


def test_an_array_is_summed_up(of) -> None:
    rows = dict(usage.rows(of("array")))
    assert (rows["State"], rows["Exit code"]) == ("COMPLETED 1, FAILED 1", "0:0, 1:0")
    assert "Longest" in rows


def test_use_of_gpus_is_told_where_slurm_has_measured_it() -> None:
    tres = "billing=4,cpu=4,gres/gpu=2,mem=8G,node=1"
    job, step = made(AllocTRES=tres)
    step = {
        **step,
        "TRESUsageInAve": "cpu=00:00:01,gres/gpumem=2G,gres/gpuutil=87",
        "TRESUsageInMax": "cpu=00:00:01,gres/gpumem=3G,gres/gpuutil=99",
    }
    assert dict(usage.rows([job, step]))["GPUs"] == (
        "2 allotted, 87 % busy on average, 3.00 GiB of memory at most in one task"
    )


# -- how it ended ---------------------------------------------------------------------------------


def said(found: list[records.Record]) -> str:
    return "\n".join(advice.sentences(found))


def test_an_exit_code_is_told(of) -> None:
    assert said(of("fails")) == "Its script ended with exit code 3; its output says why"


def test_a_signal_is_told_by_its_name(of) -> None:
    assert said(of("killed")).startswith("SIGKILL ended its script, or a program of it")
    assert said(made(State="FAILED", ExitCode="139:0")).startswith("SIGSEGV ended its script")


def test_an_output_file_that_can_t_be_opened_is_told() -> None:
    assert said(made(State="FAILED", ExitCode="0:53")) == (
        "SLURM could not open its output file on the node: see that the folder of --output, and "
        "the one in which sbatch was called, are there and you may write to them, and submit it "
        "again"
    )


def test_an_error_of_slurm_is_no_exit_code() -> None:
    assert said(made(State="FAILED", ExitCode="0:52")) == (
        "SLURM could not start its script, or signal 52 ended it: its output may say more, else an "
        "administrator finds why in the log of slurmd on its node"
    )


def test_who_cancelled_it_is_told(of, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(of("cancelled")) == "It was cancelled by an administrator"
    uid = 20001

    def known(number: int):
        if number != uid:
            raise KeyError(number)
        return type("Person", (), {"pw_name": "ada"})

    monkeypatch.setattr(advice.pwd, "getpwuid", known)
    assert said(made(State="CANCELLED by 20001")) == "It was cancelled by ada"
    assert said(made(State="CANCELLED by 4711")).endswith("by the user with number 4711")
    assert said(made(State="CANCELLED")) == "It was cancelled"


def test_out_of_memory_says_what_to_ask_for() -> None:
    assert said(made(State="OUT_OF_MEMORY", ExitCode="0:125")) == (
        "It needed more memory than the 8.00 GiB that it had; the largest sample of it was 5.00 "
        "GiB: ask for --mem=12G, or for fewer tasks on a node"
    )
    two = made(State="OUT_OF_MEMORY", AllocTRES="cpu=4,mem=2000M,node=2", MaxRSS="")
    assert "the 1000 MiB on each node that it had: ask for --mem=1500M" in said(two)


def test_a_time_limit_says_what_to_ask_for() -> None:
    assert "ask for --time=01:30:00, or let it save" in said(made(State="TIMEOUT"))
    assert "ask for more --time, or" in said(made(State="TIMEOUT", Timelimit="UNLIMITED"))


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"])
def test_other_ends_are_told(state: str) -> None:
    assert said(made(State=state))


def test_a_running_job_gets_no_advice(of) -> None:
    assert said(of("running")) == ""


# -- next time ------------------------------------------------------------------------------------


def test_a_job_that_used_what_it_had_is_left_alone() -> None:
    assert said(made()) == ""


def test_too_much_memory_is_told_with_what_would_do() -> None:
    assert said(made(MaxRSS="1048576K")) == (
        "--mem=1300M would have been enough memory on each node"
    )
    # Each of five tasks on the node takes as much.
    assert said(made(MaxRSS="1048576K", NTasks="5")) == ""


def test_steps_may_run_side_by_side_so_their_memory_counts_together() -> None:
    job, batch = made(MaxRSS="524288K")
    steps = [{**batch, "JobID": f"12.{n}"} for n in range(4)]
    assert said([job, batch, steps[0]]) == "--mem=1300M would have been enough memory on each node"
    assert said([job, batch, *steps]) == "--mem=3100M would have been enough memory on each node"
    assert said([job, {**batch, "MaxRSS": "2621440K"}, *steps]) == ""


def test_of_an_array_the_task_counts_whose_steps_took_most() -> None:
    tasks = [
        {**record, "JobID": record["JobID"].replace("12", task)}
        for task, took in (("12_1", "1536M"), ("12_2", "1G"))
        for record in made(MaxRSS=took)
    ]
    assert said(tasks) == "--mem=1900M would have been enough memory on each node"


def test_too_much_time_is_told_with_what_would_do() -> None:
    assert "--time=00:35:00 would have been enough" in said(
        made(ElapsedRaw="1400", CPUTimeRAW="5600", TotalCPU="01:30:00")
    )
    assert (
        said(made(ElapsedRaw="100", Timelimit="00:10:00", CPUTimeRAW="400", TotalCPU="06:00")) == ""
    )


def test_idle_cpus_are_told() -> None:
    assert said(made(TotalCPU="00:50:00")) == (
        "It kept 1.0 of its 4 CPUs busy: ask for fewer (--cpus-per-task), or, if they came with "
        "memory or GPUs, for less of those, or see that its program uses them (srun launch "
        "--explain)"
    )
    # A thread for each core, of two CPUs each, and a little for the start.
    assert said(made(TotalCPU="01:36:00")) == ""


def test_a_node_has_no_less_than_one_cpu() -> None:
    two = "billing=2,cpu=2,mem=8G,node=2"
    assert said(made(TotalCPU="00:15:00", CPUTimeRAW="6000", AllocTRES=two, MaxRSS="")) == ""
    one = two.replace("node=2", "node=1")
    assert "0.3 of its 2 CPUs" in said(
        made(TotalCPU="00:15:00", CPUTimeRAW="6000", AllocTRES=one, MaxRSS="")
    )


def test_a_job_of_which_nothing_is_known_gets_no_advice() -> None:
    bare = dict.fromkeys(FIELDS, "") | {"JobID": "12", "State": "COMPLETED"}
    assert said([bare]) == ""
    assert dict(usage.rows([bare]))["Elapsed"] == "00:00:00"


# -- sacct ----------------------------------------------------------------------------------------


def test_a_job_s_name_may_have_the_separator_and_line_breaks() -> None:
    line = "|".join(["12", "COMPLETED", *[""] * (len(FIELDS) - 3), "a|b"])
    assert records.parse(f"{line}\nand more\n")[0]["JobName"] == "a|b"
    assert len(records.parse(f"{line}\nand more\n")) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04.500", 184.5), ("UNLIMITED", 0), ("", 0)],
)
def test_times_of_slurm(text: str, seconds: float) -> None:
    assert units.seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("1024K", 2**20), ("1.50G", 1.5 * 2**30), ("12", 12), ("", 0), ("?", 0)]
)
def test_sizes_of_slurm(text: str, size: float) -> None:
    assert units.size(text) == size


@pytest.mark.parametrize(
    ("amount", "option"),
    [(2**20, "100M"), (2**30, "1100M"), (4 * 2**30, "4G"), (4.1 * 2**30, "5G")],
)
def test_memory_to_ask_for_is_a_round_number(amount: float, option: str) -> None:
    assert units.option(amount) == option
