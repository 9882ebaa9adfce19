"""Each role is proven on both releases: by a scenario of its own, and in a station with others."""

import ast
from pathlib import Path
from typing import Any

import pytest
import scenarios
import yaml
from role_files import OF_A_CLUSTER

ROOT = Path(__file__).resolve().parents[2]
BASE = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text(encoding="utf-8"))

OF_CEPH = {"ceph_client", "ceph_cluster", "cephadm"}
"""Roles that are in no station: two Ceph clusters can't share a machine."""

ROLES = sorted(
    path.name
    for path in (ROOT / "roles").iterdir()
    if path.is_dir() and path.name not in OF_A_CLUSTER
)


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def settings_of(scenario: str) -> dict[str, Any]:
    return load(ROOT / "molecule" / scenario / "molecule.yml") or {}


def plays_of(scenario: str) -> list[dict[str, Any]]:
    """Return the plays of a scenario's converge.yml, with those of the playbooks it imports."""
    folder = ROOT / "molecule" / scenario
    playbooks = settings_of(scenario).get("ansible", {}).get("playbooks", {})
    pending = [folder / playbooks.get("converge", "converge.yml")]
    plays = []
    for playbook in pending:
        for play in load(playbook):
            imported = play.get("ansible.builtin.import_playbook")
            if imported:
                pending.append(playbook.parent / imported)
            else:
                plays.append(play)
    return plays


def roles_in(scenario: str) -> set[str]:
    """Return the roles that converge.yml applies to a machine of the scenario."""
    machines = settings_of(scenario).get("platforms", BASE["platforms"])
    groups = {group for machine in machines for group in machine.get("groups", [])}
    return {
        entry if isinstance(entry, str) else entry["role"]
        for play in plays_of(scenario)
        if not groups or play["hosts"] in groups
        for entry in play.get("roles", [])
    }


def proven_in(station: str) -> list[str]:
    """Return the roles whose tests a station runs."""
    files = settings_of(station)["verifier"]["additional_files_or_dirs"]
    folder = ROOT / "molecule" / station
    assert [file for file in files if not (folder / file).is_file()] == []
    return [Path(file).stem.removeprefix("test_") for file in files]


@pytest.mark.parametrize("scenario", scenarios.scenarios())
def test_it_has_machines_of_both_releases(scenario):
    machines = settings_of(scenario).get("platforms", BASE["platforms"])
    assert {machine["release"] for machine in machines} == {"bookworm", "trixie"}
    # The tests of two releases are distributed by these names (tests/by_release.py).
    assert [m for m in machines if m["name"].partition("-")[0] != m["release"]] == []
    # What is run is the same for all: .config/molecule.
    assert "scenario" not in settings_of(scenario)


@pytest.mark.parametrize("scenario", scenarios.scenarios())
def test_each_role_of_its_groups_is_tested_on_both_releases(scenario):
    # Its tests are left out on machines without its group (tests/roles/conftest.py).
    machines = settings_of(scenario).get("platforms", [])
    of_role = {
        group: {machine["release"] for machine in machines if group in machine["groups"]}
        for machine in machines
        for group in machine["groups"]
    }
    assert {role: releases for role, releases in of_role.items() if len(releases) != 2} == {}
    if machines and scenario in ROLES:
        assert scenario in of_role


@pytest.mark.parametrize("role", ROLES)
class TestScenario:
    """The scenario of one role, whose proof is proven."""

    def test_it_converges_the_role_and_breaks_it(self, role):
        assert role in roles_in(role)
        plays = load(ROOT / "molecule" / role / "break.yml")
        assert [task for play in plays for task in play["tasks"]]

    def test_its_verifier_has_nothing_of_its_own(self, role):
        # But that the tests of both releases run at a time.
        assert settings_of(role).get("verifier", {}) in ({}, {"options": {"n": "2"}})

    def test_its_tests_assert(self, role):
        tree = ast.parse((ROOT / f"tests/roles/test_{role}.py").read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        tests = [function for function in functions if function.name.startswith("test_")]
        assert tests
        # testinfra's own assertion, pytest.raises, and the file's helpers that assert.
        names = {"check_output", "raises"} | {f.name for f in functions if asserts(f, set())}
        assert [test.name for test in tests if not asserts(test, names)] == []


def asserts(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether `function` has an assertion or calls something in `names`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in names:
                return True
    return False


@pytest.mark.parametrize("station", scenarios.stations())
class TestStation:
    """The scenario of several roles."""

    def test_it_converges_the_roles_whose_tests_it_runs(self, station):
        assert set(proven_in(station)) <= roles_in(station)

    def test_a_machine_with_groups_has_each_of_its_roles(self, station):
        groups = {g for m in settings_of(station).get("platforms", []) for g in m["groups"]}
        assert groups <= roles_in(station)


def test_each_role_is_in_one_station():
    proven = [role for station in scenarios.stations() for role in proven_in(station)]
    assert sorted(proven) == sorted({*ROLES} - OF_CEPH)


def test_each_step_of_a_scenario_is_done_in_stations_or_alone():
    def steps(file):
        return set(load(ROOT / ".config/molecule" / file)["scenario"]["test_sequence"])

    assert steps("station.yml") | steps("isolated.yml") == steps("config.yml")
