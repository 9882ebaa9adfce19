"""The lab for ten people of docs/limits.md: who is refused, who waits, who goes first.

The nodes are emulated (emulation.py), accounting is real (accounted.py).
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from accounted import (
    accounted,
    change_accounts,
    for_release,
    lab_of_page,
    set_accounts,
    with_limits,
    without_slurmdbd,
)
from ansible_collections.muster.slurm.plugins.module_utils.reservation_plan import (
    MINUTES,
    commands,
    parse,
    wanted,
)
from ansible_collections.muster.slurm.plugins.modules import cluster_report
from documentation import ROOT, Page, merged
from emulation import Emulation, wait_for

from muster.definition import Definition
from muster.render.reservations import FOR_ADMINISTRATORS
from muster.render.verify_jobs import verify_jobs
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import MachineError, as_root, podman

pytestmark = pytest.mark.proof("a minute for each release until its daemons run, and jobs wait")

GPUS = ["--partition=ml-gpu", "--mem-per-gpu=1G", "--cpus-per-gpu=1", "--output=/dev/null"]
"""Options of jobs with GPUs: so little else that GPUs alone decide."""


class TenPeople:
    """The lab of the page, with its ten people."""

    def __init__(self, emulation: Emulation, definition: Definition) -> None:
        self.emulation, self.definition = emulation, definition

    def run(self, *words: str) -> str:
        return self.emulation.run(*words).strip()

    def as_user(self, login: str, *words: str) -> str:
        user = ["setpriv", f"--reuid={login}", f"--regid={login}", "--init-groups"]
        return self.run(*user, "env", f"--chdir=/home/{login}", *words)

    def submit(self, login: str, *options: str, script: str = "sleep 600") -> str:
        return self.as_user(login, "sbatch", "--parsable", *options, "--wrap", script)

    def refusal(self, login: str, *options: str) -> str:
        """Submit a job that must be refused; return what sbatch says."""
        with pytest.raises(MachineError) as refused:
            self.cancel(self.submit(login, *options))
        return str(refused.value)

    def state(self, job: str) -> str:
        """State and reason of a job, as squeue shows them."""
        return self.run("squeue", "--noheader", f"--jobs={job}", "--format=%T %r")

    def waits_for(self, job: str, *words: str) -> None:
        """Wait until the job has one of these states, with its reason."""
        wait_for(lambda: self.state(job) in words, lambda: self.run("squeue", "--long"))

    def runs(self, job: str) -> None:
        self.waits_for(job, "RUNNING None")

    def cancel(self, *jobs: str) -> None:
        self.run("scancel", *jobs)

    def empty(self) -> None:
        """Cancel all jobs and wait until they have ended."""
        self.run("sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
        wait_for(lambda: not self.run("squeue", "--noheader"), lambda: self.run("squeue", "--long"))

    def limits(self) -> list[str]:
        """Return the limits that slurmctld has, without what is used of them."""
        shown = self.run("scontrol", "--oneliner", "show", "assoc_mgr", "flags=assoc,qos")
        # Those of each user and account in a QoS are shown only where there were jobs.
        shown = re.sub(r"\S+=\{[^}]*\}|\([^)]*\)", "", shown)
        return re.findall(r"\b(?:(?:Grp|Max)\w+|Priority)=\S*", shown)

    @contextmanager
    def limited(self, more: Mapping[str, Any]) -> Iterator[None]:
        """Set limits on the cluster; at the end no job is left, and limits are what they were."""
        shown = self.limits()
        # In the same command, so that each change shows.
        priorities = {
            name: {"priority": self.definition.cluster.qos[name].priority + 1}
            for name in more.get("qos", {})
        }
        narrow = with_limits(self.definition, merged(more, {"qos": priorities}))
        try:
            change_accounts(self.emulation, self.definition, narrow, self.limits)
            yield
        finally:
            self.empty()
            change_accounts(self.emulation, narrow, self.definition, self.limits)
            assert self.limits() == shown


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def daemons(request, tmp_path_factory) -> Iterator[TenPeople]:
    page = lab_of_page("docs/limits.md", tmp_path_factory.mktemp("page"))
    definition = for_release(page, request.param, {})
    with accounted("muster-priority", request.param, definition) as emulation:
        for path in ("bin/muster-job", "lib/muster/muster_jobs"):
            podman(
                *("cp", str(ROOT / "roles/jobs/files/usr/local" / path)),
                f"{emulation.name}:/usr/local/{path}",
            )
        yield TenPeople(emulation, definition)


@pytest.fixture
def lab(daemons: TenPeople) -> Iterator[TenPeople]:
    yield daemons
    daemons.empty()


REFUSED = {
    "longer than its QoS": (
        ["bob", "--qos=interactive", "--gpus=1", "--time=05:00:00"],
        "QoS interactive allows a job at most 04:00:00 (MaxWall), and this one asks for 05:00:00: "
        "ask for --time=04:00:00, or for another QoS or account that allows it\n"
        "sbatch: error: QOSMaxWallDurationPerJobLimit",
        ["bob", "--qos=interactive", "--gpus=1", "--time=04:00:00"],
    ),
    "more GPUs than a user may have": (
        ["bob", "--qos=interactive", "--gpus=2"],
        "QoS interactive allows the jobs of a user together at most 1 GPUs (MaxTRESPerUser), and "
        "this job asks for 2: ask for less, or for another QoS or account that allows it\n"
        "sbatch: error: QOSMaxGRESPerUser",
        ["bob", "--qos=normal", "--gpus=2"],
    ),
    "no GPU on nodes with GPUs": (
        ["bob"],
        "QoS gpu-nodes takes only jobs with 1 or more GPUs (MinTRESPerJob), and this one asks for "
        "none: add --gpus=1, or use another partition or QoS\nsbatch: error: QOSMinGRES",
        ["bob", "--gpus=1"],
    ),
    "more than the account may have": (
        ["finn", "--qos=scavenger", "--gpus=7"],
        "account students allows all of its jobs together at most 6 GPUs (GrpTRES), and this job "
        "asks for 7: ask for less, or for another QoS or account that allows it\n"
        "sbatch: error: AssocGrpGRES",
        ["ada", "--qos=scavenger", "--gpus=7"],
    ),
    "more GPU minutes ahead than the account may have": (
        ["finn", "--qos=scavenger", "--gpus=4", "--time=4-00:00:00"],
        "account students allows all of its jobs together at most 17280 minutes of GPUs "
        "(GrpTRESRunMins), and this job asks for 23040 (4 for 4-00:00:00): ask for less time or "
        "fewer GPUs\nsbatch: error: AssocGrpGRESRunMinutes",
        ["finn", "--qos=scavenger", "--gpus=4", "--time=3-00:00:00"],
    ),
    "an account of others": (
        ["bob", "--gpus=1", "--account=students"],
        "Invalid account",
        ["finn", "--gpus=1", "--account=students"],
    ),
    "a QoS that is not there": (
        ["bob", "--gpus=1", "--qos=nosuch"],
        "Invalid qos",
        ["bob", "--gpus=1", "--qos=long"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_limit_refuses_one_job_and_takes_its_neighbour(lab, case):
    (login, *options), message, (neighbour, *others) = REFUSED[case]
    # sbatch itself refuses shares of GPUs for a job without GPUs.
    shares = GPUS if any("--gpus" in option for option in options) else GPUS[:1]
    assert message in lab.refusal(login, *shares, "--hold", *options)
    assert lab.submit(neighbour, *GPUS, "--hold", *others).isdigit()


def test_limits_of_an_account_are_not_told_to_others(lab):
    beyond = [*GPUS, "--hold", "--gpus=7", "--qos=scavenger"]
    assert "account students allows" in lab.refusal("finn", *beyond)
    refusal = lab.refusal("bob", *beyond, "--account=students")
    assert "Invalid account" in refusal
    assert "allows" not in refusal


@pytest.mark.parametrize(
    ("login", "line", "sees"), Page(ROOT / "docs/limits.md").table("who", "types", "sees")
)
def test_each_line_of_the_page_does_what_the_page_says(lab, login, line, sees):
    lab.run("sh", "-c", f"printf '#!/bin/sh\nsleep 600\n' >/home/{login}/job.sh")
    line = line.replace("sbatch ", "sbatch --parsable --output=/dev/null ")
    if sees.startswith("it runs"):
        lab.runs(lab.as_user(login, "sh", "-c", line))
        return
    told = sees.partition("taken, and told: `")[2]
    if told:
        assert told in lab.as_user(login, "sh", "-c", line)
        return
    with pytest.raises(MachineError) as refused:
        lab.as_user(login, "sh", "-c", line)
    assert sees in str(refused.value)


def test_a_job_that_asks_for_no_time_has_that_of_its_partition_and_not_of_its_qos(lab):
    job = lab.submit("bob", *GPUS, "--hold", "--gpus=1")
    assert lab.run("squeue", "--noheader", f"--jobs={job}", "--format=%l").strip() == "4:00:00"


def test_without_a_default_time_a_max_wall_above_max_time_refuses_the_job_and_is_told(lab):
    lab.run("scontrol", "create", "PartitionName=brief", "Nodes=ALL", "MaxTime=60")
    brief = ["bob", "--partition=brief", "--output=/dev/null", "--hold"]
    try:
        refusal = lab.refusal(*brief)
        assert (
            "partition brief allows a job at most 01:00:00 (MaxTime), and this one asks for none "
            "and has 1-00:00:00 of QoS normal: ask for --time=01:00:00\n"
        ) in refusal
        assert "Requested partition configuration not available now" in refusal
        assert lab.submit(*brief, "--time=01:00:00").isdigit()
    finally:
        lab.empty()
        lab.run("scontrol", "delete", "PartitionName=brief")


def test_more_jobs_than_a_user_may_have_are_refused(lab):
    one = [*GPUS, "--hold", "--qos=interactive", "--gpus=1"]
    for _ in range(2):
        lab.submit("cleo", *one)
    assert "QOSMaxSubmitJobPerUserLimit" in lab.refusal("cleo", *one)
    assert lab.submit("dan", *one).isdigit()


HELD = {
    "GPUs of a user in a QoS": (
        [["bob", "--gpus=4"]],
        ["bob", "--gpus=1"],
        "PENDING QOSMaxGRESPerUser",
        ["cleo", "--gpus=1"],
        "QoS normal allows the jobs of bob together at most 4 GPUs, in use: 4",
    ),
    "GPUs of an account": (
        [["finn", "--gpus=4"], ["gil", "--gpus=2"]],
        ["hana", "--gpus=1"],
        "PENDING AssocGrpGRES",
        ["ada", "--gpus=1"],
        "account students allows all of its jobs together at most 6 GPUs, in use: 6",
    ),
    "GPUs of a QoS": (
        [["ada", "--qos=long", "--gpus=2"], ["bob", "--qos=long", "--gpus=2"]],
        ["cleo", "--qos=long", "--gpus=1"],
        "PENDING QOSGrpGRES",
        ["cleo", "--gpus=1"],
        "QoS long allows all of its jobs together at most 4 GPUs, in use: 4",
    ),
    "running jobs of a user": (
        [["eve", "--gpus=1", "--qos=scavenger"]] * 4,
        ["eve", "--gpus=1", "--qos=scavenger"],
        "PENDING AssocMaxJobsLimit",
        ["finn", "--gpus=1", "--qos=scavenger"],
        "eve in account students allows the jobs of eve together at most 4 jobs that run, "
        "in use: 4",
    ),
    "GPU minutes ahead of an account": (
        [["finn", "--gpus=4", "--qos=scavenger", "--time=2-12:00:00"]],
        ["gil", "--gpus=1", "--qos=scavenger", "--time=3-00:00:00"],
        "PENDING AssocGrpGRESRunMinutes",
        ["gil", "--gpus=1", "--qos=scavenger", "--time=12:00:00"],
        "account students allows all of its jobs together at most 17280 GPU minutes ahead "
        "(what running jobs may still use), in use: 15",
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_a_limit_lets_one_job_wait_and_its_neighbour_run(lab, case):
    before, (login, *options), state, (neighbour, *others), said = HELD[case]
    for user, *asked in before:
        lab.runs(lab.submit(user, *GPUS, *asked))
    waits = lab.submit(login, *GPUS, *options)
    runs = lab.submit(neighbour, *GPUS, *others)
    lab.runs(runs)
    lab.waits_for(waits, state)
    assert f"The limit: {said}" in lab.as_user(login, "muster-job", waits)


SET_AND_REFUSED = {
    # A QoS that limits the same goes before accounts.
    "max_wall of an account": (
        {
            "accounts": {"students": {"max_wall": "01:00:00"}},
            "qos": {"scavenger": {"max_wall": None}},
        },
        [],
        ["finn", "--gpus=1", "--qos=scavenger", "--time=02:00:00"],
        "AssocMaxWallDurationPerJobLimit",
        ["finn", "--gpus=1", "--qos=scavenger", "--time=01:00:00"],
    ),
    "max_submit_jobs of a user": (
        {"accounts": {"students": {"associations": {"eve": {"max_submit_jobs": 1}}}}},
        [["eve", "--gpus=1"]],
        ["eve", "--gpus=1"],
        "AssocMaxSubmitJobLimit",
        ["finn", "--gpus=1"],
    ),
    "max_tres_per_job of a user": (
        {"accounts": {"students": {"associations": {"eve": {"max_tres_per_job": {"gpu": 1}}}}}},
        [],
        ["eve", "--gpus=2"],
        "AssocMaxGRESPerJob",
        ["eve", "--gpus=1"],
    ),
    "max_tres_per_node of a user": (
        {"accounts": {"students": {"associations": {"eve": {"max_tres_per_node": {"gpu": 1}}}}}},
        [],
        ["eve", "--gpus=2", "--nodes=1"],
        "AssocMaxGRESPerNode",
        ["eve", "--gpus=1", "--nodes=1"],
    ),
    "grp_submit_jobs of an account": (
        {"accounts": {"students": {"grp_submit_jobs": 1}}},
        [["finn", "--gpus=1"]],
        ["gil", "--gpus=1"],
        "AssocGrpSubmitJobsLimit",
        ["bob", "--gpus=1"],
    ),
    "max_tres_per_job of a QoS": (
        {"qos": {"normal": {"max_tres_per_job": {"gpu": 2}}}},
        [],
        ["bob", "--gpus=3"],
        "QOSMaxGRESPerJob",
        ["bob", "--gpus=2"],
    ),
    "max_tres_per_node of a QoS": (
        {"qos": {"normal": {"max_tres_per_node": {"gpu": 1}}}},
        [],
        ["bob", "--gpus=2", "--nodes=1"],
        "QOSMaxGRESPerNode",
        ["bob", "--gpus=1", "--nodes=1"],
    ),
    "grp_submit_jobs of a QoS": (
        {"qos": {"normal": {"grp_submit_jobs": 1}}},
        [["bob", "--gpus=1"]],
        ["cleo", "--gpus=1"],
        "QOSGrpSubmitJobsLimit",
        ["cleo", "--gpus=1", "--qos=long"],
    ),
    "max_submit_jobs_per_account of a QoS": (
        {"qos": {"normal": {"max_submit_jobs_per_account": 1}}},
        [["bob", "--gpus=1"]],
        ["cleo", "--gpus=1"],
        "MaxSubmitJobsPerAccount",
        ["finn", "--gpus=1"],
    ),
}
"""Limits that the page's definition has not: what is set, jobs that are there, one that is refused,
what sbatch says, one that runs."""


@pytest.mark.parametrize("case", SET_AND_REFUSED)
def test_a_limit_that_is_set_refuses_one_job_and_its_neighbour_runs(lab, case):
    limits, before, (login, *options), reason, (neighbour, *others) = SET_AND_REFUSED[case]
    with lab.limited(limits):
        for user, *asked in before:
            lab.submit(user, *GPUS, "--hold", *asked)
        assert f"sbatch: error: {reason}" in lab.refusal(login, *GPUS, "--hold", *options)
        lab.runs(lab.submit(neighbour, *GPUS, *others))


SET_AND_HELD = {
    "grp_jobs of an account": (
        {"accounts": {"students": {"grp_jobs": 1}}},
        ["finn", "--gpus=1"],
        ["gil", "--gpus=1"],
        "PENDING AssocGrpJobsLimit",
        ["bob", "--gpus=1"],
    ),
    "max_tres_per_account of a QoS": (
        {"qos": {"normal": {"max_tres_per_account": {"gpu": 2}}}},
        ["bob", "--gpus=2"],
        ["cleo", "--gpus=1"],
        "PENDING MaxGRESPerAccount",
        ["finn", "--gpus=1"],
    ),
    "grp_tres_run_mins of a QoS": (
        {"qos": {"normal": {"grp_tres_run_mins": {"gpu": 60}}}},
        ["bob", "--gpus=1", "--time=01:00:00"],
        ["cleo", "--gpus=1", "--time=01:00:00"],
        "PENDING QOSGrpGRESRunMinutes",
        ["cleo", "--gpus=1", "--time=01:00:00", "--qos=long"],
    ),
    "grp_jobs of a QoS": (
        {"qos": {"normal": {"grp_jobs": 1}}},
        ["bob", "--gpus=1"],
        ["cleo", "--gpus=1"],
        "PENDING QOSGrpJobsLimit",
        ["cleo", "--gpus=1", "--qos=long"],
    ),
    "max_jobs_per_user of a QoS": (
        {"qos": {"normal": {"max_jobs_per_user": 1}}},
        ["bob", "--gpus=1"],
        ["bob", "--gpus=1"],
        "PENDING QOSMaxJobsPerUserLimit",
        ["cleo", "--gpus=1"],
    ),
    "max_jobs_per_account of a QoS": (
        {"qos": {"normal": {"max_jobs_per_account": 1}}},
        ["bob", "--gpus=1"],
        ["cleo", "--gpus=1"],
        "PENDING MaxJobsPerAccount",
        ["finn", "--gpus=1"],
    ),
}
"""The same for jobs that wait, behind one that runs."""


@pytest.mark.parametrize("case", SET_AND_HELD)
def test_a_limit_that_is_set_lets_one_job_wait_and_its_neighbour_run(lab, case):
    limits, (first, *asked), (login, *options), state, (neighbour, *others) = SET_AND_HELD[case]
    with lab.limited(limits):
        lab.runs(lab.submit(first, *GPUS, *asked))
        waits = lab.submit(login, *GPUS, *options)
        lab.runs(lab.submit(neighbour, *GPUS, *others))
        lab.waits_for(waits, state)


@pytest.mark.parametrize("limit", ["AllowQos=normal", "DenyQos=long"])
def test_a_partition_refuses_a_qos_and_takes_another(lab, limit):
    lab.run("scontrol", "create", "PartitionName=choosy", "Nodes=lab-cpu-01", limit)
    choosy = ["--partition=choosy", "--mem=1G", "--time=10", "--output=/dev/null"]
    try:
        assert "Invalid qos" in lab.refusal("bob", *choosy, "--qos=long")
        lab.runs(lab.submit("bob", *choosy, "--qos=normal"))
    finally:
        lab.empty()
        lab.run("scontrol", "delete", "PartitionName=choosy")


def test_limits_hold_while_slurmdbd_is_away_and_it_hears_of_the_jobs_later(lab):
    with without_slurmdbd(lab.emulation):
        assert "sbatch: error: QOSMaxGRESPerUser" in lab.refusal("bob", *GPUS, "--gpus=5")
        lab.runs(lab.submit("bob", *GPUS, "--gpus=4"))
        waits = lab.submit("bob", *GPUS, "--gpus=1")
        runs = lab.submit("cleo", *GPUS, "--gpus=1")
        lab.runs(runs)
        lab.waits_for(waits, "PENDING QOSMaxGRESPerUser")
    accounting = ["sacct", "--noheader", "--allocations", f"--jobs={runs}", "--format=state"]
    wait_for(lambda: lab.run(*accounting).strip() == "RUNNING", lambda: lab.run(*accounting))


def test_the_priority_of_a_waiting_job_is_told_by_its_parts(lab):
    for _ in range(2):
        lab.runs(lab.submit("ada", *GPUS, "--qos=scavenger", "--gpus=4"))
    # Jobs in scavenger do not give way to each other.
    waits = lab.submit("bob", *GPUS, "--qos=scavenger", "--gpus=4", "--nice=100")
    lab.waits_for(waits, "PENDING Resources")
    said = lab.as_user("bob", "muster-job", waits)
    assert re.search(
        r"Its priority is \d+: \d+ of 100000 for fairshare .*, \d+ of 10000 for the time that it "
        r"has waited, 0 of 50000 for its QoS, less 100 by --nice",
        " ".join(said.split()),
    )


def allocated(lab: TenPeople, *options: str) -> tuple[int, int]:
    """Return nodes and CPUs that a job of ada gets."""
    job = lab.submit("ada", "--output=/dev/null", *options)
    lab.runs(job)
    told = lab.run("squeue", "--noheader", f"--jobs={job}", "--format=%D %C").split()
    lab.cancel(job)
    return int(told[0]), int(told[1])


def test_memory_brings_cpus_and_tasks_stay_with_their_gpu(lab):
    """What docs/limits.md says of MaxMemPerCPU and DefCpuPerGPU: 48 CPUs, 12 for each GPU."""
    assert allocated(lab, "--partition=ml-cpu", "--mem=0") == (1, 24)
    assert allocated(lab, "--partition=ml-cpu", "--mem=20G") == (1, 4)
    gpu = ["--partition=ml-gpu", "--gpus=1"]
    assert allocated(lab, *gpu) == (1, 12)
    assert allocated(lab, *gpu, "--mem=0") == (1, 24)
    assert allocated(lab, *gpu, "--cpus-per-task=4") == (1, 4)
    # 24.11 takes DefCpuPerGPU for the most that a GPU may have, 22.05 for the least.
    spread = {"bookworm": (1, 16), "trixie": (2, 24)}[lab.emulation.release]
    assert allocated(lab, *gpu, "--ntasks=16") == spread
    for together in ("--nodes=1", "--cpus-per-task=1"):
        assert allocated(lab, *gpu, "--ntasks=16", together) == (1, 16)


def has_a_long_training(lab, folder: Path) -> None:
    """Put examples/train into gil's home, with more epochs than end while a test looks."""
    text = (ROOT / "examples/train/train.py").read_text()
    longer = text.replace("default=1000)", "default=1000000)")
    assert longer != text
    (folder / "train.py").write_text(longer)
    for program in (ROOT / "examples/train/train.sbatch", folder / "train.py"):
        podman("cp", str(program), f"{lab.emulation.name}:/home/gil")


