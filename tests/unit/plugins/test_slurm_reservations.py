"""What slurm_reservations decides, as data, and what it does with a scontrol."""

import fcntl
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from ansible_collections.muster.slurm.plugins.module_utils.reservation_plan import (
    commands,
    parse,
    restored,
    wanted,
)

MONDAY = {
    "name": "course",
    "start": "2027-01-11T14:00",
    "minutes": 120,
    "repeat": "weekly",
    "partition": "ml-gpu",
    "node_count": 1,
    "accounts": ["students"],
    "users": [],
    "maintenance": False,
}
DEADLINE = MONDAY | {"name": "deadline", "repeat": None, "accounts": [], "users": ["jo", "ian"]}
FIRMWARE = DEADLINE | {
    "name": "firmware",
    "partition": None,
    "node_count": None,
    "users": ["root"],
    "maintenance": True,
}


def at(text):
    """A time of the controller's clock, which has no zone."""
    return datetime.fromisoformat(text)


BEFORE, DURING, AFTER = map(at, ("2027-01-01T12:00", "2027-01-11T14:30", "2027-01-11T16:00"))

# The words of slurm_sprint_reservation_info in reservation_info.c.
LINE = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration=02:00:00 Nodes=gpu-01 "
    "NodeCnt=1 CoreCnt=48 Features=(null) PartitionName={partition} Flags={flags} TRES=cpu=96 "
    "Users={users} Groups=(null) Accounts={accounts} Licenses=(null) State=INACTIVE "
    "BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)


def line(**other):
    shown = {
        "name": "course",
        "start": "2027-01-11T14:00:00",
        "end": "2027-01-11T16:00:00",
        "partition": "ml-gpu",
        "flags": "WEEKLY,MAGNETIC",
        "users": "(null)",
        "accounts": "students",
    }
    return LINE.format(**(shown | other))


def plan(options, text="", now=BEFORE):
    wish = wanted(options, now)
    there = {one.name: one for one in parse(text)}
    return commands(there.get(wish.name), wish, now)


def words(command):
    return dict(word.split("=", 1) for word in command if "=" in word)


def test_no_reservation_is_none():
    assert parse("No reservations in the system\n") == []


def test_a_reservation_is_made_of_a_number_of_nodes():
    (command,) = plan(MONDAY)
    assert command == [
        *("create", "reservation", "ReservationName=course", "StartTime=2027-01-11T14:00:00"),
        *("EndTime=2027-01-11T16:00:00", "PartitionName=ml-gpu", "NodeCnt=1"),
        *("Accounts=students", "Flags=WEEKLY,MAGNETIC"),
    ]


def test_a_maintenance_is_for_all_nodes_whatever_runs_there():
    (command,) = plan(FIRMWARE)
    assert words(command)["Nodes"] == "ALL"
    assert words(command)["Users"] == "root"
    assert words(command)["Flags"] == "MAINT,IGNORE_JOBS"
    assert "PartitionName" not in words(command)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (MONDAY, line()),
        (DEADLINE, line(name="deadline", flags="MAGNETIC", users="ian,jo", accounts="(null)")),
        (
            FIRMWARE,
            line(
                name="firmware",
                flags="MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES",
                users="root",
                accounts="(null)",
                partition="(null)",
            ),
        ),
        (
            MONDAY | {"node_count": None},
            line(flags="IGNORE_JOBS,WEEKLY,SPEC_NODES,PART_NODES,MAGNETIC"),
        ),
    ],
)
def test_what_is_there_is_left_alone(options, shown):
    assert plan(options, shown) == []
    assert plan(options, shown, DURING) == []


def test_what_repeats_is_the_same_at_its_next_time():
    later = line(start="2027-01-18T14:00:00", end="2027-01-18T16:00:00")
    assert plan(MONDAY, later, AFTER) == []
    # Made while the first time was under way.
    assert plan(MONDAY, later, DURING) == []


def test_what_repeats_is_not_made_at_the_hour_of_the_run():
    (command,) = plan(MONDAY, now=DURING)
    assert words(command)["StartTime"] == "2027-01-18T14:00:00"


def test_what_is_under_way_begins_now():
    (command,) = plan(DEADLINE, now=DURING)
    assert words(command)["StartTime"] == "now"
    assert words(command)["EndTime"] == "2027-01-11T16:00:00"


def test_what_is_over_is_not_made_again():
    assert wanted(DEADLINE, AFTER) is None


@pytest.mark.parametrize(
    ("repeat", "now", "begin"),
    [
        ("daily", "2027-01-16T12:00", "2027-01-16"),
        ("daily", "2027-01-16T16:00", "2027-01-17"),
        # A Friday, after its end.
        ("weekday", "2027-01-15T20:00", "2027-01-18"),
        ("weekend", "2027-01-15T20:00", "2027-01-16"),
        # The first Saturday after a first begin on a Monday.
        ("weekend", "2027-01-01T00:00", "2027-01-16"),
    ],
)
def test_days_of_the_week(repeat, now, begin):
    wish = wanted(MONDAY | {"repeat": repeat}, at(now))
    assert wish.start == at(f"{begin}T14:00")


