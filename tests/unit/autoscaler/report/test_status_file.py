import json
import stat
from dataclasses import replace
from unittest.mock import Mock

import pytest
from viewkit import Watched, cold_start

from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Choice,
    Job,
    Node,
    NodeSet,
    Power,
    Quotas,
    Request,
    Unread,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.report import status_file
from muster.autoscaler.report.lifecycle import Stage, View
from muster.autoscaler.report.status_file import (
    BreakerStatus,
    LastError,
    Returned,
    Row,
    StatusError,
    StatusFile,
    read,
)

POOL = CapacityPool("europe-west4-a", "n1-standard-2", spot=True)
OTHER = CapacityPool("europe-west4-b", "n1-standard-2", spot=False, gpus="t4:1")
# Two templates in one pool take their room from the same place.
CHOICES = tuple(
    Choice(template, pool.zone, pool.machine_type, pool.spot, pool.gpus)
    for template, pool in (("T/a", POOL), ("T/b", POOL), ("T/b", OTHER))
)
OBSERVED = ObservedState(
    "lab",
    1000,
    nodes={"lab-debug-0": Node("lab-debug-0", Power.OFF)},
    nodes_at=999,
    vms_at=998,
    requests=[Request("r1", 990, ("lab-debug-1",), (Job(7, ("lab-debug-1",)),))],
    sets={"debug": NodeSet("debug", CHOICES), "gpu": NodeSet("gpu", ())},
    quotas=Quotas({"CPUS": 7}, {POOL: {"CPUS": 2}, OTHER: {"CPUS": 7}}, 998),
    unread={"the cloud": Unread(960, "403: no right to list")},
)
TRACKED = TrackedState(breakers={POOL: Breaker(60, 1050, "ZONE_RESOURCE_POOL_EXHAUSTED", size=50)})
ROWS = {
    "lab-debug-0": Row(View(Stage.OFF, "idle~"), 900),
    "lab-debug-1": Row(
        View(Stage.WAITING, "idle#", POOL.zone, "n1-standard-2", True, "busy", 1003),
        995,
        (7,),
        "r1",
    ),
    "lab-debug-2": Row(View(Stage.OFF, "idle~", reason="muster: <b>[red]no room"), 950),
}
RETURNED = {6: Returned(980, "no room")}
ERRORS = {"debug": LastError(970, "making lab-debug-1", "forbidden", "not you")}


@pytest.fixture
def file(tmp_path):
    return StatusFile(tmp_path / "status.json")


def update(file, observed=OBSERVED, tracked=TRACKED, *, changed=False):
    file.update(observed, tracked, ROWS, changed=changed, returned=RETURNED, errors=ERRORS)


def test_what_is_written_is_what_is_read(file):
    update(file)
    status = read(file.path)
    assert (status.cluster, status.written, status.slurm_read, status.cloud_read) == (
        *("lab", 1000),
        *(999, 998),
    )
    assert status.off == {"lab-debug-0"}
    assert status.nodes == {name: ROWS[name] for name in ("lab-debug-1", "lab-debug-2")}
    assert status.jobs == {7: ("lab-debug-1",)}
    assert status.returned == RETURNED
    breaker = BreakerStatus(POOL, "ZONE_RESOURCE_POOL_EXHAUSTED", 1050, half_open=False, size=50)
    assert status.breakers == (breaker,)
    assert str(breaker) == "50 VMs at once of n1-standard-2 (spot) in europe-west4-a"
    assert status.room == {POOL: 3, OTHER: 1}
    assert status.sets == {"debug": (POOL, OTHER), "gpu": ()}
    assert status.errors == ERRORS
    assert status.unread == OBSERVED.unread


def test_everybody_may_read_it_and_nothing_else_is_left(file):
    update(file)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    assert list(file.path.parent.iterdir()) == [file.path]


def test_it_is_written_at_most_once_a_second_and_no_change_is_lost(file):
    update(file)
    update(file, replace(OBSERVED, now=1000.4, nodes_at=1000.3), changed=True)
    assert read(file.path).written == 1000
    update(file, replace(OBSERVED, now=1001.1, nodes_at=1000.3))
    assert (read(file.path).written, read(file.path).slurm_read) == (1001.1, 1000.3)


