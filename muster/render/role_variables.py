"""Definition -> the variables of all roles, on one host: the only way from `cluster` to a role.

Pure. `_ROLES` has a row per role: the hosts that take its variables, and the function that gives
them, without the role's prefix. Those that grow with the cluster and are the same everywhere are in
`shared`. `ansible/definition.yml` hands them to Ansible.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from muster.definition import Definition
from muster.definition.schema import patterns
from muster.definition.schema.database import DATABASE_NAME, DATABASE_USER
from muster.render import (
    ceph,
    containers,
    directory,
    file_systems,
    limits,
    lmod,
    nfs,
    people,
    quotas,
    reservations,
    slurm,
)
from muster.render import nvidia_driver as nvidia
from muster.render.verify_jobs import verify_jobs

Variables = dict[str, Any]

_SLURMCTLD_PORT = 6817

# Seconds for which a VM waits for an NFS server at its first mount. VMs are created together, and
# each configures itself: the controller's folders may come minutes after a login node.
_NFS_WAIT_IN_THE_CLOUD = 600
_NFS_WAIT = 10

# Of the role directory: it prints the keys of people of the directory.
_DIRECTORY_KEYS = "/usr/local/sbin/muster-directory-keys"
# Whether a host knows the directory's groups.
_DIRECTORY_CHECK = ["/usr/local/sbin/muster-directory", "check"]

# Of the role lmod: whether a host mounts packed releases; the folder of them follows.
_PACKED_CHECK = "/usr/local/sbin/muster-check-packed"

# The same: whether people and jobs can load modules on a host; the tree and Lmod's cache follow.
_MODULES_CHECK = "/usr/local/sbin/muster-check-modules"

# Of the roles slurmdbd and slurm: whether rules of nftables keep compute nodes from a daemon. The
# keeper of the rules can be active without them: nft may refuse their file. The table follows, and
# the daemon.
_RULES_CHECK = [
    *("/bin/sh", "-c"),
    '/usr/sbin/nft list table inet "$1" 2>/dev/null | grep --quiet reject || { echo "compute nodes '
    "reach $2 on this host: its rules of nftables, table $1, are gone; journalctl -u "
    'muster-$2-keeper says why they are not loaded again"; exit 1; }',
    "sh",
]

# Of the role cloud_vm: whether users reach the metadata server.
_GUARD_CHECK = ["/usr/local/sbin/muster-guard", "check"]


@dataclass(frozen=True)
class Host:
    """One host of the inventory, and what its variables are made from."""

    definition: Definition
    name: str
    addresses: Mapping[str, str]
    """Of all hosts of the inventory; empty where DNS knows the name."""
    inventory: Path
    """Folder of the definition."""
    compute_endpoint: str
    """Address of Google's Compute API; empty: Google's own."""
    given: Mapping[str, Any]
    """Variables that the host has already: they replace those of the definition."""
    requirements: Mapping[str, str] = field(default_factory=dict)
    """Text of each file of requirements of the definition, by its path there."""

    def is_in(self, *groups: str) -> bool:
        """Whether the host is in one of these groups."""
        return any(self.name in self.definition.hosts.groups[group] for group in groups)

    @property
    def node_set(self) -> str:
        """The node set that the host, a compute node, is in."""
        groups = self.definition.hosts.groups
        return next(
            name for name in self.definition.cluster.nodes if self.name in groups.get(name, [])
        )

    @cached_property
    def slurm(self) -> slurm.SlurmFiles:
        """SLURM's files."""
        return slurm.render(self.definition)

    @property
    def controllers(self) -> list[str]:
        """The controllers as HOST:PORT."""
        return [f"{name}:{_SLURMCTLD_PORT}" for name in self.definition.hosts.groups["controller"]]

    @property
    def needs_no_folders(self) -> bool:
        """Whether the host does nothing but store files: it needs no folders of others."""
        return self.is_in("storage") and not self.is_in(
            "controller", "database", "login", "compute"
        )

    @property
    def lets_jobs_log_in(self) -> bool:
        """Whether people come in by ssh while a job of theirs runs here.

        On a host that has something to protect even a job is no reason to let people in.
        """
        return self.is_in("compute") and not self.is_in(
            "controller", "database", "storage", "login"
        )

    @property
    def is_for_login_only(self) -> bool:
        """Whether nothing that the host starts needs the shared folders.

        Administrators must be able to log in while the folders are away.
        """
        return self.is_in("login") and not self.is_in("controller", "compute")


