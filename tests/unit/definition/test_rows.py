"""The shapes that rows of checks have: what each of them finds in a definition."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.definition import Definition, load
from muster.definition.checks import CHECKS
from muster.definition.checks.rows import (
    ListedTwice,
    ReservedWord,
    SharedValue,
    Spelling,
    UnknownName,
    Values,
    at,
    table,
)

BASE = Path(__file__).parent / "base"


@pytest.fixture(scope="module")
def base() -> Definition:
    return load(BASE)


def given(*found: tuple[tuple[Any, ...], Any]) -> Values:
    def values(d: Definition) -> Iterator[tuple[tuple[Any, ...], Any]]:
        yield from found

    return values


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("name", [(("name",), "base")]),
        (
            "users.groups.<name>",
            [(("users", "groups", "ml"), "ml"), (("users", "groups", "vision"), "vision")],
        ),
        ("users.people.<name>.groups.[]", [(("users", "people", "ada", "groups", 0), "ml")]),
        # bob has none.
        ("users.people.<name>.email", [(("users", "people", "ada", "email"), "ada@example.org")]),
        ("cloud.subnet", []),
        (
            "software.modules.<name>.<version>.env.<name>",
            [(("software", "modules", "libs/torch", "2.4", "env", "TORCH"), "TORCH")],
        ),
    ],
)
def test_a_path_finds_values_with_their_places(base: Definition, path: str, expected: Any) -> None:
    assert list(at(path)(base)) == expected


def test_several_paths_are_looked_at_in_their_order(base: Definition) -> None:
    assert [value for _, value in at("mail.relay", "name")(base)] == ["smtp.example.org", "base"]


def test_a_path_that_the_schema_does_not_have_is_no_empty_answer(base: Definition) -> None:
    with pytest.raises(AttributeError, match="peple"):
        list(at("users.peple.<name>")(base))


@pytest.mark.parametrize("rule", [r"[a-z]+", str.islower])
def test_a_spelling_is_the_whole_value(base: Definition, rule: Any) -> None:
    values = given((("a",), "abc"), (("b",), "abC"))
    row = Spelling("name", "refuses", values, rule, '"{value}" is wrong', "use {braces}")
    (found,) = row.findings(base)
    assert (found.path, found.message, found.remedy) == (("b",), '"abC" is wrong', "use {braces}")


def test_braces_in_a_value_are_no_part_of_the_message(base: Definition) -> None:
    row = Spelling("name", "refuses", given((("a",), "{0}")), "x", "{value}?", "remedy")
    assert [finding.message for finding in row.findings(base)] == ["{0}?"]


@pytest.mark.parametrize(
    ("any_case", "expected"), [(False, ["root"]), (True, ["root", "Root", "ROOT"])]
)
def test_a_reserved_word_is_found_as_it_is_written_or_in_any_case(
    base: Definition, any_case: bool, expected: list[str]
) -> None:
    values = given(*(((word,), word) for word in ("root", "Root", "ROOT", "roots")))
    row = ReservedWord("name", "refuses", values, ("root",), "{value}", "remedy", any_case)
    assert [finding.message for finding in row.findings(base)] == expected


def test_an_item_may_be_in_two_lists_but_not_twice_in_one(base: Definition) -> None:
    values = given((("a", 0), "x"), (("b", 0), "x"), (("b", 1), "y"), (("b", 2), "x"))
    found = list(ListedTwice("name", "refuses", values).findings(base))
    assert [(finding.path, finding.message) for finding in found] == [
        (("b", 2), '"x" is listed twice')
    ]


def test_each_later_owner_of_a_value_is_told_who_was_first(base: Definition) -> None:
    values = given((("people", "ada"), 1), (("people", "bob"), 1), (("people", "eve"), 1))
    row = SharedValue("name", "refuses", values, "{path[1]}: {first[1]} has {value}", "remedy")
    assert [(finding.path[1], finding.message) for finding in row.findings(base)] == [
        ("bob", "bob: ada has 1"),
        ("eve", "eve: ada has 1"),
    ]


def test_an_unknown_name_is_compared_with_the_known_ones(base: Definition) -> None:
    values = given((("a",), "ml"), (("b",), "vison"))
    row = UnknownName("name", "refuses", values, "users.groups.<name>", "no {value}", "add it")
    (found,) = row.findings(base)
    assert (found.path, found.message) == (("b",), "no vison")
    assert found.remedy == 'did you mean "vision"?'
    assert found.because == ("users", "groups", "vison")


def test_a_name_of_two_parts_has_a_slash_between_them(base: Definition) -> None:
    values = given((("a",), "apps/python/3.10"), (("b",), "apps/python/3.9"))
    known = "software.modules.<name>.<version>"
    (found,) = UnknownName("name", "refuses", values, known, "no {value}", "").findings(base)
    assert found.path == ("b",)
    assert found.because == ("software", "modules", "apps/python", "3.9")


def test_a_row_is_registered_once() -> None:
    before = dict(CHECKS)
    row = ListedTwice("feature-twice", "A feature that is listed twice", at("name"))
    with pytest.raises(ValueError, match="two checks are called feature-twice"):
        table(row)
    assert before == CHECKS


@pytest.mark.parametrize(("file", "reads_hosts"), [("cluster", False), ("hosts", True)])
def test_a_row_about_hosts_needs_a_readable_hosts_yml(file: str, reads_hosts: bool) -> None:
    row = ListedTwice("name", "refuses", at("name"), file=file)
    assert row.check().reads_hosts is reads_hosts
