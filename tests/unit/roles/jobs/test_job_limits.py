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


class Scontrol:
    """squeue and scontrol, which print what a file has, for a job of eve."""

    def __init__(self, release: str, account: str, qos: str, partition_qos: str) -> None:
        self.release = release
        self.job = f"{account}|{qos}\n"
        self.partition = f"PartitionName=ml-gpu AllowQos=ALL QoS={partition_qos} State=UP\n"
        self.fails = False
        self.asked: list[Sequence[str]] = []

    def __call__(
        self, command: Sequence[str], timeout: float, data: "bytes | None" = None
    ) -> SimpleNamespace:
        assert timeout > 0
        assert data is None
        self.asked.append(command)
        if "squeue" in command[0]:
            text = self.job
        elif "partition" in command:
            text = self.partition
        else:
            _, value = command[-1].split("=")
            kind = f"assoc-{value}" if "flags=assoc" in command else "qos"
            text = (FOLDER / f"{self.release}.{kind}.txt").read_text(encoding="utf-8")
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
            "wait until others end (squeue --user=eve lists them), or ask for less",
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
            "wait until others end (squeue --user=eve lists them), or ask for less, or use another "
            "QoS (--qos)",
        ),
        (
            "QOSMaxSubmitJobPerUserLimit",
            "QoS long allows the jobs of eve together at most 2 jobs in the queue, in use: 2",
            "wait until others end (squeue --user=eve lists them), or ask for less, or use another "
            "QoS (--qos)",
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
        "The limit: account students allows all of its jobs together at most 17280 minutes of "
        f"GPUs, in use: {used}"
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
    assert found.says == "The limit: QoS gpu-nodes wants a job to have at least 1 GPUs"
    assert found.remedy == "ask for 1 GPUs or more, or use another QoS (--qos)"
    # It has no limit of this, so that of the job's QoS holds.
    assert "QoS long allows all of its jobs together" in ask("QOSGrpGRES", "gpu-nodes").says


def test_an_account_with_the_name_of_a_user_is_not_that_user(ask) -> None:
    assert "at most 3 GPUs, in use: 2" in ask("MaxGRESPerAccount", account="eve").says
    assert "at most 2 GPUs" in ask("QOSMaxGRESPerUser", account="eve").says


@pytest.mark.parametrize("reason", ["Priority", "Resources", "None", "AssocGrpEnergy", "QOSMinCpu"])
def test_where_there_is_no_limit_none_is_told(ask, reason: str) -> None:
    assert ask(reason) is None


def test_where_slurm_does_not_say_it_none_is_told(release: str) -> None:
    run = Scontrol(release, "students", "long", "N/A")
    run.fails = True
    assert limits.limit("12", "AssocGrpGRES", "eve", "ml-gpu", run) is None
    assert run.asked