def _nothing(_: Host, __: Mapping[str, Any]) -> Variables:
    return {}


def _base(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "os": host.definition.cluster.os,
        "hostname": host.name,
    }


def _file_systems(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "mounts": [
            *file_systems.of_state(
                host.definition,
                controls=host.is_in("controller"),
                keeps_database=host.is_in("database"),
            ),
            *(file_systems.of_storage(host.definition) if host.is_in("storage") else []),
        ]
    }


def _users(host: Host, variables: Mapping[str, Any]) -> Variables:
    home = variables.get("users_home_root", host.definition.cluster.storage.home.path)
    # Root of a compute node can write to each shared home, and so decide what starts when its owner
    # logs in. On a host that is a node itself nothing is left to protect.
    is_central = host.is_in("controller", "database", "storage")
    is_protected = is_central and not host.is_in("compute")
    administrators = people.administrators(host.definition)
    has_directory = host.definition.cluster.users.directory is not None
    return {
        "home_root": home,
        "sudo": people.sudo(host.definition),
        "home_shared": host.definition.cluster.storage.home.kind != "existing",
        "local_homes": administrators if is_protected else [],
        "no_login": [] if host.is_in("login") else people.no_login(host.definition),
        "no_login_directory": has_directory and not host.is_in("login"),
        "job_login": host.lets_jobs_log_in,
        "keys_command": _DIRECTORY_KEYS if has_directory and _takes_logins(host) else "",
        "refused_from": _nodes(host) if is_protected else [],
        "admin_networks": host.definition.cluster.users.admin_networks if is_central else [],
        "admin_logins": list(dict.fromkeys(["root", *administrators, *_own_logins(variables)]))
        if is_central
        else [],
        "create_homes": host.name == nfs.home_maker(host.definition),
        "home_mounted": home in _mount_points(variables),
    }


def _own_logins(variables: Mapping[str, Any]) -> list[str]:
    """Return the logins of the hosts' own administrators, which the inventory names."""
    logins = variables.get("users_home_keys", [])
    # What is no list is refused when the roles' variables are checked.
    return logins if isinstance(logins, list) else []


def _takes_logins(host: Host) -> bool:
    """Whether people who are no administrators may log in, with a job or without."""
    return host.is_in("login") or host.lets_jobs_log_in


def _directory(host: Host, variables: Mapping[str, Any]) -> Variables:
    if host.definition.cluster.users.directory is None:
        return {}
    home = variables.get("users_home_root", host.definition.cluster.storage.home.path)
    return {
        **directory.variables(
            host.definition,
            logs_in=_takes_logins(host),
            makes_homes=host.name == nfs.home_maker(host.definition),
        ),
        "home_root": home,
        "home_mounted": home in _mount_points(variables),
    }


def _mount_points(variables: Mapping[str, Any]) -> list[str]:
    mounts = [*variables["nfs_client_mounts"], *variables["ceph_client_mounts"]]
    return [mount["path"] for mount in mounts]


def _nodes(host: Host) -> list[str]:
    """Addresses and networks that compute nodes have; those that DNS alone knows are left out."""
    cluster, groups = host.definition.cluster, host.definition.hosts.groups
    if cluster.cloud:
        # All that is in the cluster's subnet: people come through IAP.
        return [cluster.cloud.subnet]
    addresses = (host.addresses.get(name, "") for name in groups["compute"])
    return sorted(address for address in addresses if patterns.is_address(address))


def _projects(host: Host, _: Mapping[str, Any]) -> Variables:
    return {"folders": nfs.group_folders(host.definition, host.name)}


def _models(host: Host, _: Mapping[str, Any]) -> Variables:
    models = host.definition.cluster.storage.models
    if models is None:
        return {}
    return {
        "path": models.path,
        "group": models.group,
        "makes_store": nfs.makes_store(host.definition, models, host.name),
        "adds": host.is_in("login", "controller") and not models.read_only,
    }


