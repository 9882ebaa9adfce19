# SPDX-License-Identifier: Apache-2.0
"""The filters of wiring.yml: thin, for the work is in muster.wiring."""

from dataclasses import asdict

from ansible.errors import AnsibleFilterError

from muster import cephfs, modules, slurm, storage, verify, wiring
from muster.cluster import DefinitionError
from muster.nvidia import role as nvidia


def title(cluster):
    """Return the cluster's name, even of a definition that is wrong."""
    return cluster.get("name", "?") if isinstance(cluster, dict) else "?"


def of_definition(function):
    """Return a filter that applies `function` to the definition made of (cluster, groups).

    Further arguments are the function's own.
    """

    def apply(cluster, groups, *rest, **options):
        try:
            return function(wiring.definition_of(cluster, groups), *rest, **options)
        except DefinitionError as error:
            raise AnsibleFilterError(f"the definition is wrong:\n{error}") from error

    return apply


def slurm_files(definition):
    """Return SLURM's files and restart digests as a mapping."""
    return asdict(slurm.render(definition))


def module_tree(definition):
    """Return the module tree as a mapping."""
    cluster = definition.cluster
    return asdict(modules.render(cluster.software, cluster.storage.apps.path))


def credentials(hosts):
    """Return host -> munge credential of the hosts that could make one."""
    return {
        host: report["credential"]["text"]
        for host, report in hosts.items()
        if "text" in report["credential"]
    }


class FilterModule:
    """Registers the filters."""

    def filters(self):
        """Return the filters by name."""
        return {
            "muster_title": title,
            "muster_hosts": wiring.host_addresses,
            "muster_people": of_definition(wiring.people),
            "muster_no_login": of_definition(wiring.no_login),
            "muster_sudo": of_definition(wiring.sudo),
            "muster_groups": of_definition(wiring.groups),
            "muster_mail_addresses": of_definition(wiring.mail_addresses),
            "muster_accounts": of_definition(wiring.accounts),
            "muster_account_users": of_definition(wiring.account_users),
            "muster_node_passwd": of_definition(wiring.node_passwd),
            "muster_node_group": of_definition(wiring.node_group),
            "muster_node_people_dir": of_definition(wiring.node_people_dir),
            "muster_shared_paths": of_definition(storage.shared_paths),
            "muster_state_folders": of_definition(wiring.state_folders),
            "muster_home_maker": of_definition(storage.home_maker),
            "muster_group_folders": of_definition(storage.group_folders),
            "muster_mounts": of_definition(storage.mounts),
            "muster_exports": of_definition(storage.exports),
            "muster_nfs_connections": of_definition(storage.nfs_connections),
            "muster_ceph_cluster": of_definition(cephfs.built),
            "muster_cephadm": of_definition(cephfs.by_cephadm),
            "muster_ceph_client": of_definition(cephfs.client),
            "muster_nvidia_driver": of_definition(nvidia.variables),
            "muster_slurm_files": of_definition(slurm_files),
            "muster_module_tree": of_definition(module_tree),
            "muster_credentials": credentials,
            "muster_problems": verify.problems,
            "muster_notes": verify.notes,
            "muster_cluster": of_definition(
                lambda definition: definition.cluster.model_dump(mode="json")
            ),
        }
