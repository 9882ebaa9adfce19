"""Checks of the values that are passed on to slurm.conf and cgroup.conf."""

import re
from collections.abc import Iterator
from math import isfinite

from muster.catalog.slurm_parameters import (
    REFUSED_VALUES,
    REMOVED,
    UNSAFE_VALUES,
    ValueType,
    parameters,
)
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.slurm import given, owned
from muster.definition.definition import Definition
from muster.definition.schema import times
from muster.definition.schema.base import Scalar
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

# Octal for SLURM with a leading zero (strtoul), and with K times 1024 where it has 32 bits or more.
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,29})([kK]?)")
_BOOLEANS = ("yes", "up", "true", "1", "no", "down", "false", "0")
_SETTING = re.compile(r" (\w+) *=")
MUSTER_WEIGHTS = {"priorityweightfairshare": 100_000, "priorityweightage": 10_000}
"""What Muster sets where they are not given: muster/render/slurm/slurm_conf.py."""
MUSTER_QOS_WEIGHT = 50_000
"""Likewise, where a QoS has a priority."""
_PRIORITY_WEIGHTS = tuple(
    f"priorityweight{what}" for what in ("age", "assoc", "fairshare", "jobsize", "partition", "qos")
)
SHORTEST_SUSPEND_S = 110
"""What the autoscaler decides about a start of a node may be done so long after the states that it
rests on; SLURM must not ask for the node again before that (STALE_S, RELEASE_S and FRESH_S of
muster/autoscaler)."""
_UINT16_MAX, _UINT32_MAX = 65535, 2**32 - 1


def _passed_on(d: Definition) -> Iterator[tuple[str, str, str, Scalar]]:
    """What is given but for the parameters that Muster decides: of those the value is no matter."""
    return (item for item in given(d) if not owned(d, item[0], item[2]))


def _written(value: Scalar) -> str:
    """The value as it stands in SLURM's file."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _words(value: Scalar) -> set[str]:
    return {part.strip().lower() for part in _written(value).split(",")}


def _second(file: str, value: Scalar) -> str | None:
    """The parameter that a value sets after its own, as in `60 Prolog=/x`."""
    names = _SETTING.findall(_written(value))
    return next((name for name in names if name.lower() in parameters(file)), None)


@check("parameter-value-refused")
def parameter_value_refused(d: Definition) -> Iterator[Finding]:
    """A value that this release of SLURM does not start with, or logs as an error."""
    release = d.cluster.slurm_version
    for file, key, name, value in _passed_on(d):
        for refused in REFUSED_VALUES:
            same = refused.file == file and refused.parameter.lower() == name.lower()
            if same and refused.value.lower() in _words(value) and refused.refused_by(release):
                yield Finding(
                    (key, name), f"SLURM {release} refuses {refused.value} here", refused.remedy
                )


@check("parameter-value-unsafe")
def parameter_value_unsafe(d: Definition) -> Iterator[Finding]:
    """A value that takes away what Muster relies on, such as the isolation of jobs."""
    for file, key, name, value in _passed_on(d):
        for unsafe_file, parameter, word, why, remedy in UNSAFE_VALUES:
            if (file, name.lower()) == (unsafe_file, parameter) and word in _words(value):
                yield Finding((key, name), why, remedy)


@check("parameter-comment")
def parameter_comment(d: Definition) -> Iterator[Finding]:
    """A value with #, which begins a comment in SLURM's configuration."""
    for file, key, name, value in _passed_on(d):
        if "#" in str(value):
            yield Finding((key, name), f"{file} ends at the # of this value", "leave the # out")


@check("parameter-quote")
def parameter_quote(d: Definition) -> Iterator[Finding]:
    """A value with a double quote, which no value of SLURM's configuration can hold."""
    for file, key, name, value in _passed_on(d):
        if '"' in str(value):
            yield Finding(
                (key, name),
                f"{file} can't hold the \" of this value",
                'leave the " out: blanks need none',
            )


@check("parameter-empty")
def parameter_empty(d: Definition) -> Iterator[Finding]:
    """A parameter without a value, which SLURM can't read."""
    for file, key, name, value in _passed_on(d):
        if str(value).strip() == "":
            yield Finding(
                (key, name), f"{file} can't have {name} without a value", "give one or take it out"
            )


