"""Reservations of the definition as the role slurmctld takes them."""

import pytest

from muster.definition import validate
from muster.render.reservations import reservations

CLUSTER = {
    "name": "lab",
    "os": "debian-12",
    "users": {
        "people": {"ada": {"uid": 20001}, "bob": {"uid": 20002, "state": "absent"}},
    },
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 4, "memory_mib": 4096}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
    "accounts": {"LAB-test": {"users": ["ada", "bob"]}},
}
GROUPS = {name: ["one"] for name in ("controller", "database", "login", "compute", "cpu")}
GROUPS |= {name: ["one", "two"] for name in ("compute", "cpu")}
COURSE = {"start": "2027-01-11T14:00", "duration": "1:30", "accounts": ["LAB-test"]}


def rendered(**given):
    cluster = {**CLUSTER, "reservations": {"course": {**COURSE, **given}}}
    return reservations(validate(cluster, GROUPS))


def test_times_are_minutes_and_accounts_in_small_letters():
    assert rendered(repeat="weekly", partition="main", node_count=1) == [
        {
            "name": "course",
            "start": "2027-01-11T14:00",
            "minutes": 2,
            "repeat": "weekly",
            "partition": "main",
            "node_count": 1,
            "accounts": ["lab-test"],
            "users": [],
            "maintenance": False,
        }
    ]


@pytest.mark.parametrize(("users", "left"), [(["ada", "bob"], ["ada"]), (["ada"], ["ada"])])
def test_who_is_absent_is_left_out(users, left):
    assert rendered(users=users)[0]["users"] == left


def test_a_reservation_for_absent_people_is_not_one_for_their_whole_account():
    assert rendered(users=["bob"]) == []


def test_maintenance_is_for_root():
    (one,) = rendered(accounts=[], maintenance=True)
    assert (one["users"], one["maintenance"]) == (["root"], True)
