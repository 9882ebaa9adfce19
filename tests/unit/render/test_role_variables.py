"""The variables of all roles on one host: what each gets, and that all roles take them."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yamlkit
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from muster.autoscaler.slurm import power_save_program
from muster.definition import Definition, load, validate
from muster.definition.schema.software import STANDARD_LIBRARY
from muster.render.role_variables import _ROLES, Host, packages, role_variables, shared

ROOT = Path(__file__).resolve().parents[3]
SECRETS: dict[str, str] = yamlkit.load(
    (ROOT / "ansible/group_vars/all/secret_variables.yml").read_text()
)


def roles_of(play: Mapping[str, Any]) -> list[str]:
    """The roles of a play of site.yml."""
    key = "ansible.builtin.import_role"
    return [task[key]["name"] for task in play.get("tasks", []) if key in task]


PLAYS = [play for play in yamlkit.load((ROOT / "ansible/site.yml").read_text()) if roles_of(play)]
ROLES = sorted({role for play in PLAYS for role in roles_of(play)})
PACKAGE = "slurmctld_22.05.8-4+deb12u3+0muster1_amd64.deb"
MACHINE = {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}
ON_MACHINES: dict[str, Any] = {
    "name": "lab",
    "os": "debian-12",
    "nodes": {"cpu": MACHINE, "gpu": {**MACHINE, "gpus": {"count": 1, "type": "a100"}}},
    "partitions": {"main": {"nodes": ["cpu", "gpu"], "default": True}},
    "storage": {"home": {"path": "/home"}, "apps": {"path": "/sw"}, "data": {"path": "/data"}},
}
GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["cpu-01", "gpu-01"],
    "cpu": ["cpu-01"],
    "gpu": ["gpu-01"],
    "storage": [],
}


def changed(groups: Mapping[str, list[str]] | None = None, **keys: Any) -> Definition:
    """ON_MACHINES with these keys of the definition, and these groups."""
    return validate({**ON_MACHINES, **keys}, {**GROUPS, **(groups or {})})


def stored(**folders: dict[str, Any]) -> dict[str, Any]:
    """The key `storage` with these folders changed."""
    return {**ON_MACHINES["storage"], **folders}


def on_host(definition: Definition, name: str, given: Mapping[str, Any] | None = None) -> Host:
    hosts = definition.hosts.groups["all"]
    return Host(
        definition=definition,
        name=name,
        addresses={host: f"192.0.2.{number}" for number, host in enumerate(hosts, 1)},
        inventory=Path("/inventories/lab"),
        compute_endpoint="",
        given=given or {},
    )


def variables(definition: Definition, name: str) -> dict[str, Any]:
    host = on_host(definition, name)
    return shared(definition, host.addresses) | role_variables(host)[0]


def needed(definition: Definition, name: str, given: Mapping[str, Any] | None = None) -> list[str]:
    return role_variables(on_host(definition, name, given))[1]


SERVED = {"home": {"path": "/home", "kind": "nfs"}}
CEPH = {"devices": {"storage": ["/dev/disk/by-id/nvme-A"]}, "copies": 1}
ON_CEPH = {"home": {"path": "/home", "kind": "ceph"}}
DIRECTORY = {"servers": ["ldaps://ldap.example.org"], "base": "dc=example", "groups": ["hpc"]}
DEFINITIONS: dict[str, Definition] = {
    "machines": changed(),
    "package": changed(slurmctld_package=PACKAGE),
    "no database": changed({"database": []}),
    "database elsewhere": changed(database={"host": "db.example.org"}),
    "nvidia": changed(nvidia={"modules": "proprietary", "dcgm": True, "cdi": True}),
    "mail": changed(mail={"relay": "mail.example.org", "domain": "example.org"}),
    "served": changed({"storage": ["disks"]}, storage=stored(**SERVED)),
    "filer": changed(
        {"storage": ["disks"], "login": ["access", "front"]},
        storage=stored(home={"path": "/home", "kind": "nfs", "server": "filer"}),
    ),
    "cached": changed(
        storage=stored(data={"path": "/data", "kind": "nfs", "server": "filer", "cached": True})
        | {"cache": {"device": "/dev/nvme1n1", "any_kernel": True}}
    ),
    "ceph": changed({"storage": ["disks"]}, storage=stored(**ON_CEPH) | {"ceph": CEPH}),
    "cephadm": changed(
        {"storage": ["disks"]},
        storage=stored(**ON_CEPH) | {"ceph": {**CEPH, "image": "quay.io/ceph/ceph:v19.2.3"}},
    ),
    "projects": changed(
        users={"groups": {"vision": {"gid": 20000}}},
        storage=stored() | {"projects": {"vision": {"group": "vision"}}},
    ),
    "models": changed(
        users={"groups": {"vision": {"gid": 20000}}},
        storage=stored() | {"models": {"group": "vision"}},
    ),
    "images": changed(
        users={
            "groups": {"vision": {"gid": 20000}},
            "people": {"ada": {"uid": 20001}, "bob": {"uid": 20002, "state": "absent"}},
        },
        storage=stored() | {"images": {"group": "vision"}, "scratch": "/scratch"},
    ),
    "directory": changed(
        {"storage": ["disks"], "login": ["front"]},
        users={"directory": DIRECTORY, "people": {"ada": {"uid": 20001}}},
        storage=stored(**SERVED),
    ),
    "cloud": load(ROOT / "inventories/cloud"),
    "lab": load(ROOT / "inventories/lab"),
    "demo": load(ROOT / "inventories/demo"),
}


def options_of(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "meta/argument_specs.yml"
    spec = yamlkit.load(path.read_text())["argument_specs"]["main"]
    return dict(spec.get("options", {}))


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """An argument specification as modules have it: without descriptions."""
    kept = ("type", "elements", "required", "choices", "default")
    return {
        name: {key: value for key, value in option.items() if key in kept}
        | ({"options": plain(option["options"])} if "options" in option else {})
        for name, option in options.items()
    }


def runs_on(definition: Definition, hosts: str) -> set[str]:
    """The hosts of a play of site.yml."""
    role = re.fullmatch(r"\{\{ groups\.role_(\w+) \| default\('!all'\) \}\}", hosts)
    if role:
        everyone = definition.hosts.groups["all"]
        return {host for host in everyone if role[1] in needed(definition, host)}
    names: set[str] = set()
    for pattern in hosts.split(":"):
        members = set(definition.hosts.groups[pattern.lstrip("!")])
        names = names - members if pattern.startswith("!") else names | members
    return names


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_role_takes_what_its_hosts_get(name: str) -> None:
    definition = DEFINITIONS[name]
    secret = dict.fromkeys(SECRETS, "x" * 8)
    for play in PLAYS:
        for host in runs_on(definition, play["hosts"]):
            given = variables(definition, host) | secret
            for role in roles_of(play):
                options = options_of(role)
                taken = {key: value for key, value in given.items() if key in options}
                result = ArgumentSpecValidator(plain(options)).validate(taken)
                assert result.error_messages == [], f"{role} on {host}"


def test_each_role_runs_in_one_of_these_definitions() -> None:
    # Otherwise the test above proves nothing of it.
    run = {
        role
        for definition in DEFINITIONS.values()
        for play in PLAYS
        if runs_on(definition, play["hosts"])
        for role in roles_of(play)
    }
    assert run == {*ROLES}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_variable_belongs_to_a_role(name: str) -> None:
    definition = DEFINITIONS[name]
    known = {f"{role}: {option}" for role in ROLES for option in options_of(role)}
    for host in definition.hosts.groups["all"]:
        for variable in [*variables(definition, host), *SECRETS]:
            owners = [role for role in ROLES if f"{role}: {variable}" in known]
            assert len(owners) == 1, variable
            assert variable.startswith(f"{owners[0]}_")


def test_the_inventory_s_value_replaces_that_of_the_definition() -> None:
    mounts = [{"source": "filer:/home", "path": "/home", "type": "nfs4", "options": "rw"}]
    host = on_host(changed(), "access", {"munge_threads": 4, "nfs_client_mounts": mounts})
    added, _ = role_variables(host)
    assert {"munge_threads", "nfs_client_mounts"} & added.keys() == set()
    # What follows from it follows from the inventory's value.
    assert added["users_home_mounted"] is True
    assert needed(changed(), "access") == ["file_systems", "mariadb"]
    given = needed(changed(), "access", {"nfs_client_mounts": mounts})
    assert given == ["file_systems", "nfs_client", "mariadb", "homes"]


@pytest.mark.parametrize(
    ("name", "host", "roles"),
    [
        ("machines", "access", ["file_systems", "mariadb"]),
        ("machines", "cpu-01", []),
        ("database elsewhere", "access", ["file_systems"]),
        ("nvidia", "gpu-01", ["nvidia_driver"]),
        ("nvidia", "cpu-01", []),
        ("nvidia", "access", ["file_systems", "mariadb"]),
        ("mail", "access", ["file_systems", "mariadb", "mail"]),
        ("mail", "cpu-01", []),
        ("served", "disks", ["nfs_server", "quotas"]),
        ("served", "cpu-01", ["nfs_client"]),
        ("filer", "disks", []),
        ("filer", "access", ["file_systems", "nfs_client", "mariadb", "homes"]),
        ("cached", "cpu-01", ["fscache", "nfs_client"]),
        ("cached", "access", ["file_systems", "nfs_client", "mariadb"]),
        ("ceph", "disks", ["ceph_cluster"]),
        ("ceph", "access", ["file_systems", "ceph_client", "mariadb", "homes"]),
        ("cephadm", "disks", ["cephadm"]),
        ("projects", "access", ["file_systems", "projects", "mariadb"]),
        ("projects", "cpu-01", []),
        ("models", "access", ["file_systems", "models", "mariadb"]),
        ("models", "cpu-01", ["models"]),
        ("images", "access", ["file_systems", "containers", "mariadb"]),
        ("images", "cpu-01", ["containers"]),
        ("directory", "disks", ["nfs_server", "directory", "quotas"]),
        ("directory", "access", ["file_systems", "nfs_client", "directory", "mariadb"]),
        ("directory", "cpu-01", ["nfs_client", "directory"]),
        (
            "cloud",
            "slurm10-controller",
            [
                "file_systems",
                "nfs_server",
                "quotas",
                "cloud_vm",
                "mariadb",
                "autoscaler",
                "cloud_node",
            ],
        ),
        ("cloud", "slurm10-login-0", ["nfs_client", "cloud_vm"]),
    ],
)
def test_a_host_needs_the_roles_that_its_definition_asks_for(
    name: str, host: str, roles: list[str]
) -> None:
    assert needed(DEFINITIONS[name], host) == roles


def test_models_are_added_by_the_group_where_people_work() -> None:
    told = {
        host: {
            name.removeprefix("models_"): value
            for name, value in variables(DEFINITIONS["models"], host).items()
            if name.startswith("models_")
        }
        for host in ("access", "cpu-01")
    }
    store = {"path": "/models", "group": "vision"}
    assert told == {
        "access": {**store, "makes_store": True, "adds": True},
        "cpu-01": {**store, "makes_store": False, "adds": False},
    }
    assert not {name for name in variables(changed(), "access") if name.startswith("models_")}


def test_examples_are_where_people_log_in() -> None:
    assert variables(changed(), "access")["jobs_examples"] is True
    assert variables(changed(), "cpu-01")["jobs_examples"] is False


def test_images_are_pulled_where_people_work_and_run_on_nodes() -> None:
    told = {
        host: {
            name.removeprefix("containers_"): value
            for name, value in variables(DEFINITIONS["images"], host).items()
            if name.startswith("containers_")
        }
        for host in ("access", "cpu-01")
    }
    store = {
        "path": "/images",
        "group": "vision",
        "mounts": ["/home", "/sw", "/data", "/images"],
        "scratch": "/scratch",
        "subids": [{"name": "ada", "first": 524288 + 19001 * 65536}],
    }
    assert told == {
        "access": {**store, "makes_store": True, "pulls": True, "runs": False},
        "cpu-01": {**store, "makes_store": False, "pulls": False, "runs": True},
    }
    assert not {name for name in variables(changed(), "access") if name.startswith("containers_")}


def test_what_follows_from_a_value_of_the_inventory_follows_it() -> None:
    moved = on_host(DEFINITIONS["filer"], "access", {"users_home_root": "/srv/home"})
    assert role_variables(moved)[0]["users_home_mounted"] is False
    waits = on_host(changed(), "cpu-01", {"nfs_client_automount": True})
    assert role_variables(waits)[0]["ceph_client_automount"] is True


def cached_here(storage_host: str) -> Definition:
    """A served folder that is cached, and a storage host that is a node too."""
    storage = stored(data={"path": "/data", "kind": "nfs", "cached": True})
    cache = {"cache": {"device": "/dev/nvme1n1", "any_kernel": True}}
    return changed({"storage": [storage_host]}, storage=storage | cache)


def test_a_host_that_mounts_no_cached_folder_has_no_cache() -> None:
    assert "fscache" in needed(cached_here("access"), "cpu-01")
    # It has the folder itself; its disk must not be formatted for a cache.
    assert "fscache" not in needed(cached_here("cpu-01"), "cpu-01")
    assert "fscache" in needed(cached_here("cpu-01"), "gpu-01")


def test_an_inventory_needs_only_the_groups_that_have_hosts() -> None:
    groups = {name: hosts for name, hosts in GROUPS.items() if name not in ("login", "storage")}
    definition = validate(ON_MACHINES, groups)
    assert role_variables(on_host(definition, "access"))[1] == ["file_systems", "mariadb"]


def test_no_task_hands_a_role_a_variable_that_the_definition_sets() -> None:
    """The definition's would win: it is a fact, and variables of a task are weaker."""
    set_here = {
        name
        for definition in DEFINITIONS.values()
        for host in definition.hosts.groups["all"]
        for name in variables(definition, host)
    }
    handed = {
        str(path.relative_to(ROOT)): sorted(set_here & names)
        for path in sorted((ROOT / "roles").glob("*/tasks/*.yml"))
        if set_here & (names := handed_in(yamlkit.load(path.read_text())))
    }
    assert handed == {}
    assert handed_in([{"block": [{"import_role": {}, "vars": {"slurm_version": 1}}]}]) & set_here


