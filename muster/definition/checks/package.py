"""Checks of the package of slurmctld that the controller runs in place of the archive's."""

import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, source_check
from muster.definition.definition import Definition
from muster.definition.sources import Sources

# Below the inventory's folder, which is copied to a VM: neither absolute nor through a parent.
_FOLDERS = r"(?!/)(?:(?!\.{1,2}/)[A-Za-z0-9._+-]{1,255}/)*"


@check("slurmctld-package-name")
def slurmctld_package_name(d: Definition) -> Iterator[Finding]:
    """A package of slurmctld that is not of the hosts' release, or not below the inventory."""
    path, version = d.cluster.slurmctld_package, d.cluster.slurm_version
    name = rf"slurmctld_{re.escape(version)}\.[A-Za-z0-9.+~-]+_[a-z0-9]+\.deb"
    if path is not None and not re.fullmatch(_FOLDERS + name, path):
        yield Finding(
            ("slurmctld_package",),
            f"no package of slurmctld {version} below the inventory's folder is called so",
            f"write it like packages/slurmctld_{version}.8-4+0muster1_amd64.deb",
        )


@source_check("slurmctld-package-missing")
def slurmctld_package_missing(sources: Sources) -> Iterator[Finding]:
    """A package of slurmctld that is not there."""
    definition = sources.definition
    path = definition.get("slurmctld_package") if isinstance(definition, dict) else None
    if sources.folder and isinstance(path, str) and not (sources.folder / path).is_file():
        yield Finding(
            ("slurmctld_package",),
            "no such file in the inventory's folder",
            "build it with `make slurmctld-package` and copy it there",
        )
