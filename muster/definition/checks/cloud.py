"""Checks of a cluster in Google Cloud."""

import ipaddress
import re
from collections.abc import Iterator

from muster.catalog.zones import REGIONS, ZONES
from muster.definition.checks.cloud_machines import vms
from muster.definition.checks.registry import Finding, check, source_check
from muster.definition.checks.rows import ListedTwice, Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema.cluster import PACKAGED_SLURM
from muster.definition.schema.node_sets import Machines
from muster.definition.sources import HOSTS_FILE, Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

# https://cloud.google.com/compute/docs/regions-zones: region, hyphen, letter.
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
_LIKENESS = 0.85
"""Of a region to a known one, so that it is taken for that."""
# https://cloud.google.com/compute/docs/labeling-resources
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_LABELS = 64
_OUR_LABELS = ("muster-cluster", "muster-node-set", "muster-role", "goog-pulumi-provisioned")
# https://cloud.google.com/iam/docs/principal-identifiers
_PRINCIPAL = (
    r"(user|group|serviceAccount):[^@\s]+@[^@\s]+|domain:[^@\s]+"
    r"|principal(Set)?://iam\.googleapis\.com/[^\s/]+(/[^\s/]+)+"
)
_PRINCIPALS = at("cloud.iap_users.[]", "cloud.iap_admins.[]")


def _zones(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    if d.cluster.cloud:
        yield ("cloud", "zone"), d.cluster.cloud.zone
    for name, nodes in vms(d):
        for index, zone in enumerate(nodes.zones):
            yield ("nodes", name, "zones", index), zone


_PRIVATE = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),
        *("198.18.0.0/15", "240.0.0.0/4"),
    )
)
"""Google's valid ranges, without those of documentation, of IETF's protocols and of others:

https://cloud.google.com/vpc/docs/subnets#valid-ranges (RFC 1918, 6598, 2544 and 1112).
"""
_BROADCAST = ipaddress.IPv4Network("255.255.255.255/32")


def _network(subnet: str) -> ipaddress.IPv4Network | None:
    if not re.search(r"/[0-9]{1,2}$", subnet):
        return None  # Google takes no mask
    try:
        return ipaddress.IPv4Network(subnet)
    except ValueError:
        return None


def _is_subnet(text: str) -> bool:
    """Whether a cluster can have these addresses."""
    network = _network(text)
    return (
        network is not None
        and any(map(network.subnet_of, _PRIVATE))
        and not network.overlaps(_BROADCAST)
    )


# fmt: off
table(
    ListedTwice("zone-twice",
        "A zone that a node set lists twice",
        _zones),
    Spelling("subnet-malformed",
        "A subnet that is not one, or has addresses that are not private",
        at("cloud.subnet"), _is_subnet,
        '"{value}" can\'t be the addresses of a cluster',
        "write private ones like 10.10.0.0/16, or leave it out"),
    Spelling("iap-user",
        "A principal that may use IAP, written in a way that Google does not know",
        _PRINCIPALS, _PRINCIPAL,
        '"{value}" is no principal that Google knows',
        "write user:ADDRESS, group:ADDRESS, serviceAccount:ADDRESS, domain:NAME, or the "
        "principal:// or principalSet:// of a workforce pool"),
    ListedTwice("iap-user-twice",
        "A principal that may use IAP, listed twice",
        _PRINCIPALS),
)
# fmt: on


@check("zone-unknown")
def zone_unknown(d: Definition) -> Iterator[Finding]:
    """A zone that Google does not have, or that Muster does not know."""
    own = d.cluster.cloud.region if d.cluster.cloud else ""
    for path, zone in _zones(d):
        follows = path != ("cloud", "zone") and own not in REGIONS and zone.startswith(f"{own}-")
        if zone not in ZONES and not follows:
            yield Finding(path, f'no zone "{zone}" is known', _zone_like(zone))


def _zone_like(zone: str) -> str:
    """The zone that is likely meant, or the zones of its region.

    Of a region that has others a letter is no misspelling: which one is meant, nobody knows.
    """
    folded = zone.casefold().replace("_", "-")
    if folded in ZONES:
        return f'did you mean "{folded}"?'
    region = folded if folded in REGIONS else folded.rpartition("-")[0]
    newer = (
        "a zone that Google opened later can be added to muster/catalog/zones.py"
        if _ZONE.fullmatch(folded)
        else "`gcloud compute zones list` has all of them"
    )
    if zones := REGIONS.get(region):
        return f"{region} has {', '.join(zones)}; {newer}"
    if near := nearest(region or folded, REGIONS, _LIKENESS):
        return f"did you mean one of {near}, such as {REGIONS[near][0]}? {newer}"
    return f"write one like europe-west4-a; {newer}"


@check("vms-without-cloud")
def vms_without_cloud(d: Definition) -> Iterator[Finding]:
    """A node set of VMs, and no cloud to make them in."""
    if d.cluster.cloud is None:
        for name, _ in vms(d):
            yield Finding(
                ("nodes", name),
                "a node set of VMs in a cluster without `cloud`",
                "add `cloud` with zone, controller, login and image, or describe machines here",
            )


