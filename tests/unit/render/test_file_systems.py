"""Where state and shared folders lie."""

from pathlib import Path
from typing import Any

import yaml

from muster.definition import Definition, cloud_hosts, load, validate
from muster.render import file_systems

ROOT = Path(__file__).resolve().parents[3]


def cloud(**storage: Any) -> Definition:
    cluster = load(ROOT / "inventories/cloud").cluster.model_dump(exclude_unset=True)
    cluster["storage"].update(storage)
    hosts = cloud_hosts(load(ROOT / "inventories/cloud").cluster)
    return validate(cluster, hosts.groups)


def test_the_state_disk_holds_what_must_outlive_the_controller_s_vm() -> None:
    (disk,) = file_systems.of_controller(cloud())
    assert (disk["device"], disk["label"]) == ("/dev/disk/by-id/google-state", "muster-state")
    assert [folder["path"] for folder in disk["folders"]] == [
        "/var/lib/nfs",
        "/var/lib/mysql",
        "/var/lib/slurm/slurmctld",
    ]
    defaults = yaml.safe_load((ROOT / "roles/slurmctld/defaults/main.yml").read_text())
    assert disk["folders"][-1]["path"] == defaults["slurmctld_state_dir"]


def test_the_nfs_server_waits_for_what_it_knows_of_its_clients() -> None:
    (disk,) = file_systems.of_controller(cloud())
    known = next(folder for folder in disk["folders"] if folder["path"] == "/var/lib/nfs")
    assert {"nfs-server", "nfsdcld"} <= {*known["units"]}


def test_a_controller_that_serves_no_folder_keeps_nothing_of_nfs() -> None:
    existing = {
        folder: {"path": f"/{folder}", "kind": "existing"} for folder in ("home", "apps", "data")
    }
    (disk,) = file_systems.of_controller(cloud(**existing))
    assert [folder["path"] for folder in disk["folders"]] == [
        "/var/lib/mysql",
        "/var/lib/slurm/slurmctld",
    ]
    assert file_systems.of_storage(cloud(**existing)) == []


def test_each_folder_of_a_cluster_in_the_cloud_has_its_own_disk() -> None:
    given = cloud(models={"kind": "nfs", "path": "/models"})
    folders = file_systems.of_storage(given)
    assert [(folder["path"], folder["device"]) for folder in folders] == [
        ("/home", "/dev/disk/by-id/google-home"),
        ("/apps", "/dev/disk/by-id/google-apps"),
        ("/data", "/dev/disk/by-id/google-data"),
        ("/models", "/dev/disk/by-id/google-models"),
    ]
    sizes = {key: disk.size_gib for key, disk in given.cluster.disks().items()}
    assert sizes == {"state": 20, "home": 50, "apps": 20, "data": 50, "models": 100}
    # mkfs.ext4(8).
    assert all(len(folder["label"]) <= 16 for folder in folders)


def test_on_one_s_own_machines_a_folder_of_a_size_is_a_file_and_any_other_a_mounted_disk() -> None:
    lab = load(ROOT / "inventories/lab")
    cluster = lab.cluster.model_dump(exclude_unset=True)
    cluster["storage"]["home"] = {"path": "/home", "kind": "nfs", "size_gib": 50}
    cluster["storage"]["data"] = {"path": "/data", "kind": "nfs"}
    groups = {**lab.hosts.groups, "storage": lab.hosts.groups["controller"]}
    served = validate(cluster, groups)
    assert file_systems.of_storage(served) == [
        {
            "path": "/home",
            "size_gib": 50,
            "label": "muster-home",
            "options": ["nosuid", "nodev"],
            "units": ["nfs-server"],
        }
    ]
    assert file_systems.of_controller(served) == []
    assert served.cluster.disks() == {}
