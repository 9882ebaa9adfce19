"""What is on the state disk of a controller in the cloud."""

from pathlib import Path

import yaml

from muster.definition import cloud_hosts, load, validate
from muster.render import state_disk

ROOT = Path(__file__).resolve().parents[3]


def test_state_disk_holds_what_must_outlive_the_controller_s_vm() -> None:
    folders = state_disk.folders(load(ROOT / "inventories/cloud"))
    assert [folder["path"] for folder in folders] == [
        "/home",
        "/apps",
        "/data",
        "/var/lib/nfs",
        "/var/lib/mysql",
        "/var/lib/slurm/slurmctld",
    ]
    defaults = yaml.safe_load((ROOT / "roles/slurmctld/defaults/main.yml").read_text())
    assert folders[-1]["path"] == defaults["slurmctld_state_dir"]


def test_the_nfs_server_waits_for_what_it_knows_of_its_clients() -> None:
    folders = state_disk.folders(load(ROOT / "inventories/cloud"))
    known = next(folder for folder in folders if folder["path"] == "/var/lib/nfs")
    assert {"nfs-server", "nfsdcld"} <= {*known["units"]}


def test_a_controller_that_serves_no_folder_keeps_nothing_of_nfs() -> None:
    cluster = load(ROOT / "inventories/cloud").cluster.model_dump(exclude_unset=True)
    for folder in ("home", "apps", "data"):
        cluster["storage"][folder] = {"path": f"/{folder}", "kind": "existing"}
    hosts = cloud_hosts(load(ROOT / "inventories/cloud").cluster)
    folders = state_disk.folders(validate(cluster, hosts.groups))
    assert [folder["path"] for folder in folders] == ["/var/lib/mysql", "/var/lib/slurm/slurmctld"]


def test_machines_of_one_s_own_have_no_state_disk() -> None:
    assert state_disk.folders(load(ROOT / "inventories/lab")) == []
