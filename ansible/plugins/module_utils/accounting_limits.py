# SPDX-License-Identifier: Apache-2.0
"""Limits and other settings of QoS and associations: sacctmgr's notation, and words for people.

Sources: src/sacctmgr/qos_functions.c, association_functions.c and common.c of the tags
slurm-22-05-8-1 and slurm-24-11-5-1. Both releases have all fields below, by these full names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

Key = tuple[str, str]
"""A field, and the TRES or flag of it; the second is empty for a field with one value."""
Settings = Mapping[Key, str]
"""What is set, in the form of `parsed`. What has SLURM's default is left out."""


@dataclass(frozen=True)
class Field:
    """A field of `sacctmgr show` and `sacctmgr modify`."""

    kind: str
    """number, minutes, seconds, factor, word, names, flags or tres."""
    words: str
    """For people; `{tres}` stands for the TRES."""
    default: str = ""
    """The value that it has where nobody set one."""
    clear: str = "-1"
    """What sacctmgr takes to go back to that."""


_RUN_MINS = "minutes that running jobs may still use of {tres}"
QOS_FIELDS = {
    "Priority": Field("number", "priority", "0", "0"),
    "GraceTime": Field("seconds", "seconds between notice and preemption", "0", "0"),
    "Preempt": Field("names", "preempts", clear=""),
    "PreemptMode": Field("word", "preempted by", "cluster", "cluster"),
    "Flags": Field("flags", "flag {tres}"),
    "UsageFactor": Field("factor", "factor of usage", "1", "1"),
    "GrpTRES": Field("tres", "{tres} at once"),
    "GrpTRESRunMins": Field("tres", _RUN_MINS),
    "GrpJobs": Field("number", "running jobs"),
    "GrpSubmitJobs": Field("number", "jobs, waiting ones too"),
    "MaxTRESPerJob": Field("tres", "{tres} of a job"),
    "MaxTRESPerNode": Field("tres", "{tres} of a job on each node"),
    "MaxTRESPerUser": Field("tres", "{tres} at once of a user"),
    "MaxTRESPerAccount": Field("tres", "{tres} at once of an account"),
    "MaxJobsPerUser": Field("number", "running jobs of a user"),
    "MaxJobsPerAccount": Field("number", "running jobs of an account"),
    "MaxSubmitJobsPerUser": Field("number", "jobs of a user, waiting ones too"),
    "MaxSubmitJobsPerAccount": Field("number", "jobs of an account, waiting ones too"),
    "MaxWallDurationPerJob": Field("minutes", "longest time of a job"),
    "MinTRESPerJob": Field("tres", "least {tres} of a job"),
}
"""Those of a QoS, in the order in which they are read."""

QOS_LIST, DEFAULT_QOS, FAIRSHARE = "QOSLevel", "DefaultQOS", "FairShare"
ASSOCIATION_FIELDS = {
    FAIRSHARE: Field("word", "shares", "1", "1"),
    QOS_LIST: Field("names", "allowed QoS", clear=""),
    DEFAULT_QOS: Field("word", "default QoS"),
    "GrpTRES": Field("tres", "{tres} at once"),
    "GrpTRESRunMins": Field("tres", _RUN_MINS),
    "GrpJobs": Field("number", "running jobs"),
    "GrpSubmitJobs": Field("number", "jobs, waiting ones too"),
    "MaxTRESPerJob": Field("tres", "{tres} of a job"),
    "MaxTRESPerNode": Field("tres", "{tres} of a job on each node"),
    "MaxJobs": Field("number", "running jobs of a user"),
    "MaxSubmitJobs": Field("number", "jobs of a user, waiting ones too"),
    "MaxWallDurationPerJob": Field("minutes", "longest time of a job"),
}
"""Those of an association, likewise."""

Fields = Mapping[str, Field]

_TRES_WORDS = {
    "cpu": "CPUs",
    "mem": "MiB of memory",
    "node": "nodes",
    "gres/gpu": "GPUs",
    "gres/shard": "shards of GPUs",
    "billing": "billing units",
}
_UNITS = {"": 1, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([MGTP]?)")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-9]{2}):([0-9]{2})")


def parsed(fields: Fields, texts: Iterable[str]) -> dict[Key, str]:
    """Return the settings of a line of `sacctmgr -nP show`, its fields in the order of `fields`."""
    settings: dict[Key, str] = {}
    for (name, field), text in zip(fields.items(), texts, strict=True):
        for part, value in _parts(field, text):
            if value not in ("", field.default):
                settings[name, part] = value
    return settings


