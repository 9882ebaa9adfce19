"""A mistake that is repeated a thousand times: how much of it is said."""

from pathlib import Path

from test_loading import base, inventory, problems

from muster.definition.problems import Problem
from muster.definition.repeats import MOST, shortened


def problem(line: int, check: str = "uid-twice", file: str = "cluster.yml") -> Problem:
    return Problem(file, line, "users", "wrong", "mend it", check)


def test_what_differs_is_left_as_it_is() -> None:
    given = [problem(line) for line in range(MOST)]
    assert shortened(enumerate(given)) == given


def test_of_one_subject_the_first_one_says_how_many_more_there_are() -> None:
    (left,) = shortened(("a range", problem(7)) for _ in range(10_000))
    assert str(left) == "cluster.yml:7: users: wrong; mend it (and 9,999 more like it)"


def test_of_one_check_and_file_so_many_are_left_and_the_last_one_counts_the_others() -> None:
    left = shortened((line, problem(line)) for line in range(1000))
    assert [one.line for one in left] == list(range(MOST))
    assert [one.more for one in left] == [0] * (MOST - 1) + [1000 - MOST]


def test_no_problem_is_lost_in_the_counts() -> None:
    left = shortened((line // 10, problem(line)) for line in range(1000))
    assert len(left) + sum(one.more for one in left) == 1000


def test_each_check_and_each_file_has_its_own_count() -> None:
    given = [problem(line, check, file) for line in range(MOST) for check in "ab" for file in "cd"]
    assert len(shortened(enumerate(given))) == len(given)


def test_a_range_of_wrong_names_is_one_error_and_wrong_names_in_one_line_are_two(
    tmp_path: Path,
) -> None:
    hosts = """\
controller: {hosts: {head: {ansible_host: 192.0.2.1}}}
login: {hosts: {head: }}
database: {hosts: {head: }}
compute: {children: {cpu: {hosts: {"Node_[0001:2000]": }}, gpu: {hosts: {a_b: , c_d: }}}}
"""
    found = problems(inventory(tmp_path, base(), hosts))
    assert [(one.check, one.line, one.more) for one in found] == [
        ("host-name", 4, 1999),
        ("host-name", 4, 0),
        ("host-name", 4, 0),
    ]