@pytest.mark.parametrize(
    ("change", "update"),
    [
        ({"users": ["jo"]}, {"Users": "jo"}),
        ({"node_count": 2}, {"NodeCnt": "2"}),
        ({"accounts": ["lab", "students"]}, {"Accounts": "lab,students"}),
        ({"minutes": 180}, {"EndTime": "2027-01-11T17:00:00"}),
        (
            {"start": "2027-01-11T15:00"},
            {"StartTime": "2027-01-11T15:00:00", "EndTime": "2027-01-11T17:00:00"},
        ),
    ],
)
def test_people_times_and_the_number_of_nodes_are_changed_in_place(change, update):
    (command,) = plan(MONDAY | change, line())
    assert command[0] == "update"
    assert words(command) == {"ReservationName": "course", **update, "Flags": "IGNORE_JOBS"}


@pytest.mark.parametrize(
    "change",
    [{"partition": "ml-cpu"}, {"repeat": "daily"}, {"node_count": None}],
)
def test_other_nodes_are_another_reservation(change):
    gone, made = plan(MONDAY | change, line())
    assert gone == ["delete", "ReservationName=course"]
    assert made[:2] == ["create", "reservation"]


@pytest.mark.parametrize("begin", ["13:00", "15:00"])
def test_another_begin_of_what_has_begun_is_another_reservation(begin):
    changed = MONDAY | {"start": f"2027-01-11T{begin}"}
    commands_ = plan(changed, line(), DURING)
    assert [command[0] for command in commands_] == ["delete", "create"]
    made = words(commands_[1])
    again = line(start=made["StartTime"], end=made["EndTime"])
    assert plan(changed, again, DURING) == []


def test_what_comes_once_and_has_begun_began_when_it_was_made():
    earlier = DEADLINE | {"start": "2027-01-11T13:00", "minutes": 180}
    there = line(name="deadline", flags="MAGNETIC", users="ian,jo", accounts="(null)")
    assert plan(earlier, there, DURING) == []


FAKE = """#!/bin/sh
echo "$@" >>{folder}/asked
case "$*" in
  *show*) cat {folder}/there ;;
  delete*)
    if test -e {folder}/deletes; then echo "No reservations" >{folder}/there; exit 0; fi
    echo "slurm_delete_reservation error: Requested reservation is in use" >&2; exit 1 ;;
  create*)
    if grep -q -- "$(cat {folder}/refused 2>/dev/null || echo NOTHING)" <<END; then
$*
END
      echo "Error creating the reservation: Requested nodes are busy" >&2; exit 1
    fi
    cat {folder}/made >>{folder}/there ;;
esac
"""


@pytest.fixture
def scontrol(tmp_path):
    """A scontrol that prints the file `there`, and adds `made` to it when something is made."""
    program = tmp_path / "bin/scontrol"
    program.parent.mkdir()
    program.write_text(FAKE.format(folder=tmp_path))
    program.chmod(0o755)
    (tmp_path / "there").write_text("No reservations in the system\n")
    (tmp_path / "made").write_text("")
    return tmp_path


def run(run_module, folder, reservations, **more):
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    before = (
        "import ansible_collections.muster.slurm.plugins.module_utils.one_run as one_run; "
        f"one_run.FOLDER = {str(folder)!r}; one_run.SECONDS = 5"
    )
    given = {"reservations": reservations}
    return run_module("slurm_reservations", given, env=env, before=before, **more)


FAR = MONDAY | {"start": "2037-01-12T14:00"}
FAR_LINE = line(start="2037-01-12T14:00:00", end="2037-01-12T16:00:00")


def test_the_module_makes_what_is_missing_and_then_nothing(run_module, scontrol):
    (scontrol / "made").write_text(FAR_LINE)
    first = run(run_module, scontrol, [FAR])
    assert first["changed"], first.printed
    assert len(first["commands"]) == 1
    assert not run(run_module, scontrol, [FAR])["changed"]


def test_check_mode_makes_nothing(run_module, scontrol):
    outcome = run(run_module, scontrol, [FAR], check=True)
    assert outcome["changed"]
    assert "create" not in (scontrol / "asked").read_text()


def test_the_module_says_what_slurm_did_not_take(run_module, scontrol):
    outcome = run(run_module, scontrol, [FAR])
    assert "SLURM did not take: scontrol create reservation" in outcome["msg"]


def test_a_reservation_in_use_is_a_sentence_with_a_remedy(run_module, scontrol):
    (scontrol / "there").write_text(FAR_LINE)
    outcome = run(run_module, scontrol, [FAR | {"node_count": None}])
    assert "Requested reservation is in use" in outcome["msg"]
    assert "squeue --reservation=course" in outcome["msg"]


def test_what_is_not_listed_is_kept_and_named(run_module, scontrol):
    (scontrol / "there").write_text(FAR_LINE)
    outcome = run(run_module, scontrol, [])
    assert not outcome["changed"]
    assert outcome["unlisted"] == ["course"]
    assert "does not have, or has for absent people alone, and kept: course" in outcome.printed


