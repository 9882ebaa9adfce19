"""Checks of what is passed on to slurm.conf and cgroup.conf, by release of SLURM."""

from collections.abc import Iterator

from muster.catalog.slurm_parameters import OWNED, REFUSED_VALUES, REMOVED, parameters
from muster.definition.checks.registry import Finding, check, suggestion
from muster.definition.definition import Definition
from muster.definition.schema.base import Scalar
from muster.definition.schema.cluster import PACKAGED_SLURM


def _given(d: Definition) -> Iterator[tuple[str, str, str, Scalar]]:
    """The file, the key of the definition, the parameter and its value."""
    for name, value in d.cluster.slurm.items():
        yield "slurm.conf", "slurm", name, value
    for name, value in d.cluster.cgroup.items():
        yield "cgroup.conf", "cgroup", name, value


def _values(d: Definition, parameter: str) -> set[str]:
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


@check("parameter-owned")
def parameter_owned(d: Definition) -> Iterator[Finding]:
    """A parameter that Muster writes itself."""
    for file, key, name, _ in _given(d):
        instead = OWNED[file].get(name.lower())
        if instead:
            yield Finding((key, name), f"Muster writes {name} of {file} itself", instead)


@check("parameter-unknown")
def parameter_unknown(d: Definition) -> Iterator[Finding]:
    """A parameter that no release of SLURM has: its daemons would not start."""
    for file, key, name, _ in _given(d):
        known = parameters(file)
        lower = name.lower()
        if lower not in known and lower not in OWNED[file] and lower not in REMOVED[file]:
            yield Finding(
                (key, name),
                f'{file} has no parameter "{name}"',
                suggestion(name, (p.name for p in known.values()), f"see the manual of {file}"),
            )


@check("parameter-removed")
def parameter_removed(d: Definition) -> Iterator[Finding]:
    """A parameter that a later release removed, or that SLURM refuses to start with."""
    release = d.cluster.slurm_version
    for file, key, name, _ in _given(d):
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
    for file, key, name, _ in _given(d):
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
    for file, key, name, _ in _given(d):
        twin = first.setdefault((key, name.lower()), name)
        if twin != name:
            yield Finding(
                (key, name), f'"{name}" and "{twin}" are one parameter of {file}', "keep one"
            )


@check("parameter-value-refused")
def parameter_value_refused(d: Definition) -> Iterator[Finding]:
    """A value that this release of SLURM does not start with, or logs as an error."""
    release = d.cluster.slurm_version
    for file, key, name, value in _given(d):
        parts = {part.strip().lower() for part in str(value).split(",")}
        for refused in REFUSED_VALUES:
            same = refused.file == file and refused.parameter.lower() == name.lower()
            if same and refused.value.lower() in parts and refused.refused_by(release):
                yield Finding(
                    (key, name), f"SLURM {release} refuses {refused.value} here", refused.remedy
                )


@check("parameter-comment")
def parameter_comment(d: Definition) -> Iterator[Finding]:
    """A value with #, which begins a comment in SLURM's configuration."""
    for file, key, name, value in _given(d):
        if "#" in str(value):
            yield Finding((key, name), f"{file} ends at the # of this value", "leave the # out")


@check("parameter-empty")
def parameter_empty(d: Definition) -> Iterator[Finding]:
    """A parameter without a value, which SLURM can't read."""
    for file, key, name, value in _given(d):
        if str(value).strip() == "":
            yield Finding(
                (key, name), f"{file} can't have {name} without a value", "give one or take it out"
            )


@check("enforcement-off")
def enforcement_off(d: Definition) -> Iterator[Finding]:
    """Accounting that is not enforced: then accounts mean nothing."""
    # Other values are fine: `associations` is added to them when slurm.conf is written.
    if _values(d, "accountingstorageenforce") & {"none", "0"}:
        yield Finding(
            ("slurm", _name(d, "accountingstorageenforce")),
            "people without an account could run jobs",
            "leave it out, or write at least: associations",
        )


def _name(d: Definition, parameter: str) -> str:
    """The parameter as the definition spells it."""
    return next(name for name in d.cluster.slurm if name.lower() == parameter)


@check("x11-without-cgroups")
def x11_without_cgroups(d: Definition) -> Iterator[Finding]:
    """PrologFlags=X11 with proctrack/linuxproc: SLURM does not start."""
    if "x11" in _values(d, "prologflags") and "proctrack/linuxproc" in _values(d, "proctracktype"):
        yield Finding(
            ("slurm", _name(d, "prologflags")),
            "X11 does not work with proctrack/linuxproc",
            "leave out X11, or ProctrackType",
        )


@check("contain-missing")
def contain_missing(d: Definition) -> Iterator[Finding]:
    """PrologFlags without Contain, where another parameter needs it: SLURM does not start."""
    flags = _values(d, "prologflags")
    if not flags or flags & {"contain", "x11"}:
        return
    needing = {
        "storage.private_tmp": d.cluster.storage.private_tmp,
        "enable_stepmgr": d.cluster.slurm_version >= "24.05"
        and "enable_stepmgr" in _values(d, "slurmctldparameters"),
    }
    for what, used in needing.items():
        if used:
            yield Finding(
                ("slurm", _name(d, "prologflags")), f"{what} needs Contain", "add Contain"
            )


@check("jwt-without-key")
def jwt_without_key(d: Definition) -> Iterator[Finding]:
    """AuthAltTypes=auth/jwt without a key: SLURM does not start."""
    has_key = any("jwt_key" in v or "jwks" in v for v in _values(d, "authaltparameters"))
    if "auth/jwt" in _values(d, "authalttypes") and not has_key:
        yield Finding(
            ("slurm", _name(d, "authalttypes")),
            "auth/jwt has no key",
            "add AuthAltParameters: jwt_key=/etc/slurm/jwt_hs256.key",
        )


@check("job-submit-plugins")
def job_submit_plugins(d: Definition) -> Iterator[Finding]:
    """JobSubmitPlugins that don't go together with the script that checks types of GPUs."""
    if not any(nodes.gpus for nodes in d.cluster.nodes.values()):
        return
    given = _values(d, "jobsubmitplugins")
    if "job_submit/lua" in given:
        yield Finding(
            ("slurm", _name(d, "jobsubmitplugins")),
            "Muster loads the plugin lua, which would be loaded twice",
            "write lua, or leave it out",
        )
    if "none" in given:
        yield Finding(
            ("slurm", _name(d, "jobsubmitplugins")),
            "Muster loads the plugin lua, which refuses jobs that ask for unknown types of GPU",
            "leave JobSubmitPlugins out",
        )
