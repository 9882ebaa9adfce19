"""A SLURM cluster in Google Cloud: the list of all its parts.

The program reads everything from the definition in the inventory's folder. It reports errors in the
definition or in the project before it creates anything. It does not create nodes: SLURM creates and
deletes them, from the templates of their node sets.
"""

import pulumi
import pulumi_gcp as gcp

from components import settings as configuration
from components.bundles import Bundles, BundlesArgs, archive
from components.cluster_secrets import ClusterSecrets, ClusterSecretsArgs
from components.controller import Controller, ControllerArgs
from components.image import Image, ImageArgs
from components.lifecycle import Claim, Sweeper
from components.login import Login, LoginArgs
from components.network import Network, NetworkArgs
from components.nodeset import NodeSet, NodeSetArgs
from components.role_bindings import Rights, RightsArgs
from components.service_accounts import ServiceAccounts, ServiceAccountsArgs
from components.settings import ROOT
from components.state import State, StateArgs
from muster.definition.schema.node_sets import VirtualMachines
from muster.gcp.bundle import image_bundle, machine_bundle
from muster.render.lmod import images
from muster.render.nfs import mounts
from muster.render.people import node_people_dir

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
machine_archive = archive(
    "bundle", lambda: machine_bundle(ROOT, settings.inventory, definition.files()), files
)
image_archive = archive("image", lambda: image_bundle(ROOT, definition), files)

claim = Claim("claim", names=names)
claimed = pulumi.ResourceOptions(depends_on=[claim])

accounts = ServiceAccounts("accounts", args=ServiceAccountsArgs(names=names), opts=claimed)
network = Network(
    "network",
    args=NetworkArgs(
        names=names,
        region=cloud.region,
        addresses=cloud.subnet,
        ssh_to=[accounts.controller.email, accounts.login.email],
        controller=accounts.controller.email,
        nodes=accounts.node.email,
        public_ssh_to=[accounts.login.email] if cloud.login.public_address else [],
    ),
    opts=claimed,
)
cluster_secrets = ClusterSecrets(
    "secrets",
    args=ClusterSecretsArgs(
        names=names,
        controller=accounts.controller.member,
        login=accounts.login.member,
        node=accounts.node.member,
    ),
    opts=claimed,
)
bundles = Bundles(
    "bundles",
    args=BundlesArgs(
        names=names,
        region=cloud.region,
        machine=machine_archive,
        image=image_archive,
        machine_readers={
            "controller": accounts.controller.member,
            "login": accounts.login.member,
        },
        image_reader=accounts.builder.member,
    ),
    opts=claimed,
)
rights = Rights(
    "rights",
    args=RightsArgs(
        names=names,
        region=cloud.region,
        suffix=claim.suffix,
        controller=accounts.controller.member,
        node=accounts.node.name,
        subnet=network.subnet.name,
        node_sets=list(node_sets),
        places=any(nodes.compact for nodes in node_sets.values()),
    ),
)
state = State(
    "state",
    args=StateArgs(
        names=names,
        zone=cloud.zone,
        region=cloud.region,
        disks=definition.cluster.disks(),
        slurm_version=definition.cluster.slurm_version,
    ),
    opts=claimed,
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

# The sweeper comes before the image: after a killed build, a destroy then deletes what is left.
sweeper = Sweeper(
    "sweeper", names=names, opts=pulumi.ResourceOptions(depends_on=[network, accounts])
)
image = Image(
    "image",
    args=ImageArgs(
        names=names,
        zone=cloud.zone,
        os=definition.cluster.os,
        machine_type=cloud.image.machine_type,
        digest=image_archive.digest,
        archive=bundles.image,
        subnet=network.subnet.id,
        account=accounts.builder.email,
    ),
    opts=pulumi.ResourceOptions(depends_on=[bundles, network, sweeper]),
)
sets = {
    name: NodeSet(
        f"nodes-{name}",
        args=NodeSetArgs(
            names=names,
            node_set=name,
            nodes=nodes,
            zones=zones[name],
            image=image.link,
            subnet=network.subnet.self_link,
            account=accounts.node.email,
            hosts=hosts,
            mounts=mounts(definition, computes=True, caches=nodes.caches),
            caches=nodes.caches and definition.cluster.storage.is_cached,
            people=node_people_dir(definition),
            images=images(definition.cluster.software, definition.cluster.storage.apps.path),
        ),
    )
    for name, nodes in node_sets.items()
}
# A destroy deletes the controller before the nodes of its sets: it would recreate them.
ready = pulumi.ResourceOptions(
    depends_on=[bundles, cluster_secrets, rights, image, sweeper, network, *sets.values()]
)
controller = Controller(
    "controller",
    args=ControllerArgs(
        names=names,
        zone=cloud.zone,
        wanted=cloud.controller,
        address=address.address,
        subnet=network.subnet.self_link,
        account=accounts.controller.email,
        disks=state.links,
        bundle=bundles.machine,
        digest=machine_archive.digest,
        hosts=hosts,
        templates={name: node_set.templates_metadata for name, node_set in sets.items()},
        admins=cloud.iap_admins,
        reaches=rights.reaches,
    ),
    opts=ready,
)
logins = [
    Login(
        f"login-{number}",
        args=LoginArgs(
            names=names,
            number=number,
            zone=cloud.zone,
            wanted=cloud.login,
            subnet=network.subnet.self_link,
            account=accounts.login.email,
            bundle=bundles.machine,
            digest=machine_archive.digest,
            hosts=hosts,
            users=sorted({*cloud.iap_users, *cloud.iap_admins}),
            reaches=rights.reaches,
        ),
        opts=ready,
    )
    for number in range(cloud.login.count)
]

pulumi.export("project", names.project)
pulumi.export("cluster", names.cluster)
pulumi.export("zone", cloud.zone)
pulumi.export("controller", names.controller)
pulumi.export("addresses", {names.controller: address.address})
pulumi.export("logins", [names.login(number) for number in range(cloud.login.count)])
