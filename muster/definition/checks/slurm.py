"""Checks of what is passed on to slurm.conf and cgroup.conf, by release of SLURM."""

from collections.abc import Iterator

from muster.catalog.slurm_parameters import (
    OWNED,
    OWNED_IN_CLOUD,
    REMOVED,
    parameters,
)
from muster.catalog.slurm_plugins import OF_SLURMDBD, PLUGIN_PACKAGES
from muster.definition.checks.registry import Finding, check, suggestion
from muster.definition.definition import Definition
from muster.definition.limited import limits_jobs
from muster.definition.schema.base import Scalar
from muster.definition.schema.cluster import PACKAGED_SLURM


def given(d: Definition) -> Iterator[tuple[str, str, str, Scalar]]:
    """The file, the key of the definition, the parameter and its value."""
    for name, value in d.cluster.slurm.items():
        yield "slurm.conf", "slurm", name, value
    for name, value in d.cluster.cgroup.items():
        yield "cgroup.conf", "cgroup", name, value


def parameter_words(d: Definition, parameter: str) -> set[str]:
    """The values of a parameter of slurm.conf in small letters; empty where it is not given."""
    for name, value in d.cluster.slurm.items():
        if name.lower() == parameter:
            return {part.strip().lower() for part in str(value).split(",")}
    return set()


@check("slurm-older-than-packaged")
def slurm_older_than_packaged(d: Definition) -> Iterator[Finding]:
    """A release of SLURM older than the one that the distribution installs."""
    packaged = PACKAGED_SLURM[d.cluster.os]
    if d.cluster.slurm_version < packaged:
        yield Finding(
            ("slurm_version",),
            f"{d.cluster.os} installs SLURM {packaged}, not {d.cluster.slurm_version}",
            f'leave slurm_version out, or write "{packaged}"',
        )


def owned(d: Definition, file: str, name: str) -> str | None:
    """What to do instead of setting a parameter that Muster decides; None for others."""
    lower = name.lower()
    if file == "slurm.conf" and d.cluster.cloud is not None and lower in OWNED_IN_CLOUD:
        return OWNED_IN_CLOUD[lower]
    if file == "slurm.conf" and lower == "taskprolog" and d.cluster.storage.scratch:
        return "it tells jobs their folder in `storage.scratch`: take one of the two out"
    if lower == "treewidth" and d.cluster.cloud is not None and d.cluster.slurm_version < "23.11":
        return "nodes don't know each other's addresses, so none forwards messages; take it out"
    return OWNED[file].get(lower)


@check("parameter-owned")
def parameter_owned(d: Definition) -> Iterator[Finding]:
    """A parameter that Muster decides itself."""
    for file, key, name, _ in given(d):
        if instead := owned(d, file, name):
            yield Finding((key, name), f"Muster decides {name} of {file}", instead)


def _of_the_other_file(file: str, lower: str) -> str | None:
    """What to do with a parameter of the other file; None if that has none of this name."""
    other, key = {
        "slurm.conf": ("cgroup.conf", "cgroup"),
        "cgroup.conf": ("slurm.conf", "slurm"),
    }[file]
    if lower in OWNED[other]:
        return f"it is one of {other}, and Muster decides it: take it out"
    return f"it is one of {other}: write it below `{key}`" if lower in parameters(other) else None


@check("parameter-unknown")
def parameter_unknown(d: Definition) -> Iterator[Finding]:
    """A parameter that no release of SLURM has: its daemons would not start."""
    for file, key, name, _ in given(d):
        known = parameters(file)
        lower = name.lower()
        if lower not in known and lower not in OWNED[file] and lower not in REMOVED[file]:
            yield Finding(
                (key, name),
                f'{file} has no parameter "{name}"',
                _of_the_other_file(file, lower)
                or suggestion(name, (p.name for p in known.values()), f"see the manual of {file}"),
            )


