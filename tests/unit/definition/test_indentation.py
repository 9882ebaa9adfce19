"""A line, or a line with what is below it, that is indented otherwise: one mistake, one error."""

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from muster.definition import hosts_file, yaml_file
from muster.definition.indentation import put_right
from muster.definition.loading import examine
from muster.definition.sources import CLUSTER_FILE, HOSTS_FILE, Sources
from muster.definition.yaml_file import Document

HERE = Path(__file__).parent
STEP = 2
LEAST_ONE_ERROR = 0.97


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def shifted(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Texts in which a line, what is below it, or both have another indentation."""
    for first, line in enumerate(lines[1:], 1):
        last = first + 1
        while last < len(lines) and indent(lines[last]) > indent(line):
            last += 1
        parts = {"line": (first, first + 1), "all": (first, last), "below": (first + 1, last)}
        for part, (begin, end) in parts.items():
            further = [f"{' ' * STEP}{text}" for text in lines[begin:end]]
            less = [text.removeprefix(" " * STEP) for text in lines[begin:end]]
            for way, other in (("further", further), ("less", less)):
                if other:
                    changed = [*lines[:begin], *other, *lines[end:]]
                    yield f"{part} of line {first + 1} {way}: {line.strip()}", changed


def hosts_of(base: str) -> Document:
    file = HERE / base / HOSTS_FILE
    return yaml_file.read(file, HOSTS_FILE) if file.exists() else Document(HOSTS_FILE)


@pytest.mark.parametrize("base", ["base", "base-cloud"])
def test_nearly_each_other_indentation_is_one_error(base: str) -> None:
    lines = (HERE / base / CLUSTER_FILE).read_text().splitlines()
    hosts = hosts_of(base)
    counts: Counter[int] = Counter()
    several = []
    for name, changed in shifted(lines):
        cluster = yaml_file.parse("\n".join(changed), CLUSTER_FILE)
        problems = examine(Sources(cluster, hosts, hosts_file.parse(hosts)))[1]
        counts[len(problems)] += 1
        if len(problems) > 1:
            several.append("\n  ".join([name, *map(str, problems)]))
    wrong = counts.total() - counts[0]
    assert wrong > 100
    assert counts[1] >= LEAST_ONE_ERROR * wrong, "\n".join(several)


@pytest.mark.parametrize("base", ["base", "base-cloud"])
def test_what_is_right_stays_as_it_is(base: str) -> None:
    data = yaml.safe_load((HERE / base / CLUSTER_FILE).read_text())["cluster"]
    before = copy.deepcopy(data)
    assert put_right(data) == (before, [])


def test_the_data_of_the_file_are_not_changed() -> None:
    data = {"nodes": None, "cpu": {"sockets": 1, "memory_mib": 2}}
    moved, told = put_right(data)
    assert moved == {"nodes": {"cpu": {"sockets": 1, "memory_mib": 2}}}
    assert [(one.here, one.keys, one.there) for one in told] == [((), ("cpu",), ("nodes",))]
    assert data == {"nodes": None, "cpu": {"sockets": 1, "memory_mib": 2}}


def test_a_key_that_is_there_already_is_not_replaced() -> None:
    data = {"accounts": {"a": {"users": ["ada"]}}, "partitions": {"accounts": {"b": {}}}}
    assert put_right(data) == (data, [])
