"""Checks of the folders in which modules are installed: builds must not meet."""

from collections.abc import Iterator

from muster.definition.checks.paths import is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.storage import below
from muster.definition.definition import Definition
from muster.definition.schema.software import SoftwareVersion
from muster.definition.yaml_file import KeyPath

_OWN = ("modules", "lmod", ".muster")
"""Folders below `apps` that Muster writes."""


def _by_play(content: SoftwareVersion) -> bool:
    return content.build is not None and content.built


def _own_folders(d: Definition) -> Iterator[tuple[KeyPath, str, SoftwareVersion]]:
    """The modules with a folder of their own choice: where it is written, and the folder."""
    for name, versions in d.cluster.software.modules.items():
        for version, content in versions.items():
            if content.root is not None:
                yield ("software", "modules", name, version, "root"), content.root, content


def _folders(d: Definition) -> Iterator[tuple[str, str, SoftwareVersion]]:
    """Full name and folder of each module, those first that did not choose it."""
    apps = d.cluster.storage.apps.path
    modules = [
        (f"{name}/{version}", content)
        for name, versions in d.cluster.software.modules.items()
        for version, content in versions.items()
    ]
    for full, content in sorted(modules, key=lambda module: module[1].root is not None):
        yield full, content.root or f"{apps}/software/{full}", content


@check("module-folder-elsewhere")
def module_folder_elsewhere(d: Definition) -> Iterator[Finding]:
    """A module that the play would build where no other host has it, or in a folder of Muster."""
    apps = d.cluster.storage.apps.path
    for path, root, content in _own_folders(d):
        if not _by_play(content) or not is_well_formed(root):
            continue  # the play does not build there, or another check refuses the path
        own = (f"{apps}/{name}" for name in _OWN)
        taken = next((folder for folder in own if below(root, folder)), None)
        if root == apps or not below(root, apps):
            yield Finding(
                path,
                f'"{root}" is not a folder below {apps}, the only one in which the play builds',
                f"give one below {apps}, or take `root` out: then it is "
                f"{apps}/software/<module>/<version>",
            )
        elif taken:
            yield Finding(path, f'"{root}" lies in {taken}, which Muster writes', "give another")


@check("module-folders-overlap")
def module_folders_overlap(d: Definition) -> Iterator[Finding]:
    """A module in the folder of another one, or around it: one of them would not be built."""
    apps = d.cluster.storage.apps.path
    before: list[tuple[str, str, SoftwareVersion]] = []
    for full, root, content in _folders(d):
        if content.root is not None and below(root, apps) and root != apps:
            met = next(
                (
                    (other, folder)
                    for other, folder, others in before
                    if (_by_play(content) or _by_play(others))
                    and (below(root, folder) or below(folder, root))
                ),
                None,
            )
            if met is not None:
                name, _, version = full.rpartition("/")
                where = "is" if met[1] == root else "meets"
                yield Finding(
                    ("software", "modules", name, version, "root"),
                    f'"{root}" {where} the folder of {met[0]}: {met[1]}',
                    "give each its own folder, none in another one",
                )
        before.append((full, root, content))
