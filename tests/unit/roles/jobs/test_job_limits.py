"""The limit for which a job waits.

The answers of scontrol were recorded on 2026-11-27 from slurmctld of Debian 12 (22.05.8) and 13
(24.11.5), with slurmdbd: the lab of docs/limits.md with GPUs of type h100, some more limits set by
sacctmgr, and an account that is called eve. eve had four running jobs, two of them in `long`, and
one that waited.
"""

import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs import limits
from muster_jobs.limits import Limit

FOLDER = Path(__file__).parent / "assoc_mgr"


def squeue(account: str, qos: str, time: str = "NOT_SET", tres: str = "N/A") -> str:
    """A line of squeue, as its `--Format` has it."""
    return f"{account:<256}{qos:<256}{time:<32}{tres:<1024}\n"


class Scontrol:
    """squeue, scontrol and sacctmgr, which print what a file has, for a job of eve."""

    def __init__(self, release: str, account: str, qos: str, partition_qos: str) -> None:
        self.release = release
        self.account, self.qos = account, qos
        self.job = squeue(account, qos)
        self.partitions = {"ml-gpu": f"AllowQos=ALL QoS={partition_qos} State=UP"}
        self.edits: dict[str, str] = {}
        """What is changed in the recorded text."""
        self.flags = ""
        self.fails = False
        self.asked: list[Sequence[str]] = []

    def asks(self, time: str, tres: str) -> None:
        self.job = squeue(self.account, self.qos, time, tres)

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        assert data is None
        self.asked.append(command)
        if "squeue" in command[0]:
            text = self.job
        elif "sacctmgr" in command[0]:
            text = f"normal|\n{self.qos}|DenyOnLimit,{self.flags}\n"
        elif "partition" in command:
            text = f"PartitionName={command[-1]} {self.partitions[command[-1]]}\n"
        else:
            _, value = command[-1].split("=")
            kind = f"assoc-{value}" if "flags=assoc" in command else "qos"
            text = (FOLDER / f"{self.release}.{kind}.txt").read_text(encoding="utf-8")
            for old, new in self.edits.items():
                assert old in text
                text = text.replace(old, new)
        return SimpleNamespace(returncode=int(self.fails), stdout=text.encode(), stderr=b"denied")


@pytest.fixture
def ask(release: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., "Limit | None"]:
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=20005))

    def limit(reason: str, partition_qos: str = "N/A", account: str = "students") -> "Limit | None":
        run = Scontrol(release, account, "long", partition_qos)
        return limits.limit("12_[3-5]", reason, "eve", "ml-gpu", run)

    return limit


@pytest.mark.parametrize(
    ("reason", "says", "remedy"),
    [
        (
            "AssocGrpGRES",
            "account students allows all of its jobs together at most 6 GPUs, in use: 6",
            "wait until others end (squeue --account=students lists them), or ask for less",
        ),
        (
            "AssocMaxJobsLimit",
            "eve in account students allows the jobs of eve together at most 4 jobs that run, "
            "in use: 4",
            "wait until others end (squeue --user=eve --account=students lists them)",
        ),
        (
            "AssocMaxWallDurationPerJobLimit",
            "eve in account students allows a job at most 1-00:00:00",
            "scontrol update jobid=JOB timelimit=1-00:00:00",
        ),
        (
            "AssocMaxGRESPerJob",
            "eve in account students allows a job at most 4 GPUs and 2 GPUs of type h100",
            "scancel JOB, and ask for 4 GPUs and 2 GPUs of type h100 or less",
        ),
        (
            "QOSGrpGRES",
            "QoS long allows all of its jobs together at most 4 GPUs, in use: 4",
            "wait until others end (squeue --qos=long lists them), or ask for less, or use another "
            "QoS (--qos)",
        ),
        (
            "QOSMaxGRESPerUser",
            "QoS long allows the jobs of eve together at most 2 GPUs, in use: 2",
            "wait until others end (squeue --user=eve --qos=long lists them), or ask for less, or "
            "use another QoS (--qos)",
        ),
        (
            "QOSMaxSubmitJobPerUserLimit",
            "QoS long allows the jobs of eve together at most 2 jobs in the queue, in use: 2",
            "wait until others end (squeue --user=eve --qos=long lists them), or use another QoS "
            "(--qos)",
        ),
        (
            "QOSMaxMemoryPerJob",
            "QoS long allows a job at most 64.00 GiB of memory",
            "scancel JOB, and ask for 64.00 GiB of memory or less, or use another QoS (--qos)",
        ),
    ],
)
def test_a_limit_is_told_with_its_owner_its_value_and_its_use(ask, reason, says, remedy) -> None:
    assert ask(reason) == Limit(f"The limit: {says}", remedy)