@check("parameter-removed")
def parameter_removed(d: Definition) -> Iterator[Finding]:
    """A parameter that a later release removed, or that SLURM refuses to start with."""
    release = d.cluster.slurm_version
    for file, key, name, _ in given(d):
        known = parameters(file).get(name.lower())
        instead = REMOVED[file].get(name.lower())
        if instead:
            yield Finding((key, name), f"SLURM {release} does not start with {name}", instead)
        elif known and release > known.last:
            yield Finding(
                (key, name),
                f"SLURM {release} has no {name}, {known.last} was the last",
                "take it out",
            )


@check("parameter-too-new")
def parameter_too_new(d: Definition) -> Iterator[Finding]:
    """A parameter that came with a later release: this one would not start with it."""
    release = d.cluster.slurm_version
    for file, key, name, _ in given(d):
        known = parameters(file).get(name.lower())
        if known and release < known.first:
            yield Finding(
                (key, name),
                f"SLURM {release} has no {name}, it came with {known.first}",
                "take it out",
            )


@check("parameters-differ-in-case")
def parameters_differ_in_case(d: Definition) -> Iterator[Finding]:
    """A parameter that is given twice: SLURM does not tell large from small letters."""
    first: dict[tuple[str, str], str] = {}
    for file, key, name, _ in given(d):
        twin = first.setdefault((key, name.lower()), name)
        if twin != name:
            yield Finding(
                (key, name), f'"{name}" and "{twin}" are one parameter of {file}', "keep one"
            )


def parameter_name(d: Definition, parameter: str) -> str:
    """The parameter as the definition spells it."""
    return next(name for name in d.cluster.slurm if name.lower() == parameter)


def packages_of_plugins(d: Definition) -> dict[str, tuple[str, str]]:
    """Plugins that slurm.conf names and no host gets: by their parameter, with their package."""
    packages = PLUGIN_PACKAGES[d.cluster.os]
    there = {
        package
        for versions in d.cluster.software.modules.values()
        for version in versions.values()
        for package in version.packages
    }
    if d.hosts.groups["controller"] == d.hosts.groups.get("database"):
        there.add(OF_SLURMDBD)
    return {
        name: (plugin, packages[plugin])
        for name, value in d.cluster.slurm.items()
        for plugin in (word.strip().lower() for word in str(value).split(","))
        if plugin in packages and packages[plugin] not in there
    }


@check("jwt-without-key")
def jwt_without_key(d: Definition) -> Iterator[Finding]:
    """AuthAltTypes=auth/jwt without a key: SLURM does not start."""
    has_key = any("jwt_key" in v or "jwks" in v for v in parameter_words(d, "authaltparameters"))
    if "auth/jwt" in parameter_words(d, "authalttypes") and not has_key:
        name = parameter_name(d, "authalttypes")
        _, package = packages_of_plugins(d).get(name, ("", ""))
        yield Finding(
            ("slurm", name),
            "auth/jwt has no key",
            "add AuthAltParameters: jwt_key=/etc/slurm/jwt_hs256.key"
            + (f", and {package} to `packages` of a module" if package else ""),
        )


@check("job-submit-plugins")
def job_submit_plugins(d: Definition) -> Iterator[Finding]:
    """JobSubmitPlugins that don't go together with the script that tells of limits and GPUs."""
    if not any(nodes.gpus for nodes in d.cluster.nodes.values()) and not limits_jobs(d):
        return
    given = parameter_words(d, "jobsubmitplugins")
    if "job_submit/lua" in given:
        yield Finding(
            ("slurm", parameter_name(d, "jobsubmitplugins")),
            "Muster loads the plugin lua, which would be loaded twice",
            "write lua, or leave it out",
        )
    if "none" in given:
        yield Finding(
            ("slurm", parameter_name(d, "jobsubmitplugins")),
            "Muster loads the plugin lua, which tells users of limits and of types of GPUs",
            "leave JobSubmitPlugins out",
        )
