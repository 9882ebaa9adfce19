"""Where state and shared folders lie."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.definition import Definition, cloud_hosts, load, validate
from muster.render import file_systems

ROOT = Path(__file__).resolve().parents[3]


def cloud(**storage: Any) -> Definition:
    cluster = load(ROOT / "inventories/cloud").cluster.model_dump(exclude_unset=True)
    cluster["storage"].update(storage)
    hosts = cloud_hosts(load(ROOT / "inventories/cloud").cluster)
    return validate(cluster, hosts.groups)


def of_both(definition: Definition) -> list[dict[str, Any]]:
    """The file systems of state of a controller that has the database too."""
    return file_systems.of_state(definition, controls=True, keeps_database=True)


def machines(**changes: Any) -> Definition:
    """The lab with other sections of the definition."""
    lab = load(ROOT / "inventories/lab")
    cluster = lab.cluster.model_dump(exclude_unset=True)
    return validate(cluster | changes, lab.hosts.groups)


def test_the_state_disk_holds_what_must_outlive_the_controller_s_vm() -> None:
    (disk,) = of_both(cloud())
    assert (disk["device"], disk["label"]) == ("/dev/disk/by-id/google-state", "muster-state")
    assert [folder["path"] for folder in disk["folders"]] == [
        "/var/lib/nfs",
        "/var/lib/mysql",
        "/var/lib/slurm/slurmctld",
    ]
    defaults = yaml.safe_load((ROOT / "roles/slurmctld/defaults/main.yml").read_text())
    assert disk["folders"][-1]["path"] == defaults["slurmctld_state_dir"]


def test_the_nfs_server_waits_for_what_it_knows_of_its_clients() -> None:
    (disk,) = of_both(cloud())
    known = next(folder for folder in disk["folders"] if folder["path"] == "/var/lib/nfs")
    assert {"nfs-server", "nfsdcld"} <= {*known["units"]}


def test_a_controller_that_serves_no_folder_keeps_nothing_of_nfs() -> None:
    existing = {
        folder: {"path": f"/{folder}", "kind": "existing"} for folder in ("home", "apps", "data")
    }
    (disk,) = of_both(cloud(**existing))
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
    assert served.cluster.disks() == {}


DATABASE = {"path": "/var/lib/mysql", "owner": "mysql", "group": "mysql", "units": ["mariadb"]}
QUEUE = {
    "path": "/var/lib/slurm/slurmctld",
    "owner": "slurm",
    "group": "slurm",
    "units": ["slurmctld"],
}


@pytest.mark.parametrize(
    ("controls", "keeps_database", "folders"),
    [(True, True, [DATABASE, QUEUE]), (True, False, [QUEUE]), (False, True, [DATABASE])],
)
def test_on_one_s_own_machines_queue_and_database_have_a_file_wherever_they_are(
    controls: bool, keeps_database: bool, folders: list[dict[str, Any]]
) -> None:
    (own,) = file_systems.of_state(machines(), controls=controls, keeps_database=keeps_database)
    assert own == {
        "path": "/srv/muster",
        "size_gib": 10,
        "label": "muster-state",
        "folders": folders,
    }


def test_no_other_host_has_one() -> None:
    assert file_systems.of_state(machines(), controls=False, keeps_database=False) == []
    elsewhere = machines(database={"host": "db.example.org"})
    assert file_systems.of_state(elsewhere, controls=False, keeps_database=True) == []
    assert file_systems.of_state(cloud(), controls=False, keeps_database=False) == []


def test_its_size_is_the_definition_s_and_null_leaves_all_where_it_is() -> None:
    (own,) = of_both(machines(storage={"state_gib": 40}))
    assert own["size_gib"] == 40
    assert of_both(machines(storage={"state_gib": None})) == []
