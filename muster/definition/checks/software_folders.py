"""Checks of the folders in which modules are installed: builds must not meet."""

from collections.abc import Iterator

from muster.definition.checks.paths import is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.storage import below, of_the_system
from muster.definition.definition import Definition
from muster.definition.schema.software import SoftwareVersion
from muster.definition.yaml_file import KeyPath

_OWN = ("modules", "lmod", ".muster")
"""Folders below `apps` that Muster writes."""

HIDDEN = ("/home", "/root", "/run", "/var")
"""Folders that are empty for a build: muster_build of the role `software` hides them."""


def _own_folders(d: Definition) -> Iterator[tuple[KeyPath, str, SoftwareVersion]]:
    """The modules with a folder of their own choice: where it is written, and the folder."""
    for name, versions in d.cluster.software.modules.items():
        for version, content in versions.items():
            if content.root is not None:
                yield ("software", "modules", name, version, "root"), content.root, content


def _folders(d: Definition) -> list[tuple[str, bool, str, SoftwareVersion]]:
    """Folder, whether the module chose it, full name and content of each module.

    Sorted so that a folder follows the one that it lies in, and those first that were not chosen.
    """
    apps = d.cluster.storage.apps.path
    found = []
    for name, versions in d.cluster.software.modules.items():
        for version, content in versions.items():
            full = f"{name}/{version}"
            root = content.root if content.root is not None else f"{apps}/software/{full}"
            if is_well_formed(root) and root != "/" and not _misplaced(apps, root, content):
                found.append((root, content.root is not None, full, content))
    return sorted(found, key=lambda module: (module[0].split("/"), module[1]))


def _misplaced(apps: str, root: str, content: SoftwareVersion) -> tuple[str, str] | None:
    """Why nothing can be built in a folder, and the remedy; None if it can."""
    if not content.is_built or not is_well_formed(root) or root == "/":
        return None  # nothing is built there, or another check refuses the path
    for own in (f"{apps}/{name}" for name in _OWN):
        if below(root, own):
            return f'"{root}" lies in {own}, which Muster writes', "give another"
    if root == apps or not below(root, apps):
        if content.built:
            return (
                f'"{root}" is not a folder below {apps}, the only one in which the play builds',
                f"give one below {apps}, or take `root` out: then it is "
                f"{apps}/software/<module>/<version>",
            )
        if root == apps or of_the_system(root):
            return f'"{root}" has other things in it', f"give a separate folder, below {apps}"
    return None


@check("module-folder-elsewhere")
def module_folder_elsewhere(d: Definition) -> Iterator[Finding]:
    """A module that is built where no other host has it, or in a folder with other things."""
    for path, root, content in _own_folders(d):
        if misplaced := _misplaced(d.cluster.storage.apps.path, root, content):
            yield Finding(path, *misplaced)


@check("apps-hidden-from-builds")
def apps_hidden_from_builds(d: Definition) -> Iterator[Finding]:
    """Modules that are built on others, in a folder of which a build sees its own part alone."""
    apps = d.cluster.storage.apps.path
    hidden = next((folder for folder in HIDDEN if below(apps, folder)), None)
    if hidden is None:
        return
    built = {
        f"{name}/{version}": content
        for name, versions in d.cluster.software.modules.items()
        for version, content in versions.items()
        if content.is_built
    }
    for full, content in built.items():
        if on := [other for other in content.built_after(full) if other in built]:
            yield Finding(
                ("storage", "apps", "path"),
                f"{full} is built where {hidden} is empty but for its own folder, so it would not "
                f"find {on[0]}",
                "give another, such as /apps",
            )
            return


@check("module-folders-overlap")
def module_folders_overlap(d: Definition) -> Iterator[Finding]:
    """A module in the folder of another one, or around it: one of them would not be built.

    A build begins with an empty folder, so what is around another one would remove it.
    """
    around: list[tuple[str, bool, str, SoftwareVersion]] = []
    said: set[str] = set()
    for module in _folders(d):
        root, chosen, full, content = module
        while around and not below(root, around[-1][0]):
            around.pop()
        for other_root, other_chosen, other, others in around:
            builds = content.is_built or others.is_built
            if builds and (chosen or other_chosen):
                # The one that chose its folder; of two the inner one.
                name = full if chosen else other
                if name in said:
                    break
                said.add(name)
                met = other if chosen else full
                mine, theirs = (root, other_root) if chosen else (other_root, root)
                family, _, version = name.rpartition("/")
                where = "is" if mine == theirs else "meets"
                yield Finding(
                    ("software", "modules", family, version, "root"),
                    f'"{mine}" {where} the folder of {met}: {theirs}',
                    "give each its own folder, none in another one",
                )
                break
        around.append(module)
