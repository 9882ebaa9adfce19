#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep /etc/subuid and /etc/subgid: a range of numbers for each person, and what system users have."""

import os
import pwd
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

DOCUMENTATION = r"""
module: subordinate_ids
short_description: The numbers that people have in user namespaces
description:
  - Writes subuid(5) and subgid(5), with one range of 65536 numbers for each person listed.
  - Lines of people who are not listed are removed, also those that C(useradd) made, and so are
    lines of logins that are gone.
  - Lines of system users (below 1000) are somebody's own, such as those of a daemon that maps its
    users. They are kept, and named in a warning.
options:
  ranges:
    description: The people.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: Login name.}
      first: {type: int, required: true, description: First number of the range.}
  subuid:
    description: File with the numbers of users.
    type: path
    default: /etc/subuid
  subgid:
    description: File with the numbers of groups.
    type: path
    default: /etc/subgid
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Give people their numbers in user namespaces
  muster.slurm.subordinate_ids:
    ranges: [{name: ada, first: 1245773824}]
"""

RETURN = r"""
kept:
  description: Lines of others that are kept, as C(FILE LINE).
  type: list
  elements: str
  returned: always
"""

COUNT = 65536
FIRST_PERSON = 1000
NOBODY = 65534


class Wanted(TypedDict):
    """An entry of the option ranges."""

    name: str
    first: int


@dataclass(frozen=True)
class Range:
    """A line of subuid(5)."""

    owner: str
    """Login name or uid."""
    first: int
    count: int

    def __str__(self) -> str:
        return f"{self.owner}:{self.first}:{self.count}"

    def meets(self, other: "Range") -> bool:
        """Whether the two have a number in common."""
        return self.first < other.first + other.count and other.first < self.first + self.count


def parsed(text: str) -> list[Range]:
    """Return the ranges in a file; newuidmap(1) does not read what is no range either."""
    ranges = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[0] and fields[1].isdecimal() and fields[2].isdecimal():
            ranges.append(Range(fields[0], int(fields[1]), int(fields[2])))
    return ranges


def uid_of(owner: str) -> int | None:
    """Return the number of a login, None if there is no such login."""
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        return int(owner) if owner.isdecimal() else None


def is_kept(line: Range, uid_of: Callable[[str], int | None] = uid_of) -> bool:
    """Whether a line of somebody who is not listed stays.

    A login that is gone leaves what useradd and this module write, of 65536 numbers. Other lines
    without a login are of daemons that look for a name which is none.
    """
    uid = uid_of(line.owner)
    if uid is None:
        return line.count != COUNT
    return uid < FIRST_PERSON or uid == NOBODY


def warning(path: str, kept: Sequence[Range], wanted: Sequence[Range]) -> str:
    """Return the sentence about lines that stay in a file."""
    said = f"{path} has lines of others, which stay: {', '.join(str(line) for line in kept)}"
    meets = [(line, one) for line in kept for one in wanted if line.meets(one)]
    if not meets:
        return f"{said}; remove those that nothing needs"
    line, one = meets[0]
    more = f" and of {len(meets) - 1} more" if len(meets) > 1 else ""
    return (
        f"{said}; {line} has numbers of {one.owner}{more}, whose files they could open: give "
        f"{line.owner} other numbers, or remove the line"
    )


def is_in_order(path: str) -> bool:
    """Whether the file is root's and all can read it."""
    state = os.lstat(path)
    return (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (os.getuid(), os.getgid(), 0o644)


def write(path: str, text: str) -> None:
    """Replace the file at `path`."""
    handle, temporary = tempfile.mkstemp(prefix=".muster-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "ranges": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "first": {"type": "int", "required": True},
                },
            },
            "subuid": {"type": "path", "default": "/etc/subuid"},
            "subgid": {"type": "path", "default": "/etc/subgid"},
        },
        supports_check_mode=True,
    )
    asked: list[Wanted] = module.params["ranges"]
    wanted = [Range(one["name"], one["first"], COUNT) for one in asked]
    listed = {one.owner for one in wanted} | {str(uid_of(one.owner)) for one in wanted}
    all_kept, diffs = [], []
    path = ""
    try:
        for path in (module.params["subuid"], module.params["subgid"]):
            before = read_text(path, errors="surrogateescape") or ""
            others = [line for line in parsed(before) if line.owner not in listed]
            kept = [line for line in others if is_kept(line)]
            if kept:
                module.warn(f"{os.uname().nodename}: {warning(path, kept, wanted)}")
            all_kept += [f"{path} {line}" for line in kept]
            after = "".join(f"{line}\n" for line in [*kept, *wanted])
            if os.path.exists(path) and before == after and is_in_order(path):
                continue
            diffs.append(
                {
                    "before_header": path,
                    "after_header": path,
                    "before": before.encode("utf-8", "replace").decode(),
                    "after": after.encode("utf-8", "replace").decode(),
                }
            )
            if not module.check_mode:
                write(path, after)
    except OSError as error:
        module.fail_json(msg=f"{path}: {error.strerror}; fix that and run again")
    module.exit_json(changed=bool(diffs), kept=all_kept, diff=diffs)


if __name__ == "__main__":
    main()
