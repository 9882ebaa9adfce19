"""Whatever is written in whatever place: an error with a line, never a traceback."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.definition import sources
from muster.definition.loading import examine

BASE = Path(__file__).parent / "base"
CLUSTER = yaml.safe_load((BASE / sources.CLUSTER_FILE).read_text())
HOSTS = yaml.safe_load((BASE / sources.HOSTS_FILE).read_text())
WRONG = [
    None,
    3,
    -1,
    10**10,
    2.5,
    True,
    "",
    "x y",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    {"x": {"x": 1}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(below, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copied = copy.deepcopy(value)
    here = copied
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = by
    return copied


@pytest.mark.parametrize(
    "path", list(places(CLUSTER)), ids=lambda path: ".".join(map(str, path)) or "-"
)
def test_anything_in_the_place_of_a_value_is_accepted_or_an_error_with_a_line(
    path: tuple[Any, ...], tmp_path: Path
) -> None:
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / sources.HOSTS_FILE).write_text(json.dumps(HOSTS))
    for wrong in WRONG:
        text = json.dumps(replaced(CLUSTER, path, wrong), indent=1)  # JSON is YAML
        (tmp_path / sources.CLUSTER_FILE).write_text(text)
        definition, problems = examine(sources.read(tmp_path, frozenset(), {}))
        # The rest is checked whatever is here, except for `cluster` itself.
        assert definition is not None or len(path) < 2
        assert definition is not None or problems
        for problem in problems:
            assert problem.line is not None
            assert problem.check != "other"
            assert "None" not in str(problem)


@pytest.mark.parametrize("wrong", ["x", ["ada"]])
def test_of_people_in_a_wrong_shape_nobody_is_told_that_they_are_missing(
    wrong: object, tmp_path: Path
) -> None:
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / sources.HOSTS_FILE).write_text(json.dumps(HOSTS))
    cluster = replaced(CLUSTER, ("cluster", "users"), wrong)
    (tmp_path / sources.CLUSTER_FILE).write_text(json.dumps(cluster))
    _, problems = examine(sources.read(tmp_path, frozenset(), {}))
    assert [problem.check for problem in problems] == ["not-a-mapping"]


@pytest.mark.parametrize(
    "path", list(places(HOSTS)), ids=lambda path: ".".join(map(str, path)) or "-"
)
def test_anything_in_hosts_yml_is_accepted_or_an_error_with_a_line(
    path: tuple[Any, ...], tmp_path: Path
) -> None:
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / sources.CLUSTER_FILE).write_text(json.dumps(CLUSTER))
    for wrong in WRONG:
        text = json.dumps(replaced(HOSTS, path, wrong), indent=1)
        (tmp_path / sources.HOSTS_FILE).write_text(text)
        definition, problems = examine(sources.read(tmp_path, frozenset(), {}))
        assert definition is not None or problems
        for problem in problems:
            assert problem.line is not None


@pytest.mark.parametrize("path", [(), ("secrets",), ("secrets", "munge_key")])
def test_of_a_secret_that_nothing_can_read_is_one_error_with_a_line(
    path: tuple[Any, ...], tmp_path: Path
) -> None:
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    file = tmp_path / sources.SECRETS_FILE
    file.touch(mode=0o600)
    secrets = {
        "secrets": {
            "munge_key": "7sE8uWZkTQvCGtCQ3bDhdvRVTkXRDKIVRbWFO8rqbkM=",
            "slurmdbd_password": "Mxuuy4f8Zy1qRkG",
        }
    }
    for wrong in WRONG:
        file.write_text(json.dumps(replaced(secrets, path, wrong), indent=1))
        problems = examine(sources.read(tmp_path, frozenset(), {}))[1]
        # One of a site's own without a value is wrong too.
        own = path == ("secrets",) and wrong == {"x": None}
        assert len(problems) == (2 if own else 1), wrong
        assert all(problem.line is not None for problem in problems)
