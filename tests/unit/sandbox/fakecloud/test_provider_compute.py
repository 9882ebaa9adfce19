"""Each recorded sequence of calls of Google's Pulumi provider: provider_compute.yml."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import yaml
from fakecloud_calls import Caller

SEQUENCES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("provider_compute.yml").read_text(encoding="utf-8")
)


def filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], value)
    if isinstance(value, list):
        return [filled(inner, variables) for inner in value]
    if isinstance(value, dict):
        return {name: filled(inner, variables) for name, inner in value.items()}
    return value


def missing(expected: Any, actual: Any, where: str = "") -> list[str]:
    """The members that an answer lacks, or has with another value."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            line
            for name, inner in expected.items()
            for line in missing(inner, actual.get(name), f"{where}.{name}")
        ]
    return [] if expected == actual else [f"{where}: {actual!r}, not {expected!r}"]


@pytest.mark.parametrize("title", SEQUENCES)
def test_the_provider_gets_what_it_needs(lab: Caller, title: str):
    variables: dict[str, str] = {}
    for number, step in enumerate(SEQUENCES[title]):
        assert step.keys() <= {"call", "body", "status", "expect", "save", "project"}, step
        verb, _, rest = filled(step["call"], variables).partition(" ")
        path, _, query = rest.partition("?")
        status, answer = lab(
            verb,
            path,
            filled(step.get("body"), variables),
            version="beta",
            project=step.get("project", "demo-project"),
            **dict(parse_qsl(f"alt=json&prettyPrint=false&{query}")),
        )
        at = f"step {number}: {step['call']}"
        assert status == step.get("status", 200), f"{at}: {answer}"
        if status == 200 and verb != "GET":
            assert answer["name"] and answer["status"] == "DONE", at
            assert "error" not in answer, f"{at}: {answer['error']}"
        assert missing(filled(step.get("expect", {}), variables), answer) == [], at
        for variable, member in step.get("save", {}).items():
            value: Any = answer
            for name in member.split("."):
                value = value[name]
            variables[variable] = value