def test_minutes_ahead_are_told_with_what_running_jobs_may_still_use(ask, release) -> None:
    # Four jobs of a day with six GPUs, some minutes after their start.
    used = {"22.05": 8629, "24.11": 8628}[release]
    assert ask("AssocGrpGRESRunMinutes").says == (
        "The limit: account students allows all of its jobs together at most 17280 GPU "
        f"minutes ahead (what running jobs may still use), in use: {used}"
    )


def test_what_an_association_has_of_its_own_is_told_as_that(ask) -> None:
    found = ask("AssocMaxSubmitJobLimit")
    assert "eve in account students allows the jobs of eve together at most 200 " in found.says


def test_what_an_account_hands_down_is_told_as_of_the_highest(release, monkeypatch) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    found = limits.limit("12", "AssocMaxSubmitJobLimit", "finn", "ml-gpu", run)
    assert found is not None
    assert "The limit: account lab allows the jobs of finn together at most 2000 " in found.says
    assert found.says.endswith("in use: 1")


def test_the_qos_of_the_partition_goes_first(ask) -> None:
    found = ask("QOSMinGRES", "gpu-nodes")
    assert found.says == (
        "The limit: QoS gpu-nodes of partition ml-gpu wants a job to have at least 1 GPU"
    )
    # Another QoS would not help.
    assert found.remedy == "ask for 1 GPU or more, or use another partition (--partition)"
    # It has no limit of this, so that of the job's QoS holds.
    assert "QoS long allows all of its jobs together" in ask("QOSGrpGRES", "gpu-nodes").says


def test_an_account_with_the_name_of_a_user_is_not_that_user(ask) -> None:
    assert "at most 3 GPUs, in use: 2" in ask("MaxGRESPerAccount", account="eve").says
    assert "at most 2 GPUs" in ask("QOSMaxGRESPerUser", account="eve").says


STUDENTS = "gres/gpu=6(6),gres/gpu:h100=N(6)"
LAB = "gres/gpu=8(8),gres/gpu:h100=N(8)"


@pytest.mark.parametrize(
    ("students", "lab", "gpus", "says"),
    [
        # The account above is fuller, and has room for this job.
        (
            "gres/gpu=2(0)",
            "gres/gpu=8(3)",
            4,
            "account students allows all of its jobs together at most 2 GPUs, in use: 0, and this "
            "job asks for 4",
        ),
        # The account has room, and the one above it has not.
        (
            "gres/gpu=6(5)",
            "gres/gpu=8(8)",
            1,
            "account lab allows all of its jobs together at most 8 GPUs, in use: 8, and this job "
            "asks for 1",
        ),
        # Of GPUs of its type there are enough.
        (
            "gres/gpu=6(5),gres/gpu:h100=4(3)",
            "gres/gpu=8(7)",
            2,
            "account students allows all of its jobs together at most 6 GPUs, in use: 5, and this "
            "job asks for 2",
        ),
    ],
)
def test_of_the_accounts_above_the_one_without_room_is_told(
    release: str, students: str, lab: str, gpus: int, says: str
) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.asks("01:00:00", f"cpu=2,mem=2G,node=1,billing=24,gres/gpu={gpus}")
    run.edits = {STUDENTS: students, LAB: lab}
    found = limits.limit("12", "AssocGrpGRES", "eve", "ml-gpu", run)
    assert found is not None
    assert found.says == f"The limit: {says}"


def test_the_jobs_of_an_account_are_those_of_all_accounts_below_it(release: str) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.edits = {STUDENTS: "gres/gpu=N(6)"}
    found = limits.limit("12", "AssocGrpGRES", "eve", "ml-gpu", run)
    assert found is not None
    assert "account lab allows all of its jobs together at most 8 GPUs" in found.says
    assert "(squeue --account=lab,eve,lab-test,students lists them)" in found.remedy


def test_minutes_ahead_count_those_of_the_job(release: str) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.asks("5-00:00:00", "cpu=2,mem=2G,node=1,billing=24,gres/gpu=2")
    found = limits.limit("12", "AssocGrpGRESRunMinutes", "eve", "ml-gpu", run)
    assert found is not None
    assert found.says.endswith("and this job asks for 14400")


def test_what_a_job_alone_may_have_is_told_of_what_it_has_too_much(release: str) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.asks("1-12:00:00", "cpu=2,mem=2G,node=2,billing=24,gres/gpu=3,gres/gpu:h100=3")
    found = limits.limit("12", "AssocMaxGRESPerJob", "eve", "ml-gpu", run)
    assert found == Limit(
        "The limit: eve in account students allows a job at most 2 GPUs of type h100, and this job "
        "asks for 3",
        "scancel JOB, and ask for 2 GPUs of type h100 or less",
    )
    found = limits.limit("12", "AssocMaxWallDurationPerJobLimit", "eve", "ml-gpu", run)
    assert found is not None
    assert found.says.endswith("a job at most 1-00:00:00, and this job asks for 1-12:00:00")


