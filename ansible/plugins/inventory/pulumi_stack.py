# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cluster in the cloud, as its Pulumi stack made them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable
from ansible.template import trust_as_template

from muster.definition import DefinitionError, Mail, load
from muster.definition.definition import cloud_hosts
from muster.gcp import pulumi_stack, ssh
from muster.gcp.inventory import TIME_SERVERS

DOCUMENTATION = r"""
name: pulumi_stack
short_description: The hosts of a cluster in the cloud
description:
  - Asks C(pulumi) for the outputs of the stack with the cluster's name, and gives the five groups of
    Muster, with hosts that ssh reaches through Identity-Aware Proxy.
  - Nodes are not among them, because no play is run on them.
  - C(secrets) are read from Secret Manager when a task uses them.
extends_documentation_fragment: [inventory_cache]
options:
  plugin:
    description: The plugin's name, by which Ansible knows whose file it is.
    type: str
    required: true
    choices: [muster.slurm.pulumi_stack]
"""

EXAMPLES = r"""
# inventories/cloud/pulumi_stack.yml
plugin: muster.slurm.pulumi_stack
"""

FILE = "pulumi_stack.yml"


# What roles take from `secrets`, and how the stack's secret is called behind the cluster's name.
SECRETS = {"munge_key": "munge-key", "slurmdbd_password": "slurmdbd-password"}
MAIL_SECRET = {"mail_password": "mail-password"}


def secrets_of(made: pulumi_stack.Stack, mail: Mail | None) -> dict[str, str]:
    """Return `secrets` as templates: a value is asked for when a task uses it, and not listed."""
    return {
        name: trust_as_template(
            f"{{{{ lookup('muster.slurm.cloud_secret', '{made.cluster}-{ending}', project='{made.project}') }}}}"
        )
        for name, ending in (SECRETS | (MAIL_SECRET if mail and mail.login else {})).items()
    }


class InventoryModule(BaseInventoryPlugin, Cacheable):
    """Outputs of a stack -> groups and hosts."""

    NAME = "muster.slurm.pulumi_stack"

    def verify_file(self, path: str) -> bool:
        """Whether the file is one of this plugin's."""
        return super().verify_file(path) and Path(path).name == FILE

    def parse(
        self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True
    ) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            cluster = load(Path(path).parent).cluster
            made = self._stack(cluster.name, f"{self.get_cache_key(path)}_{cluster.name}", cache)
        except (DefinitionError, pulumi_stack.StackError) as error:
            # Ansible turns an exception into a warning, tries its other plugins on the file, prints
            # the error of each, and continues without hosts.
            raise SystemExit(f"error: {error}") from None
        self._fill(inventory, cloud_hosts(cluster).groups, made)
        inventory.set_variable("all", "secrets", secrets_of(made, cluster.mail))

    def _stack(self, name: str, key: str, use: bool) -> pulumi_stack.Stack:
        """Return the stack, from the cache where it may be used and has it."""
        keep = self.get_option("cache")
        cached = self._cache.get(key) if keep and use else None
        made = pulumi_stack.stack_of(name, pulumi_stack.outputs(name) if cached is None else cached)
        if keep:
            # Only of a stack that is up: a new one must be seen at once.
            self._cache[key] = asdict(made)
        return made

    def _fill(
        self,
        inventory: InventoryData,
        groups: Mapping[str, Sequence[str]],
        made: pulumi_stack.Stack,
    ) -> None:
        """Add the hosts that the definition names and the stack has."""
        for group, members in groups.items():
            inventory.add_group(group)
            for host in members:
                if host in made.hosts:
                    inventory.add_host(host, group=group)
        for host in made.hosts:
            if host in groups["all"]:
                self._reach(inventory, host, made)
        inventory.set_variable("all", "base_ntp_servers", TIME_SERVERS)

    def _reach(self, inventory: InventoryData, host: str, made: pulumi_stack.Stack) -> None:
        """Say how to reach a host, and its address in the cluster where that is fixed."""
        if host in made.addresses:
            inventory.set_variable(host, "ansible_host", made.addresses[host])
        inventory.set_variable(host, "ansible_ssh_common_args", ssh.arguments(made, host))