def handed_in(tasks: Any) -> set[str]:
    """The names below `vars` in a file of tasks."""
    return {
        name
        for task in tasks or []
        for name in [*task.get("vars", {}), *handed_in(task.get("block"))]
    }


def test_only_hosts_whose_address_is_a_number_get_a_line_in_etc_hosts() -> None:
    addresses = {"a": "192.0.2.1", "b": "2001:db8::1", "c": "c.example.org", "d": ""}
    assert shared(changed(), addresses)["base_hosts"] == [
        {"name": "a", "address": "192.0.2.1"},
        {"name": "b", "address": "2001:db8::1"},
    ]


def test_people_log_in_by_ssh_where_they_may_be() -> None:
    people = {"users": {"people": {"ada": {"uid": 20001}}}}
    assert variables(changed(**people), "access")["users_no_login"] == []
    assert variables(changed(**people), "cpu-01")["users_no_login"] == ["ada"]
    assert variables(changed(**people), "cpu-01")["users_job_login"]


KEYS = "/usr/local/sbin/muster-directory-keys"


@pytest.mark.parametrize(
    ("host", "login", "keys", "no_login", "makes_homes"),
    [
        ("access", False, "", True, False),
        ("disks", False, "", True, True),
        ("front", True, KEYS, False, False),
        # With a job alone.
        ("cpu-01", True, KEYS, True, False),
    ],
)
def test_people_of_the_directory_get_in_where_others_do(
    host: str, login: bool, keys: str, no_login: bool, makes_homes: bool
) -> None:
    given = variables(DEFINITIONS["directory"], host)
    assert given["directory_login"] is login
    assert given["users_keys_command"] == keys
    assert given["users_no_login_directory"] is no_login
    assert given["directory_create_homes"] is makes_homes
    # As those of the definition.
    assert bool(given["users_no_login"]) is no_login
    assert given["users_job_login"] is (host == "cpu-01")


