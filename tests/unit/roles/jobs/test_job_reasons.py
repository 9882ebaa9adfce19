"""Each reason for which a job can wait is told in words."""

from pathlib import Path

import jobs_library  # noqa: F401 (makes muster_jobs importable)
import pytest
from muster_jobs.reasons import WORDS, words

FOLDER = Path(__file__).parent
# All that SLURM 21.08 to 25.11 can say, and what its page of reasons names.
REASONS = (FOLDER / "reasons.txt").read_text(encoding="utf-8").split()


def test_the_list_is_long() -> None:
    assert len(REASONS) > 200


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_has_words_and_a_remedy(reason: str) -> None:
    why, remedy = words(reason)
    assert why and remedy
    assert not why.startswith("SLURM says")
    assert reason not in why


def test_no_words_are_for_a_reason_that_slurm_does_not_have() -> None:
    assert {name for name in WORDS if " " not in name} - {*REASONS, "InvalidReason"} == set()


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("AssocGrpGRES", "the jobs of its account have together what they may have: GPUs"),
        ("AssocGrpCPURunMinutesLimit", "CPUs times minutes that running jobs have left"),
        ("AssocMaxWallDurationPerJobLimit", "it asks for more than its account allows a job: time"),
        ("QOSMaxMemoryPerNode", "it asks for more than its QOS allows each node: memory"),
        ("QOSMaxJobsPerUserLimit", "the jobs of its owner have what its QOS allows them: jobs"),
        ("AssocMaxSubmitJobLimit", "the jobs of its owner have what its account allows them"),
        ("MaxCpuPerAccount", "the jobs of its account have what its QOS allows them: CPUs"),
        ("MaxNodeRunMinsPerUser", "nodes times minutes that running jobs have left"),
        ("QOSMinGRES", "it asks for less than its QOS wants: GPUs"),
    ],
)
def test_a_limit_is_told_by_its_parts(reason: str, why: str) -> None:
    assert why in words(reason)[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:lab-gpu-02", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, May be reserved for other job", "ReqNodeNotAvail"),
        ("(Resources)", "Resources"),
        ("launch_failed_requeued_held", "launch failed requeued held"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
            "partitions",
            "Nodes required for job are",
        ),
    ],
)
def test_texts_are_known_by_their_beginning(text: str, name: str) -> None:
    assert words(text) == WORDS[name]


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert words("Wombat")[0] == "SLURM says: Wombat"
    assert words("PriorityOfWombats")[0] == "SLURM says: PriorityOfWombats"