# -- two QoS --------------------------------------------------------------------------------------


def both(release: str, of_partition: str, of_job: str, gpus: int) -> Scontrol:
    """A partition with a QoS, and GPUs that each QoS allows all of its jobs."""
    run = Scontrol(release, "students", "long", "gpu-nodes")
    run.asks("01:00:00", f"cpu=2,mem=2G,node=1,gres/gpu={gpus},gres/gpu:h100={gpus}")
    run.edits = {LAB.replace("=8", "=N"): of_partition, "gres/gpu=4(4),gres/gpu:h100=N(4)": of_job}
    return run


def test_each_resource_is_limited_by_the_first_qos_that_limits_it(release: str) -> None:
    run = both(release, "gres/gpu=8(2)", "gres/gpu=1(1),gres/gpu:h100=4(4)", 1)
    found = limits.limit("12", "QOSGrpGRES", "eve", "ml-gpu", run)
    assert found is not None
    assert "QoS long allows all of its jobs together at most 4 GPUs of type h100" in found.says


def test_the_qos_of_the_partition_counts_the_jobs_there(release: str) -> None:
    run = both(release, "gres/gpu=8(8)", "gres/gpu=4(4)", 1)
    found = limits.limit("12", "QOSGrpGRES", "eve", "ml-gpu", run)
    assert found == Limit(
        "The limit: QoS gpu-nodes of partition ml-gpu allows all of its jobs together at most 8 "
        "GPUs, in use: 8, and this job asks for 1",
        "wait until others end (squeue --partition=ml-gpu lists them), or ask for less, or use "
        "another partition (--partition)",
    )


def test_a_qos_with_overpartqos_goes_first(release: str) -> None:
    run = both(release, "gres/gpu=8(8)", "gres/gpu=4(4)", 1)
    run.flags = "OverPartQOS"
    found = limits.limit("12", "QOSGrpGRES", "eve", "ml-gpu", run)
    assert found is not None
    assert "QoS long allows all of its jobs together at most 4 GPUs" in found.says


def test_of_several_partitions_the_one_without_room_is_told(release: str) -> None:
    run = both(release, "gres/gpu=8(8)", "gres/gpu=4(2)", 1)
    run.partitions = {"ml-cpu": "QoS=N/A", **run.partitions}
    found = limits.limit("12", "QOSGrpGRES", "eve", "ml-cpu,ml-gpu", run)
    assert found is not None
    assert "QoS gpu-nodes of partition ml-gpu allows" in found.says


# -- limits of partitions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "says", "remedy"),
    [
        (
            "PartitionTimeLimit",
            "allows a job at most 1-00:00:00, and this job asks for 2-00:00:00",
            "scontrol update jobid=JOB timelimit=1-00:00:00",
        ),
        (
            "PartitionNodeLimit",
            "allows a job at most 2 nodes, and this job asks for 3 nodes",
            "scontrol update jobid=JOB numnodes=2",
        ),
        (
            "MaxMemPerLimit",
            "allows a job at most 4.88 GiB of memory for each CPU, and this job asks for 20.00 GiB",
            "scancel JOB, and ask for less memory (--mem)",
        ),
    ],
)
def test_a_limit_of_the_partition_is_told_with_its_value(release, reason, says, remedy) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.partitions["ml-gpu"] += (
        " MaxNodes=2 MaxTime=1-00:00:00 MinNodes=1 TotalNodes=4 MaxMemPerCPU=5000"
    )
    run.asks("2-00:00:00", "cpu=3,mem=60G,node=3,billing=24")
    found = limits.limit("12", reason, "eve", "ml-gpu", run)
    assert found == Limit(
        f"The limit: partition ml-gpu {says}", f"{remedy}, or another partition (--partition)"
    )
    run.asks("01:00:00", "cpu=2,mem=1G,node=1")
    assert limits.limit("12", reason, "eve", "ml-gpu", run) is None


@pytest.mark.parametrize("reason", ["Priority", "Resources", "None", "AssocGrpEnergy", "QOSMinCpu"])
def test_where_there_is_no_limit_none_is_told(ask, reason: str) -> None:
    assert ask(reason) is None


def test_where_slurm_does_not_say_it_none_is_told(release: str) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.fails = True
    assert limits.limit("12", "AssocGrpGRES", "eve", "ml-gpu", run) is None
    assert run.asked


@pytest.mark.parametrize(
    ("reason", "number", "words"),
    [
        ("AssocMaxJobsLimit", 1, "1 job that runs"),
        ("AssocMaxJobsLimit", 2, "2 jobs that run"),
        ("QOSMaxSubmitJobPerUserLimit", 1, "1 job in the queue"),
    ],
)
def test_of_one_job_it_speaks_of_one(reason: str, number: int, words: str) -> None:
    assert limits._words(limits.named(reason), "", number) == words
