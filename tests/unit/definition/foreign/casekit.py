"""Reads the cases of this folder, makes the folder of a case, and asks Muster about it.

README.md says how a case is written.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yamlkit

from muster.definition import sources, warnings
from muster.definition.loading import examine

HERE = Path(__file__).parent
BASES = HERE / "bases"
ANSWERS = HERE / "answers.yml"
SHORT = {"cluster": str(sources.CLUSTER_FILE), "hosts": str(sources.HOSTS_FILE)}
SECRET_MODE = 0o600
MEMORY_GIB = 3
BLOCKED_SECONDS = 60.0


@dataclass(frozen=True)
class Expected:
    """What Muster is to say: `answer` has one of `refused`, `accepted` and `warned`, or several."""

    answer: tuple[str, ...]
    mentions: tuple[str, ...] = ()
    """Texts that the message has; large and small letters are the same."""
    at: str | None = None
    """Text of the line at which the error is."""
    errors: int | None = 1
    """How many errors a refused case gives; None: as many as there are."""


@dataclass(frozen=True)
class Case:
    name: str
    """CLASS/NAME."""
    why: str
    """What goes wrong on a real cluster; why it is right, if it is."""
    expected: Expected
    base: str = "small"
    change: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    add: Mapping[str, Any] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    fifos: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    tracked: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reply:
    """What Muster said about a case."""

    answer: str
    """`refused`, `accepted`, `warned`, or `crashed`."""
    messages: tuple[str, ...]
    lines: tuple[str, ...] = ()
    """Text of the line of each error."""
    seconds: float = 0.0
    """CPU seconds; wall time would also be that of other programs."""

    def differs(self, expected: Expected) -> str | None:
        """Return what is otherwise than expected; None: nothing."""
        if self.answer not in expected.answer:
            return f"{self.answer}, not {' or '.join(expected.answer)}"
        if self.answer == "refused":
            if expected.errors is not None and len(self.messages) != expected.errors:
                return f"{len(self.messages)} errors, not {expected.errors}"
            if expected.at is not None and not any(expected.at in line for line in self.lines):
                return f"at {self.lines}, not at {expected.at!r}"
        said = "\n".join(self.messages).lower()
        missing = [text for text in expected.mentions if text.lower() not in said]
        if missing and self.answer != "accepted":
            return f"not mentioned: {missing}"
        return None


def names(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def expected(case: dict[str, Any]) -> Expected:
    """Take the keys of what is expected out of a case."""
    found = [answer for answer in ("refused", "accepted", "warned") if case.pop(answer, False)]
    assert found, f"{case}: nothing is expected"
    return Expected(
        tuple(found), names(case.pop("mentions", None)), case.pop("at", None), case.pop("errors", 1)
    )


@cache
def cases() -> tuple[Case, ...]:
    """Return the cases of all classes."""
    return tuple(
        _case(f"{file.stem}/{name}", dict(keys))
        for file in sorted(HERE.glob("*.yml"))
        if file != ANSWERS
        for name, keys in yamlkit.load(file.read_text()).items()
    )


def _case(name: str, keys: dict[str, Any]) -> Case:
    try:
        for lists in ("remove", "fifos", "folders"):
            keys[lists] = names(keys.pop(lists, None))
        change = dict(keys.pop("change", {}))
        for short in SHORT:
            if short in keys:
                change[short] = keys.pop(short)
        return Case(name=name, expected=expected(keys), change=change, **keys)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"{name}: {error}") from error


@cache
def answers() -> dict[str, tuple[Expected, str]]:
    """Return the answers that are taken as they are, with the reason, by the case's name."""
    found: dict[str, dict[str, Any]] = yamlkit.load(ANSWERS.read_text()) or {}
    reasons = {name: keys.pop("reason") for name, keys in found.items()}
    return {name: (expected(keys), reasons[name]) for name, keys in found.items()}


def text_of(value: Any) -> str | bytes:
    """Return the text of a value: itself, or `text` so many `times`.

    {n} in it becomes the number of the copy, from 0, and {next} the one after it.
    """
    if isinstance(value, dict):
        copies = (
            value["text"].replace("{n}", str(n)).replace("{next}", str(n + 1))
            for n in range(value["times"])
        )
        text: str = value.get("between", "").join(copies)
        return value.get("before", "") + text + value.get("after", "")
    assert isinstance(value, str | bytes), f"{value!r} is no text"
    return value


def make(case: Case, folder: Path) -> None:
    """Write the files of a case into an empty folder."""
    shutil.copytree(BASES / case.base, folder, dirs_exist_ok=True)
    for secrets in folder.rglob("secrets.yml"):
        secrets.chmod(SECRET_MODE)
    for name, changes in case.change.items():
        file = folder / SHORT.get(name, name)
        text = file.read_bytes()
        for old, new in changes.items():
            count = text.count(old.encode())
            assert count == 1, f"{case}: {old!r} is {count} times in {name}"
            by = text_of(new)
            text = text.replace(old.encode(), by if isinstance(by, bytes) else by.encode())
        file.write_bytes(text)
    for name in case.remove:
        file = folder / SHORT.get(name, name)
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    for name in case.folders:
        (folder / name).mkdir(parents=True)
    for name, value in case.add.items():
        file = folder / SHORT.get(name, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = text_of(value)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if "secret" in file.name:
            file.chmod(SECRET_MODE)
    for name, target in case.links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    for name in case.fifos:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / name)
    for name, mode in case.modes.items():
        (folder / name).chmod(int(mode, 8))
    if case.tracked:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "-f", "."], cwd=folder, check=True)


class TooSlowError(Exception):
    """A case has blocked for too long."""


@contextmanager
def limits() -> Iterator[None]:
    """Stop what blocks, and what takes more memory than a laptop has."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"still running after {BLOCKED_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB << 30, hard))
    # Again and again: the first one may be caught by a general `except Exception`.
    signal.setitimer(signal.ITIMER_REAL, BLOCKED_SECONDS, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def checkout() -> sources.Sources:
    """Return what was read of a base, with the variables of roles, which take time to read."""
    return sources.read(BASES / "small")


def ask(folder: Path) -> Reply:
    """Return what `muster check` says about a folder."""
    known = checkout()
    start = time.process_time()
    try:
        with limits():
            read = sources.read(folder, known.from_secrets, known.role_variables)
            definition, problems = examine(read)
            said = [] if problems or definition is None else list(warnings.warnings(definition))
    except Exception as error:  # any of them is a traceback for the user
        return Reply(
            "crashed", (f"{type(error).__name__}: {error}"[:500],), (), time.process_time() - start
        )
    taken = time.process_time() - start
    if problems:
        texts = tuple(str(problem).replace(f"{folder}/", "") for problem in problems)
        return Reply(
            "refused",
            texts,
            tuple(_line(problem.file, problem.line) for problem in problems),
            taken,
        )
    if definition is None:
        return Reply("crashed", ("no definition and no problem",), (), taken)
    return Reply("warned" if said else "accepted", tuple(said), (), taken)


def _line(file: str, number: int | None) -> str:
    if not number or not Path(file).is_file():
        return ""
    lines = Path(file).read_bytes().decode(errors="replace").split("\n")
    return lines[number - 1] if number <= len(lines) else ""