def _containers(host: Host, _: Mapping[str, Any]) -> Variables:
    storage = host.definition.cluster.storage
    if storage.images is None:
        return {}
    return {
        "path": storage.images.path,
        "group": storage.images.group,
        "makes_store": nfs.makes_store(host.definition, storage.images, host.name),
        "pulls": host.is_in("login", "controller") and not storage.images.read_only,
        "runs": host.is_in("compute"),
        "mounts": [folder.path for _, folder in storage.folders()],
        "scratch": storage.scratch,
        "subids": containers.subids(host.definition),
    }


def _quotas(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "file_systems": quotas.file_systems(host.definition) if host.is_in("storage") else [],
        "shown": host.is_in("login", "compute") and quotas.are_defined(host.definition),
    }


def _nfs_server(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "exports": nfs.exports(host.definition, dict(host.addresses)),
        "connections": nfs.nfs_connections(host.definition),
    }


def _nfs_client(host: Host, _: Mapping[str, Any]) -> Variables:
    computes = host.is_in("compute")
    return {
        "mounts": []
        if host.needs_no_folders
        else nfs.mounts(
            host.definition,
            # The controller builds the software, so it writes to the module tree.
            builds_software=host.name == host.definition.hosts.groups["controller"][0],
            computes=computes,
            caches=computes,
            serves=host.is_in("storage"),
        ),
        "automount": host.is_for_login_only,
        "wait_seconds": _NFS_WAIT_IN_THE_CLOUD if host.definition.cluster.cloud else _NFS_WAIT,
    }


def _fscache(host: Host, _: Mapping[str, Any]) -> Variables:
    cache = host.definition.cluster.storage.cache
    return {
        "device": cache.device or "",
        "size_gib": cache.size_gib,
        "any_kernel": cache.any_kernel,
    }


def _ceph_cluster(host: Host, _: Mapping[str, Any]) -> Variables:
    return ceph.built(host.definition, host.name, dict(host.addresses))


def _cephadm(host: Host, _: Mapping[str, Any]) -> Variables:
    return ceph.by_cephadm(host.definition, dict(host.addresses))


def _ceph_client(host: Host, variables: Mapping[str, Any]) -> Variables:
    client = ceph.client(host.definition, host.name, dict(host.addresses))
    return {**client, "automount": variables["nfs_client_automount"]}


def _mail(host: Host, _: Mapping[str, Any]) -> Variables:
    mail = host.definition.cluster.mail
    if mail is None:
        return {}
    return {
        "relay": mail.relay,
        "port": mail.port,
        "tls": mail.tls,
        "login": mail.login or "",
        "domain": mail.domain,
        "domains": mail.domains,
        "hourly_limit": mail.hourly_limit,
        "sender": mail.sender,
        "addresses": people.mail_addresses(host.definition),
    }


def _mariadb(*_: Any) -> Variables:
    return {"database": DATABASE_NAME, "user": DATABASE_USER}


def _slurmdbd(host: Host, _: Mapping[str, Any]) -> Variables:
    return {"conf": host.slurm.slurmdbd_conf, "clients": _clients_of_slurmdbd(host)}


def _clients_of_slurmdbd(host: Host) -> list[str]:
    """Addresses of the other hosts that may ask slurmdbd: controller and login nodes.

    Root of a compute node has the munge key, and could ask as any user.
    """
    cluster, groups = host.definition.cluster, host.definition.hosts.groups
    if cluster.cloud:
        # Google gives login nodes their addresses, and its firewall refuses nodes (pulumi/).
        return [cluster.cloud.subnet]
    names = {*groups["controller"], *groups["login"]} - {host.name}
    return sorted(host.addresses.get(name) or name for name in names)


def _accounts(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "cluster": host.definition.cluster.name,
        "tree": people.accounts(host.definition),
        "users": people.account_users(host.definition),
        "qos": limits.qos(host.definition),
    }


