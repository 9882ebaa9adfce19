"""A SLURM cluster in Google Cloud: its bill of materials.

Everything follows from the definition in the inventory's folder, and what can be wrong with it
or with the project is said before anything is made. Nodes are not here: SLURM makes and deletes
them, from the templates of their node sets.
"""

import pulumi
import pulumi_gcp as gcp

from components import settings as configuration
from components.accounts import Accounts, AccountsArgs
from components.bundles import Bundles, BundlesArgs, archive
from components.controller import Controller, ControllerArgs
from components.image import Image, ImageArgs
from components.lifecycle import Claim, Sweeper
from components.login import Login, LoginArgs
from components.network import Network, NetworkArgs
from components.nodeset import NodeSet, NodeSetArgs
from components.rights import Rights, RightsArgs
from components.settings import ROOT
from components.state import State, StateArgs
from components.vault import Vault, VaultArgs
from muster.definition.schema.node_sets import VirtualMachines
from muster.gcp.bundle import image_bundle, machine_bundle
from muster.render.nfs import mounts
from muster.render.role_variables import node_people_dir

settings = configuration.read()
configuration.check(settings)
cloud, names, definition = settings.cloud, settings.names, settings.definition
node_sets = {
    name: nodes
    for name, nodes in definition.cluster.nodes.items()
    if isinstance(nodes, VirtualMachines)
}
zones = {name: nodes.zones or [cloud.zone] for name, nodes in node_sets.items()}
files = ROOT / "build" / "bundles" / names.cluster
package = definition.cluster.slurmctld_package
machine_archive = archive(
    "bundle", lambda: machine_bundle(ROOT, settings.inventory, package), files
)
image_archive = archive("image", lambda: image_bundle(ROOT, definition), files)

claim = Claim("claim", names)
claimed = pulumi.ResourceOptions(depends_on=[claim])

accounts = Accounts("accounts", AccountsArgs(names), claimed)
network = Network(
    "network",
    NetworkArgs(
        names,
        cloud.region,
        cloud.subnet,
        ssh_to=[accounts.controller.email, accounts.login.email],
        public_ssh_to=[accounts.login.email] if cloud.login.public_address else [],
    ),
    claimed,
)
vault = Vault(
    "secrets",
    VaultArgs(names, accounts.controller.member, accounts.login.member, accounts.node.member),
    claimed,
)
bundles = Bundles(
    "bundles",
    BundlesArgs(
        names,
        cloud.region,
        machine_archive,
        image_archive,
        machine_readers={
            "controller": accounts.controller.member,
            "login": accounts.login.member,
        },
        image_reader=accounts.builder.member,
    ),
    claimed,
)
rights = Rights(
    "rights",
    RightsArgs(
        names,
        cloud.region,
        claim.suffix,
        controller=accounts.controller.member,
        node=accounts.node.name,
        subnet=network.subnet.name,
        places=any(nodes.compact for nodes in node_sets.values()),
    ),
)
state = State(
    "state",
    StateArgs(
        names,
        cloud.zone,
        cloud.region,
        cloud.controller.state_disk,
        definition.cluster.slurm_version,
    ),
    claimed,
)
address = gcp.compute.Address(
    "address",
    name=names.controller,
    address_type="INTERNAL",
    subnetwork=network.subnet.id,
    region=cloud.region,
    labels=names.labels("controller"),
)
hosts = pulumi.Output.json_dumps({names.controller: address.address})

# Before the image: what a killed build leaves is swept by a destroy too.
sweeper = Sweeper("sweeper", names, pulumi.ResourceOptions(depends_on=[network, accounts]))
image = Image(
    "image",
    ImageArgs(
        names,
        cloud.zone,
        definition.cluster.os,
        cloud.image.machine_type,
        image_archive.digest,
        bundles.image,
        network.subnet.id,
        accounts.builder.email,
    ),
    pulumi.ResourceOptions(depends_on=[bundles, network, sweeper]),
)
sets = {
    name: NodeSet(
        f"nodes-{name}",
        NodeSetArgs(
            names,
            name,
            nodes,
            zones[name],
            image.link,
            network.subnet.self_link,
            accounts.node.email,
            hosts,
            mounts(definition, computes=True, caches=nodes.caches),
            node_people_dir(definition),
        ),
    )
    for name, nodes in node_sets.items()
}
ready = pulumi.ResourceOptions(depends_on=[bundles, vault, rights, image, sweeper, network])
controller = Controller(
    "controller",
    ControllerArgs(
        names,
        cloud.zone,
        cloud.controller,
        address.address,
        network.subnet.self_link,
        accounts.controller.email,
        state.disk.self_link,
        bundles.machine,
        machine_archive.digest,
        hosts,
        {name: each.told for name, each in sets.items()},
        cloud.iap_admins,
        rights.reaches,
    ),
    ready,
)
logins = [
    Login(
        f"login-{number}",
        LoginArgs(
            names,
            number,
            cloud.zone,
            cloud.login,
            network.subnet.self_link,
            accounts.login.email,
            bundles.machine,
            machine_archive.digest,
            hosts,
            sorted({*cloud.iap_users, *cloud.iap_admins}),
            rights.reaches,
        ),
        ready,
    )
    for number in range(cloud.login.count)
]

pulumi.export("project", names.project)
pulumi.export("cluster", names.cluster)
pulumi.export("zone", cloud.zone)
pulumi.export("controller", names.controller)
pulumi.export("addresses", {names.controller: address.address})
pulumi.export("logins", [names.login(number) for number in range(cloud.login.count)])