def test_while_thousands_of_rows_change_it_is_written_less_often_and_every_ten_seconds(file):
    view = View(Stage.GOING, "idle%", POOL.zone, "n1-standard-2")
    rows = {f"lab-debug-{number}": Row(view, 995) for number in range(20_000)}
    written = []
    for now in range(1000, 1012):
        observed = replace(OBSERVED, now=now)
        file.update(observed, TRACKED, rows, changed=True, returned={}, errors={})
        written.append(read(file.path).written if now in (1002, 1011) else 0)
    assert written[2] == 1000
    assert written[11] > 1000


def test_only_rows_that_have_changed_are_built_again(file, monkeypatch):
    built = Mock(wraps=status_file._row)
    monkeypatch.setattr(status_file, "_row", built)
    rows = {
        f"lab-debug-{number}": Row(View(Stage.GOING, "idle%"), 995, (number,))
        for number in range(100)
    }
    changed = Row(View(Stage.IDLE, "idle"), 1010)
    for now, new in ((1000, {}), (1020, {"lab-debug-7": changed}), (1040, {})):
        rows |= new
        observed = replace(OBSERVED, now=now)
        file.update(observed, TRACKED, rows, changed=True, returned={}, errors={})
        assert read(file.path).nodes == rows
    assert built.call_count == 101


def test_when_nothing_changes_it_is_written_every_ten_seconds(file):
    written = []
    for now in range(1000, 1031):
        update(file, replace(OBSERVED, now=now))
        written.append(read(file.path).written)
    assert sorted(set(written)) == [1000, 1010, 1020, 1030]


@pytest.mark.parametrize("started", [-400, 1_790_000_000.25])
def test_all_its_times_are_dates(file, started):
    """By the system clock at that pass, whatever it was before."""
    update(file, OBSERVED)
    update(file, replace(OBSERVED, now=1020, started=started))
    status = read(file.path)
    assert status.written == 1020 + started
    assert (status.slurm_read, status.cloud_read) == (999 + started, 998 + started)
    assert status.breakers[0].until == 1050 + started
    assert status.unread["the cloud"].since == 960 + started


def test_what_was_never_read_has_no_date(file):
    update(file, replace(OBSERVED, nodes_at=0, vms_at=0, started=1_790_000_000))
    assert (read(file.path).slurm_read, read(file.path).cloud_read) == (0, 0)


def test_a_reader_sees_a_whole_file_while_it_is_written(file):
    update(file)
    with file.path.open() as before:
        update(file, replace(OBSERVED, now=1020), changed=True)
        assert json.load(before)["written"] == 1000


def test_a_folder_that_is_gone_is_said_once_and_stops_nothing(tmp_path, caplog):
    file = StatusFile(tmp_path / "gone" / "status.json")
    for now in (1000, 1002, 1004):
        update(file, replace(OBSERVED, now=now), changed=True)
    [record] = caplog.records
    assert "No such file or directory" in record.message
    assert "`muster nodes` is out of date" in record.message
    file.path.parent.mkdir()
    update(file, replace(OBSERVED, now=1006), changed=True)
    assert read(file.path).written == 1006


def test_a_file_that_is_not_there_says_where_it_is(tmp_path):
    with pytest.raises(StatusError, match="no such file; it is on the cluster's controller"):
        read(tmp_path / "status.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster": "lab"', '{"nodes": 3}'])
def test_a_file_that_is_no_status_is_an_error(tmp_path, text):
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(StatusError, match=r"can't be read: .*restart muster-autoscaler"):
        read(tmp_path / "status.json")


def test_it_is_stale_after_a_minute(file):
    update(file)
    assert not read(file.path).stale(1059)
    assert read(file.path).stale(1061)


def test_it_is_small(tmp_path):
    watched = Watched(tmp_path)
    watched.round(90, nodes={"debug-[0-99]": "off"}, vms={})
    for number in range(10):
        cold_start(watched, f"debug-{number}", at=100 + 40 * number)
    watched.events.close()
    assert watched.status_file.stat().st_size < 6000