def test_a_student_takes_everything_and_a_deadline_goes_first(lab, tmp_path):
    """The day of the page: what is free is taken, and given back with notice, without loss."""
    has_a_long_training(lab, tmp_path)
    # 48 CPUs of each of two nodes, all memory: the training of gil, and what eve has of the rest.
    training = lab.as_user(
        *("gil", "sbatch", "--parsable", "--qos=scavenger", "--account=students"),
        *("--nodelist=lab-cpu-01", "--exclusive", "--mem=0", "train.sbatch"),
    )
    lab.runs(training)
    trained = ["cat", f"/home/gil/train-{training}.out"]
    wait_for(lambda: "epochs are done" in lab.run(*trained), lambda: lab.run(*trained))
    time.sleep(2)
    everything = [
        lab.submit("eve", *GPUS, "--qos=scavenger", "--gpus=2", "--signal=B:USR1@60")
        for _ in range(3)
    ]
    for job in everything:
        lab.runs(job)
    # jo's deadline: both kinds of nodes.
    urgent = lab.submit(
        *("jo", "--partition=ml-cpu", "--nodelist=lab-cpu-01", "--exclusive", "--mem=0"),
        "--output=/dev/null",
    )
    # Long before grace_seconds are over: the script heard of it, saved, and gave way.
    lab.runs(urgent)
    assert "which are saved" in lab.run(*trained)
    assert lab.state(training).startswith("PENDING")
    assert re.search(r"Restarts=1\b", lab.run("scontrol", "show", "job", training))
    lab.cancel(urgent)
    # A job that was queued again waits for two minutes; an administrator need not.
    lab.run("scontrol", "update", f"JobId={training}", "StartTime=now")
    wait_for(lambda: lab.run(*trained).count("epochs are done") >= 2, lambda: lab.run(*trained))
    starts = re.findall(r"(\d+) of 1000000 epochs are done", lab.run(*trained))
    assert int(starts[-1]) > 0


