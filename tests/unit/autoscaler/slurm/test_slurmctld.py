"""The calls of scontrol and squeue, and what they print: recordings of 22.05.8 and 24.11.5."""

import shlex
import time
from pathlib import Path

import pytest

from muster.autoscaler.reconcile.model import Node, Power
from muster.autoscaler.slurm.slurmctld import Queued, Slurm, SlurmError
from muster.catalog.hostlists import fold

DATA = Path(__file__).parent / "data"
RELEASES = ["22.05", "24.11"]
NO_ROOM = "muster: ZONE_RESOURCE_POOL_EXHAUSTED in europe-west4-a"

PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" >{folder}/called
{does}
"""


def slurm(folder: Path, does: str, timeout_s: float = 30) -> Slurm:
    for name in ("scontrol", "squeue"):
        program = folder / name
        program.write_text(PROGRAM.format(folder=shlex.quote(str(folder)), does=does))
        program.chmod(0o755)
    return Slurm(folder, timeout_s)


def printing(folder: Path, text: bytes) -> Slurm:
    (folder / "printed").write_bytes(text)
    return slurm(folder, f"exec cat {shlex.quote(str(folder / 'printed'))}")


def called(folder: Path) -> list[str]:
    return (folder / "called").read_text().splitlines()


@pytest.mark.parametrize("release", RELEASES)
def test_the_nodes_in_the_cloud_and_their_states(tmp_path, release):
    nodes = printing(tmp_path, (DATA / release / "nodes").read_bytes()).nodes()
    expected = {
        "0": (Power.POWERING_UP, {"not_responding", "busy"}, ""),
        "1": (Power.POWERING_UP, {"not_responding", "busy"}, ""),
        "2": (Power.POWERING_UP, {"not_responding", "busy"}, ""),
        "3": (Power.POWERING_UP, {"not_responding", "busy"}, ""),
        # scontrol itself removes the quotation mark at the end.
        "4": (Power.OFF, {"drained", "by_hand"}, 'look [at] | this, "please'),
        "5": (Power.POWERING_UP, {"not_responding", "busy"}, ""),
        "6": (Power.OFF, {"drained", "by_hand"}, "first"),
        "7": (Power.POWERING_DOWN, {"by_hand"}, "muster: no room"),
        "8": (Power.OFF, set(), ""),
        "9": (Power.OFF, set(), ""),
        "10": (Power.OFF, {"down", "by_hand"}, NO_ROOM),
        "11": (Power.POWERING_UP, {"not_responding", "leaving"}, ""),
    }
    assert {node.name: node for node in nodes} == {
        f"lab-debug-{n}": Node(f"lab-debug-{n}", power, reason=reason, **dict.fromkeys(flags, True))
        for n, (power, flags, reason) in expected.items()
    }
    assert called(tmp_path) == ["--oneliner", "show", "node"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("IDLE+CLOUD", Node("n", Power.UP)),
        ("MIXED+CLOUD", Node("n", Power.UP, busy=True)),
        ("ALLOCATED+CLOUD+DRAIN", Node("n", Power.UP, drained=True, busy=True)),
        ("IDLE+CLOUD+DRAIN+INVALID_REG", Node("n", Power.UP, drained=True, invalid=True)),
        ("IDLE+CLOUD+COMPLETING", Node("n", Power.UP, busy=True)),
        ("DOWN+CLOUD+NOT_RESPONDING", Node("n", Power.UP, down=True, not_responding=True)),
        ("IDLE+CLOUD+FAIL", Node("n", Power.UP, down=True)),
        ("ERROR+CLOUD", Node("n", Power.UP, down=True)),
        # Asked for and not begun: no program has been called.
        ("ALLOCATED+CLOUD+POWER_DOWN", Node("n", Power.UP, busy=True, leaving=True)),
        ("IDLE+CLOUD+POWER_UP+POWERED_DOWN", Node("n", Power.OFF)),
        ("IDLE+CLOUD+POWER_UP+POWERING_DOWN", Node("n", Power.POWERING_DOWN)),
        (
            "DOWN+CLOUD+POWERED_DOWN+NOT_RESPONDING",
            Node("n", Power.OFF, down=True, not_responding=True),
        ),
        ("IDLE+CLOUD+PLANNED+MAINTENANCE", Node("n", Power.UP)),
        ("IDLE+CLOUD+MAINTENANCE+RESERVED", Node("n", Power.UP)),
    ],
)
def test_states(tmp_path, state, expected):
    line = f"NodeName=n Arch=x86_64 State={state} ThreadsPerCore=1\n"
    assert printing(tmp_path, line.encode()).nodes() == [expected]


def test_nodes_outside_the_cloud_are_left_out(tmp_path):
    line = b"NodeName=metal-0 State=IDLE ThreadsPerCore=1 Comment=+CLOUD State=IDLE+CLOUD \n"
    assert printing(tmp_path, line).nodes() == []


def test_no_nodes_at_all(tmp_path):
    assert printing(tmp_path, b"No nodes in the system\n").nodes() == []


NAMES = ["lab-debug-2", "lab-debug-0", "lab-debug-1"]


def test_nodes_that_power_up_are_released_with_one_call(tmp_path):
    """If there were two calls, a kill in between would leave the nodes down."""
    slurm(tmp_path, "").release_nodes(NAMES, "no room", in_service=False)
    assert called(tmp_path) == [
        "update",
        "nodename=lab-debug-[0-2]",
        "state=power_down_force",
        "reason=muster: no room",
    ]


def test_nodes_in_service_are_set_down_before(tmp_path):
    """Or their jobs would wait for slurmd, which may be gone, until SlurmdTimeout is over."""
    each = 'echo "$*" >>"$(dirname "$0")/all"'
    slurm(tmp_path, each).release_nodes(NAMES, "its VM is gone", in_service=True)
    assert (tmp_path / "all").read_text().splitlines() == [
        "update nodename=lab-debug-[0-2] state=down reason=muster: its VM is gone",
        "update nodename=lab-debug-[0-2] state=power_down_force reason=muster: its VM is gone",
    ]


def test_a_reason_is_one_of_those_that_slurm_appends(tmp_path):
    """What 24.11 writes between reasons is in no reason: the last one decides."""
    slurm(tmp_path, "").release_nodes(["lab-debug-0"], "403 : Forbidden\n:\nno", in_service=False)
    assert called(tmp_path)[3] == "reason=muster: 403: Forbidden: no"


def test_a_reason_is_one_short_line(tmp_path):
    slurm(tmp_path, "").release_nodes(
        ["lab-debug-0"], "first\nsecond\0\ud800 " + "x" * 300, in_service=False
    )
    reason = called(tmp_path)[3]
    assert reason.startswith("reason=muster: first second xxx")
    assert len(reason.removeprefix("reason=")) == 200


@pytest.mark.parametrize(
    ("release", "began", "later", "again"),
    [
        ("22.05", 1795335924, 1795339524, 1795336049),
        ("24.11", 1795336657, 1795340257, 1795336782),
    ],
)
def test_the_queue(tmp_path, release, began, later, again):
    """Job 6 was released; 7 has --begin in an hour, and asks for a node by its name."""
    jobs = printing(tmp_path, (DATA / release / "queue").read_bytes()).queue()
    three = ("lab-debug-0", "lab-debug-1", "lab-debug-2")
    configuring, limit, begin = ("CONFIGURING", "None"), "JobArrayTaskLimit", "BeginTime"
    debug, both = ("root", "debug"), ("root", "all,debug")
    assert sorted(jobs, key=lambda job: job.id) == [
        Queued(1, "1", *configuring, began, *debug, 1, ("lab-debug-0",), ()),
        Queued(2, "2", *configuring, began, *debug, 3, three, ()),
        Queued(3, "3_[2-3%2]", "PENDING", limit, 0, *debug, 1, (), ()),
        Queued(4, "3_0", *configuring, began, *debug, 1, ("lab-debug-1",), ()),
        Queued(5, "3_1", *configuring, began, *debug, 1, ("lab-debug-2",), ()),
        Queued(6, "6", "PENDING", begin, again, *debug, 2, (), ()),
        Queued(7, "7", "PENDING", begin, later, *both, 1, (), ("lab-gpu-2",)),
    ]


def test_a_line_break_in_a_job_s_name_is_no_row_of_the_queue(tmp_path):
    forged = r"a\n13|13|PENDING|JobHeldAdmin|0|ada|debug|1|||x"
    values = {"j": forged, "A": 12, "i": 12, "T": "PENDING", "r": "Priority", "S": 0}
    values |= {"u": "ada", "P": "debug", "D": 1, "N": "", "n": ""}
    script = ";".join(f"s#%{letter}#{value}#" for letter, value in values.items())
    does = f"for last; do :; done; echo \"${{last#--format=}}\" | sed '{script}'"
    assert [job.id for job in slurm(tmp_path, does).queue()] == [12]


def test_times_are_read_as_seconds_whatever_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    client = slurm(
        tmp_path,
        "printf '7|7|PENDING|BeginTime|'; date +$SLURM_TIME_FORMAT | tr -d '\\n'"
        "; echo '|ada|debug|1||'",
    )
    [job] = client.queue()
    assert job.start == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("release", RELEASES)
def test_the_partitions_and_their_nodes(tmp_path, release):
    partitions = printing(tmp_path, (DATA / release / "partitions").read_bytes()).partitions()
    assert {name: fold(nodes) for name, nodes in partitions.items()} == {
        "debug": "lab-debug-[0-9]",
        "all": "lab-debug-[0-9],lab-gpu-[0-3],metal-0",
        "none": "",
        "metal": "metal-[0-1]",
    }
    assert called(tmp_path) == ["--all", "--oneliner", "show", "partition"]


def test_no_partitions_at_all(tmp_path):
    assert printing(tmp_path, b"No partitions in the system\n").partitions() == {}


def test_a_refusal_of_slurm_is_an_error(tmp_path):
    refusing = slurm(tmp_path, "echo 'slurm_update error: Invalid node name specified' >&2; exit 1")
    with pytest.raises(
        SlurmError,
        match=r"^scontrol update nodename=gone-0 state=power_down_force reason=muster: no room: "
        r"slurm_update error: Invalid node name specified \(exit status 1\)$",
    ):
        refusing.release_nodes(["gone-0"], "no room", in_service=False)


def test_a_scontrol_that_hangs_is_killed(tmp_path):
    before = time.monotonic()
    with pytest.raises(SlurmError, match=r"^scontrol .*: no answer in 0\.3 s; look at slurmctld$"):
        slurm(tmp_path, "exec sleep 60", timeout_s=0.3).nodes()
    assert time.monotonic() - before < 30


def test_slurm_is_not_installed(tmp_path):
    with pytest.raises(SlurmError, match=r"scontrol .*No such file.*; run site\.yml"):
        Slurm(tmp_path).nodes()