def test_without_a_directory_sshd_asks_none() -> None:
    for host in ("access", "cpu-01"):
        given = variables(changed(), host)
        assert given["users_keys_command"] == ""
        assert given["users_no_login_directory"] is False
        assert "directory_servers" not in given


def test_each_host_is_asked_at_the_end_whether_it_knows_the_directory() -> None:
    given = variables(DEFINITIONS["directory"], "disks")
    assert "sssd" in given["verify_units"]
    assert ["/usr/local/sbin/muster-directory", "check"] in given["verify_commands"]
    assert "sssd" not in variables(changed(), "access")["verify_units"]


@pytest.mark.parametrize("group", ["controller", "database", "storage", "login"])
def test_a_job_lets_nobody_in_where_there_is_more_than_jobs(group: str) -> None:
    people = {"users": {"people": {"ada": {"uid": 20001}}}}
    hosts = {group: ["cpu-01"]}
    assert not variables(changed(hosts, **people), "cpu-01")["users_job_login"]


def test_nothing_that_nodes_can_write_starts_when_an_administrator_logs_in() -> None:
    people = {"ada": {"uid": 20001, "admin": True}, "bob": {"uid": 20002}}
    groups = {"storage": ["files"], "all": [*GROUPS["compute"], "access", "files"]}
    keys = {"users": {"people": people}, "storage": stored(home={"kind": "nfs", "path": "/home"})}
    definition = changed(groups, **keys)
    for host in ("access", "files"):
        given = variables(definition, host)
        assert given["users_local_homes"] == ["ada"]
        assert given["users_admin_logins"] == ["root", "ada"]
        assert given["users_home_shared"]
    assert variables(definition, "cpu-01")["users_local_homes"] == []
    alone = changed({"controller": ["cpu-01"]}, users={"people": people})
    assert variables(alone, "cpu-01")["users_local_homes"] == []