def _parts(field: Field, text: str) -> Iterable[tuple[str, str]]:
    """Yield (TRES or flag, value) of what sacctmgr printed of a field."""
    if field.kind == "tres":
        for entry in filter(None, text.split(",")):
            tres, _, amount = entry.partition("=")
            size = _SIZE.fullmatch(amount)
            # NONE: the limit of that TRES was cleared.
            if size:
                yield tres, str(round(float(size[1]) * _UNITS[size[2]]))
    elif field.kind == "flags":
        for flag in filter(None, text.split(",")):
            yield flag, "yes"
    elif field.kind == "names":
        yield "", ",".join(sorted(filter(None, text.split(","))))
    elif field.kind in ("minutes", "seconds"):
        time = _TIME.fullmatch(text)
        if time:
            seconds = int(time[1] or 0) * 86400 + int(time[2]) * 3600
            seconds += int(time[3]) * 60 + int(time[4])
            yield "", str(seconds // 60 if field.kind == "minutes" else seconds)
    elif field.kind == "factor":
        yield "", f"{float(text or 1):g}"
    else:
        # A default QoS that is none any more is printed as UNKN-<id>.
        yield "", "" if text.startswith("UNKN-") else text


def asked(who: str, fields: Fields, given: Mapping[str, object]) -> dict[Key, str]:
    """Return the settings that options of a module ask for: name of a field -> value.

    TRES and flags are mappings (`{gres/gpu: 4}`, `{DenyOnLimit: true}`), names are lists, a job's
    longest time is in minutes. None in place of a number is none.

    Raises:
        RefusedError: no field has the name, or the value is of another type.

    """
    names = {name.lower(): name for name in fields}
    settings: dict[Key, str] = {}
    for key, value in given.items():
        name = names.get(key.lower())
        if name is None:
            raise RefusedError(f'{who}: there is no limit "{key}"; choose from {", ".join(fields)}')
        for part, text in _asked_parts(who, name, fields[name], value):
            settings[name, part] = text
    return settings


def _asked_parts(who: str, name: str, field: Field, value: object) -> Iterable[tuple[str, str]]:
    if field.kind == "tres" and isinstance(value, Mapping):
        for tres, amount in value.items():
            number = _number(f"{who}: {name} of {tres}", amount)
            if tres == "mem" and _read_back(int(number)) != int(number):
                raise RefusedError(
                    f"{who}: {name} of mem is {number} MiB, which sacctmgr prints rounded, so that "
                    "nobody can tell whether it is set; take a multiple of 1024"
                )
            yield str(tres), number
    elif field.kind == "flags" and isinstance(value, Mapping):
        for flag, is_set in value.items():
            yield str(flag), "yes" if is_set else ""
    elif field.kind == "names" and isinstance(value, list):
        yield "", ",".join(sorted({str(entry) for entry in value}))
    elif field.kind == "factor" and isinstance(value, int | float):
        yield "", f"{value:g}"
    elif field.kind == "word" and isinstance(value, str | int):
        yield "", str(value)
    elif field.kind in ("number", "minutes", "seconds"):
        yield "", "" if value is None else _number(f"{who}: {name}", value)
    else:
        shape = {
            "tres": "a mapping such as {cpu: 4}",
            "flags": "a mapping such as {DenyOnLimit: true}",
            "factor": "a number",
            "word": "one word",
        }
        raise RefusedError(f"{who}: {name} has to be {shape.get(field.kind, 'a list')}")


def _read_back(mib: int) -> int:
    """Return what can be read of an amount of memory that sacctmgr prints, in MiB.

    It takes larger units as long as halves stay exact, and prints two digits: 1 TiB and 512 MiB are
    "1.00T" (CONVERT_NUM_UNIT_EXACT in convert_num_unit2 of src/common/slurm_protocol_api.c).
    """
    number, unit = float(mib), 1
    while number >= 1024 and int(number) % 512 == 0 and unit < _UNITS["P"]:
        number, unit = number / 1024, unit * 1024
    return round(float(f"{number:.2f}") * unit)


def _number(what: str, value: object) -> str:
    if not re.fullmatch(r"[0-9]+", str(value)):
        raise RefusedError(f"{what} is {value}, and has to be a whole number of at least 0")
    return str(int(str(value)))


def arguments(fields: Fields, current: Settings, goal: Settings) -> list[str]:
    """Return the arguments of sacctmgr, after `set`, that lead from `current` to `goal`."""
    words = []
    for name, field in fields.items():
        before = {part: value for (of, part), value in current.items() if of == name}
        after = {part: value for (of, part), value in goal.items() if of == name}
        if before == after:
            continue
        if field.kind == "tres":
            # What is not named stays as it is.
            changed = {part: "-1" for part in before if part not in after}
            changed |= {part: text for part, text in after.items() if before.get(part) != text}
            value = ",".join(f"{part}={text}" for part, text in sorted(changed.items()))
        elif field.kind == "flags":
            value = ",".join(sorted(after)) or field.clear
        else:
            value = after.get("", field.clear)
        words.append(f"{name}={value}")
    return words


def tres_of(fields: Fields, settings: Settings) -> set[str]:
    """Return the TRES that have a limit."""
    return {part for name, part in settings if fields[name].kind == "tres"}


def changes(who: str, fields: Fields, current: Settings, goal: Settings) -> list[str]:
    """Return what changes as lines for people, such as `ada: GPUs at once 8 -> 4`."""
    return [
        f"{who}: {spoken(fields, key)} {_value(fields, key, current)} -> "
        f"{_value(fields, key, goal)}"
        for key in ordered_keys(fields, {**current, **goal})
        if current.get(key) != goal.get(key)
    ]


def ordered_keys(fields: Fields, settings: Settings) -> list[Key]:
    """Return the keys in the order of `fields`."""
    names = list(fields)
    return sorted(settings, key=lambda key: (names.index(key[0]), key[1]))


def spoken(fields: Fields, key: Key) -> str:
    """Return what a setting is called."""
    name, part = key
    words = _TRES_WORDS.get(part, part)
    if part.startswith("gres/gpu:"):
        words = f"GPUs of type {part.partition(':')[2]}"
    return fields[name].words.format(tres=words)


def shown(fields: Fields, key: Key, settings: Settings) -> str:
    """Return a setting with its value, such as `GPUs at once 8`."""
    return f"{spoken(fields, key)} {_value(fields, key, settings)}"


def _value(fields: Fields, key: Key, settings: Settings) -> str:
    field = fields[key[0]]
    value = settings.get(key, field.default)
    if field.kind == "minutes" and value:
        hours, minutes = divmod(int(value), 60)
        days, hours = divmod(hours, 24)
        return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:00"
    if field.kind == "flags":
        return value or "no"
    return value or "none"