@check("parameter-in-value")
def parameter_in_value(d: Definition) -> Iterator[Finding]:
    """A value that sets a second parameter, such as `60 KillWait=5`."""
    for file, key, name, value in _passed_on(d):
        if second := _second(file, value):
            remedy = (
                f"take {second} out: Muster decides it"
                if owned(d, file, second)
                else f"give {second} a line of its own below `{key}`"
            )
            yield Finding((key, name), f"this value of {name} sets {second} too", remedy)


@check("parameter-type")
def parameter_type(d: Definition) -> Iterator[Finding]:
    """A value of another type than SLURM takes, or beyond the bounds of its number."""
    for file, key, name, value in _passed_on(d):
        known = parameters(file).get(name.lower())
        if (
            known is None
            or name.lower() in REMOVED[file]
            or re.search(r'["#\x00-\x1f]|^\s*$', str(value))
            or _second(file, value)
        ):
            continue  # another check says what is wrong
        if wrong := _wrong(known.type, value):
            yield Finding((key, name), f"{_written(value)} is {wrong[0]}", wrong[1])


_Wrong = tuple[str, str] | None
"""What is wrong with a value, and what to write; None: nothing."""


def _wrong(wanted: ValueType, value: Scalar) -> _Wrong:
    text = _written(value)
    judge = _JUDGES.get(wanted.kind)
    wrong = judge(wanted, text) if judge else _wrong_text(wanted, value, text)
    if wrong and isinstance(value, bool) and wanted.kind != "number":
        # YAML 1.1 reads off and on so too.
        return "yes or no to YAML", 'write the word of SLURM\'s manual, in quotes, such as "off"'
    return wrong


def _wrong_text(wanted: ValueType, value: Scalar, text: str) -> _Wrong:
    if isinstance(value, bool | float):
        return "no text", f'put it in quotes as SLURM\'s manual spells it: "{text}"'
    if wanted.kind == "path" and not text.startswith("/"):
        return "no absolute path", "write the whole path, from / on"
    return _blanks(text) if wanted.kind == "words" else None


def _blanks(text: str) -> _Wrong:
    if not re.search(r"\s", text):
        return None
    return "a list with blanks", f"write {','.join(text.replace(',', ' ').split())}"


def _wrong_number(wanted: ValueType, text: str) -> _Wrong:
    bounds = f"write a whole number from {wanted.least} to {wanted.most}"
    if wanted.endless and text.upper() in times.ENDLESS:
        return None
    number = _number(text)
    if number is None or (not text.isdigit() and wanted.most <= _UINT16_MAX):
        return "no number that SLURM can read", bounds
    if number < wanted.least:
        return "too small", bounds
    return ("too large for SLURM", bounds) if number > wanted.most else None


def _number(text: str) -> int | None:
    """A whole number as SLURM reads it; None for another text."""
    match = _NUMBER.fullmatch(text)
    return int(match[1]) * (1024 if match[2] else 1) if match else None


def _wrong_percent(_: ValueType, text: str) -> _Wrong:
    is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)
    return None if is_number else ("no percentage", "write a number such as 50 or 99.5")


def _wrong_boolean(_: ValueType, text: str) -> _Wrong:
    return None if text.lower() in _BOOLEANS else ("neither yes nor no", "write yes or no")


def _wrong_choice(wanted: ValueType, text: str) -> _Wrong:
    return None if text.lower() in wanted.choices else ("not possible", _choices(wanted, text))


def _wrong_flags(wanted: ValueType, text: str) -> _Wrong:
    if wrong := _blanks(text):
        return wrong
    for word in text.split(","):
        if word.lower() not in wanted.choices:
            return f'wrong at "{word}"', _choices(wanted, word)
    return None


def _choices(wanted: ValueType, word: str) -> str:
    near = nearest(word.lower().strip(), wanted.choices)
    meant = f'did you mean "{near}"? ' if near else ""
    words = [choice for choice in wanted.choices if not choice.isdigit()]
    return f"{meant}choose from {', '.join(words)}"


def _wrong_time(_: ValueType, text: str) -> _Wrong:
    remedy = 'write "days-hours" ("7-0"), "hours:minutes:seconds", minutes or UNLIMITED'
    try:
        seconds = times.seconds(text)
    except times.TimeError:
        return "no time that SLURM can read", remedy
    if isfinite(seconds) and seconds > times.LONGEST:
        return "longer than SLURM can count", "give at most 24855-00:00:00, or UNLIMITED"
    return None