@pytest.mark.parametrize("keys", [["root", "ops"], "ops"])
def test_nor_do_the_hosts_own_administrators(keys: Any) -> None:
    addresses = {"access": "192.0.2.1", "cpu-01": "192.0.2.21"}
    given = {"users_home_keys": keys}
    host = Host(changed(), "access", addresses, ROOT / "inventories/lab", "", given)
    refused = role_variables(host)[0]["users_admin_logins"]
    assert refused == (["root", "ops"] if isinstance(keys, list) else ["root"])


def test_administrators_do_not_come_from_nodes() -> None:
    addresses = {"access": "192.0.2.1", "cpu-01": "192.0.2.21", "gpu-01": "2001:db8::2"}
    host = Host(changed(), "access", addresses, ROOT / "inventories/lab", "", {})
    assert role_variables(host)[0]["users_refused_from"] == ["192.0.2.21", "2001:db8::2"]
    named = Host(changed(), "access", {"cpu-01": ""}, ROOT / "inventories/lab", "", {})
    assert role_variables(named)[0]["users_refused_from"] == []
    cloud = load(ROOT / "inventories/cloud")
    assert variables(cloud, "slurm10-controller")["users_refused_from"] == ["10.10.0.0/16"]


def test_administrators_come_to_central_hosts_from_their_networks_alone() -> None:
    own = ["192.0.2.0/24", "2001:db8::7"]
    users = {"people": {"ada": {"uid": 20001, "admin": True}}, "admin_networks": own}
    definition = changed(users=users)
    given = variables(definition, "access")
    assert given["users_admin_networks"] == own
    assert given["users_admin_logins"] == ["root", "ada"]
    # A node that is the controller too has nothing to protect from nodes, and the same door.
    alone = variables(changed({"controller": ["cpu-01"]}, users=users), "cpu-01")
    assert (alone["users_admin_networks"], alone["users_refused_from"]) == (own, [])
    assert alone["users_admin_logins"] == ["root", "ada"]
    for host in ("cpu-01", "gpu-01"):
        given = variables(definition, host)
        assert (given["users_admin_networks"], given["users_admin_logins"]) == ([], [])