def _slurm(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "version": host.definition.cluster.slurm_version,
        "controllers": host.controllers,
        "client_conf": host.slurm.slurm_conf,
    }


def _slurmctld(host: Host, _: Mapping[str, Any]) -> Variables:
    package = host.definition.cluster.slurmctld_package
    return {
        "version": host.definition.cluster.slurm_version,
        "package": str(host.inventory / package) if package else "",
        "slurm_conf": host.slurm.slurm_conf,
        "gres_conf": host.slurm.gres_conf,
        "cgroup_conf": host.slurm.cgroup_conf,
        "job_container_conf": host.slurm.job_container_conf,
        "job_submit_lua": host.slurm.job_submit_lua,
        "restart_digest": host.slurm.restart.slurmctld,
        "reservations": reservations.reservations(host.definition),
        "writable": [
            *(["/var/spool/muster-autoscaler"] if host.definition.cluster.cloud else []),
            # Where the role mail counts mails.
            *(["/var/lib/muster-mail"] if host.definition.cluster.mail else []),
        ],
    }


def _slurmd(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "version": host.definition.cluster.slurm_version,
        # A host that is the controller too reads its own files.
        "conf_servers": [] if host.is_in("controller") else host.controllers,
        "restart_digest": host.slurm.restart.slurmd[host.node_set],
        "mounts": nfs.shared_paths(host.definition),
    }


def _jobs(host: Host, _: Mapping[str, Any]) -> Variables:
    return {"examples": host.is_in("login")}


def _nvidia_driver(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        **nvidia.variables(host.definition, host.node_set),
        "controller": host.definition.hosts.groups["controller"][0],
    }


def _cloud_node(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "passwd": people.node_passwd(host.definition),
        "group": people.node_group(host.definition),
        "people_dir": people.node_people_dir(host.definition),
    }


def _cloud_vm(host: Host, _: Mapping[str, Any]) -> Variables:
    controls = host.is_in("controller")
    return {
        # The controller creates and deletes nodes as slurm.
        "metadata_users": ["root", "slurm"] if controls else ["root"],
        # ssh is the way to see what is wrong: it stays on the controller, where only administrators
        # may log in.
        "guarded_units": ["slurmctld"] if controls else ["ssh"],
    }


def _autoscaler(host: Host, _: Mapping[str, Any]) -> Variables:
    return {
        "cluster": host.definition.cluster.name,
        "resume_timeout_seconds": host.slurm.resume_timeout_s,
        "compute_endpoint": host.compute_endpoint,
    }


def _lmod(host: Host, _: Mapping[str, Any]) -> Variables:
    cluster = host.definition.cluster
    apps = cluster.storage.apps.path
    return {
        "module_paths": [f"{apps}/modules"],
        "cache_dir": f"{apps}/lmod/cache",
        "packages": lmod.packages(cluster.software, cluster.os),
        "images": lmod.images(cluster.software, apps),
    }


def _software(host: Host, _: Mapping[str, Any]) -> Variables:
    cluster = host.definition.cluster
    tree = asdict(
        lmod.render(
            cluster.software, cluster.storage.apps.path, cluster.os, dict(host.requirements)
        )
    )
    return {
        "root": cluster.storage.apps.path,
        "modulefiles": tree["files"],
        "installations": list(tree["installations"]),
        "packages": lmod.packages(cluster.software, cluster.os),
        "build_packages": list(tree["build_packages"]),
        "loads": list(tree["loads"]),
    }


def _shielded(host: Host) -> list[str]:
    """Return the daemons on a host whose roles have nftables keep compute nodes away."""
    has_sackd = host.is_for_login_only and host.definition.cluster.slurm_version >= "23.11"
    return [
        *(["slurmdbd"] if host.is_in("database") else []),
        *(["sackd"] if has_sackd else []),
    ]


