"""The queue creates VMs, and gets others if the cloud preempts them or has no capacity.

The tests run in the order of the file: later ones use the nodes that earlier ones have made.
"""

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import pytest
from cloudkit import ask, controller, inside, operations, state
from waiting import until

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import Stack
from muster_sandbox.containers.podman import podman
from muster_sandbox.demo.showing import TourError

ZONE = "europe-west4-a"
WAITED_S = 5
"""From the allocation to the start of a job that waited for a VM; without one it is a second."""

RUNS_ONCE_MORE = """
echo on $(hostname), $(cat /etc/machine-id)
test -n "$SLURM_RESTART_COUNT" || sleep 600
"""
"""A job that ends only after it was queued again. It prints its machine."""


def names(stack: Stack, node_set: str, *numbers: int) -> list[str]:
    return [f"{stack.name}-{node_set}-{number}" for number in numbers]


def made(stack: Stack) -> list[str]:
    """The names of all VMs that were ever made, one entry for each creation."""
    links = [operation["targetLink"] for operation in operations(stack, "insert")]
    return [link.rpartition("/")[2] for link in links if "/instances/" in link]


def submit(stack: Stack, script: str, *options: str) -> str:
    """Submit a script; return the job's number. Its output is kept when it is queued again."""
    words = " ".join(("--parsable", "--open-mode=append", "--output=out-%j", *options))
    return tour.run(stack, f"sbatch {words} <<'end'\n#!/bin/bash\n{script}\nend\n").strip()


def completed(stack: Stack, job: str, seconds: float = 200) -> list[str]:
    """Wait until a job has ended well; return the lines that it has written.

    slurmstepd's lines are left out: they say why an earlier start was ended.
    """
    until(lambda: state(stack, job) == "COMPLETED", f"job {job} has ended", seconds)
    lines = tour.run(stack, f"cat out-{job}").splitlines()
    return [line for line in lines if not line.startswith("slurmstepd")]


def node_of(stack: Stack, job: str) -> str:
    """Wait until a job runs; return its node."""
    until(lambda: state(stack, job) == "RUNNING", f"job {job} runs", 200)
    return tour.run(stack, f"squeue -h -o %N -j {job}").strip()


def reason(stack: Stack, node: str) -> str:
    """SLURM's reason why a node is out of service."""
    shown = tour.run(stack, f"scontrol show node {node}")
    match = re.search(r"Reason=(.*)", shown)
    return match[1] if match else ""


def off(stack: Stack, partition: str) -> list[str]:
    """The nodes of a partition that are powered down."""
    shown = tour.run(stack, f"sinfo -hNp {partition} -o '%N %t'")
    return [name for name, state in map(str.split, shown.splitlines()) if state == "idle~"]


def room(stack: Stack, **most: int) -> None:
    """Set the zone's capacity for a machine type, existing VMs included.

    Only for types of the set `spot`: debug's nodes may be deleted at any time and free capacity.
    """

    def limit(cloud: object) -> None:
        for machine_type, count in most.items():
            cloud.settings.capacity[ZONE, machine_type.replace("_", "-")] = count  # type: ignore[attr-defined]

    stack.server.do(limit)


def waits_at_the_gate(stack: Stack) -> list[float]:
    """Seconds from the allocation of each job until slurmctld started it as its prolog ended.

    A job that slurmctld's own pass starts, which comes every 30 s, is not among them.
    """
    allocated: dict[str, datetime] = {}
    waits = []
    log = inside(stack, controller(stack), "cat", "/var/log/slurm/slurmctld.log")
    for line in log.splitlines():
        if match := re.match(r"\[(\S+)\] .*(?:Allocate|Started) JobId=(\S+) ", line):
            allocated[match[2]] = datetime.fromisoformat(match[1])
        elif match := re.match(
            r"\[(\S+)\] prolog_running_decr: Configuration for JobId=(\S+) is complete", line
        ):
            waited = datetime.fromisoformat(match[1]) - allocated[match[2]]
            waits.append(waited.total_seconds())
    return waits


