"""Checks of group_vars and host_vars: group, host and variables exist, and their types fit."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from muster.definition.checks.registry import Finding, source_check, suggestion
from muster.definition.checks.variables import variables
from muster.definition.sources import SECRETS_FILE, Sources, overridden
from muster.definition.yaml_file import Vaulted

# Groups that Ansible makes.
_ALWAYS = ("all", "ungrouped")


def _without_target(sources: Sources, folder: str, known: set[str]) -> Iterator[tuple[str, str]]:
    """Each group or host that is not known, with the first of its files."""
    said: set[str] = set()
    for file in sources.overrides:
        name = overridden(file)
        if file.startswith(f"{folder}/") and name not in known | said:
            said.add(name)
            yield name, file


@source_check("variables-of-no-group")
def variables_of_no_group(sources: Sources) -> Iterator[Finding]:
    """A file in group_vars for a group that hosts.yml does not have: Ansible never reads it."""
    if sources.members is None:
        return
    known = {*sources.members.groups, *_ALWAYS}
    for name, file in _without_target(sources, "group_vars", known):
        remedy = suggestion(name, known, "name the file after a group of hosts.yml")
        yield Finding((), f'there is no group "{name}"', remedy, file, 1)


@source_check("variables-of-no-host")
def variables_of_no_host(sources: Sources) -> Iterator[Finding]:
    """A file in host_vars for a host that hosts.yml does not have: Ansible never reads it."""
    if sources.members is None:
        return
    known = set(sources.members.groups["all"])
    for name, file in _without_target(sources, "host_vars", known):
        yield Finding(
            (),
            f'there is no host "{name}"',
            "name the file after a host of hosts.yml, or remove it",
            file,
            1,
        )


@source_check("variables-shape")
def variables_shape(sources: Sources) -> Iterator[Finding]:
    """A file of group_vars or host_vars that is no mapping of variables: Ansible ends with it."""
    for file, document in {**sources.others, **sources.overrides}.items():
        if file != SECRETS_FILE and not isinstance(document.data, dict | None):
            message = "the file is no mapping of variables"
            remedy = "write each variable in its own line, as in NAME: VALUE, or take the file away"
            yield Finding((), message, remedy, file, document.line(()))


@source_check("role-variable-unknown")
def role_variable_unknown(sources: Sources) -> Iterator[Finding]:
    """A variable that begins like those of a role, and that the role does not take."""
    roles: dict[str, str | None] = {}  # of the same few names for each of thousands of hosts
    for given in variables(sources):
        name = given.name
        if name not in roles:
            begins = (role for role in sources.role_variables if name.startswith(f"{role}_"))
            roles[name] = next(begins, None)
        role = roles[name]
        # secrets.yml may have secrets of a site under such names.
        if role and name not in sources.role_variables[role] and given.file != SECRETS_FILE:
            message = f'the role {role} has no variable "{name}"'
            known = sources.role_variables[role]
            yield given.finding(message, suggestion(name, known, f"see roles/{role}/README.md"))


# What Ansible takes for a bool.
_BOOLEANS = ("yes", "on", "true", "t", "y", "1", "no", "off", "false", "f", "n", "0")
_KINDS = {
    "list": "a list",
    "dict": "a mapping",
    "int": "a whole number",
    "bool": "true or false",
    "str": "a text",
    "path": "a text",
}

_FITS: dict[str, Callable[[Any], bool]] = {
    "list": lambda value: isinstance(value, list),
    "dict": lambda value: isinstance(value, dict),
    "int": lambda value: re.fullmatch(r"\s*[+-]?[0-9]+(\.0*)?\s*", str(value)) is not None,
    "bool": lambda value: str(value).lower() in _BOOLEANS,
    "str": lambda value: not isinstance(value, list | dict),
    "path": lambda value: not isinstance(value, list | dict),
}


@source_check("role-variable-type")
def role_variable_type(sources: Sources) -> Iterator[Finding]:
    """A value of another type than the role takes, such as a text for a list."""
    for role, options in sources.role_variables.items():
        # Ansible makes a list of a text when it validates the variable; templates get the text.
        for given in variables(sources, options):
            option = options[given.name]
            if option.get("no_log") or given.file == SECRETS_FILE or given.spelt is not None:
                continue  # a value that can't be shown, or of which another check says more
            for below, value, kind in _misfits(given.value, option):
                shown = f"item {below[0] + 1}, {_shown(value)}," if below else _shown(value)
                yield Finding(
                    given.path,
                    f"{shown} is not {_KINDS[kind]}",
                    _remedy(value, kind, option.get("elements"), role),
                    given.file,
                    given.document.line((*given.place, *below)),
                )


def _misfits(value: Any, option: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], Any, str]]:
    """What is not of its type, the value or items of a list: its index, itself and the type."""
    kind = option.get("type", "str")
    if not _fits(value, kind):
        yield (), value, kind
    elif kind == "list" and isinstance(value, list):
        elements = option.get("elements", "")
        for index, item in enumerate(value):
            if not _fits(item, elements):
                yield (index,), item, elements


def _fits(value: Any, kind: str) -> bool:
    """Whether a value is of a type of Ansible's, or nobody can tell yet."""
    if isinstance(value, str) and (isinstance(value, Vaulted) or re.search(r"\{[{%]", value)):
        return True
    return value is None or kind not in _FITS or _FITS[kind](value)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return _KINDS[type(value).__name__]
    if isinstance(value, str) and not re.fullmatch(r"[^\n]{,60}", value):
        return "this text"
    return json.dumps(value, ensure_ascii=False, default=str)


def _remedy(value: Any, kind: str, elements: str | None, role: str) -> str:
    if kind == "int":
        return "write digits alone"
    if kind == "bool":
        return "write one of the two"
    simple = elements in ("str", "path", "int") and re.fullmatch(r"[^\n]{1,60}", str(value))
    if kind == "list" and value == "":
        return "write []"
    if kind == "list" and simple and not isinstance(value, list | dict):
        items = (item.strip() for item in str(value).split(","))
        return f"write [{', '.join(map(_item, items))}]"
    return f"see roles/{role}/README.md"


def _item(text: str) -> str:
    """A text as an item of a list in YAML."""
    return text if re.fullmatch(r"[\w/][\w/.@-]*", text) else json.dumps(text, ensure_ascii=False)