def _verify(host: Host, variables: Mapping[str, Any]) -> Variables:
    cluster, groups = host.definition.cluster, host.definition.hosts.groups
    images = variables.get("lmod_images", "")
    apps = cluster.storage.apps.path
    loads_modules = cluster.software.modules and host.is_in(*_ROLES["lmod"].hosts)
    units = {
        "munge": True,
        "muster-munge": host.is_in("controller", "database"),
        "chrony": True,
        "nfs-server": host.is_in("storage") and variables["nfs_server_exports"],
        "sssd": cluster.users.directory,
        "autofs": images,
        "muster-guard": cluster.cloud,
        "muster-guard-keeper": cluster.cloud,
        "muster-file-systems": host.is_in("controller", "database", "storage")
        and variables["file_systems_mounts"],
        "slurmctld": host.is_in("controller"),
        "mariadb": host.is_in("database") and not cluster.database,
        "slurmdbd": host.is_in("database"),
        **{f"muster-{daemon}-keeper": True for daemon in _shielded(host)},
        "slurmd": host.is_in("compute"),
        "muster-nvidia": host.is_in("compute") and variables["nvidia_driver_kernel_packages"],
        "nvidia-dcgm-exporter": host.is_in("compute")
        and "dcgm" in [addition["name"] for addition in variables["nvidia_driver_additions"]],
    }
    return {
        "units": [unit for unit, runs in units.items() if runs],
        "commands": [
            *([_GUARD_CHECK] if cluster.cloud else []),
            *([[*_RULES_CHECK, f"muster_{daemon}", daemon] for daemon in _shielded(host)]),
            *([_DIRECTORY_CHECK] if cluster.users.directory else []),
            *([[_PACKED_CHECK, images]] if images else []),
            *([[_MODULES_CHECK, f"{apps}/modules", f"{apps}/lmod/cache"]] if loads_modules else []),
        ],
        # A node set of VMs is no group: no play is run on them.
        "peers": {name: groups[name] for name in cluster.nodes if name in groups},
        "module_packages": variables.get("lmod_packages", []),
        "accounting": bool(groups["database"]),
        "jobs": verify_jobs(host.definition),
    }


Test = Callable[[Host, Mapping[str, Any]], bool]


def _always(*_: Any) -> bool:
    return True


def _is_set(name: str) -> Test:
    return lambda _, variables: bool(variables[name])