@pytest.fixture
def scarcity(stack: Stack):
    """Restore the capacity after the test."""
    yield
    stack.server.do(lambda cloud: cloud.settings.capacity.clear())


def test_job_configures_its_nodes_and_runs_on_them(first_up: str, stack: Stack) -> None:
    tour.logged_in(stack)
    asked = len(operations(stack, "bulkInsert"))
    shown = tour.job(stack)
    assert tour.nodes(stack) == names(stack, "debug", 0, 1, 2, 3)
    assert all(f"\n{node}\n" in shown for node in tour.nodes(stack))
    # All of them by one call.
    assert len(operations(stack, "bulkInsert")) == asked + 1
    tour.accounting(stack)


def test_array_spreads_over_nodes_that_are_there_and_new_ones(first_up: str, stack: Stack) -> None:
    # Each task waits for the others: there must be six nodes at the same time.
    script = """
    touch begun-$SLURM_ARRAY_JOB_ID-$(hostname)
    for _ in $(seq 400); do
      test $(ls begun-$SLURM_ARRAY_JOB_ID-* | wc -l) = 6 && exit 0
      sleep 0.5
    done
    exit 1
    """
    there = tour.nodes(stack)
    job = submit(stack, script, "--array=1-6", "--exclusive")
    done = ["COMPLETED"] * 6
    until(lambda: state(stack, job).split() == done, "all tasks have ended", 200)
    new = set(tour.nodes(stack)) - set(there)
    assert new
    assert len(made(stack)) == len(set(made(stack)))
    # Of the jobs until now, one or the other may be started by slurmctld's own pass.
    assert max(waits_at_the_gate(stack)) > WAITED_S


def test_two_nodes_of_a_job_come_from_where_there_is_room_for_both(
    first_up: str, stack: Stack, scarcity: None
) -> None:
    room(stack, n2_standard_2=1)
    shown = tour.run(stack, "srun --partition=spot --nodes=2 hostname")
    assert sorted(shown.split()) == names(stack, "spot", 0, 1)
    machine_types = {
        name: vm["machineType"].rpartition("/")[2] for name, vm in stack.instances().items()
    }
    assert {machine_types[name] for name in names(stack, "spot", 0, 1)} == {"n2d-standard-2"}
    # The one VM for which there was capacity is not left over.
    assert sum(name.startswith(f"{stack.name}-spot-") for name in machine_types) == 2


class Lost(NamedTuple):
    """A job whose node was lost."""

    job: str
    node: str
    vm: str
    """The id of its VM: another one may get the same name."""
    known_s: float
    """Seconds until SLURM took the node out of service."""


def lose(stack: Stack, how: Callable[[str], object], seconds: float, *options: str) -> Lost:
    """Run a job, and remove its node."""
    job = submit(stack, RUNS_ONCE_MORE, *options)
    node = node_of(stack, job)
    vm = stack.instances()[node]["id"]
    # It is RUNNING before its script is.
    until(lambda: node in tour.run(stack, f"cat out-{job} || true"), f"job {job} says its machine")
    how(node)
    begun = time.monotonic()
    until(lambda: reason(stack, node).startswith("muster: "), f"the end of {node}", seconds)
    return Lost(job, node, vm, time.monotonic() - begun)


def ids(stack: Stack) -> set[str]:
    return {vm["id"] for vm in stack.instances().values()}


@pytest.fixture(scope="module")
def preempted(first_up: str, stack: Stack) -> Lost:
    """A job whose spot VM is preempted."""
    notice = "simulateMaintenanceEvent"
    return lose(stack, lambda node: ask(stack, node, notice), 60, "--partition=spot")


@pytest.fixture(scope="module")
def killed(first_up: str, stack: Stack) -> Lost:
    """A job whose VM disappears without notice."""
    return lose(stack, lambda node: podman("kill", stack.container(node)), 60)


def test_the_controller_knows_of_a_preemption_at_once(preempted: Lost) -> None:
    assert preempted.known_s < 5


