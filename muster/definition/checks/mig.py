"""Checks of MIG: that GPUs can be cut as the definition says, and that Muster cuts them."""

import re
from collections.abc import Collection, Iterator

from muster.catalog.nvidia import Geometry, geometries, named
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema.gpus import Gpus

# The only form that SLURM takes as a type; profiles with media engines (1g.10gb+me) are not.
_PROFILE = re.compile(r"[1-9]g\.[1-9][0-9]*gb")


def _cut(d: Definition) -> Iterator[tuple[str, Gpus]]:
    """Node sets whose GPUs are to be cut."""
    for name, nodes in d.cluster.nodes.items():
        if nodes.gpus and nodes.gpus.mig:
            yield name, nodes.gpus


def _geometries(gpus: Gpus) -> list[Geometry] | None:
    gpu = named(gpus.type or "")
    return geometries(gpu) if gpu else None


def _matching(profiles: Collection[str], known: list[Geometry]) -> list[Geometry]:
    """The models of one name that have all the profiles."""
    return [geometry for geometry in known if set(profiles) <= geometry.profiles.keys()]


@check("mig-without-driver")
def mig_without_driver(d: Definition) -> Iterator[Finding]:
    """GPUs that nothing cuts: Muster's role does it, with the driver that it installs."""
    for name, _ in _cut(d):
        if d.cluster.nvidia is None:
            yield Finding(
                ("nodes", name, "gpus", "mig"),
                "Muster cuts the GPUs of nodes whose driver it installs, and `nvidia` is not set",
                "say nvidia: {}, or take `mig` out",
            )


@check("mig-and-autodetect")
def mig_and_autodetect(d: Definition) -> Iterator[Finding]:
    """MIG instances that SLURM is to find by itself."""
    for name, gpus in _cut(d):
        if gpus.autodetect:
            yield Finding(
                ("nodes", name, "gpus", "autodetect"),
                f"SLURM's detection by the driver ({gpus.autodetect}) sees no MIG instances",
                "take autodetect out: Muster names their device files",
            )


@check("mig-and-shards")
def mig_and_shards(d: Definition) -> Iterator[Finding]:
    """GPUs that are cut, and shared by jobs besides."""
    for name, gpus in _cut(d):
        if gpus.shards:
            yield Finding(
                ("nodes", name, "gpus", "shards"),
                "the GPUs are cut into MIG instances, each for one job",
                "take shards or mig out",
            )


@check("mig-of-gpu")
def mig_of_gpu(d: Definition) -> Iterator[Finding]:
    """A GPU that can't be cut."""
    for name, gpus in _cut(d):
        if _geometries(gpus) == []:
            yield Finding(
                ("nodes", name, "gpus", "mig"),
                f"{gpus.type} has no MIG",
                "take mig out; shards let jobs share a GPU, without isolation",
            )


@check("mig-profile")
def mig_profile(d: Definition) -> Iterator[Finding]:
    """Profiles that no GPU of that name has."""
    for name, gpus in _cut(d):
        at = ("nodes", name, "gpus", "mig")
        known = _geometries(gpus)
        if known:
            if not _matching(gpus.mig, known):
                wrong = [profile for profile in gpus.mig if not _matching([profile], known)]
                right = gpus.mig.keys() - wrong
                models = _matching(right, known) or known
                there = " or ".join(", ".join(geometry.profiles) for geometry in models)
                said = " and ".join(wrong) if wrong else f"{' and '.join(gpus.mig)} together"
                yield Finding(at, f"no {gpus.type} has {said}", f"choose of {there}")
        elif known is None and (strange := [p for p in gpus.mig if not _PROFILE.fullmatch(p)]):
            yield Finding(
                at,
                f'"{strange[0]}" is no MIG profile that SLURM can name',
                "write it like 1g.10gb, as `nvidia-smi mig -lgip` lists it",
            )


@check("mig-room")
def mig_room(d: Definition) -> Iterator[Finding]:
    """More instances than a GPU has room for."""
    for name, gpus in _cut(d):
        matching = _matching(gpus.mig, _geometries(gpus) or [])
        if matching and not any(geometry.holds(gpus.mig) for geometry in matching):
            wanted = " and ".join(f"{number} of {profile}" for profile, number in gpus.mig.items())
            whole = matching[0].whole
            yield Finding(
                ("nodes", name, "gpus", "mig"),
                f"{wanted} do not fit on one {gpus.type}, which has {whole.compute} slices of "
                f"processors and {whole.memory} of memory",
                "take fewer or smaller ones; mig is what each single GPU is cut into",
            )
