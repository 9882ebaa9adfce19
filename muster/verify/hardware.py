"""Compare what the machines have with the definition; pure.

The playbook ansible/hardware.yml asks them, before anything is installed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from muster.catalog.hostlists import expand, fold
from muster.definition import Definition, NodeSet
from muster.verify import verdict
from muster.verify.reports import (
    Fields,
    has,
    is_count,
    is_number,
    is_text,
    many,
    one_of,
    optional,
)

Report = Mapping[str, Any]
Place = Callable[..., str]
"""Keys below `cluster` -> file:line."""
Finding = tuple[str, str]
"""Host, and the sentence about it."""

_GPU = re.compile(r"/dev/nvidia[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True)
class Comparison:
    """What differs, what is worth knowing, and node sets that fit the machines."""

    problems: list[str]
    notes: list[str]
    suggestions: list[str]


def compare(definition: Definition, reports: Mapping[str, Report], place: Place) -> Comparison:
    """Compare the definition with what the hosts reported.

    Args:
        definition: What should be.
        reports: Host -> report of the module hardware_report.
        place: Says where in the definition a key is written.

    """
    problems: list[Finding] = []
    notes: list[Finding] = []
    suggestions: list[str] = []
    for host, report in reports.items():
        problems += [(host, said) for said in _general(definition, report, place)]
        problems += [(host, said) for said in _names(definition, report, place)]
        if definition.cluster.users.directory is not None and report["unknown"] is None:
            notes.append((host, "asks no directory yet; run site.yml, and then this again"))
        name = report["name"].split(".")[0]
        if name in definition.hosts.groups["all"] and name != host:
            said = f"the machine at this address calls itself {name}, another host of the cluster"
            problems.append((host, f"{said}; correct ansible_host of both in hosts.yml"))
        elif name != host:
            notes.append((host, f"calls itself {name}; site.yml will name it as hosts.yml does"))
    for name, node_set in definition.cluster.nodes.items():
        reported = {host: reports[host] for host in definition.hosts_of(name) if host in reports}
        differences = [
            (host, said)
            for host, report in reported.items()
            for said in _hardware(report, name, node_set, place)
        ]
        if differences:
            problems += differences
            suggestions += _suggestion(name, node_set, reported, place)
    return Comparison(_sentences(problems), _sentences(notes), suggestions)


def _sentences(findings: list[Finding]) -> list[str]:
    """Return one line per sentence; hosts with the same sentence share a line."""
    by_said: dict[str, list[str]] = {}
    for host, said in findings:
        by_said.setdefault(said, []).append(host)
    return [f"{fold(hosts)}: {said}" for said, hosts in by_said.items()]


def _general(definition: Definition, report: Report, place: Place) -> Iterator[str]:
    """Compare what every host has: the system, the clock, the shared folders."""
    cluster = definition.cluster
    if report["os"] != cluster.os:
        yield (
            f"runs {report['os']}, the definition says {cluster.os} in os ({place('os')}); "
            "set it to what the machines run, or install that"
        )
    off = verdict.skew(report)
    if off is not None:
        yield (
            f"its clock is {off} this machine's; set the clock that is wrong "
            "(timedatectl, chronyc makestep)"
        )
    for key, path in _folders(definition).items():
        if report["paths"][path] != "directory":
            yield (
                f"has no folder {path}, storage.{key}.path of the definition "
                f"({place('storage', key, 'path')}); mount or make it there, or set another path"
            )


def _names(definition: Definition, report: Report, place: Place) -> Iterator[str]:
    """Report people and groups that the definition names, and the directory does not have."""
    cluster = definition.cluster
    unknown = report["unknown"] or {"people": [], "groups": []}
    for name in unknown["people"]:
        account = next(key for key, account in cluster.accounts.items() if name in account.users)
        yield (
            f"knows nobody with the login {name}, who is in accounts.{account}.users "
            f"({place('accounts', account, 'users')}); correct it, or add the person to the "
            "directory or to users.people"
        )
    for name in unknown["groups"]:
        partition = next(
            (key for key, part in cluster.partitions.items() if name in part.groups), ""
        )
        path = (
            ("partitions", partition, "groups") if partition else ("users", "directory", "groups")
        )
        yield (
            f"knows no group {name}, which is in {'.'.join(path)} ({place(*path)}); correct it, or "
            "add the group to the directory or to users.groups"
        )


def _hardware(report: Report, name: str, node_set: NodeSet, place: Place) -> Iterator[str]:
    """Compare what a compute node has: processors, memory, GPUs."""
    for key in ("sockets", "cores_per_socket", "threads_per_core"):
        wanted = getattr(node_set, key)
        if report[key] != wanted:
            yield (
                f"{key} {report[key]} by {report['source']}, the definition says {wanted} "
                f"in nodes.{name}.{key} ({place('nodes', name, key)}); set it to {report[key]} or "
                "fix the machine (its firmware may have switched some off)"
            )
    if report["memory_mib"] < node_set.memory_mib:
        yield (
            f"{report['memory_mib']} MiB of memory, the definition says "
            f"{node_set.memory_mib} in nodes.{name}.memory_mib "
            f"({place('nodes', name, 'memory_mib')}); set it to {report['memory_mib']} or less, or "
            "SLURM drains the node"
        )
    yield from _gpus(report, name, node_set, place)


def _gpus(report: Report, name: str, node_set: NodeSet, place: Place) -> Iterator[str]:
    wanted = _devices(node_set)
    present = _present_devices(report, node_set)
    if present == wanted:
        return
    shown = f"{len(present)} GPU{'' if len(present) == 1 else 's'}"
    if present:
        shown += f" ({', '.join(present)})"
    if node_set.gpus is None:
        yield (
            f"{shown}, the definition has none in nodes.{name} ({place('nodes', name)}); "
            f"add gpus: {{count: {len(present)}}}"
        )
    elif len(present) == len(wanted):
        yield (
            f"{shown}, the definition says {node_set.gpus.devices} in "
            f"nodes.{name}.gpus.devices ({place('nodes', name, 'gpus', 'devices')}); set it to "
            f"{fold(present)}"
        )
    else:
        where = place("nodes", name, "gpus", "count")
        remedy = "find the missing ones (nvidia-smi -L there; without its driver there is none)"
        if len(present) > len(wanted):
            remedy = "the others stay unused"
        set_it = f"set it to {len(present)} or " if present else ""
        yield (
            f"{shown}, the definition says {len(wanted)} in nodes.{name}.gpus.count "
            f"({where}); {set_it}{remedy}"
        )


def _devices(node_set: NodeSet) -> list[str]:
    return expand(node_set.gpus.devices) if node_set.gpus else []


def _present_devices(report: Report, node_set: NodeSet) -> list[str]:
    """Return NVIDIA's devices, and other devices that the definition names."""
    named = [path for path in _devices(node_set) if report["paths"][path] == "device"]
    return expand(",".join({*report["gpus"], *named})) if report["gpus"] or named else []


