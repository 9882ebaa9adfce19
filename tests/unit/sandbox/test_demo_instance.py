"""The demo's copy of an inventory: fitted to the machine, and copied again if incomplete."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.definition import load
from muster_sandbox.containers.podman import MachineError
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


def test_secrets_that_are_encrypted_need_their_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    instance = Instance(tmp_path / "muster-copy")
    instance.create(TEMPLATE, "bookworm")
    password = tmp_path / "password"
    password.write_text("of the vault")
    vault = [Path(sys.executable).with_name("ansible-vault"), "encrypt"]
    secrets = instance.folder / "group_vars/all/secrets.yml"
    subprocess.run([*vault, "--vault-password-file", password, secrets], check=True)
    with pytest.raises(MachineError, match="Attempting to decrypt but no vault secrets found"):
        instance.fleet()


def test_ansible_reads_no_log_as_an_inventory(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "muster-copy")
    assert instance.log.parent == tmp_path
