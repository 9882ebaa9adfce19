# SPDX-License-Identifier: Apache-2.0
"""Which folders are mounted, which ones should be, and whether their servers answer.

Modules and the role `software` share it. The role installs this file on hosts: it uses the standard
library alone.
"""

import glob
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

SECONDS = 60
"""Of one access. A client tries a server that was away again after 3 s, then after twice as long
each time (net/sunrpc/xprtsock.c), so this spans a restart."""

MOUNTINFO = "/proc/self/mountinfo"
FSTAB = "/etc/fstab"

FILE_SYSTEMS = "/etc/muster/file-systems.json"
"""What FILE_SYSTEMS_UNIT mounts; the role `file_systems` writes it."""

FILE_SYSTEMS_UNIT = "muster-file-systems.service"

UNITS = ("/etc/systemd/system", "/run/systemd/system")
"""Folders in which an administrator, or Muster, enables and masks units."""


class Expected(NamedTuple):
    """Why a folder should be mounted."""

    file: str
    """That says so."""
    command: str
    """That mounts it."""


def silent(path: str) -> str | None:
    """Return what does not answer: `path`, or what lies above it where it is missing; else None.

    The server is asked each time, by AT_STATX_FORCE_SYNC of statx(2), by a process of its own: that
    may hang.
    """
    while True:
        look = subprocess.Popen(
            ["stat", "--cached=never", "--dereference", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = look.wait(SECONDS)
        except subprocess.TimeoutExpired:
            # Not waited for again: in the kernel it may hang for as long as the server is away.
            look.kill()
            return path
        above = os.path.dirname(path)
        if code == 0 or above == path:
            return None
        path = above


def no_answer(path: str) -> str | None:
    """Return a sentence if `silent` finds something; else None."""
    folder = silent(path)
    if folder is None:
        return None
    return (
        f"{folder} does not answer within {SECONDS} s; bring the server that has it back, and run "
        "again"
    )


def not_mounted(path: str) -> str | None:
    """Return a sentence if the file system that `path` belongs on is not mounted; else None.

    Of mounts inside others the innermost counts. An automount is entered, so ask `no_answer` first.

    Raises:
        OSError: a table can't be read.

    """
    # Who enters the folder of an automount mounts it.
    os.access(f"{path}/.", os.F_OK)
    path = os.path.realpath(path)
    there, expected = mounted(read_table()), _expected()
    while (above := os.path.dirname(path)) != path and path not in there:
        if path in expected:
            return (
                f"{path} is not mounted, though {expected[path].file} says that it should be, and "
                f"what is written there now would be hidden later; run `{expected[path].command}`, "
                "then this again"
            )
        path = above
    return None


def _expected() -> dict[str, Expected]:
    """Return the mount points that a boot mounts, or makes automounts of."""
    found = dict(_of_muster())
    for line in _text(FSTAB).splitlines():
        # fstab(5): SOURCE PATH TYPE OPTIONS, and the path of swap is none.
        fields = line.split()
        if line.lstrip().startswith("#") or len(fields) < 3 or fields[2] == "swap":
            continue
        path, options = _literal(fields[1]), fields[3].split(",") if len(fields) > 3 else []
        if not path.startswith("/") or _is_masked(unit_name(path)):
            continue
        # systemd.mount(5): with both, the automount is started.
        if "noauto" not in options or "x-systemd.automount" in options:
            path = os.path.normpath(path)
            found[path] = Expected(FSTAB, f"mount {shlex.quote(path)}")
    return found | dict(_of_units())


def _of_muster() -> Iterator[tuple[str, Expected]]:
    """Yield the mount points of Muster's own file systems, and of the folders bound to them.

    Without its service no boot mounts them. Damaged settings yield none: the role that writes them
    again must not be refused because of them.
    """
    if not any(os.path.basename(link) == FILE_SYSTEMS_UNIT for link in _enabled()):
        return
    try:
        mounts = json.loads(_text(FILE_SYSTEMS))["mounts"]
        entries = [entry for mount in mounts for entry in (mount, *mount.get("folders", ()))]
        paths = [os.path.normpath(entry["path"]) for entry in entries]
    except (AttributeError, LookupError, TypeError, ValueError):
        return
    command = f"systemctl restart {FILE_SYSTEMS_UNIT.removesuffix('.service')}"
    for path in paths:
        yield path, Expected(FILE_SYSTEMS, command)


def _of_units() -> Iterator[tuple[str, Expected]]:
    """Yield the mount points of units that a boot starts."""
    for link in _enabled():
        name, kind = os.path.splitext(os.path.basename(link))
        if kind in (".mount", ".automount"):
            command = f"systemctl start {shlex.quote(f'{name}.mount')}"
            yield _path_of(name), Expected(os.path.realpath(link), command)


def _enabled() -> Iterator[str]:
    """Yield the links to units that a boot starts."""
    for folder in UNITS:
        for pattern in ("*.wants/*", "*.requires/*"):
            for link in sorted(glob.iglob(f"{folder}/{pattern}")):
                # Without its file there is no such unit.
                if os.path.exists(link) and not _is_masked(os.path.basename(link)):
                    yield link


def _is_masked(unit: str) -> bool:
    return any(os.path.realpath(f"{folder}/{unit}") == os.devnull for folder in UNITS)


def unit_name(path: str) -> str:
    """Return the name that systemd demands of the mount unit of `path` (systemd-escape(1))."""
    escaped = "".join(
        char if re.match(r"[A-Za-z0-9_.:]", char) else "-" if char == "/" else f"\\x{ord(char):02x}"
        for char in path.strip("/")
    )
    # A leading dot would be a hidden file.
    return (escaped if not escaped.startswith(".") else "\\x2e" + escaped[1:]) + ".mount"


def _path_of(name: str) -> str:
    """Return the path of a unit's name: systemd refuses a unit whose Where= is another one."""
    data = os.fsencode(name.replace("-", "/"))
    data = re.sub(rb"\\x([0-9a-f]{2})", lambda code: bytes([int(code[1], 16)]), data)
    return "/" + os.fsdecode(data).strip("/")


def read_table() -> str:
    """Return the kernel's table of mounts."""
    return _text(MOUNTINFO)


def mounted(table: str) -> dict[str, tuple[str, str, set[str]]]:
    """Return mount point -> (type, source, set of options) of a /proc/self/mountinfo.

    Without those of automounts, which are in `automounts`.
    """
    return {
        path: (kind, source, options)
        for path, kind, source, options in _parsed(table)
        if kind != "autofs"
    }


def automounts(table: str) -> dict[str, str]:
    """Return mount point -> source of the automounts of a /proc/self/mountinfo."""
    return {path: source for path, kind, source, _ in _parsed(table) if kind == "autofs"}


def _parsed(table: str) -> Iterator[tuple[str, str, str, set[str]]]:
    # People name mounts, types and sources: what else Python takes for the end of a line or a word
    # may be in there.
    for line in filter(None, table.split("\n")):
        own, _, of_system = line.partition(" - ")
        path, own_options = own.split(" ")[4:6]
        kind, source, options = of_system.split(" ")[:3]
        # The last one wins.
        path = _literal(path)
        # The mount's own rw or ro is what counts, not that of the connection it shares.
        shared = {option for option in options.split(",") if option not in ("rw", "ro")}
        yield path, kind, source, shared | {*own_options.split(",")}


def _literal(path: str) -> str:
    """Return a path of such a table, which has space, tab, newline and backslash in octal."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
