"""What Muster reads of an inventory's folder is what Ansible reads of it, for the cases here.

Where Ansible can't read hosts.yml, or leaves a part of it out, Muster refuses it.
"""

from pathlib import Path
from typing import Any

import casekit
import pytest
from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from casekit import Case

from muster.definition import sources
from muster.definition.inventory_files import variable_files
from muster.definition.loading import examine

HOSTS = [case for case in casekit.cases() if case.name.startswith("hosts_yml/")]
WITH_VARIABLES = [
    case
    for case in casekit.cases()
    if case.name.startswith(("hosts_yml/", "secrets/")) and case.base != "cloud"
]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ansible.cfg."""
    monkeypatch.setattr(constants, "INVENTORY_ANY_UNPARSED_IS_FAILED", True)
    monkeypatch.setattr(constants, "INVENTORY_ENABLED", ["host_list", "auto", "yaml"])


def ansible_reads(folder: Path) -> InventoryManager | None:
    """The inventory as Ansible has it; None where it can't read the folder."""
    try:
        return InventoryManager(loader=DataLoader(), sources=[str(folder)])
    except (AnsibleError, RecursionError):
        return None


@pytest.mark.parametrize("case", HOSTS, ids=str)
def test_groups_hosts_and_addresses_are_those_that_ansible_sees(case: Case, tmp_path: Path) -> None:
    casekit.make(case, tmp_path)
    read = sources.read(tmp_path)
    _, problems = examine(read)
    manager = ansible_reads(tmp_path)
    if manager is None:
        assert problems, "Ansible can't read it, and Muster accepts it"
        return
    if problems:
        return
    hosts = read.tree.hosts()
    groups: dict[str, Any] = manager.groups
    for name, members in hosts.groups.items():
        assert sorted(members) == sorted(host.name for host in groups[name].get_hosts()), name
    assert {*hosts.groups} == {*groups} - {"ungrouped"}
    for name, given in hosts.vars.items():
        seen = manager.get_host(name).vars
        assert given.get("ansible_host") == seen.get("ansible_host"), name


@pytest.mark.parametrize("case", WITH_VARIABLES, ids=str)
def test_files_with_variables_are_those_that_ansible_reads(case: Case, tmp_path: Path) -> None:
    casekit.make(case, tmp_path)
    found = variable_files(tmp_path)
    names = {sources.overridden(str(file.relative_to(tmp_path))) for file in found.files}
    loader = DataLoader()
    for folder in ("group_vars", "host_vars"):
        of_folder = {file for file in found.files if file.is_relative_to(tmp_path / folder)}
        seen = {
            Path(file)
            for name in names
            for file in loader.find_vars_files(str(tmp_path / folder), name)
        }
        assert of_folder == seen


def test_a_case_that_ansible_can_t_read_is_among_them(tmp_path: Path) -> None:
    """The tests before could fail: some cases are unreadable, others are not."""
    unreadable = []
    for number, case in enumerate(HOSTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        casekit.make(case, folder)
        unreadable.append(ansible_reads(folder) is None)
    assert 5 < sum(unreadable) < len(HOSTS) - 5
