# SPDX-License-Identifier: Apache-2.0
"""The filters of wiring.yml: thin wrappers around muster.render.role_variables."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from ansible.errors import AnsibleFilterError

from muster.definition import DefinitionError
from muster.definition.definition import Definition
from muster.render import ceph, lmod, nfs, role_variables, slurm
from muster.render import nvidia_driver as nvidia
from muster.verify import verdict

Result = TypeVar("Result")


def title(cluster: object) -> str:
    """Return the cluster's name, even of a definition that is wrong."""
    return cluster.get("name", "?") if isinstance(cluster, dict) else "?"


def of_definition(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a filter that applies `function` to the definition made of (cluster, groups).

    Further arguments are the function's own.
    """

    def apply(
        cluster: dict[str, Any], groups: dict[str, list[str]], *rest: Any, **options: Any
    ) -> Result:
        try:
            return function(role_variables.definition_of(cluster, groups), *rest, **options)
        except DefinitionError as error:
            raise AnsibleFilterError(f"the definition is wrong:\n{error}") from error

    return apply


def slurm_files(definition: Definition) -> dict[str, Any]:
    """Return SLURM's files and restart digests as a mapping."""
    return asdict(slurm.render(definition))


def module_tree(definition: Definition) -> dict[str, Any]:
    """Return the module tree as a mapping."""
    cluster = definition.cluster
    return asdict(lmod.render(cluster.software, cluster.storage.apps.path))


def credentials(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return host -> munge credential of the hosts that could make one."""
    return {
        host: report["credential"]["text"]
        for host, report in hosts.items()
        if "text" in report["credential"]
    }


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "muster_title": title,
            "muster_hosts": role_variables.host_addresses,
            "muster_people": of_definition(role_variables.people),
            "muster_no_login": of_definition(role_variables.no_login),
            "muster_sudo": of_definition(role_variables.sudo),
            "muster_groups": of_definition(role_variables.groups),
            "muster_mail_addresses": of_definition(role_variables.mail_addresses),
            "muster_accounts": of_definition(role_variables.accounts),
            "muster_account_users": of_definition(role_variables.account_users),
            "muster_node_passwd": of_definition(role_variables.node_passwd),
            "muster_node_group": of_definition(role_variables.node_group),
            "muster_node_people_dir": of_definition(role_variables.node_people_dir),
            "muster_shared_paths": of_definition(nfs.shared_paths),
            "muster_state_folders": of_definition(role_variables.state_folders),
            "muster_home_maker": of_definition(nfs.home_maker),
            "muster_group_folders": of_definition(nfs.group_folders),
            "muster_mounts": of_definition(nfs.mounts),
            "muster_exports": of_definition(nfs.exports),
            "muster_nfs_connections": of_definition(nfs.nfs_connections),
            "muster_ceph_cluster": of_definition(ceph.built),
            "muster_cephadm": of_definition(ceph.by_cephadm),
            "muster_ceph_client": of_definition(ceph.client),
            "muster_nvidia_driver": of_definition(nvidia.variables),
            "muster_slurm_files": of_definition(slurm_files),
            "muster_module_tree": of_definition(module_tree),
            "muster_credentials": credentials,
            "muster_problems": verdict.problems,
            "muster_notes": verdict.notes,
            "muster_cluster": of_definition(
                lambda definition: definition.cluster.model_dump(mode="json")
            ),
        }
