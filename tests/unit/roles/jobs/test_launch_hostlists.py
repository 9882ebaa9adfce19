"""Lists of nodes and numbers, as srun writes them."""

import jobs_library  # noqa: F401 (makes muster_launch importable)
import pytest
from muster_launch import hostlists
from muster_launch.errors import LaunchError

from muster.catalog.hostlists import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lab-gpu-01", ["lab-gpu-01"]),
        ("lab-gpu-[01-03]", ["lab-gpu-01", "lab-gpu-02", "lab-gpu-03"]),
        ("n[1,3-4],login", ["n1", "n3", "n4", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("b1,a[2-3],a1", ["b1", "a2", "a3", "a1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("slurm10-debug-[0,12]", ["slurm10-debug-0", "slurm10-debug-12"]),
    ],
)
def test_a_list_is_expanded_in_its_order(text: str, names: list[str]) -> None:
    assert hostlists.expand(text) == names
    assert sorted(names) == sorted(expand(text))


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "n[", "n]", "n[1-", "n[]", "n[3-1]", "n[1-2]]", "n[a]", "n[1-999999]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="can't be read; start the program with srun"):
        hostlists.expand(text)


def test_lists_without_end_are_refused() -> None:
    with pytest.raises(LaunchError):
        hostlists.expand("r[1-90000]n[1-90000]")
    with pytest.raises(LaunchError):
        hostlists.repeated("1(x999999999)")


@pytest.mark.parametrize(
    ("text", "numbers"), [("2(x2)", [2, 2]), ("2,1", [2, 1]), ("4(x2),1", [4, 4, 1]), ("7", [7])]
)
def test_numbers_are_repeated(text: str, numbers: list[int]) -> None:
    assert hostlists.repeated(text) == numbers


@pytest.mark.parametrize("text", ["", "2(2)", "x", "2,", "-1"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        hostlists.repeated(text)