def test_slurmdbd_answers_the_controller_and_login_nodes_only() -> None:
    addresses = {"access": "192.0.2.1", "cpu-01": "192.0.2.21", "login-1": "2001:db8::2"}
    apart = changed({"controller": ["ctl"], "login": ["access", "login-1"], "database": ["access"]})
    host = Host(apart, "access", addresses, ROOT / "inventories/lab", "", {})
    assert role_variables(host)[0]["slurmdbd_clients"] == ["2001:db8::2", "ctl"]
    assert variables(changed(), "access")["slurmdbd_clients"] == []
    cloud = load(ROOT / "inventories/cloud")
    assert variables(cloud, "slurm10-controller")["slurmdbd_clients"] == ["10.10.0.0/16"]


def test_slurmctld_s_programs_write_to_their_own_folders_only() -> None:
    assert variables(changed(), "access")["slurmctld_writable"] == []
    (counts,) = variables(DEFINITIONS["mail"], "access")["slurmctld_writable"]
    program = (ROOT / "roles/mail/files/muster_mail.py").read_text(encoding="utf-8")
    assert f'COUNTS = Path("{counts}")' in program
    cloud = variables(load(ROOT / "inventories/cloud"), "slurm10-controller")
    assert cloud["slurmctld_writable"] == [power_save_program.SPOOL]


