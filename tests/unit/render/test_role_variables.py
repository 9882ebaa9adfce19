"""From the definition to role variables: what each function gives, and that all roles take it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from muster import secrets
from muster.definition import DefinitionError, cloud_hosts, load
from muster.render import ceph, nfs, role_variables

ROOT = Path(__file__).resolve().parents[3]
WIRING = ROOT / "ansible/group_vars/all/wiring.yml"
VARIABLES: dict[str, Any] = yaml.safe_load(WIRING.read_text())
PUBLIC = {name: text for name, text in VARIABLES.items() if not name.startswith("__")}
PLAYS = [
    play for play in yaml.safe_load((ROOT / "ansible/site.yml").read_text()) if "roles" in play
]
ROLES = sorted({entry["role"] for play in PLAYS for entry in play["roles"]})

PACKAGE = "slurmctld_22.05.8-4+deb12u3+0muster1_amd64.deb"

GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["cpu-01", "gpu-01"],
    "cpu": ["cpu-01"],
    "gpu": ["gpu-01"],
    "storage": [],
}
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-12",
    "users": {
        "groups": {"ml-users": {"gid": 20000}},
        "people": {
            "ada": {"uid": 20001, "groups": ["ml-users"], "email": "ada@example.org"},
            "bob": {"uid": 20002, "shell": "/bin/zsh", "default_account": "second"},
            "eve": {"uid": 20003, "state": "absent"},
        },
    },
    "nodes": {
        "cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048},
        "gpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048, "gpus": {"count": 1}},
    },
    "partitions": {"main": {"nodes": ["cpu", "gpu"], "default": True}},
    "accounts": {
        "first": {"users": ["ada", "bob"]},
        "second": {"parent": "first", "users": ["bob"], "fairshare": 3, "description": "Trials"},
    },
    "storage": {"home": {"path": "/home"}, "apps": {"path": "/sw"}, "data": {"path": "/data"}},
}


@pytest.fixture
def definition() -> Any:
    return role_variables.definition_of(CLUSTER, GROUPS)


def test_state_disk_holds_what_must_outlive_the_controller_s_vm() -> None:
    folders = role_variables.state_folders(load(ROOT / "inventories/cloud"))
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
    folders = role_variables.state_folders(load(ROOT / "inventories/cloud"))
    known = next(folder for folder in folders if folder["path"] == "/var/lib/nfs")
    assert {"nfs-server", "nfsdcld"} <= {*known["units"]}


def test_a_controller_that_serves_no_folder_keeps_nothing_of_nfs() -> None:
    cluster = load(ROOT / "inventories/cloud").cluster.model_dump(exclude_unset=True)
    for folder in ("home", "apps", "data"):
        cluster["storage"][folder] = {"path": f"/{folder}", "kind": "existing"}
    hosts = cloud_hosts(load(ROOT / "inventories/cloud").cluster)
    folders = role_variables.state_folders(role_variables.definition_of(cluster, hosts.groups))
    assert [folder["path"] for folder in folders] == ["/var/lib/mysql", "/var/lib/slurm/slurmctld"]


def test_machines_of_one_s_own_have_no_state_disk(definition: Any) -> None:
    assert role_variables.state_folders(definition) == []


def test_the_same_definition_is_validated_once() -> None:
    first = role_variables.definition_of(CLUSTER, GROUPS)
    assert role_variables.definition_of(deepcopy(CLUSTER), deepcopy(GROUPS)) is first
    other = role_variables.definition_of({**CLUSTER, "name": "other"}, GROUPS)
    assert (first.cluster.name, other.cluster.name) == ("lab", "other")


def test_a_wrong_definition_is_refused() -> None:
    with pytest.raises(DefinitionError, match="sockts"):
        wrong = {**CLUSTER, "nodes": {**CLUSTER["nodes"], "cpu": {"sockts": 1}}}
        role_variables.definition_of(wrong, GROUPS)


def test_only_hosts_whose_address_is_a_number_get_a_line_in_etc_hosts() -> None:
    addresses = {"a": "192.0.2.1", "b": "2001:db8::1", "c": "c.example.org", "d": ""}
    assert role_variables.host_addresses(addresses) == [
        {"name": "a", "address": "192.0.2.1"},
        {"name": "b", "address": "2001:db8::1"},
    ]


def test_people_keep_their_state(definition: Any) -> None:
    people = {person["name"]: person for person in role_variables.people(definition)}
    assert people["ada"] == {
        "name": "ada",
        "uid": 20001,
        "groups": ["ml-users"],
        "shell": "/bin/bash",
        "ssh_keys": [],
        "state": "present",
    }
    assert people["bob"]["shell"] == "/bin/zsh"
    assert people["eve"]["state"] == "absent"
    assert role_variables.groups(definition) == [{"name": "ml-users", "gid": 20000}]


def test_people_log_in_to_login_hosts_only_unless_they_are_administrators(
    definition: Any,
) -> None:
    people = definition.cluster.users.people
    present = [name for name, person in people.items() if person.state == "present"]
    assert role_variables.no_login(definition) == present
    admin = people["bob"].model_copy(update={"admin": True})
    users = definition.cluster.users.model_copy(update={"people": {**people, "bob": admin}})
    changed = definition.cluster.model_copy(update={"users": users})
    assert "bob" not in role_variables.no_login(replace(definition, cluster=changed))


def test_mail_goes_to_own_addresses_where_there_are_some(definition: Any) -> None:
    assert role_variables.mail_addresses(definition) == {"ada": "ada@example.org"}


def test_nodes_in_the_cloud_know_those_who_are_present(definition: Any) -> None:
    assert role_variables.node_passwd(definition) == [
        "ada:x:20001:20001::/home/ada:/bin/bash",
        "bob:x:20002:20002::/home/bob:/bin/zsh",
    ]
    assert role_variables.node_group(definition) == [
        "ada:x:20001:",
        "bob:x:20002:",
        "ml-users:x:20000:ada",
    ]
    assert role_variables.node_people_dir(definition) == "/sw/.muster/extrausers"


def test_accounts_hang_below_root(definition: Any) -> None:
    assert role_variables.accounts(definition) == [
        {
            "name": "first",
            "parent": "root",
            "description": "first",
            "organization": "lab",
            "fairshare": 1,
            "users": ["ada", "bob"],
        },
        {
            "name": "second",
            "parent": "first",
            "description": "Trials",
            "organization": "lab",
            "fairshare": 3,
            "users": ["bob"],
        },
    ]


def test_the_default_account_is_the_one_given_or_the_first_one(definition: Any) -> None:
    assert role_variables.account_users(definition) == [
        {"name": "ada", "default_account": "first"},
        {"name": "bob", "default_account": "second"},
    ]


def test_who_is_gone_has_no_account() -> None:
    cluster = deepcopy(CLUSTER)
    cluster["users"]["people"]["ada"]["state"] = "absent"
    definition = role_variables.definition_of(cluster, GROUPS)
    assert role_variables.accounts(definition)[0]["users"] == ["bob"]
    assert [user["name"] for user in role_variables.account_users(definition)] == ["bob"]


def in_the_cloud() -> Any:
    """A definition in the cloud, whose controller serves all folders."""
    cluster = deepcopy(CLUSTER)
    cluster["nodes"] = {"cpu": {"machine_type": "n1-standard-2", "max_nodes": 10}}
    cluster["partitions"] = {"main": {"nodes": ["cpu"], "default": True}}
    machine = {"machine_type": "n1-standard-2"}
    cluster["cloud"] = {
        **{"zone": "europe-west4-a", "subnet": "10.20.0.0/24"},
        **{"controller": machine, "login": machine, "image": machine},
    }
    for key in ("home", "apps", "data"):
        cluster["storage"][key]["kind"] = "nfs"
    cluster["users"]["people"]["bob"]["admin"] = True
    control = ["lab-controller"]
    return role_variables.definition_of(
        cluster,
        {
            **{"controller": control, "database": control, "storage": control, "compute": []},
            **{"login": ["lab-login-0"], "all": [*control, "lab-login-0"]},
        },
    )


def test_administrators_are_root_by_sudo_in_the_cloud_alone(definition: Any) -> None:
    assert role_variables.sudo(in_the_cloud()) == ["bob"]
    bob = definition.cluster.users.people["bob"].model_copy(update={"admin": True})
    users = definition.cluster.users.model_copy(update={"people": {"bob": bob}})
    metal = definition.cluster.model_copy(update={"users": users})
    assert role_variables.sudo(replace(definition, cluster=metal)) == []


def test_in_the_cloud_the_subnet_is_served_and_nobody_is_root_there() -> None:
    definition = in_the_cloud()
    clients = [export["clients"] for export in nfs.exports(definition, {})]
    assert clients == [
        [{"host": "10.20.0.0/24", "writes": writes, "as_root": False}]
        for writes in (True, False, True)
    ]
    assert nfs.nfs_connections(definition) == 4 * 12
    assert {mount["source"] for mount in nfs.mounts(definition)} == {
        "lab-controller:/home",
        "lab-controller:/sw",
        "lab-controller:/data",
    }


def options_of(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "meta/argument_specs.yml"
    spec = yaml.safe_load(path.read_text())["argument_specs"]["main"]
    return dict(spec.get("options", {}))


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


WIRING_FILE = "ansible/group_vars/all/wiring.yml"


def test_only_wiring_and_site_read_the_definition() -> None:
    read = lines_with(r"(?<![\w.'/])cluster(\.(?!yml)[a-z_]+\b|\[|\s*\|)")
    assert set(read) == {WIRING_FILE, "ansible/site.yml"}


def test_only_wiring_reads_the_secrets() -> None:
    assert set(lines_with(r"\bsecrets(\.\w|\[)")) == {WIRING_FILE}


def test_what_wiring_takes_from_the_secrets_looks_like_a_secret() -> None:
    # By these names test_roles.py knows which tasks must be silent.
    names = {name for name, text in VARIABLES.items() if "secrets." in str(text)}
    assert names >= {
        *("munge_key_b64", "slurmdbd_storage_password", "mariadb_password"),
        "ceph_client_key",
    }
    assert {name for name in names if not re.search(r"_(key|key_b64|password)$", name)} == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_each_variable_belongs_to_a_role(name: str) -> None:
    owners = [role for role in ROLES if name in options_of(role)]
    assert len(owners) == 1
    assert name.startswith(f"{owners[0]}_")


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_requires_is_wired(role: str) -> None:
    required = {name for name, option in options_of(role).items() if option.get("required")}
    assert required <= set(PUBLIC)


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """An argument specification as modules have it: without descriptions."""
    kept = ("type", "elements", "required", "choices", "default")
    return {
        name: {key: value for key, value in option.items() if key in kept}
        | ({"options": plain(option["options"])} if "options" in option else {})
        for name, option in options.items()
    }


def evaluation(hosts: str, roles: list[str]) -> dict[str, Any]:
    """A play that prints the wired variables of `roles`, on the hosts that have these roles."""
    names = [name for name in PUBLIC if any(name in options_of(role) for role in roles)]
    wanted = ", ".join(f"'{name}': {name}" for name in names)
    task = {"ansible.builtin.debug": {"msg": f"{{{{ {{{wanted}}} }}}}"}}
    return {"hosts": hosts, "gather_facts": False, "tasks": [task]}


def test_the_roles_take_what_is_served_and_mounted() -> None:
    definition = in_the_cloud()
    for role, name, value in (
        ("nfs_server", "nfs_server_exports", nfs.exports(definition, {})),
        ("nfs_client", "nfs_client_mounts", nfs.mounts(definition)),
    ):
        result = ArgumentSpecValidator(plain(options_of(role))).validate({name: value})
        assert result.error_messages == []


def test_the_roles_take_what_is_built_and_mounted_of_ceph() -> None:
    folders = {"home": {"kind": "ceph", "path": "/home", "quota_gib": 5}}
    image = "quay.io/ceph/ceph:v19.2.3"
    devices = {"devices": {"disks": ["/dev/disk/by-id/nvme-A"]}, "copies": 1, "image": image}
    cluster = {**CLUSTER, "storage": {**CLUSTER["storage"], **folders, "ceph": devices}}
    definition = role_variables.definition_of(cluster, {**GROUPS, "storage": ["disks"]})
    addresses = {"disks": "192.0.2.9"}
    for role, variables in (
        ("ceph_cluster", ceph.built(definition, "disks", addresses)),
        ("cephadm", ceph.by_cephadm(definition, addresses)),
        ("ceph_client", {"key": "", **ceph.client(definition, "cpu-01", addresses)}),
    ):
        given = {f"{role}_{name}": value for name, value in variables.items()}
        result = ArgumentSpecValidator(plain(options_of(role))).validate(given)
        assert result.error_messages == []
        assert given.keys() <= {*PUBLIC}


def evaluated(folder: Path, inventory: Path) -> dict[str, dict[str, Any]]:
    """Of each host of an inventory the wired variables that its roles see in site.yml."""
    secrets.make(inventory)
    plays = [
        evaluation(play["hosts"], [entry["role"] for entry in play["roles"]]) for play in PLAYS
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(plays))
    (folder / "group_vars").symlink_to(ROOT / "ansible/group_vars")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("--inventory", str(inventory), str(folder / "play.yml")),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    by_host: dict[str, dict[str, Any]] = {}
    document, _ = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])
    for play in document["plays"]:
        for task in play["tasks"]:
            for host, result in task["hosts"].items():
                if "msg" in result and isinstance(result["msg"], dict):
                    by_host.setdefault(host, {}).update(result["msg"])
    return by_host


@pytest.fixture(scope="module", params=["lab", "demo", "nvidia"])
def wired(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Of each host of an inventory the wired variables that its roles see in site.yml.

    `nvidia` is the lab with drivers on its nodes with GPUs.
    """
    folder = tmp_path_factory.mktemp("wired")
    inventory = folder / request.param
    ignored = shutil.ignore_patterns("secrets.yml*", ".machines")
    name = "lab" if request.param == "nvidia" else request.param
    shutil.copytree(ROOT / "inventories" / name, inventory, ignore=ignored)
    if request.param == "nvidia":
        with (inventory / "group_vars/all/cluster.yml").open("a") as file:
            file.write("  nvidia: {modules: proprietary, dcgm: true, cdi: true}\n")
    (inventory / PACKAGE).touch()
    settings = inventory / "group_vars/all/cluster.yml"
    settings.write_text(
        re.sub("(?m)^cluster:", f"cluster:\n  slurmctld_package: {PACKAGE}", settings.read_text())
    )
    return evaluated(folder, inventory)


