"""Imports go down the folders, never in a circle; product code imports no stand-ins or tests."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from documentation import Page

ROOT = Path(__file__).resolve().parents[2]

LAYERS = {
    "muster": (
        {"__main__"},
        {"cli"},
        {"autoscaler"},
        {"verify", "gcp", "gpu_check"},
        {"render", "secrets"},
        {"definition"},
        {"catalog"},
    ),
    "muster.autoscaler": (
        {"__main__"},
        {"daemon"},
        {"settings", "systemd", "readers"},
        {"messages"},
        {"report"},
        {"compute", "slurm"},
        {"reconcile"},
        {"text", "clock"},
    ),
    "muster.definition": (
        {"reference"},
        {"loading", "warnings"},
        {"longest_wall", "several_gpus"},
        {"checks"},
        {"sources", "secret_values", "indentation", "module_versions", "requirements"},
        {"hosts_file", "inventory_files", "secret_names", "examples", "limited", "gres"},
        {"schema_errors", "definition"},
        {"repeats"},
        {"yaml_file", "problems", "spelling", "job_shares", "other_keys"},
        {"schema"},
    ),
    "muster_sandbox": (
        {"cloud"},
        {"cloud_demo"},
        {"demo"},
        {"engine", "fakecloud"},
        {"provider", "containers", "exit_codes"},
    ),
}
"""Package -> its folders and files, upper ones first; those of one layer know nothing of each
other."""

TERMINAL = {"typer", "rich"}
"""What only muster/cli and the commands of muster_sandbox import."""


@cache
def modules() -> dict[str, Path]:
    """Modules of both packages by name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in ("muster", "muster_sandbox")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.parent.joinpath("__init__.py").exists()
    }


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of the modules that a module imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else node.module


@cache
def arrows() -> dict[str, frozenset[str]]:
    """Module -> the modules that it imports."""
    return {
        name: frozenset(imported(ast.parse(path.read_text(encoding="utf-8"))))
        for name, path in modules().items()
    }


def own_arrows() -> dict[str, frozenset[str]]:
    """The same, without what others wrote."""
    return {name: targets & modules().keys() for name, targets in arrows().items()}


def part_of(module: str, package: str) -> str:
    """Return the file or folder of a package in which a module is; empty: the package itself."""
    return module.removeprefix(package).removeprefix(".").partition(".")[0]


def upward(
    arrows: dict[str, frozenset[str]], package: str, layers: tuple[set[str], ...]
) -> list[str]:
    """Imports of a package that don't go down its layers."""
    rank = {part: number for number, layer in enumerate(layers) for part in layer}
    inside = [name for name in arrows if name.startswith(f"{package}.")]
    return [
        f"{name} imports {target}"
        for name in inside
        for target in sorted(arrows[name])
        if target.startswith(f"{package}.")
        and part_of(name, package) != part_of(target, package)
        and rank[part_of(target, package)] <= rank[part_of(name, package)]
    ]


def circle(arrows: dict[str, frozenset[str]]) -> list[str]:
    """Modules that import each other, directly or not: what is left after removing leaves."""
    left = {name: set(targets) for name, targets in arrows.items()}
    while ends := {name for name, targets in left.items() if not targets}:
        left = {name: targets - ends for name, targets in left.items() if name not in ends}
    # And without those that only lead to a circle.
    while starts := left.keys() - set().union(*left.values(), set()):
        left = {name: targets for name, targets in left.items() if name not in starts}
    return sorted(left)


def parts_of(package: str) -> set[str]:
    """Return the files and folders of a package."""
    folder = ROOT / package.replace(".", "/")
    parts = {path.stem for path in folder.iterdir() if path.suffix == ".py"} | {
        path.name for path in folder.iterdir() if (path / "__init__.py").exists()
    }
    return parts - {"__init__"}


def imports_of_parts(arrows: dict[str, frozenset[str]]) -> set[tuple[str, str]]:
    """Return which parts of muster import which; muster_sandbox is one part."""

    def part(module: str) -> str:
        return "muster_sandbox" if module.startswith("muster_s") else part_of(module, "muster")

    pairs = {(part(name), part(target)) for name, targets in arrows.items() for target in targets}
    return {(one, other) for one, other in pairs if one != other and one and other}


