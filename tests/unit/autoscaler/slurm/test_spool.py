"""The spool returns each request until it is closed, also after a restart and damaged files."""

import errno
import json
import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from clockkit import SetClock

from muster.autoscaler.clock import Clock
from muster.autoscaler.reconcile.model import Job, Request
from muster.autoscaler.slurm import power_save_program
from muster.autoscaler.slurm.spool import DAMAGED_KEPT, Spool, SpoolError, hold

DATA = Path(__file__).parent / "data"
RELEASES = ["22.05", "24.11"]
NODES = tuple(f"lab-debug-{n}" for n in (0, 1, 2, 3, 5))


def put(folder: Path, program: str, nodes: str, more: bytes = b"") -> str:
    """Write a file as the program does; return its name."""
    before = set(folder.iterdir())
    power_save_program.write(str(folder), program, nodes, more)
    [file] = set(folder.iterdir()) - before
    return file.name


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_a_request_has_the_nodes_and_the_jobs_that_wait_for_them(spool, release):
    """Both spellings of SLURM_RESUME_FILE, as slurmctld wrote them."""
    resume_file = (DATA / release / "resume-file").read_bytes()
    name = put(spool.folder, "resume", "lab-debug-[0-3,5]", resume_file)
    [request] = spool.requests()
    jobs = (
        Job(1, ("lab-debug-0",)),
        Job(2, ("lab-debug-1", "lab-debug-2", "lab-debug-3")),
        Job(4, ("lab-debug-5",)),
        Job(5, ("lab-debug-5",)),
    )
    assert request == Request(name, request.asked, NODES, jobs)
    assert abs(request.asked - Clock().monotonic()) < 60


def test_a_request_without_slurms_file_has_no_jobs(spool):
    put(spool.folder, "resume", "lab-debug-7")
    assert [(request.nodes, request.jobs) for request in spool.requests()] == [
        (("lab-debug-7",), ())
    ]


def test_a_job_whose_nodes_are_all_up_does_not_wait(spool):
    jobs = [{"job_id": 1, "nodes_resume": ""}, {"job_id": 2, "nodes_resume": None}]
    put(spool.folder, "resume", "lab-debug-7", json.dumps({"jobs": jobs}).encode())
    assert spool.requests()[0].jobs == ()


def test_a_job_has_the_nodes_too_that_were_asked_for_before(spool):
    job = {"job_id": 7, "nodes_alloc": "lab-debug-[0-2]", "nodes_resume": "lab-debug-[1-2]"}
    put(spool.folder, "resume", "lab-debug-[1-2]", json.dumps({"jobs": [job]}).encode())
    expected = Job(7, ("lab-debug-1", "lab-debug-2"), ("lab-debug-0",))
    assert spool.requests()[0].jobs == (expected,)


def test_the_oldest_request_comes_first(spool):
    names = [put(spool.folder, "resume", f"lab-debug-{n}") for n in (3, 1, 2)]
    assert [request.id for request in spool.requests()] == names