def test_a_storage_host_mounts_nothing_and_all_others_mount_what_the_filer_has() -> None:
    definition = DEFINITIONS["filer"]
    mounted = {
        host: [mount["source"] for mount in variables(definition, host)["nfs_client_mounts"]]
        for host in definition.hosts.groups["all"]
    }
    assert mounted.pop("disks") == []
    assert set(map(tuple, mounted.values())) == {("filer:/home",)}


def test_a_host_that_is_for_logging_in_alone_boots_without_its_folders() -> None:
    definition = DEFINITIONS["filer"]
    for name in ("nfs_client_automount", "ceph_client_automount"):
        hosts = definition.hosts.groups["all"]
        assert [host for host in hosts if variables(definition, host)[name]] == ["front"]


def test_vms_wait_longer_for_the_controller_s_folders() -> None:
    assert variables(DEFINITIONS["cloud"], "slurm10-login-0")["nfs_client_wait_seconds"] == 600
    assert variables(changed(), "cpu-01")["nfs_client_wait_seconds"] == 10


def test_the_package_of_slurmctld_is_a_file_of_the_inventory() -> None:
    package = variables(DEFINITIONS["package"], "access")["slurmctld_package"]
    assert package == f"/inventories/lab/{PACKAGE}"
    assert variables(changed(), "access")["slurmctld_package"] == ""


@pytest.mark.parametrize(
    ("storage_hosts", "maker"), [([], "access"), (["disks"], "disks")], ids=["existing", "served"]
)
def test_one_host_makes_the_homes(storage_hosts: list[str], maker: str) -> None:
    definition = DEFINITIONS["served"] if storage_hosts else changed()
    hosts = definition.hosts.groups["all"]
    assert [h for h in hosts if variables(definition, h)["users_create_homes"]] == [maker]


def test_a_controller_that_is_a_node_too_reads_its_own_files() -> None:
    both = changed({"compute": ["access", "gpu-01"], "cpu": ["access"]})
    assert variables(both, "access")["slurmd_conf_servers"] == []
    assert variables(both, "gpu-01")["slurmd_conf_servers"] == ["access:6817"]


def test_the_autoscaler_knows_slurm_s_resume_timeout() -> None:
    given = variables(DEFINITIONS["cloud"], "slurm10-controller")
    assert given["autoscaler_resume_timeout_seconds"] == 300
    assert "\nResumeTimeout=300\n" in given["slurmctld_slurm_conf"]
    slower = load(ROOT / "inventories/cloud").cluster.model_dump(mode="json", exclude_unset=True)
    groups = DEFINITIONS["cloud"].hosts.groups
    definition = validate({**slower, "slurm": {"ResumeTimeout": 900}}, groups)
    given = variables(definition, "slurm10-controller")
    assert given["autoscaler_resume_timeout_seconds"] == 900


EVERYWHERE = {"munge", "chrony"}
DATABASE = {"slurmdbd", "muster-slurmdbd-keeper", "muster-munge"}
CONTROL = {"slurmctld", "mariadb"} | DATABASE
OWN_FILE_SYSTEMS = {"muster-file-systems"}
GUARD = {"muster-guard", "muster-guard-keeper"}


@pytest.mark.parametrize(
    ("name", "host", "units"),
    [
        ("machines", "access", CONTROL | OWN_FILE_SYSTEMS),
        ("machines", "cpu-01", {"slurmd"}),
        ("no database", "access", {"slurmctld", "muster-munge"} | OWN_FILE_SYSTEMS),
        ("database elsewhere", "access", {"slurmctld"} | DATABASE | OWN_FILE_SYSTEMS),
        ("demo", "lab-access", CONTROL),
        ("nvidia", "cpu-01", {"slurmd"}),
        ("nvidia", "gpu-01", {"slurmd", "muster-nvidia", "nvidia-dcgm-exporter"}),
        ("served", "disks", {"nfs-server"}),
        ("filer", "disks", set()),
        (
            "cloud",
            "slurm10-controller",
            CONTROL | GUARD | OWN_FILE_SYSTEMS | {"nfs-server"},
        ),
        ("cloud", "slurm10-login-0", GUARD),
    ],
)
def test_units_follow_the_groups(name: str, host: str, units: set[str]) -> None:
    assert {*variables(DEFINITIONS[name], host)["verify_units"]} == EVERYWHERE | units


