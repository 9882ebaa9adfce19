"""hosts.yml is read as Ansible reads it: compared with Ansible itself."""

from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import expand_hostname_range

from muster.definition import hosts_file, yaml_file
from muster.definition.definition import Hosts

PATTERNS = [
    "n1",
    "n[1:3]",
    "n[01:12]",
    "n[00001:00120:7]",
    "n[:4]",
    "rack[a:d]",
    "rack[A:C]-node[08:11]-x",
    "[1:2][a:b]",
]

INVENTORY = """
all:
  vars: {rack: none}
  hosts:
    lone: {ansible_host: 192.0.2.1}
  children:
    controller:
      hosts: {ctl: {ansible_host: 192.0.2.2}}
    compute:
      children:
        cpu:
          hosts:
            cpu-[01:03]: {weight: 2}
            cpu-02: {ansible_host: 192.0.2.3}
        gpu:
    rack1:
      children:
        gpu:
          hosts:
            gpu-1:
      hosts: {ctl: {shelf: 4}}
"""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ranges_are_expanded_as_ansible_does(pattern: str) -> None:
    expected = expand_hostname_range(pattern) if "[" in pattern else [pattern]
    assert hosts_file.expand(pattern) == expected


@pytest.mark.parametrize(
    "pattern", ["n[1-3]", "n[3:1]", "n[01:002]", "n[a:3]", "n[1:3", "n[1:9:0]"]
)
def test_ranges_that_ansible_does_not_take_are_refused(pattern: str) -> None:
    with pytest.raises(hosts_file.RangeError):
        hosts_file.expand(pattern)


def read(text: str, folder: Path) -> Hosts:
    (folder / "hosts.yml").write_text(text)
    document = yaml_file.read(folder / "hosts.yml", "hosts.yml")
    tree = hosts_file.parse(document)
    assert tree.faults == []
    return tree.hosts()


def test_groups_and_variables_are_those_that_ansible_sees(tmp_path: Path) -> None:
    hosts = read(INVENTORY, tmp_path)
    manager = InventoryManager(loader=DataLoader(), sources=[str(tmp_path / "hosts.yml")])
    for name, members in hosts.groups.items():
        group = manager.groups[name]
        assert sorted(members) == sorted(host.name for host in group.get_hosts()), name
    own = {"ansible_host", "weight", "shelf"}
    for name, given in hosts.vars.items():
        seen = manager.get_host(name).vars
        assert given == {key: seen[key] for key in own & set(seen)}


def test_hosts_keep_the_order_of_the_file(tmp_path: Path) -> None:
    hosts = read(INVENTORY, tmp_path)
    assert hosts.groups["compute"] == ["cpu-01", "cpu-02", "cpu-03", "gpu-1"]


def faults(text: str, folder: Path) -> list[tuple[str, int]]:
    (folder / "hosts.yml").write_text(text)
    tree = hosts_file.parse(yaml_file.read(folder / "hosts.yml", "hosts.yml"))
    return [(fault.kind, fault.line) for fault in tree.faults]


def test_groups_may_be_below_each_other_as_deep_as_they_like(tmp_path: Path) -> None:
    """Written one by one: the file is flat, and nothing calls itself for each level."""
    chain = [f"g{n}: {{children: {{g{n + 1}: }}}}" for n in range(2000)]
    hosts = read("\n".join([*chain, "g2000: {hosts: {n1: }}"]), tmp_path)
    assert hosts.groups["g0"] == ["n1"]


def test_a_circle_of_groups_is_found_wherever_it_begins(tmp_path: Path) -> None:
    text = (
        "a: {children: {b: }}\nb: {children: {c: }}\nc: {children: {a: }}\nd: {children: {b: }}\n"
    )
    assert faults(text, tmp_path) == [("hosts-cycle", 3)]


def test_hosts_of_all_groups_together_have_a_bound(tmp_path: Path) -> None:
    groups = "\n".join(f"g{n}: {{children: {{everyone: }}}}" for n in range(20))
    assert faults(f"everyone: {{hosts: {{'n[1:60000]': }}}}\n{groups}\n", tmp_path) == [
        ("hosts-shape", 1)
    ]