def test_a_node_that_dies_is_released(killed: Lost, stack: Stack) -> None:
    assert "TERMINATED" in reason(stack, killed.node)


def test_the_daemon_s_successor_makes_no_vm_twice(first_up: str, stack: Stack) -> None:
    wanted = names(stack, "debug", 8, 9)
    options = ("--nodes=2", f"--nodelist={','.join(wanted)}")
    asked = len(operations(stack, "bulkInsert"))
    job = submit(stack, "srun hostname", *options)
    until(lambda: len(operations(stack, "bulkInsert")) > asked, "Google is asked", 60)
    inside(stack, controller(stack), "systemctl", "kill", "--signal=KILL", "muster-autoscaler")
    assert sorted(completed(stack, job)) == wanted
    assert [name for name in sorted(made(stack)) if name in wanted] == wanted
    restarts = "systemctl show --property=NRestarts --value muster-autoscaler"
    assert inside(stack, controller(stack), *restarts.split()).strip() == "1"


def test_a_controller_that_restarts_keeps_its_nodes(first_up: str, stack: Stack) -> None:
    job = submit(stack, "sleep 30; hostname")
    node = node_of(stack, job)
    vm = stack.instances()[node]["id"]
    begun = since(stack)
    ask(stack, controller(stack), "reset")
    until(lambda: since(stack) not in ("", begun), "another slurmctld answers", 120)
    assert stack.instances()[node]["id"] == vm
    assert completed(stack, job) == [node]


def since(stack: Stack) -> str:
    """slurmctld's own start time; empty if it doesn't answer."""
    try:
        shown = tour.run(stack, "timeout 10 scontrol show config")
    except TourError:
        return ""
    match = re.search(r"^BOOT_TIME += (.+)$", shown, re.MULTILINE)
    return match[1] if match else ""


def test_jobs_of_lost_nodes_start_again_on_other_machines(
    stack: Stack, preempted: Lost, killed: Lost
) -> None:
    # SLURM waits two minutes before it restarts a job: other tests ran meanwhile. The node
    # may be in service again by then, with another VM.
    for lost in (preempted, killed):
        first, second = completed(stack, lost.job)
        assert first.startswith(f"on {lost.node}, ")
        assert second.rpartition(", ")[2] != first.rpartition(", ")[2]
    until(lambda: not {preempted.vm, killed.vm} & ids(stack), "the lost VMs are gone", 60)


def test_a_job_that_finds_no_room_is_explained(first_up: str, stack: Stack, scarcity: None) -> None:
    room(stack, n2_standard_2=0, n2d_standard_2=0)
    # Jobs of lost nodes ran on some of the nodes, which are up for a while.
    until(lambda: off(stack, "spot"), "a node is off", 120)
    node = off(stack, "spot")[-1]
    job = submit(stack, "hostname", "--partition=spot", f"--nodelist={node}")
    until(lambda: "EXHAUSTED" in reason(stack, node), "it is released", 120)

    def said() -> str:
        return inside(stack, controller(stack), "muster", "why", job)

    until(lambda: "EXHAUSTED" in said(), "the job's wait is explained", 30)
    assert said().startswith(f"job {job} waits with the reason ")
    tour.run(stack, f"scancel {job}")
    shown = inside(stack, controller(stack), "muster", "nodes")
    assert node in shown


def test_what_happened_is_drawn(first_up: str, stack: Stack) -> None:
    log = inside(stack, controller(stack), "cat", "/var/log/muster/autoscaler-events.jsonl")
    events = {json.loads(line)["event"] for line in log.splitlines()}
    assert {"request", "insert", "stage", "release", "delete"} <= events
    drawn = tour.timeline(stack, 7200)
    assert all(name in drawn for name in names(stack, "debug", 0, 8, 9))


def test_nodes_vanish_when_they_are_idle(first_up: str, stack: Stack) -> None:
    until(lambda: tour.nodes(stack) == [], "all nodes are gone", 300)
    until(lambda: "idle~" in tour.run(stack, "sinfo"), "SLURM knows it", 60)