def _folders(definition: Definition) -> dict[str, str]:
    return {
        key: folder.path
        for key, folder in definition.cluster.storage.folders()
        # site.yml mounts and makes the others.
        if folder.kind == "existing"
    }


def _suggestion(
    name: str, node_set: NodeSet, reports: Mapping[str, Report], place: Place
) -> Iterator[str]:
    """Yield the lines of a node set that fits its hosts, or of several if the hosts differ."""

    def shape(host: str) -> tuple[int, ...]:
        report = reports[host]
        keys = ("sockets", "cores_per_socket", "threads_per_core")
        return (*(int(report[key]) for key in keys), len(_present_devices(report, node_set)))

    shapes = [
        (counts, list(hosts)) for counts, hosts in groupby(sorted(reports, key=shape), key=shape)
    ]
    if len(shapes) > 1:
        yield f"The hosts of {name} differ, so it takes {len(shapes)} node sets:"
    for (sockets, cores, threads, gpus), hosts in shapes:
        memory = min(reports[host]["memory_mib"] for host in hosts)
        lines = [
            f"    {name}:  # {place('nodes', name)}: {fold(hosts)}",
            f"      sockets: {sockets}",
            f"      cores_per_socket: {cores}",
            f"      threads_per_core: {threads}",
            f"      memory_mib: {min(memory, node_set.memory_mib)}",
        ]
        if gpus:
            lines.append(f"      gpus: {{count: {gpus}}}")
        yield "\n".join(lines)


def paths(definition: Definition) -> list[str]:
    """Return the folders and device files that the module hardware_report is to look for."""
    devices = [
        path for node_set in definition.cluster.nodes.values() for path in _devices(node_set)
    ]
    return [*_folders(definition).values(), *devices]


def fields(paths: list[str], people: list[str], groups: list[str]) -> Fields:
    """Return what the report of a machine has that was asked for these."""
    unknown = {"people": many(one_of(people)), "groups": many(one_of(groups))}
    return {
        "name": is_text,
        "os": is_text,
        "clock": is_number,
        "sockets": is_count,
        "cores_per_socket": is_count,
        "threads_per_core": is_count,
        "memory_mib": is_count,
        "source": is_text,
        "gpus": many(_is_gpu),
        "paths": has(dict.fromkeys(paths, is_text)),
        "unknown": optional(has(unknown)),
    }


def _is_gpu(value: Any) -> bool:
    return is_text(value) and _GPU.fullmatch(value) is not None