def test_a_request_s_time_is_by_the_clock_that_nobody_sets(tmp_path, monkeypatch):
    """Neither the date in its file nor that of the daemon counts."""
    clock = SetClock(time.clock_gettime(time.CLOCK_BOOTTIME) + 30)
    stepped = SimpleNamespace(
        time=lambda: 7.0,
        time_ns=lambda: 7 * 10**9,
        clock_gettime=lambda _: clock.since_boot - 30,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(power_save_program, "time", stepped)
    put(tmp_path, "resume", "lab-debug-7")
    clock.date -= 1000
    assert [request.asked for request in Spool(tmp_path, clock).requests()] == [
        pytest.approx(clock.since_boot - 30)
    ]


def test_requests_are_in_the_order_of_their_times_also_after_a_step_back(spool, monkeypatch):
    first = put(spool.folder, "resume", "lab-debug-1")
    earlier = SimpleNamespace(
        time=lambda: time.time() - 600,
        time_ns=lambda: time.time_ns() - 600 * 10**9,
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(power_save_program, "time", earlier)
    second = put(spool.folder, "resume", "lab-debug-2")
    assert second < first, "by the name"
    assert [request.id for request in spool.requests()] == [first, second]


@pytest.mark.parametrize(
    ("age_s", "since_boot", "asked"),
    [
        # The machine was booted 100 s ago: the request is from before that.
        (250, 7000, -150),
        (250, 1, -150),
        # The clock was set back since, or forward by an hour.
        (-5, 7000, -1),
        (30, 7000, -1),
        (3600, 7000, -3500),
    ],
)
def test_a_request_from_before_a_reboot_is_as_old_as_its_date_says(
    tmp_path, age_s, since_boot, asked
):
    clock = SetClock(100)
    head = {"nodes": "lab-debug-0", "boot": "another", "since_boot": since_boot}
    head["asked"] = clock.date - age_s
    (tmp_path / "1795310721027048695-1.resume").write_text(json.dumps(head) + "\n")
    [request] = Spool(tmp_path, clock).requests()
    assert request.asked == asked


def test_a_request_is_never_in_the_future(tmp_path):
    put(tmp_path, "resume", "lab-debug-0")
    assert Spool(tmp_path, SetClock(7)).requests()[0].asked == 7


def test_a_file_is_read_once(spool):
    name = put(spool.folder, "resume", "lab-debug-7")
    before = spool.requests()
    (spool.folder / name).write_text("something else")
    assert spool.requests() == before


def test_a_request_stays_until_it_is_closed_also_after_a_restart(spool, tmp_path):
    first, second = (put(tmp_path, "resume", f"lab-debug-{n}") for n in (0, 1))
    assert [request.id for request in spool.requests()] == [first, second]
    spool.close(first)
    spool.close(first)
    assert [request.id for request in spool.requests()] == [second]
    assert [request.id for request in Spool(tmp_path).requests()] == [second]


def test_the_files_of_the_other_programs_are_removed(spool):
    put(spool.folder, "suspend", "lab-debug-[0-1]")
    put(spool.folder, "resume-failed", "lab-debug-2")
    # An empty file, as after the machine went down.
    (spool.folder / "1795310721027048695-1.suspend").touch()
    name = put(spool.folder, "resume", "lab-debug-3")
    spool.forget_calls()
    spool.forget_calls()
    assert {path.name for path in spool.folder.iterdir()} == {name, power_save_program.WAKE}


@pytest.mark.parametrize("resume_file", [b"{", b"[]", b'{"jobs": [{"job_id": 1}]}', b"\xff", b"{}"])
def test_nodes_are_requested_although_slurms_file_is_damaged(spool, caplog, tmp_path, resume_file):
    name = put(spool.folder, "resume", "lab-debug-[0-1]", resume_file)
    for daemon in (spool, Spool(tmp_path)):
        [request] = daemon.requests()
        assert (request.nodes, request.jobs) == (("lab-debug-0", "lab-debug-1"), ())
    assert f"{name}: its SLURM_RESUME_FILE can't be read" in caplog.text
    spool.close(name)
    assert spool.requests() == []
    assert (tmp_path / f"{name}.bad").read_bytes().endswith(resume_file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\0",
        b"[]\n",
        b'{"nodes": "lab-debug-0", "asked": 2}\n',
        b'{"nodes": 1, "asked": 2, "boot": "a", "since_boot": 2}\n',
        b'{"nodes": "a[", "asked": 2, "boot": "a", "since_boot": 2}',
    ],
)
def test_a_file_that_cant_be_read_is_set_aside(spool, caplog, content):
    """An empty file, for example, after the machine went down."""
    name = "1795310721027048695-1.resume"
    (spool.folder / name).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert spool.requests() == []
    assert f"{name} can't be read" in caplog.text
    assert (spool.folder / f"{name}.bad").read_bytes() == content
    assert spool.requests() == []


def lacks_files(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_file_that_cant_be_read_now_is_read_later(spool, monkeypatch):
    """Also if others can be read: their requests are known meanwhile."""
    first, second = (put(spool.folder, "resume", f"lab-debug-{n}") for n in (0, 1))
    read_bytes = Path.read_bytes
    with monkeypatch.context() as fails:
        fails.setattr(
            Path,
            "read_bytes",
            lambda path: (lacks_files if path.name == first else read_bytes)(path),
        )
        for _ in range(2):
            with pytest.raises(SpoolError, match=rf"^{first}: Too many open files; ") as error:
                spool.requests()
            assert [request.id for request in error.value.requests] == [second]
    assert [request.id for request in spool.requests()] == [first, second]


def test_a_file_that_is_gone_since_it_was_listed_is_no_error(spool, monkeypatch):
    name = put(spool.folder, "resume", "lab-debug-0")
    monkeypatch.setattr(spool, "_names", lambda *_: [name])
    (spool.folder / name).unlink()
    assert spool.requests() == []
    assert not list(spool.folder.glob("*.bad"))


def test_what_was_known_stays_while_the_folder_cant_be_listed(spool, monkeypatch):
    name = put(spool.folder, "resume", "lab-debug-0")
    known = spool.requests()
    put(spool.folder, "suspend", "lab-debug-1")
    with monkeypatch.context() as fails:
        fails.setattr(Path, "iterdir", lacks_files)
        with pytest.raises(SpoolError, match=r"^Too many open files; ") as error:
            spool.requests()
        assert error.value.requests == known
        spool.forget_calls()
    put(spool.folder, "resume", "lab-debug-2")
    assert spool.requests()[0].id == name
    assert len(spool.requests()) == 2


def test_damaged_files_do_not_fill_the_disk(spool):
    for number in range(DAMAGED_KEPT + 5):
        (spool.folder / f"17953107210270486{number:02}-1.resume").touch()
    spool.requests()
    kept = sorted(path.name for path in spool.folder.glob("*.bad"))
    assert len(kept) == DAMAGED_KEPT
    assert kept[0] == "1795310721027048605-1.resume.bad"


def test_what_a_killed_program_left_is_removed(tmp_path):
    left = tmp_path / "1795310721027048695-1.resume.new"
    left.write_text('{"progr')
    assert Spool(tmp_path).requests() == []
    # A program may still be writing it.
    assert left.exists()
    os.utime(left, (0, 0))
    assert Spool(tmp_path).requests() == []
    assert not left.exists()


def test_a_program_wakes_the_daemon(spool):
    assert not spool.wait(0)
    put(spool.folder, "resume", "lab-debug-0")
    power_save_program.wake(str(spool.folder))
    power_save_program.wake(str(spool.folder))
    before = time.monotonic()
    assert spool.wait(60)
    assert time.monotonic() - before < 30
    assert not spool.wait(0), "two calls wake once"


def test_nothing_wakes_it_without_a_call(spool):
    before = time.monotonic()
    assert not spool.wait(0.2)
    assert time.monotonic() - before >= 0.2
    assert not spool.wait(-1)


def test_a_restarted_daemon_is_woken_too(spool, tmp_path):
    restarted = Spool(tmp_path)
    os.close(spool._fifo)
    power_save_program.wake(str(tmp_path))
    assert restarted.wait(10)


def test_a_plain_file_in_place_of_the_fifo_does_not_keep_it_awake(tmp_path):
    (tmp_path / power_save_program.WAKE).touch()
    assert not Spool(tmp_path).wait(0)


def test_no_folder(tmp_path):
    with pytest.raises(SpoolError, match=r"the spool .*gone can't be used: .*; run site\.yml"):
        Spool(tmp_path / "gone")


def refuse(path: Path, *_: object, **__: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def test_a_request_that_cant_be_removed_stays_and_is_closed_later(spool, monkeypatch):
    name = put(spool.folder, "resume", "lab-debug-7")
    spool.requests()
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", refuse)
        with pytest.raises(SpoolError, match=r"^Read-only file system; make .* writable$"):
            spool.close(name)
    assert [request.id for request in spool.requests()] == [name]
    spool.close(name)
    assert spool.requests() == []


@pytest.mark.parametrize(
    "content", [b"", b'{"nodes": "lab-debug-0", "asked": 2, "boot": "a", "since_boot": 2}\n{']
)
def test_a_damaged_file_that_cant_be_removed_stops_nothing(spool, monkeypatch, caplog, content):
    name = "1795310721027048695-1.resume"
    (spool.folder / name).write_bytes(content)
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "rename", refuse)
        before = spool.requests()
        for request in before:
            with pytest.raises(SpoolError):
                spool.close(request.id)
        assert spool.requests() == before
    assert caplog.text.count("can't be read") == 1, "it is read each second"
    for request in before:
        spool.close(request.id)
    assert spool.requests() == []
    assert (spool.folder / f"{name}.bad").read_bytes() == content


def test_files_of_other_programs_that_cant_be_removed_stop_nothing(spool, monkeypatch):
    put(spool.folder, "suspend", "lab-debug-[0-1]")
    monkeypatch.setattr(Path, "unlink", refuse)
    spool.forget_calls()


def test_one_daemon_at_a_time_has_a_spool(tmp_path):
    held = hold(tmp_path)
    with pytest.raises(SpoolError, match="another autoscaler works with the spool"):
        hold(tmp_path)
    # As when its process ends.
    os.close(held)
    os.close(hold(tmp_path))


def test_what_a_killed_program_left_and_cant_be_removed_keeps_no_daemon_from_its_start(
    tmp_path, monkeypatch
):
    left = tmp_path / "1795310721027048695-1.resume.new"
    left.touch()
    os.utime(left, (0, 0))
    Spool(tmp_path / ".").wait(0)
    left.touch()
    os.utime(left, (0, 0))
    monkeypatch.setattr(Path, "unlink", refuse)
    assert Spool(tmp_path).requests() == []