def _wrong_ports(_: ValueType, text: str) -> _Wrong:
    match = re.fullmatch(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})", text)
    if match and int(match[1]) < int(match[2]) <= _UINT16_MAX:
        return None
    return "no range of ports", "write the first and the last, such as 60001-63000"


def _wrong_licenses(_: ValueType, text: str) -> _Wrong:
    for word in re.split("[,;]", text):
        name, _colon, number = word.replace("=", ":").partition(":")
        if not re.fullmatch(r"[^\s:]+", name) or not re.fullmatch(r"[0-9]{1,9}|", number):
            return f'wrong at "{word}"', "write each as NAME:NUMBER, such as matlab:10"
    return None


_JUDGES = {
    "number": _wrong_number,
    "percent": _wrong_percent,
    "boolean": _wrong_boolean,
    "choice": _wrong_choice,
    "flags": _wrong_flags,
    "time": _wrong_time,
    "ports": _wrong_ports,
    "licenses": _wrong_licenses,
}


@check("preempt-mode-and-type")
def preempt_mode_and_type(d: Definition) -> Iterator[Finding]:
    """PreemptType without a PreemptMode, or the reverse: slurmctld does not start."""
    texts = {name.lower(): _written(value).lower() for _, _, name, value in given(d)}
    names: dict[str, KeyPath] = {name.lower(): (key, name) for _, key, name, _ in given(d)}
    of_qos = any(qos.preempt for qos in d.cluster.qos.values())
    if of_qos:
        # What Muster sets where one is not given: muster/render/slurm/slurm_conf.py.
        texts = {"preempttype": "preempt/qos", "preemptmode": "requeue"} | texts
    words = set(texts.get("preemptmode", "").split(","))
    if "suspend" in words or words & {"yes", "no"}:
        return  # another check says what is wrong
    modes = {"cancel", "requeue"} & words
    preempts = texts.get("preempttype", "preempt/none") != "preempt/none"
    if preempts and not modes:
        mode = names.get("preemptmode")
        yield Finding(
            mode or names["preempttype"],
            f"SLURM does not start with {mode[-1]}: {texts['preemptmode']} where "
            f"{'QoS preempt others' if of_qos else 'there is a PreemptType'}"
            if mode
            else "SLURM does not start with a PreemptType and no PreemptMode",
            f"{'write' if mode else 'add'} PreemptMode: requeue, or cancel"
            f"{', or take it out' if mode and of_qos else ''}",
        )
    elif of_qos:
        return  # without a PreemptType no QoS preempts another: qos-preemption-off
    elif modes and not preempts:
        yield Finding(
            names["preemptmode"],
            "SLURM does not start with a PreemptMode and no PreemptType",
            "add PreemptType: preempt/partition_prio, or preempt/qos",
        )


@check("priority-weights-too-large")
def priority_weights_too_large(d: Definition) -> Iterator[Finding]:
    """Weights of priority that together are more than SLURM's 32 bits: priorities would wrap."""
    weights = dict(MUSTER_WEIGHTS if d.hosts.groups.get("database") else {})
    if weights and any(qos.priority for qos in d.cluster.qos.values()):
        weights["priorityweightqos"] = MUSTER_QOS_WEIGHT
    path = None
    for _, key, name, value in _passed_on(d):
        number = _number(_written(value))
        if name.lower() in _PRIORITY_WEIGHTS and number is not None:
            path = (key, name)
            weights[name.lower()] = number
    total = sum(weights.values())
    # One that is too large alone is refused by parameter-type.
    if path and max(weights.values()) <= _UINT32_MAX < total:
        yield Finding(
            path,
            f"the weights of priority are {total} together, and SLURM counts to {_UINT32_MAX}",
            "make them smaller: only their proportions count",
        )


@check("suspend-timeout-too-short")
def suspend_timeout_too_short(d: Definition) -> Iterator[Finding]:
    """A SuspendTimeout in which a late release of a node would hit its next start."""
    for file, key, name, value in _passed_on(d):
        seconds = _number(_written(value))
        # 0 is refused by parameter-type.
        if (
            d.cluster.cloud is not None
            and (file, name.lower()) == ("slurm.conf", "suspendtimeout")
            and seconds is not None
            and 0 < seconds < SHORTEST_SUSPEND_S
        ):
            yield Finding(
                (key, name),
                f"in {seconds} s SLURM asks for a node again before its last release is done",
                f"write at least {SHORTEST_SUSPEND_S}, or leave it out for 120",
            )
