"""What `make test SINCE=REF` runs: what the paths that changed since REF can touch.

AREAS says for each path in which layers to look for its tests; tests/file_dependencies.py says
which tests use it. A path of no area runs everything, as does `make test` without SINCE.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from file_dependencies import FileDependencies

FOLDERS = {
    "unit": "tests/unit",
    "cluster": "tests/live",
    "cloud": "tests/cloud",
    "engine": "tests/engine",
    "vm": "tests/vm",
}
"""Layer of pytest -> the folder of its tests."""

LAYERS = (*FOLDERS, "molecule")
"""Those that may run a part of their tests, or none; lint runs whole."""


@dataclass(frozen=True)
class Area:
    """Paths that one rule knows."""

    pattern: str
    layers: Collection[str] | None
    """Where their tests are; None: everything runs."""
    left: str = ""
    """Why the other layers are left out."""


AREAS = (
    Area(
        r"docs/.+|[A-Z]+\.md|LICENSE",
        {"unit"},
        "without SINCE the commands of the pages are typed on hosts",
    ),
    Area(
        r"(roles|molecule|tests/roles)/.+",
        {"unit", "molecule"},
        "a role's scenario proves it; without SINCE it runs in clusters too",
    ),
    Area(
        r"ansible/plugins/.+",
        {"unit", "molecule"},
        "the roles that call it prove it; without SINCE they run in clusters too",
    ),
    Area(r"tests/(unit|bench)/.+", {"unit"}),
    Area(r"tests/live/.+", {"unit", "cluster"}),
    Area(r"tests/(cloud|engine|vm)/.+", set(FOLDERS)),
    Area(r"tests/[^/]+\.(py|jsonl)", LAYERS),
    Area(r"(ansible|muster|muster_sandbox|pulumi|inventories|examples)/.+", LAYERS),
    Area(
        r"(\.config|\.github|\.ci|meta)/.+|plugins|[^/]+\.(toml|txt|cfg|yml)|Makefile|\.[\w-]+",
        None,
    ),
)
"""The first that knows a path is the path's rule."""

CALLS = re.compile(r"ansible/[^/]+\.yml|ansible\.cfg|inventories/.+")
"""What calls plugins for a whole cluster."""

ON_VMS = ("muster/", "ansible/")
"""Folders of which no test in tests/cloud says that its VMs get them (muster/gcp/bundle.py)."""

PROOF = re.compile(r"^pytestmark = pytest\.mark\.proof", re.MULTILINE)
SCENARIO = re.compile(r"molecule/(\w+)/molecule\.yml")
OF_ROLE = re.compile(r"(?:roles/|tests/roles/test_)(\w+)(?:/.+|\.py)")
OF_SCENARIO = re.compile(r"molecule/(\w+)/.+")
OF_SCENARIOS = re.compile(
    r"tests/(scenarios|scenario_machines)\.py|tests/roles/(conftest\.py|[^/]+/.+)"
)
"""What all scenarios use, besides the folders of molecule/ that are none."""

UNREACHED = "no changed path reaches its tests"


@dataclass(frozen=True)
class Touched:
    """What one changed path makes run."""

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Layer -> files of tests, or scenarios."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Layer whose tests use the path, and are left out -> why."""
    whole: str = ""
    """Why everything runs; empty: it does not."""

    def __str__(self) -> str:
        if self.whole:
            return f"everything, {self.whole}"
        return ", ".join(
            f"{layer} ({' '.join(sorted(names)) if layer == 'molecule' else len(names)})"
            for layer, names in self.names.items()
            if names
        )