def test_a_student_and_a_deadline_see_what_the_page_says(lab, tmp_path):
    has_a_long_training(lab, tmp_path)
    lab.run("sh", "-c", "printf '#!/bin/sh\nsleep 600\n' >/home/jo/job.sh")
    table = Page(ROOT / "docs/limits.md").table("who", "types, one after the other", "sees")
    jobs: dict[str, str] = {}
    for login, line, sees in table:
        if line == "muster-job JOB":
            said = [login, "muster-job", jobs[login]]
            wait_for(
                lambda said=said, sees=sees: sees in " ".join(lab.as_user(*said).split()),
                lambda said=said: lab.as_user(*said),
            )
            continue
        sbatch = line.replace("sbatch ", "sbatch --parsable ", 1)
        jobs[login] = lab.as_user(login, "sh", "-c", sbatch)
        if sees.startswith("it runs"):
            lab.runs(jobs[login])
        if login == "gil":
            # From its first epoch on it hears signals.
            trained = ["cat", f"/home/gil/train-{jobs[login]}.out"]
            wait_for(
                lambda trained=trained: "epochs are done" in lab.run(*trained),
                lambda trained=trained: lab.run(*trained),
            )
    assert re.search(r"Restarts=1\b", lab.run("scontrol", "show", "job", jobs["gil"]))