def drawn(drawing: str) -> set[tuple[str, str]]:
    """Return the arrows of a Mermaid flowchart whose lines are `a --> b & c`."""
    head, *lines = drawing.splitlines()
    assert head == "flowchart TB"
    pairs = set()
    for line in lines:
        match = re.fullmatch(r" +(\w+) --> (\w+(?: & \w+)*)", line)
        assert match, f"{line!r} is no arrow"
        pairs |= {(match[1], target) for target in match[2].split(" & ")}
    return pairs


@pytest.mark.parametrize("package", LAYERS)
def test_all_parts_have_a_layer(package: str):
    assert parts_of(package) == set().union(*LAYERS[package])


@pytest.mark.parametrize("package", LAYERS)
def test_imports_go_down(package: str):
    assert upward(own_arrows(), package, LAYERS[package]) == []


def test_nobody_imports_in_a_circle():
    assert circle(own_arrows()) == []


def test_design_md_draws_the_parts_of_muster_and_their_imports():
    _flow, imports = Page(ROOT / "docs/design.md").blocks("mermaid")
    pairs = drawn(imports.text)
    assert {name for pair in pairs for name in pair} == parts_of("muster") | {"muster_sandbox"}
    assert pairs == imports_of_parts(own_arrows())


def test_product_code_knows_no_stand_ins_and_neither_knows_tests():
    roots = {
        name: {target.partition(".")[0] for target in targets} for name, targets in arrows().items()
    }
    kits = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"tests"}
    for name, targets in roots.items():
        assert "muster_sandbox" not in targets or name.startswith("muster_sandbox"), name
        assert not targets & kits, name
    texts = "".join(
        path.read_text("utf-8") for name, path in modules().items() if name.startswith("muster.")
    )
    assert "muster_sandbox" not in texts


def test_only_commands_talk_to_a_terminal():
    talkers = {
        name
        for name, targets in arrows().items()
        if {target.partition(".")[0] for target in targets} & TERMINAL
    }
    assert {name for name in talkers if name.startswith("muster.")} <= {
        name for name in modules() if name.startswith("muster.cli.")
    }


# Oracles that see a planted import.


def on_vms() -> set[str]:
    """The top modules of what a cluster's VMs have installed."""
    text = (ROOT / "requirements-vm.txt").read_text(encoding="utf-8")
    installed = {spelt(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    return {
        top
        for top, names in packages_distributions().items()
        if installed & {spelt(name) for name in names}
    }


def spelt(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_muster_imports_what_vms_have() -> None:
    known = on_vms() | set(sys.stdlib_module_names) | {"muster"}
    used = {
        (name, top)
        for name, path in modules().items()
        if name.startswith("muster.")
        for full in imported(ast.parse(path.read_text(encoding="utf-8")))
        if (top := full.partition(".")[0]) not in known
    }
    # For Pulumi's program, which runs on a laptop.
    assert used == {("muster.gcp.dynamic_resources", "pulumi")}


def test_a_circle_is_seen():
    lines = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"b"}), "d": frozenset()}
    assert circle(lines) == ["b", "c"]
    assert circle(lines | {"c": frozenset({"d"})}) == []


def test_an_import_that_goes_up_is_seen():
    layers = ({"cli"}, {"render"}, {"catalog"})
    down = {"m.cli.a": frozenset({"m.render"}), "m.render": frozenset({"m.catalog.b"})}
    assert upward(down, "m", layers) == []
    up = down | {"m.catalog.b": frozenset({"m.render"})}
    assert upward(up, "m", layers) == ["m.catalog.b imports m.render"]


def test_an_arrow_that_is_not_drawn_or_too_many_is_seen():
    lines = {
        "muster.cli.a": frozenset({"muster.render.b", "muster.secrets", "muster.cli.c"}),
        "muster.cli.c": frozenset({"muster"}),
        "muster.secrets": frozenset({"muster.render"}),
        "muster_sandbox.demo.d": frozenset({"muster.secrets", "muster_sandbox.demo"}),
    }
    whole = "flowchart TB\n  cli --> render & secrets\n  secrets --> render\n"
    whole += "  muster_sandbox --> secrets\n"
    assert drawn(whole) == imports_of_parts(lines)
    assert drawn(whole.replace(" & secrets", "")) != imports_of_parts(lines)
    assert drawn(f"{whole}  render --> cli\n") != imports_of_parts(lines)
    with pytest.raises(AssertionError, match="is no arrow"):
        drawn(f"{whole}  render\n")
