"""The tests of one release's machines run in one process, whatever other parameters they have."""

import pytest
from by_release import release_of

SPECS = [f"safe-ssh://{name}?ssh_config=/x" for name in ("trixie", "trixie-ctl")]


@pytest.mark.parametrize(
    ("nodeid", "release"),
    [
        ("test_a.py::test_a[safe-ssh://trixie]", "trixie"),
        ("test_a.py::test_a[safe-ssh://trixie-192.0.2.0/24-expected0]", "trixie"),
        ("test_a.py::test_a[safe-ssh://trixie-ctl]", "trixie"),
        ("test_a.py::test_a[safe-ssh://trixie-ctl-a]", "trixie"),
        ("test_a.py::test_a[-safe-ssh://trixie]", "trixie"),
        ("test_a.py::test_a[TmpFS=/scratch-safe-ssh://trixie-ctl-a]", "trixie"),
        ("test_a.py::test_a", "test_a.py::test_a"),
        ("test_a.py::test_a[192.0.2.0]", "test_a.py::test_a[192.0.2.0]"),
    ],
)
def test_the_release_of_a_test_s_machine(nodeid, release):
    assert release_of(nodeid, SPECS) == release
