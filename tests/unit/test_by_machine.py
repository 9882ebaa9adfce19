"""The tests of one machine run in one process, whatever other parameters they have."""

import pytest
from by_machine import machine_of

SPECS = [f"safe-ssh://{name}?ssh_config=/x" for name in ("trixie", "trixie-ctl")]


@pytest.mark.parametrize(
    ("nodeid", "machine"),
    [
        ("test_a.py::test_a[safe-ssh://trixie]", "safe-ssh://trixie"),
        ("test_a.py::test_a[safe-ssh://trixie-192.0.2.0/24-expected0]", "safe-ssh://trixie"),
        ("test_a.py::test_a[safe-ssh://trixie-ctl]", "safe-ssh://trixie-ctl"),
        ("test_a.py::test_a[safe-ssh://trixie-ctl-a]", "safe-ssh://trixie-ctl"),
        ("test_a.py::test_a", "test_a.py::test_a"),
        ("test_a.py::test_a[192.0.2.0]", "test_a.py::test_a[192.0.2.0]"),
    ],
)
def test_the_machine_of_a_test(nodeid, machine):
    assert machine_of(nodeid, SPECS) == machine