def _in_the_cloud(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.cloud is not None


def _has_own_database(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.database is None


def _has_directory(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.users.directory is not None


def _sends_mail(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.mail is not None


def _has_models(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.storage.models is not None


def _has_images(host: Host, _: Mapping[str, Any]) -> bool:
    return host.definition.cluster.storage.images is not None


def _mounts_with_cache(_: Host, variables: Mapping[str, Any]) -> bool:
    mounts = [*variables["nfs_client_mounts"], *variables["ceph_client_mounts"]]
    return any("fsc" in mount["options"].split(",") for mount in mounts)


def _has_quotas(_: Host, variables: Mapping[str, Any]) -> bool:
    return bool(variables["quotas_file_systems"] or variables["quotas_shown"])


@dataclass(frozen=True)
class _Role:
    hosts: tuple[str, ...]
    """Groups of the hosts that may have the role, and take its variables."""
    variables: Callable[[Host, Mapping[str, Any]], Variables]
    """Those of a host, from it and from the variables of the roles above."""
    is_needed: Test = _always
    """Whether one of these hosts, with its variables, needs the role."""
    packages: tuple[str, ...] = ()
    """Those with much to install, of SLURM in the version of the variable ROLE_version."""


_ROLES = {
    "base": _Role(("all",), _base),
    "munge": _Role(("all",), _nothing, packages=("munge",)),
    "file_systems": _Role(
        ("controller", "database", "storage"), _file_systems, _is_set("file_systems_mounts")
    ),
    "nfs_server": _Role(("storage",), _nfs_server, _is_set("nfs_server_exports")),
    "ceph_cluster": _Role(("storage",), _ceph_cluster, _is_set("ceph_cluster_devices")),
    "cephadm": _Role(("storage",), _cephadm, _is_set("cephadm_image")),
    "fscache": _Role(("all",), _fscache, _mounts_with_cache),
    "nfs_client": _Role(
        ("all",), _nfs_client, _is_set("nfs_client_mounts"), packages=("nfs-common",)
    ),
    "ceph_client": _Role(("all",), _ceph_client, _is_set("ceph_client_mounts")),
    "directory": _Role(("all",), _directory, _has_directory),
    "users": _Role(("all",), _users),
    "projects": _Role(("controller", "storage"), _projects, _is_set("projects_folders")),
    "models": _Role(("controller", "storage", "login", "compute"), _models, _has_models),
    "containers": _Role(("controller", "storage", "login", "compute"), _containers, _has_images),
    "quotas": _Role(("storage", "login", "compute"), _quotas, _has_quotas),
    "cloud_vm": _Role(("controller", "login"), _cloud_vm, _in_the_cloud),
    "mariadb": _Role(("database",), _mariadb, _has_own_database, packages=("mariadb-server",)),
    "slurmdbd": _Role(("database",), _slurmdbd),
    "accounts": _Role(("database",), _accounts),
    "autoscaler": _Role(("controller",), _autoscaler, _in_the_cloud),
    "slurmctld": _Role(("controller",), _slurmctld, packages=("slurmctld", "slurm-client")),
    "mail": _Role(("controller",), _mail, _sends_mail),
    "jobs": _Role(("controller", "compute", "login"), _jobs),
    "cloud_node": _Role(("controller",), _cloud_node, _in_the_cloud),
    "nvidia_driver": _Role(("compute",), _nvidia_driver, _is_set("nvidia_driver_packages")),
    "slurmd": _Role(("compute",), _slurmd, packages=("slurmd", "slurm-client")),
    "slurm": _Role(("login",), _slurm),
    "lmod": _Role(("controller", "compute", "login"), _lmod, packages=("lmod",)),
    "software": _Role(("controller",), _software),
    "verify": _Role(("all",), _verify),
}


def shared(definition: Definition, addresses: Mapping[str, str]) -> Variables:
    """Return the role variables that are the same on all hosts."""
    return {
        # Hosts with a name for an address are known to DNS.
        "base_hosts": [
            {"name": name, "address": address}
            for name, address in addresses.items()
            if patterns.is_address(address)
        ],
        "users_groups": people.groups(definition),
        "users_people": people.people(definition),
    }


class _Effective(Mapping[str, Any]):
    """The variables of a host: those that it has, and those that the definition adds."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.added: Variables = {}

    def __getitem__(self, name: str) -> Any:
        return self.given[name] if name in self.given else self.added[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.added, **dict.fromkeys(self.given)})

    def __len__(self) -> int:
        return len({*self.added, *self.given})


def roles(host: Host, added: Variables) -> list[str]:
    """Return the roles with variables that the host has; `added` is what `role_variables` gives."""
    effective = _Effective(host.given)
    effective.added = added
    return _roles(host, effective)


def packages(host: Host, added: Variables) -> list[str]:
    """Return what roles of the host install, for one transaction of apt: PACKAGE[=VERSION].

    `added` is what `role_variables` gives. What is left out here, its role installs all the same.
    """
    effective = _Effective(host.given)
    effective.added = added
    names = [
        f"{name}={effective[f'{role}_version']}.*" if name.startswith("slurm") else name
        for role in _roles(host, effective)
        for name in _ROLES[role].packages
    ]
    return list(dict.fromkeys([*names, *effective.get("lmod_packages", [])]))


def _roles(host: Host, effective: _Effective) -> list[str]:
    return [
        role
        for role, row in _ROLES.items()
        if host.is_in(*row.hosts) and row.is_needed(host, effective)
    ]


def role_variables(host: Host) -> tuple[Variables, list[str]]:
    """Return the variables of the roles that the host may have, except those that it has already.

    Also return which of the roles that depend on the definition it needs. `homes` is the role
    `users` again, for homes in a folder that is mounted after its first run.
    """
    effective = _Effective(host.given)
    for role, row in _ROLES.items():
        if host.is_in(*row.hosts):
            for name, value in row.variables(host, effective).items():
                if f"{role}_{name}" not in host.given:
                    effective.added[f"{role}_{name}"] = value
    needed = [role for role in _roles(host, effective) if _ROLES[role].is_needed is not _always]
    if effective["users_create_homes"] and effective["users_home_mounted"]:
        needed.append("homes")
    return effective.added, needed