class Suites:
    """The tests of `make test`, by what they use."""

    def __init__(self, dependencies: FileDependencies) -> None:
        self.dependencies = dependencies
        self.all = {
            layer: frozenset(
                path
                for path, text in dependencies.files.items()
                if re.fullmatch(rf"{folder}/(.+/)?test_\w+\.py", path) and not PROOF.search(text)
            )
            for layer, folder in FOLDERS.items()
        } | {"molecule": frozenset(self.scenarios.values()) - self.scenarios_of_proof}

    @cached_property
    def scenarios(self) -> dict[str, str]:
        """Role -> the scenario of `make molecule` that has it: the one that names its tests."""
        texts = {
            match[1]: text
            for path, text in self.dependencies.files.items()
            if (match := SCENARIO.fullmatch(path))
        }
        shared = {
            role: name
            for name, text in texts.items()
            for role in re.findall(r"tests/roles/test_(\w+)\.py", text)
        }
        return {name: name for name in texts} | shared

    @property
    def scenarios_of_proof(self) -> set[str]:
        """Scenarios that the Makefile leaves to `make proof`."""
        makefile = self.dependencies.files.get("Makefile", "")
        lines = re.findall(r"^CEPH_ROLES := (.*)$", makefile, re.MULTILINE)
        return {name for line in lines for name in line.split()}

    def touched(self, path: str) -> Touched:
        """Return what a change of a path makes run."""
        area = next((area for area in AREAS if re.fullmatch(area.pattern, path)), None)
        if area is None:
            return Touched(whole="no rule knows this path")
        if area.layers is None:
            return Touched(whole="each layer depends on it")
        reached = self.dependencies.reached(path)
        names = {layer: self.all[layer] & reached for layer in FOLDERS}
        # A scenario that reads the tasks of all roles still proves its own role alone.
        closely = self.dependencies.reached(path, by_folder="cluster" in area.layers)
        scenarios = self._scenarios(closely)
        names["molecule"] = scenarios - self.scenarios_of_proof
        if path.startswith(ON_VMS):
            names["cloud"] = self.all["cloud"]
        layers = set(area.layers)
        if path.startswith("ansible/plugins/") and any(map(CALLS.fullmatch, reached)):
            layers |= set(LAYERS)
        if any(role not in self.scenarios for role in roles(closely)):
            layers.add("cluster")
            names["cluster"] = self.all["cluster"]
        left = {layer: area.left for layer in LAYERS if layer not in layers and names[layer]}
        if proof := scenarios & self.scenarios_of_proof:
            left["molecule"] = f"`make proof` has {', '.join(sorted(proof))}"
        return Touched({layer: names[layer] for layer in LAYERS if layer in layers}, left)

    def _scenarios(self, reached: Collection[str]) -> frozenset[str]:
        folders = {match[1] for path in reached if (match := OF_SCENARIO.fullmatch(path))}
        if folders - self.scenarios.keys() or any(map(OF_SCENARIOS.fullmatch, reached)):
            return self.all["molecule"]
        names = (folders | roles(reached)) & self.scenarios.keys()
        return frozenset(folders | {self.scenarios[name] for name in names})


def roles(paths: Collection[str]) -> set[str]:
    """Return the roles of which a file or the tests are among the paths."""
    return {match[1] for path in paths if (match := OF_ROLE.fullmatch(path))}


@dataclass(frozen=True)
class Part:
    """What runs of a layer."""

    names: tuple[str, ...] = ()
    """Files of tests, or scenarios; none with `whole` or `left_out`."""
    whole: bool = False
    left_out: str = ""
    """Why nothing runs."""


def parts(tests: Suites, touched: Collection[Touched]) -> dict[str, Part]:
    """Return what runs of each layer."""
    if any(change.whole for change in touched):
        return {layer: Part(whole=True) for layer in LAYERS}
    by_layer = {}
    for layer in LAYERS:
        names = frozenset().union(*(change.names.get(layer, ()) for change in touched))
        why = {change.left[layer] for change in touched if layer in change.left}
        if not names:
            part = Part(left_out="; ".join(sorted(why)) or UNREACHED)
        elif names == tests.all[layer]:
            part = Part(whole=True)
        else:
            # The files of a folder before those of the folders in it: clouds of one test are gone
            # before that of tests/cloud/cloudcluster is made.
            part = Part(tuple(sorted(names, key=lambda name: (name.count("/"), name))))
        by_layer[layer] = part
    return by_layer