def test_all_roles_accept_what_is_wired(wired: dict[str, dict[str, Any]]) -> None:
    for role in ROLES:
        role_options = {name: option for name, option in options_of(role).items() if name in PUBLIC}
        checked = 0
        for host, variables in wired.items():
            given = {name: value for name, value in variables.items() if name in role_options}
            if given:
                result = ArgumentSpecValidator(plain(role_options)).validate(given)
                assert result.error_messages == [], f"{role} on {host}"
                checked += 1
        # The lab's only login node is its controller, and its folders exist: no host needs these.
        unused = ("slurm", "nfs_server", "ceph_cluster", "cephadm")
        assert checked or role in unused or not role_options, role


@pytest.fixture(scope="module")
def with_filer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The lab with homes on a filer, the rest on Ceph, and one more host of each kind."""
    folder = tmp_path_factory.mktemp("wired")
    inventory = folder / "lab"
    shutil.copytree(ROOT / "inventories/lab", inventory)
    hosts, settings = inventory / "hosts.yml", inventory / "group_vars/all/cluster.yml"
    storage_host = "storage: {hosts: {lab-access: , lab-disk: {ansible_host: 192.0.2.9}}}"
    text = hosts.read_text().replace("storage: {}", storage_host)
    login_host = "lab-access:\n        lab-login: {ansible_host: 192.0.2.8}\n    compute:"
    text = re.sub(r"lab-access:\n    compute:", login_host, text)
    hosts.write_text(text)
    text = settings.read_text()
    for key in ("home", "apps", "data"):
        text = text.replace(f"{key}: {{kind: existing,", f"{key}: {{kind: ceph,")
    text = text.replace("home: {kind: ceph,", "home: {kind: nfs, server: filer, export: /home,")
    ceph = "ceph: {devices: {storage: [/dev/vdb]}, copies: 2}"
    text = text.replace("  storage:\n", f"  storage:\n    {ceph}\n")
    settings.write_text(text)
    return evaluated(folder, inventory)


def test_a_storage_host_mounts_what_other_servers_have(
    with_filer: dict[str, dict[str, Any]],
) -> None:
    mounted = {
        host: [mount["source"] for mount in variables["nfs_client_mounts"]]
        for host, variables in with_filer.items()
    }
    assert mounted.pop("lab-disk") == []
    assert len(mounted) == 6
    assert [*mounted.values()] == [["filer:/home"]] * 6


def test_a_host_that_is_for_logging_in_alone_boots_without_its_folders(
    with_filer: dict[str, dict[str, Any]],
) -> None:
    for name in ("nfs_client_automount", "ceph_client_automount"):
        assert [host for host, host_variables in with_filer.items() if host_variables[name]] == [
            "lab-login"
        ]


def test_the_package_of_slurmctld_is_a_file_of_the_inventory(
    wired: dict[str, dict[str, Any]],
) -> None:
    package = Path(wired["lab-access"]["slurmctld_package"])
    assert (package.name, package.is_file()) == (PACKAGE, True)


def test_one_host_makes_the_homes(wired: dict[str, dict[str, Any]]) -> None:
    assert [
        host for host, host_variables in wired.items() if host_variables["users_create_homes"]
    ] == ["lab-access"]


def test_units_follow_the_groups(
    wired: dict[str, dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    units = {host: set(host_variables["verify_units"]) for host, host_variables in wired.items()}
    everywhere = {"munge", "chrony"}
    assert units["lab-access"] == everywhere | {"slurmctld", "mariadb", "slurmdbd"}
    assert units["lab-cpu-01"] == everywhere | {"slurmd"}
    driven = "[nvidia]" in request.node.name
    driver_units = {"muster-nvidia", "nvidia-dcgm-exporter"} if driven else set()
    assert units["lab-gpu-02"] == everywhere | {"slurmd"} | driver_units


def holders(variables: dict[str, Any], secret: str) -> set[str]:
    return {name for name, value in variables.items() if secret in json.dumps(value)}


def test_secrets_reach_only_the_hosts_and_variables_that_need_them(
    wired: dict[str, dict[str, Any]],
) -> None:
    access = wired["lab-access"]
    password, key = access["mariadb_password"], access["munge_key_b64"]
    assert holders(access, password) == {"slurmdbd_storage_password", "mariadb_password"}
    assert holders(access, key) == {"munge_key_b64"}
    for host in ("lab-cpu-01", "lab-gpu-02"):
        assert holders(wired[host], password) == set()
        assert holders(wired[host], key) == {"munge_key_b64"}