def test_no_unit_is_expected_where_its_role_does_not_run() -> None:
    folders = {"file_systems_mounts": [{"path": "/x"}], "nfs_server_exports": [{"path": "/x"}]}
    added, _ = role_variables(on_host(changed(), "cpu-01", folders))
    assert {*added["verify_units"]} == EVERYWHERE | {"slurmd"}


def test_a_vm_proves_that_users_are_kept_from_its_token() -> None:
    proof = ["/usr/local/sbin/muster-guard", "check"]
    for vm in ("slurm10-controller", "slurm10-login-0"):
        assert proof in variables(DEFINITIONS["cloud"], vm)["verify_commands"]
    assert proof not in variables(changed(), "access")["verify_commands"]


@pytest.mark.parametrize(
    ("system", "host", "daemons"),
    [
        ("debian-12", "db", ["slurmdbd"]),
        ("debian-12", "desk", []),
        ("debian-13", "db", ["slurmdbd"]),
        # It takes SLURM's files by sackd, from 23.11 on.
        ("debian-13", "desk", ["sackd"]),
        ("debian-13", "access", []),
        ("debian-13", "cpu-01", []),
    ],
)
def test_a_daemon_that_nodes_must_not_reach_proves_that_they_do_not(
    tmp_path: Path, system: str, host: str, daemons: list[str]
) -> None:
    """By its rules, not by its unit: `nft flush ruleset` leaves that active."""
    definition = changed({"login": ["access", "desk"], "database": ["db"]}, os=system)
    given = variables(definition, host)
    commands = given["verify_commands"]
    assert [command[-1] for command in commands] == daemons
    keepers = [unit for unit in given["verify_units"] if unit.endswith("-keeper")]
    assert keepers == [f"muster-{daemon}-keeper" for daemon in daemons]
    for *command, table, daemon in commands:
        stand_in = tmp_path / "nft"
        stand_in.touch(mode=0o755)
        command[2] = command[2].replace("/usr/sbin/nft", str(stand_in))
        refuse = "reject with tcp reset"
        # A table of which somebody has removed the rules refuses nobody.
        for rules, text, code in (
            ("muster_other", refuse, 1),
            (table, "{ }", 1),
            (table, refuse, 0),
        ):
            listed = f'[ "$*" = "list table inet {rules}" ] && echo "{text}"'
            stand_in.write_text(f"#!/bin/sh\n{listed}\n", encoding="utf-8")
            run = [*command, table, daemon]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stderr
            remedy = f"journalctl -u muster-{daemon}-keeper says why they are not loaded again\n"
            assert done.stdout.endswith(remedy) == bool(code)


def test_hosts_that_load_packed_releases_mount_them_and_prove_it() -> None:
    packed = {"apps/tool": {"1": {"build": "make {root}", "form": "squashfs"}}}
    filer = stored(apps={"path": "/sw", "kind": "nfs", "server": "filer"})
    definition = changed({"storage": ["store"]}, storage=filer, software={"modules": packed})
    proof = ["/usr/local/sbin/muster-check-packed", "/sw/.muster/images"]
    for host in ("access", "cpu-01"):
        added = variables(definition, host)
        assert "autofs" in added["lmod_packages"]
        assert added["lmod_images"] == "/sw/.muster/images"
        assert "autofs" in added["verify_units"]
        assert proof in added["verify_commands"]
    of_store = variables(definition, "store")
    assert "autofs" not in of_store["verify_units"]
    assert of_store["verify_commands"] == []
    assert variables(changed(), "cpu-01")["lmod_images"] == ""


def test_hosts_that_load_modules_prove_that_people_and_jobs_can() -> None:
    filer = stored(apps={"path": "/sw", "kind": "nfs", "server": "filer"})
    modules = {"apps/tool": {"1": {"build": "make {root}"}}}
    definition = changed({"storage": ["store"]}, storage=filer, software={"modules": modules})
    proof = ["/usr/local/sbin/muster-check-modules", "/sw/modules", "/sw/lmod/cache"]
    for host in ("access", "cpu-01"):
        assert proof in variables(definition, host)["verify_commands"]
    assert variables(definition, "store")["verify_commands"] == []
    without = changed({"storage": ["store"]}, storage=filer)
    assert proof not in variables(without, "cpu-01")["verify_commands"]


