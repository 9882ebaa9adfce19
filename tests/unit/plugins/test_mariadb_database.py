"""What mariadb_database decides, as data; no server."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/mariadb_database.py"
SPEC = importlib.util.spec_from_file_location("mariadb_database", PATH)
assert SPEC is not None and SPEC.loader is not None
mariadb_database = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mariadb_database)

# SELECT PASSWORD('secret') of MariaDB 10.11.
HASH = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"
OTHER = "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
USAGE = f"GRANT USAGE ON *.* TO `slurm`@`localhost` IDENTIFIED BY PASSWORD '{HASH}'"
OWNS = r"GRANT ALL PRIVILEGES ON `slurm\_acct\_db`.* TO `slurm`@`localhost`"
LOGIN = f"'slurm'@'localhost' IDENTIFIED VIA mysql_native_password USING '{HASH}';"
GIVE = r"GRANT ALL PRIVILEGES ON `slurm\_acct\_db`.* TO 'slurm'@'localhost';"
TAKE = "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'slurm'@'localhost';"

CASES = {
    "a new server": (False, {}, ["CREATE DATABASE `slurm_acct_db`;", f"CREATE USER {LOGIN}", GIVE]),
    "nothing to do": (True, {"localhost": [USAGE, OWNS]}, []),
    "another password": (
        True,
        {"localhost": [USAGE.replace(HASH, OTHER), OWNS]},
        [f"ALTER USER {LOGIN}"],
    ),
    "rights over all databases": (
        True,
        {"localhost": [USAGE.replace("USAGE", "ALL PRIVILEGES"), OWNS]},
        [f"ALTER USER {LOGIN}", TAKE, GIVE],
    ),
    "rights on a further database": (
        True,
        {"localhost": [USAGE, OWNS, OWNS.replace(r"slurm\_acct\_db", "mysql")]},
        [TAKE, GIVE],
    ),
    "rights lost": (True, {"localhost": [USAGE]}, [GIVE]),
    "a host that is not listed": (
        True,
        {"localhost": [USAGE, OWNS], "%": [USAGE]},
        ["DROP USER 'slurm'@'%';"],
    ),
}


def wanted():
    hashed = mariadb_database.password_hash("secret")
    return {
        "localhost": mariadb_database.wanted_grants("slurm_acct_db", "slurm", "localhost", hashed)
    }


def test_the_hash_is_the_server_s():
    assert mariadb_database.password_hash("secret") == HASH


@pytest.mark.parametrize("case", CASES)
def test_the_statements(case):
    exists, current, expected = CASES[case]
    sql = mariadb_database.statements("slurm_acct_db", "slurm", wanted(), exists, current)
    assert sql == expected


def test_a_diff_holds_no_hash():
    assert HASH not in mariadb_database.shown(True, wanted(), "slurm_acct_db")


@pytest.mark.parametrize("name", ["a'b", "a`b", "", "a;b", "a b"])
def test_a_name_that_would_end_its_quotes_is_refused(name):
    with pytest.raises(mariadb_database.RefusedError, match="choose another"):
        mariadb_database.checked(mariadb_database.NAME, "database user", name)
