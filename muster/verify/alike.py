"""Compare hosts that should have the same; pure: reports in, sentences out.

A sentence names the odd ones out: what most hosts have is what the others should have.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from muster.catalog.hostlists import fold

Reports = Mapping[str, Mapping[str, Any]]
"""Host -> report of the module host_report."""

SHARED_PACKAGES = (
    *("slurm*", "libslurm*", "munge*", "libmunge*"),
    *("nvidia*", "libnvidia*", "cuda*", "libcuda*", "libcudnn*", "libcublas*"),
    *("openmpi*", "libopenmpi*", "mpich*", "libmpich*", "libpmi*", "libnccl*", "ucx*", "libucx*"),
    "libc6",
)
"""Packages that a job of several nodes uses on each of them, as patterns: if the versions of one
differ, the job fails or is wrong in ways that are hard to trace back to it. All others may differ
for a day, as unattended upgrades reach one host after the other."""

SHOWN_PACKAGES = 5

_Value = TypeVar("_Value", bound=Hashable)


@dataclass(frozen=True)
class Odd(Generic[_Value]):
    """Hosts with another value than most."""

    hosts: list[str]
    value: _Value
    others: list[str]
    """The hosts with the value that most have."""
    common: _Value

    @property
    def peers(self) -> str:
        """The hosts that are not odd, as in `its peers h[1-2]`."""
        whose = "its" if len(self.hosts) == 1 else "their"
        return f"{whose} peer{'' if len(self.others) == 1 else 's'} {fold(self.others)}"

    @property
    def have(self) -> str:
        """The verb that follows `peers`."""
        return "has" if len(self.others) == 1 else "have"


def odd(values: Mapping[str, _Value]) -> Iterator[Odd[_Value]]:
    """Yield the hosts whose value is not the one that most have; of two equal halves the second.

    `values`: host -> what it has.
    """
    counts = Counter(values.values())
    # Those with the same count come in the order in which they were met.
    for value, _ in counts.most_common()[1:]:
        common = counts.most_common(1)[0][0]
        others = [host for host, other in values.items() if other == common]
        yield Odd([host for host, mine in values.items() if mine == value], value, others, common)


def peers(hosts: Reports, node_sets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for hosts that differ from others of their node set where jobs notice."""
    for node_set, names in node_sets.items():
        reported = [name for name in names if name in hosts]
        for key in ("system", "kernel", "driver"):
            for one in odd({name: hosts[name][key] for name in reported}):
                yield (
                    f"{fold(one.hosts)}: {key} {one.value}, {one.peers} of {node_set} {one.have} "
                    f"{one.common}; bring them to the same"
                )
        yield from _packages(node_set, {name: hosts[name]["packages"] for name in reported})


def _packages(node_set: str, installed: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    shared = {
        host: tuple(sorted(row for row in packages.items() if _is_shared(row[0])))
        for host, packages in installed.items()
    }
    for one in odd(shared):
        ours, theirs = dict(one.value), dict(one.common)
        differing = differences([ours, theirs])
        shown = ", ".join(
            f"{package} {ours.get(package, 'missing')} / {theirs.get(package, 'missing')}"
            for package in differing[:SHOWN_PACKAGES]
        )
        more = len(differing) - SHOWN_PACKAGES
        yield (
            f"{fold(one.hosts)}: packages differ from {one.peers} of {node_set}: {shown}"
            f"{f' and {more} more' if more > 0 else ''}; bring them to the same versions"
        )


def other_packages(hosts: Reports, node_sets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line per node set whose hosts differ in packages that jobs don't share."""
    for node_set, names in node_sets.items():
        installed = [hosts[name]["packages"] for name in names if name in hosts]
        differing = [package for package in differences(installed) if not _is_shared(package)]
        if differing:
            more = len(differing) - SHOWN_PACKAGES
            yield (
                f"{node_set}: its hosts differ in {', '.join(differing[:SHOWN_PACKAGES])}"
                f"{f' and {more} more packages' if more > 0 else ''}; "
                "upgrade them when it suits you"
            )


def libraries(hosts: Reports) -> Iterator[str]:
    """Yield a sentence for hosts on which a module may fail that works on others.

    Compared are all hosts that load modules, of whatever node set: those that need packages for it.
    """
    loading = {host: report for host, report in hosts.items() if report["module_packages"]}
    lacking: dict[tuple[str, ...], list[str]] = {}
    for host, report in loading.items():
        missing = tuple(name for name, version in report["module_packages"].items() if not version)
        if missing:
            lacking.setdefault(missing, []).append(host)
    for missing, names in lacking.items():
        yield (
            f"{fold(names)}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            "installed there, which modules need to run; run site.yml, which installs what is "
            "missing"
        )
    for one in odd({host: report["python"] for host, report in loading.items()}):
        yield _odd_library("Python", one)
    for package in differences([report["module_packages"] for report in loading.values()]):
        versions = {
            host: report["module_packages"][package]
            for host, report in loading.items()
            if report["module_packages"].get(package)
        }
        for one in odd(versions):
            yield _odd_library(package, one)


def _odd_library(name: str, one: Odd[str]) -> str:
    return (
        f"{fold(one.hosts)}: {name} {one.value}, {one.peers} {one.have} {one.common}, and a module "
        "may run on one and fail on another; bring them to the same version"
    )


def differences(installed: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the packages that hosts have in several versions, or that some hosts lack."""
    everywhere = {package for packages in installed for package in packages}
    return sorted(
        package
        for package in everywhere
        if len({packages.get(package) for packages in installed}) > 1
    )


def _is_shared(package: str) -> bool:
    return any(fnmatchcase(package, pattern) for pattern in SHARED_PACKAGES)