def test_a_limit_that_is_changed_under_running_jobs_ends_none(lab):
    jobs = [lab.submit("eve", *GPUS, "--qos=scavenger", "--gpus=1") for _ in range(4)]
    for job in jobs:
        lab.runs(job)
    changed = with_limits(
        lab.definition,
        {
            "accounts": {
                "students": {"grp_tres": {"gpu": 1}, "associations": {"eve": {"max_jobs": 1}}}
            }
        },
    )
    set_accounts(lab.emulation, changed)
    try:
        fifth = lab.submit("finn", *GPUS, "--qos=scavenger", "--gpus=1")
        lab.waits_for(fifth, "PENDING AssocGrpGRES")
        assert [lab.state(job) for job in jobs] == ["RUNNING None"] * 4
    finally:
        set_accounts(lab.emulation, lab.definition)
    lab.runs(fifth)


def test_a_reservation_is_for_its_people_and_can_be_changed(lab):
    def now() -> datetime:
        return datetime.fromisoformat(lab.run("date", "+%Y-%m-%dT%H:%M:%S"))

    def bring(options) -> list[list[str]]:
        """Do what is missing for a reservation; return what is still missing then."""
        wish = wanted(options, now())
        there = {one.name: one for one in parse(reservations())}
        for words in commands(there.get(wish.name), wish, now()):
            lab.run("scontrol", *words)
        there = {one.name: one for one in parse(reservations())}
        return commands(there.get(wish.name), wish, now())

    def reservations() -> str:
        return lab.run("scontrol", "--oneliner", "show", "reservation")

    deadline = {
        "name": "deadline",
        "start": now().strftime(MINUTES),
        "minutes": 60,
        "repeat": None,
        "partition": "ml-gpu",
        "node_count": None,
        "accounts": [],
        "users": ["jo"],
        "maintenance": False,
    }
    course = deadline | {
        "name": "course",
        "start": (now() + timedelta(days=3)).strftime(MINUTES),
        "repeat": "weekly",
        "node_count": 1,
        "accounts": ["students"],
        "users": [],
    }
    # All nodes, at a time of the course.
    firmware = course | {
        "name": "firmware",
        "repeat": None,
        "partition": None,
        "node_count": None,
        "accounts": [],
        "users": [FOR_ADMINISTRATORS],
        "maintenance": True,
    }

    def waits_for_nodes(job: str) -> None:
        wait_for(
            lambda: re.match(r"PENDING (Resources|Req|.*Reserv|Priority)", lab.state(job)),
            lambda: lab.run("squeue", "--long"),
        )

    try:
        for options in (deadline, course, firmware):
            for minutes in (60, 90):
                assert bring(options | {"minutes": minutes}) == []
        # Without --reservation.
        lab.runs(lab.submit("jo", *GPUS, "--gpus=1"))
        waits_for_nodes(lab.submit("ada", *GPUS, "--gpus=1", "--time=01:00:00"))
        # One that ends before the maintenance, and one that would last into it.
        long = ["--partition=ml-cpu", "--mem=1G", "--qos=long", "--output=/dev/null"]
        lab.runs(lab.submit("ada", *long, "--time=2-00:00:00"))
        waits_for_nodes(lab.submit("ada", *long, "--time=4-00:00:00"))
    finally:
        lab.empty()
        for name in ("deadline", "course", "firmware"):
            lab.run("sh", "-c", f"scontrol delete ReservationName={name} || :")


