"""The inventory with which a VM of a cluster in the cloud runs site.yml on itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.definition import cloud_hosts, load
from muster.definition.definition import Hosts
from muster.gcp.inventory import inventory

ROOT = Path(__file__).parents[3]
CLOUD = ROOT / "inventories/cloud"
ADDRESSES = {"slurm10-controller": "10.10.0.2"}


@pytest.fixture(scope="module")
def hosts() -> Hosts:
    return cloud_hosts(load(CLOUD).cluster)


def test_controller_sees_itself_and_verifies_the_whole(hosts: Hosts) -> None:
    seen = inventory(hosts, "slurm10-controller", ADDRESSES)["all"]["hosts"]
    assert seen == {
        "slurm10-controller": {"ansible_host": "10.10.0.2", "ansible_connection": "local"},
        "slurm10-login-0": {},
    }


def test_login_cannot_log_in_to_the_controller(hosts: Hosts) -> None:
    seen = inventory(hosts, "slurm10-login-0", ADDRESSES)["all"]["hosts"]
    assert seen == {
        "slurm10-controller": {"ansible_host": "10.10.0.2"},
        "slurm10-login-0": {"ansible_connection": "local", "verify_controller": ""},
    }


def test_the_clock_follows_google_s_alone_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "inventory"
    shutil.copytree(CLOUD, folder)
    (folder / "pulumi_stack.yml").unlink()
    hosts = cloud_hosts(load(CLOUD).cluster)
    groups = inventory(hosts, "slurm10-controller", ADDRESSES)
    (folder / "machines.json").write_text(json.dumps(groups))

    def servers() -> list[list[str]]:
        seen = groups_in_ansible(folder)["_meta"]["hostvars"]
        return [seen[host]["base_ntp_servers"] for host in sorted(seen)]

    assert servers() == [["metadata.google.internal"]] * 2
    (folder / "group_vars/all/time.yml").write_text("base_ntp_servers: [ntp1.example.org]\n")
    assert servers() == [["ntp1.example.org"]] * 2


def test_another_machine_is_refused(hosts: Hosts) -> None:
    with pytest.raises(ValueError, match="slurm10-debug-0 is no host of this cluster"):
        inventory(hosts, "slurm10-debug-0", {})


def groups_in_ansible(folder: Path) -> dict:
    program = str(Path(sys.executable).with_name("ansible-inventory"))
    done = subprocess.run(
        [program, "--inventory", str(folder), "--list"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout)


def test_ansible_reads_it_with_the_definition_beside_it(tmp_path: Path) -> None:
    """As on the VM: the file beside group_vars, where `muster check` still finds no fault."""
    folder = tmp_path / "inventory"
    (folder / "group_vars/all").mkdir(parents=True)
    definition = (CLOUD / "group_vars/all/cluster.yml").read_text(encoding="utf-8")
    (folder / "group_vars/all/cluster.yml").write_text(definition, encoding="utf-8")
    command = [sys.executable, "-m", "muster.gcp.inventory", str(folder), "slurm10-login-0"]
    done = subprocess.run(
        [*command, json.dumps(ADDRESSES)], capture_output=True, text=True, timeout=60, check=True
    )
    (folder / "machines.json").write_text(done.stdout, encoding="utf-8")
    load(folder)
    groups = groups_in_ansible(folder)
    assert groups["controller"]["hosts"] == ["slurm10-controller"]
    assert groups["storage"]["hosts"] == ["slurm10-controller"]
    assert groups["login"]["hosts"] == ["slurm10-login-0"]
    assert groups["_meta"]["hostvars"]["slurm10-login-0"]["cluster"]["name"] == "slurm10"


def test_a_wrong_definition_is_reported_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/cluster.yml").write_text("cluster: {name: x, nodez: {}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "muster.gcp.inventory", str(tmp_path), "x-controller", "{}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "nodez" in done.stderr
