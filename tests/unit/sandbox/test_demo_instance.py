"""The demo's copy of an inventory: fitted to the machine, and copied again if incomplete."""

from pathlib import Path

from muster.definition import load
from muster_sandbox.demo.cli import NETWORK
from muster_sandbox.demo.instance import Instance

TEMPLATE = Path(__file__).parents[3] / "inventories" / "demo"


def test_copy_is_a_valid_definition_on_its_own_network(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-copy")
    instance.create(TEMPLATE, "trixie", subnet="10.214.99.0/24")
    definition = load(instance.folder)
    assert definition.cluster.os == "debian-13"
    assert "3.13" in definition.cluster.software.modules["apps/python"]
    assert instance.fleet().network == "muster-copy"
    assert {machine.address.rpartition(".")[0] for machine in instance.fleet().machines} == {
        "10.214.99"
    }


def test_copy_of_a_killed_run_is_made_again(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-copy")
    instance.folder.mkdir()
    (instance.folder / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    assert not instance.exists
    instance.create(TEMPLATE, "bookworm")
    assert instance.exists
    assert load(instance.folder).hosts.groups["login"] == ["lab-access"]


def test_copy_of_a_cluster_without_people_can_be_made(tmp_path: Path) -> None:
    bench = TEMPLATE.parents[1] / "tests" / "bench" / "inventories" / "core"
    instance = Instance(tmp_path / "muster-copy")
    instance.create(bench, "bookworm")
    assert not load(instance.folder).cluster.users.people


def test_demo_down_knows_the_network_of_the_template(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-copy")
    instance.create(TEMPLATE, "bookworm")
    assert instance.fleet().network == NETWORK


def test_ansible_reads_no_log_as_an_inventory(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-copy")
    assert instance.log.parent == tmp_path