class OnController:
    """What the module `cluster_report` has of Ansible, on the controller."""

    def __init__(self, lab: TenPeople, definition: Definition) -> None:
        self.name = lab.emulation.name
        seconds = {"settle_seconds": 30, "answer_seconds": 60, "job_seconds": 15}
        self.params = {**seconds, "jobs": verify_jobs(definition), "accounting": True}
        self.params |= {"credentials": {}, "max_job_nodes": 64}

    def run(self, words: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(
            as_root(["podman", "exec", self.name, *words]),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


def tried(
    lab: TenPeople, definition: Definition, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[dict[str, object]]]:
    """Run the test jobs at the end of site.yml; return what came of them by partition."""
    controller = OnController(lab, definition)
    monkeypatch.setattr(cluster_report, "run", controller.run)
    cluster = cluster_report.Cluster(controller)
    return cluster.jobs(cluster.nodes([]), [])


@pytest.mark.parametrize(
    ("qos", "limits", "used"),
    [
        # All that others may have is in use: it would wait.
        ("gpu-nodes", {"grp_tres": {"gpu": 1}}, True),
        # One that no option heeds: SLURM refuses it.
        ("normal", {"max_tres_per_user": {"billing": 0}}, False),
    ],
)
def test_a_limit_that_keeps_the_test_job_from_running_is_no_failure(
    lab, qos, limits, used, monkeypatch
):
    more = {"qos": {qos: limits}}
    with lab.limited(more):
        if used:
            lab.runs(lab.submit("bob", *GPUS, "--gpus=1", "--qos=normal"))
        jobs = tried(lab, with_limits(lab.definition, more), monkeypatch)
        assert [job.get("limited") for job in jobs["ml-gpu"]] == [True], jobs