@check("system-in-the-cloud")
def system_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A system in the cloud whose SLURM lets jobs get the token of their VM."""
    # User-managed I/O, which 22.05 no longer has: slurmstepd makes a task's socket as root, and the
    # guard of the metadata server knows a socket by who made it. Not by `slurm_version`: the image
    # has the archive's packages alone (roles/slurm/tasks/install.yml).
    if d.cluster.cloud is not None and d.cluster.os == "ubuntu-22.04":
        yield Finding(
            ("os",),
            "VMs of ubuntu-22.04 get its archive's SLURM 21.08, which hands jobs a connection of "
            "root's, by which they get the token of their VM",
            "take ubuntu-24.04, debian-12 or debian-13",
        )


@check("slurm-newer-in-the-cloud")
def slurm_newer_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A release of SLURM in the cloud newer than the one that the distribution packages."""
    packaged, wanted = PACKAGED_SLURM[d.cluster.os], d.cluster.slurm_version
    # system-in-the-cloud reports ubuntu-22.04, and names the systems that are possible.
    if d.cluster.cloud is None or wanted <= packaged or d.cluster.os == "ubuntu-22.04":
        return
    systems = [system for system, release in PACKAGED_SLURM.items() if release == wanted]
    other = f", or set os to {systems[0]}, which has {wanted}" if systems else ""
    yield Finding(
        ("slurm_version",),
        f"VMs of {d.cluster.os} get its archive's SLURM {packaged}, not {wanted}",
        f"leave slurm_version out{other}",
    )


@check("machines-in-the-cloud")
def machines_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """Your own machines in a cluster in the cloud."""
    if d.cluster.cloud is not None:
        for name, nodes in d.cluster.nodes.items():
            if isinstance(nodes, Machines):
                yield Finding(
                    ("nodes", name),
                    "your own machines in a cluster in the cloud",
                    "give machine_type and max_nodes, or make a separate cluster of them",
                )


@source_check("hosts-in-the-cloud")
def hosts_in_the_cloud(sources: Sources) -> Iterator[Finding]:
    """A hosts.yml for a cluster in the cloud, whose hosts `pulumi up` makes."""
    definition = sources.definition
    in_cloud = isinstance(definition, dict) and definition.get("cloud") is not None
    if in_cloud and sources.hosts.data is not None:
        yield Finding(
            (),
            "the hosts of a cluster in the cloud follow from cluster.yml",
            f"delete {HOSTS_FILE}; the inventory plugin pulumi_stack says where they are",
            "hosts",
            1,
        )


_SMTP = 25


@check("mail-port-in-the-cloud")
def mail_port_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """Mail by port 25 of a host in the internet, which Google lets no VM use."""
    # https://cloud.google.com/compute/docs/tutorials/sending-mail
    mail = d.cluster.mail
    if d.cluster.cloud and mail and mail.port == _SMTP and not _is_inside(mail.relay):
        yield Finding(
            ("mail", "port") if "port" in mail.model_fields_set else ("mail", "relay"),
            f"Google lets no VM reach port 25 of {mail.relay}",
            "set mail.port to another one at which the relay takes mail, such as 587, or name a "
            "relay in the network by its private address",
        )


def _is_inside(host: str) -> bool:
    """Whether a host is in the network for sure: by its address, or by Google's own DNS."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host.endswith(".internal")


@check("zone-of-another-region")
def zone_of_another_region(d: Definition) -> Iterator[Finding]:
    """Nodes in another region than the controller: the subnet and the folders are not there."""
    if d.cluster.cloud is None or d.cluster.cloud.zone not in ZONES:
        return
    for path, zone in _zones(d):
        if zone in ZONES and zone.rsplit("-", 1)[0] != d.cluster.cloud.region:
            yield Finding(
                path,
                f"{zone} is not in {d.cluster.cloud.region}, where the controller is",
                f"take zones of {d.cluster.cloud.region}",
            )


@check("subnet-too-small")
def subnet_too_small(d: Definition) -> Iterator[Finding]:
    """A subnet with fewer addresses than there can be VMs."""
    cloud = d.cluster.cloud
    network = _network(cloud.subnet) if cloud else None
    if network is None or cloud is None:
        return
    # Controller, a VM that builds an image, and the four addresses that Google keeps for itself.
    needed = sum(nodes.max_nodes for _, nodes in vms(d)) + cloud.login.count + 2 + 4
    if network.num_addresses < needed:
        yield Finding(
            ("cloud", "subnet"),
            f"{network} has {network.num_addresses} addresses, and up to {needed} are needed",
            "take a larger one, or leave it out",
        )


@check("label")
def label(d: Definition) -> Iterator[Finding]:
    """A label that Google refuses, or that Muster sets itself."""
    for name, nodes in vms(d):
        most = _LABELS - len(_OUR_LABELS)
        if len(nodes.labels) > most:
            yield Finding(
                ("nodes", name, "labels"),
                f"Google takes {_LABELS} labels, and Muster needs {len(_OUR_LABELS)} of them",
                f"give at most {most}",
            )
        for key, value in nodes.labels.items():
            path = ("nodes", name, "labels", key)
            if key in _OUR_LABELS:
                yield Finding(path, f'Muster sets the label "{key}" itself', "take another name")
            elif not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                yield Finding(
                    path,
                    f'Google refuses the label "{key}={value}"',
                    "use up to 63 small letters, digits, hyphens and underscores, and let the name "
                    "begin with a letter",
                )