def test_a_reservation_whose_successor_is_refused_is_made_again(run_module, scontrol):
    (scontrol / "there").write_text(FAR_LINE)
    (scontrol / "deletes").write_text("")
    (scontrol / "refused").write_text("PartitionName=ml-cpu")
    (scontrol / "made").write_text(FAR_LINE)
    outcome = run(run_module, scontrol, [FAR | {"partition": "ml-cpu"}])
    assert outcome["msg"].endswith("and run again; the old one is there again")
    assert "Requested nodes are busy" in outcome["msg"]
    assert (scontrol / "there").read_text().endswith(FAR_LINE)
    last = (scontrol / "asked").read_text().splitlines()[-1]
    assert words(last.split()) == {
        "ReservationName": "course",
        "StartTime": "2037-01-12T14:00:00",
        "EndTime": "2037-01-12T16:00:00",
        "PartitionName": "ml-gpu",
        "NodeCnt": "1",
        "Accounts": "students",
        "Flags": "WEEKLY,MAGNETIC,IGNORE_JOBS",
    }


def test_where_the_old_one_is_refused_too_its_command_is_said(run_module, scontrol):
    (scontrol / "there").write_text(FAR_LINE)
    (scontrol / "deletes").write_text("")
    (scontrol / "refused").write_text("PartitionName=ml-")
    outcome = run(run_module, scontrol, [FAR | {"partition": "ml-cpu"}])
    assert "scontrol create reservation ReservationName=course" in outcome["msg"]


def test_what_somebody_set_by_hand_comes_back_too():
    (there,) = parse(
        line(flags="SPEC_NODES,OVERLAP", start="2027-01-11T14:00:00").replace(
            "Groups=(null)", "Groups=ml-users"
        )
    )
    again = words(restored(there, DURING))
    assert again["StartTime"] == "now"
    assert (again["Nodes"], again["Groups"]) == ("gpu-01", "ml-users")
    assert again["Flags"] == "OVERLAP,IGNORE_JOBS"


def test_a_flag_that_scontrol_reads_comes_back():
    """All but SPEC_NODES and ALL_NODES (parse_resv_flags in proc_args.c, 22.05 to 25.11)."""
    flags = "WEEKLY,SPEC_NODES,PART_NODES,PURGE_COMP=00:05:00,MAGNETIC,USER_DELETE,FORCE_START"
    (there,) = parse(line(flags=flags))
    assert words(restored(there, BEFORE))["Flags"] == (
        "WEEKLY,PART_NODES,PURGE_COMP=00:05:00,MAGNETIC,USER_DELETE,FORCE_START,IGNORE_JOBS"
    )


def test_a_comment_is_a_comment_and_comes_back():
    comment = "asked by ada: Users=jo until EndTime=Friday"
    text = line().rstrip("\n") + f" Comment={comment}\n"  # 24.11 prints it
    assert plan(MONDAY, text) == []
    (there,) = parse(text)
    assert words(restored(there, BEFORE))["Comment"] == comment
    assert "Comment" not in words(restored(parse(line())[0], BEFORE))


def test_a_reservation_without_end_is_read_ended_and_made_again():
    """`scontrol create reservation duration=0` makes one, and its end is shown as Unknown."""
    endless = line(end="Unknown", flags="MAGNETIC")
    (command,) = plan(MONDAY | {"repeat": None}, endless)
    assert words(command)["EndTime"] == "2027-01-11T16:00:00"
    again = words(restored(parse(endless)[0], DURING))
    assert again["Duration"] == "0"
    assert "EndTime" not in again


def test_one_that_comes_each_hour_is_not_one_that_comes_once():
    gone, made = plan(MONDAY | {"repeat": None}, line(flags="HOURLY,MAGNETIC"))
    assert (gone[0], words(made)["Flags"]) == ("delete", "MAGNETIC")


def test_a_second_administrator_waits_for_the_first(run_module, scontrol):
    (scontrol / "made").write_text(FAR_LINE)
    with (scontrol / "muster-reservations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        waited = run(run_module, scontrol, [FAR])
        assert "another run has been changing the reservations" in waited["msg"]
        assert "(process 4711 of this host)" in waited["msg"]
        assert not (scontrol / "asked").exists()
        assert run(run_module, scontrol, [FAR], check=True)["changed"]
    assert run(run_module, scontrol, [FAR])["changed"]
    # It has left its own number.
    assert (scontrol / "muster-reservations.lock").read_text() not in ("", "4711")


def test_two_at_once_make_a_reservation_once(run_module, scontrol):
    (scontrol / "made").write_text(FAR_LINE)
    with ThreadPoolExecutor(2) as pool:
        # Processes of their own: the server of modules runs one after the other.
        alone = {"prefix": ["env"]}
        both = list(pool.map(lambda _: run(run_module, scontrol, [FAR], **alone), range(2)))
    assert sorted(one.result.get("changed") for one in both) == [False, True]
    assert (scontrol / "there").read_text().count("ReservationName=course") == 1