def test_a_node_set_of_vms_has_no_hosts_to_compare() -> None:
    assert variables(changed(), "access")["verify_peers"] == {"cpu": ["cpu-01"], "gpu": ["gpu-01"]}
    assert variables(DEFINITIONS["cloud"], "slurm10-controller")["verify_peers"] == {}


def test_a_cluster_without_a_database_has_no_accounting() -> None:
    assert variables(changed(), "access")["verify_accounting"] is True
    assert variables(DEFINITIONS["no database"], "access")["verify_accounting"] is False


def files(folder: str) -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and ".ansible" not in path.parts:
            yield path


def lines_with(pattern: str) -> dict[str, list[str]]:
    """Lines of roles and plays that match outside comments, by file; no documentation."""
    matches: dict[str, list[str]] = {}
    for folder in ("ansible", "roles"):
        for path in files(folder):
            if path.suffix in (".md", ".py"):
                continue
            for line in path.read_text(encoding="utf-8").splitlines():
                if re.search(pattern, line.split("# ")[0]):
                    matches.setdefault(str(path.relative_to(ROOT)), []).append(line.strip())
    return matches


def test_no_role_and_no_play_reads_the_definition() -> None:
    read = lines_with(r"(?<![\w.'/])cluster(\.(?!yml)[a-z_]+\b|\[|\s*\|)")
    assert read == {
        "ansible/definition.yml": [
            "- name: Check the definition of {{ cluster | muster.slurm.muster_title }}"
        ]
    }


def test_the_secrets_are_read_in_one_file() -> None:
    assert set(lines_with(r"\bsecrets(\.\w|\[)")) == {"ansible/group_vars/all/secret_variables.yml"}


def test_what_is_taken_from_the_secrets_looks_like_a_secret() -> None:
    # By these names test_roles.py knows which tasks must be silent.
    assert {name for name in SECRETS if not re.search(r"_(key|key_b64|password)$", name)} == set()
    assert all("secrets." in text for text in SECRETS.values())


@pytest.mark.parametrize("name", DEFINITIONS)
def test_no_secret_is_among_the_variables(name: str) -> None:
    definition = DEFINITIONS[name]
    for host in definition.hosts.groups["all"]:
        assert {*SECRETS} & variables(definition, host).keys() == set()
        json.dumps(variables(definition, host))


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("access", {}, ["munge", "mariadb-server", "slurmctld=V.*", "slurm-client=V.*", "lmod"]),
        # The version that the inventory sets is the one that the role installs.
        (
            "cpu-01",
            {"slurmd_version": "23.11"},
            ["munge", "slurmd=23.11.*", "slurm-client=23.11.*", "lmod"],
        ),
    ],
)
def test_the_packages_of_a_host_s_roles_are_known_from_the_beginning(
    name: str, given: dict[str, str], expected: list[str]
) -> None:
    host = on_host(changed(), name, given)
    added, _ = role_variables(host)
    version = changed().cluster.slurm_version
    names = [package.replace("V", version) for package in expected]
    assert packages(host, added) == [*names, *STANDARD_LIBRARY["debian-12"]]


def test_what_modules_need_is_on_all_hosts_that_run_jobs_log_in_or_build() -> None:
    torch = {"packages": ["python3-torch"], "build_packages": ["g++"], "build": "make {root}"}
    software = {"modules": {"libs/torch": {"1": torch}}}
    groups = {"login": ["gate"], "storage": ["store"], "database": ["store"]}
    definition = changed(groups, software=software)
    everywhere = sorted([*STANDARD_LIBRARY["debian-12"], "python3-torch"])
    for name in ("access", "gate", "cpu-01", "gpu-01"):
        added = variables(definition, name)
        assert added["lmod_packages"] == added["verify_module_packages"] == everywhere
    assert variables(definition, "access")["software_packages"] == everywhere
    assert variables(definition, "access")["software_build_packages"] == ["g++"]
    assert variables(definition, "store")["verify_module_packages"] == []
    assert packages(on_host(definition, "store"), variables(definition, "store")) == [
        *("munge", "mariadb-server")
    ]


@pytest.mark.parametrize("role", ROLES)
def test_a_package_of_the_table_is_one_that_its_role_installs(role: str) -> None:
    path = ROOT / "roles" / role / "tasks/install.yml"
    text = path.read_text() if path.exists() else ""
    for package in _ROLES[role].packages if role in _ROLES else ():
        assert re.search(rf"(names|slurm_packages): \[.*\b{package}\b", text), package
