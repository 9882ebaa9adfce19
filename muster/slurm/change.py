"""What it takes to bring a running cluster from one set of files to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from muster.hostlists import expand, fold
from muster.slurm.conffile import Line, parse
from muster.slurm.files import SlurmFiles
from muster.slurm.restart import (
    slurmctld_nodes,
    slurmctld_parameters,
    slurmd_node,
    slurmd_parameters,
)


@dataclass(frozen=True)
class Change:
    """What it takes; nothing if all is empty. Restarts come first, then reconfigure."""

    restart: tuple[str, ...] = ()
    """Daemons to restart: slurmdbd, slurmctld, slurmd, in this order."""
    slurmd_nodes: str = ""
    """Hostlist of the nodes whose slurmd is to be restarted."""
    reconfigure: bool = False
    """Whether `scontrol reconfigure` is needed; it also brings the files to the nodes."""
    reasons: tuple[str, ...] = ()
    """Why, one sentence each, for the restarts."""


@dataclass(frozen=True)
class _Read:
    """The files taken apart again."""

    lines: tuple[list[Line], ...]
    conf: Line
    cgroup: Line
    nodes: dict[str, Line]
    slurmdbd: list[Line]


def change(old: SlurmFiles, new: SlurmFiles, version: str) -> Change:
    """Return what it takes from `old`, which the daemons run with, to `new` in this release.

    A new release itself is another matter: its packages restart the daemons.
    """
    before, after = _read(old), _read(new)
    restart: dict[str, list[str]] = {}
    if before.slurmdbd != after.slurmdbd:
        restart["slurmdbd"] = ["slurmdbd.conf changes"]
    if reasons := _slurmctld_reasons(before, after, version):
        restart["slurmctld"] = reasons
    reasons, nodes = _slurmd_reasons(before, after, version)
    if nodes:
        restart["slurmd"] = reasons
    return Change(
        restart=tuple(restart),
        slurmd_nodes=nodes,
        reconfigure=before.lines != after.lines,
        reasons=tuple(f"{daemon}: {why}" for daemon, whys in restart.items() for why in whys),
    )


def _read(files: SlurmFiles) -> _Read:
    conf = parse(files.slurm_conf)
    cgroup = parse(files.cgroup_conf)
    described = ("NodeName", "PartitionName")
    return _Read(
        lines=(conf, parse(files.gres_conf), cgroup),
        conf={k: v for line in conf if not line.keys() & set(described) for k, v in line.items()},
        cgroup={key: value for line in cgroup for key, value in line.items()},
        nodes={
            name: {key: value for key, value in line.items() if key != "NodeName"}
            for line in conf
            if "NodeName" in line
            for name in expand(line["NodeName"])
        },
        slurmdbd=parse(files.slurmdbd_conf),
    )


def _slurmctld_reasons(before: _Read, after: _Read, version: str) -> list[str]:
    reasons = _differences(
        slurmctld_parameters(version, before.conf), slurmctld_parameters(version, after.conf)
    )
    old, new = (slurmctld_nodes(version, read.nodes) for read in (before, after))
    for verb, names in (
        ("added", new.keys() - old.keys()),
        ("removed", old.keys() - new.keys()),
        ("changed in hardware", _changed(old, new, lambda keys: keys)),
    ):
        if names:
            reasons.append(f"nodes {verb}: {fold(names)}")
    return reasons


def _slurmd_reasons(before: _Read, after: _Read, version: str) -> tuple[list[str], str]:
    """Return reasons and the hostlist they hold for; new nodes are started, not restarted."""
    reasons = _differences(
        slurmd_parameters(version, before.conf, before.cgroup),
        slurmd_parameters(version, after.conf, after.cgroup),
    )
    changed = _changed(before.nodes, after.nodes, lambda keys: slurmd_node(version, keys))
    if changed:
        reasons = [*reasons, f"nodes changed in hardware: {fold(changed)}"]
    if len(reasons) > bool(changed):
        return reasons, fold(before.nodes.keys() & after.nodes.keys())
    return reasons, fold(changed)


def _changed(
    old: Mapping[str, Line], new: Mapping[str, Line], of: Callable[[Line], Line]
) -> set[str]:
    return {name for name in old.keys() & new.keys() if of(old[name]) != of(new[name])}


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [
        f"{key}: {old.get(key, 'not set')} -> {new.get(key, 'not set')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
