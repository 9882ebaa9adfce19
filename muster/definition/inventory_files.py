"""Which files of an inventory's folder Ansible reads: variables, and further lists of hosts.

They are chosen as Ansible's plugin host_group_vars and its inventory manager do. Ansible leaves out
in silence what it can't read, or ends in the middle of a run; here each such file has a fault.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePath

GROUP_VARS, HOST_VARS = "group_vars", "host_vars"

ENDINGS = (".yml", ".yaml", ".json")
"""Of files with variables. One without an ending is read too."""

NO_LISTS = (GROUP_VARS, HOST_VARS, "vars_plugins", "packages", "software")
"""Names that are no lists of hosts for Ansible, the last two by `ignore_patterns` in
ansible.cfg."""

NO_LIST_ENDINGS = (
    *(".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst"),
    *(".orig", ".cfg", ".retry", ".deb"),
)
"""Endings that are no lists of hosts for Ansible (INVENTORY_IGNORE_EXTS), the last one by
`ignore_patterns` in ansible.cfg."""


@dataclass(frozen=True)
class Trouble:
    """A file or folder that Ansible does not read, and why."""

    path: Path
    kind: str
    """Kind of the fault: file-unreadable or file-never-read."""
    text: str


@dataclass
class VariableFiles:
    """The files with variables of groups and hosts."""

    files: list[Path] = field(default_factory=list)
    """Those that Ansible reads, if there is a group or host of their name."""
    troubles: list[Trouble] = field(default_factory=list)

    def add(self, path: Path, above: tuple[tuple[int, int], ...] = ()) -> None:
        """Add a file, or those of a folder. `above`: device and inode of the folders around it."""
        try:
            status = path.stat()
            here = (status.st_dev, status.st_ino)
            if not stat.S_ISDIR(status.st_mode):
                self.files.append(path)
            elif here in above:
                self._trouble(path, "file-unreadable", "a link that leads to a folder around it")
            else:
                for name in names_in(path):
                    self._add_below(path / name, (*above, here))
        except OSError as error:
            self._trouble(path, "file-unreadable", said(error))

    def _add_below(self, path: Path, above: tuple[tuple[int, int], ...]) -> None:
        if path.name.endswith("~"):
            return
        if not path.suffix:
            self.add(path, above)
        elif path.is_dir():
            self._trouble(path, "file-never-read", "Ansible reads no folder with a dot in its name")
        elif path.suffix in ENDINGS:
            self.add(path, above)

    def add_all(self, folder: Path) -> None:
        """Add the files of all groups or hosts, which are in group_vars or host_vars."""
        try:
            names = names_in(folder)
            statuses = [path.stat() for path in (folder, folder.parent)]
        except FileNotFoundError:
            return
        except OSError as error:
            self._trouble(folder, "file-unreadable", said(error))
            return
        above = tuple((status.st_dev, status.st_ino) for status in statuses)
        first: dict[str, str] = {}
        # Ansible takes the first of NAME, NAME.yml, NAME.yaml and NAME.json, and no other.
        for ending in ("", *ENDINGS):
            for name in names:
                if PurePath(name).suffix != ending:
                    continue
                taken = first.setdefault(PurePath(name).stem, name)
                if taken == name:
                    self.add(folder / name, above)
                else:
                    text = f"Ansible reads {folder.name}/{taken} in its place"
                    self._trouble(folder / name, "file-never-read", text)

    def _trouble(self, path: Path, kind: str, text: str) -> None:
        self.troubles.append(Trouble(path, kind, text))


def variable_files(inventory: Path) -> VariableFiles:
    """Return the files with variables in an inventory's folder."""
    found = VariableFiles()
    for folder in (GROUP_VARS, HOST_VARS):
        found.add_all(inventory / folder)
    return found


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder that are not hidden, sorted.

    Raises OSError.
    """
    return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))


def further_lists(inventory: Path, own: str) -> list[str]:
    """Return what Ansible reads as a list of hosts beside `own`, by name."""
    try:
        names = names_in(inventory)
    except OSError:
        return []
    return [
        name
        for name in names
        if name not in (own, *NO_LISTS) and not name.endswith(NO_LIST_ENDINGS)
    ]


def said(error: OSError) -> str:
    """Return what the system says of a file, to begin a sentence with."""
    return (error.strerror or "can't be read").lower()
