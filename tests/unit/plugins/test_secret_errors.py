"""The filter muster_secret_errors: which secrets the hosts of a run need, and what they must be."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible_collections.muster.slurm.plugins.filter.muster import secret_errors

GROUPS = {
    "all": ["ctl", "db", "n1"],
    "controller": ["ctl"],
    "database": ["db"],
    "compute": ["n1"],
    "login": [],
}
KEY = "7sE8uWZkTQvCGtCQ3bDhdvRVTkXRDKIVRbWFO8rqbkM="
ALL = {"munge_key": KEY, "slurmdbd_password": "Mxuuy4f8Zy1qRkG"}
MAIL = {"mail": {"relay": "smtp.example.org", "login": "hpc"}}
CEPH = {"storage": {"ceph": {"monitors": ["192.0.2.51"]}}}


def errors(secrets: Any, cluster: Any = None, hosts: tuple[str, ...] = ("ctl", "db", "n1")) -> str:
    return "\n".join(secret_errors(secrets, cluster or {}, GROUPS, hosts))


def test_what_muster_makes_is_accepted() -> None:
    assert errors(ALL) == ""


@pytest.mark.parametrize("secrets", [None, "x", [], 3])
def test_something_else_in_their_place_is_told(secrets: Any) -> None:
    assert errors(secrets) == "`secrets` is no mapping; run: muster secrets"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("munge_key", 45296, "secrets.munge_key: it is not text"),
        ("munge_key", "AAAA", "munged needs 32"),
        ("munge_key", "", "secrets.munge_key: no value"),
        ("slurmdbd_password", "changeme", "a word that everybody tries first"),
        ("slurmdbd_password", "12345678", "it can be guessed"),
        ("slurmdbd_password", 'kQ8fFZ"5n2wTz', "slurmdbd.conf can't hold"),
    ],
)
def test_a_value_is_looked_at_and_not_shown(name: str, value: Any, says: str) -> None:
    said = errors({**ALL, name: value})
    assert says in said
    assert not value or str(value) not in said


def test_a_run_needs_what_its_hosts_need() -> None:
    munge = {"munge_key": KEY}
    assert errors(munge, hosts=("n1",)) == ""
    assert "`slurmdbd_password` is missing" in errors(munge, hosts=("db",))
    assert errors(ALL, MAIL, hosts=("n1",)) == ""
    assert "`mail_password` is missing" in errors(ALL, MAIL)
    assert errors(ALL, {**MAIL, "cloud": {"zone": "europe-west4-a"}}) == ""
    assert "`ceph_key` is missing" in errors(ALL, CEPH, hosts=("n1",))


def test_a_secret_that_no_host_of_the_run_needs_is_not_asked_for() -> None:
    """In the cloud a value is a lookup in Secret Manager, which may refuse it to a host."""
    names: list[str] = []

    class Asked(Mapping[str, str]):
        def __getitem__(self, name: str) -> str:
            names.append(name)
            return ALL[name]

        def __iter__(self) -> Iterator[str]:
            return iter(ALL)

        def __len__(self) -> int:
            return len(ALL)

        def __contains__(self, name: object) -> bool:
            return name in ALL

    assert errors(Asked(), hosts=("n1",)) == ""
    assert names == ["munge_key"]
