"""Warnings about a definition: what is no error, but may not be intended."""

import re
from collections.abc import Iterator

from muster.definition import several_gpus
from muster.definition.checks.clock_times import hours_as_minutes
from muster.definition.checks.limits import default_of, qos_of_users, takes
from muster.definition.checks.queue_places import queue_places, submit_bounds
from muster.definition.checks.slurm import (
    packages_of_plugins,
    parameter_name,
    parameter_words,
)
from muster.definition.definition import Definition
from muster.definition.longest_wall import below_defaults, longest_wall
from muster.definition.problems import counted
from muster.definition.schema.ceph import Ceph
from muster.definition.schema.cloud import Cloud
from muster.definition.schema.cluster import PACKAGED_SLURM, Cluster
from muster.definition.schema.node_sets import Machines, VirtualMachines
from muster.definition.schema.software import PYTHONS
from muster.definition.schema.times import seconds
from muster.definition.spelling import nearest

_LIKE_HOST = 0.8
"""lab-acces is like lab-access; lab-nfs is like lab-ctl in its first letters only."""


def warnings(definition: Definition) -> Iterator[str]:
    """Return sentences about the definition, with a remedy each."""
    cluster = definition.cluster
    if cluster.cloud is not None:
        yield from _entry(cluster, cluster.cloud)
        yield from _own_folders(cluster)
        yield from _without_cache(cluster)
    else:
        yield from _left_out(definition)
        yield from _without_address(definition)
    if "nvidia" in cluster.model_fields_set and cluster.nvidia is None:
        yield (
            "nvidia: without a value no driver is installed; say `nvidia: {}` for the "
            "recommended one, or take the line out"
        )
    yield from _people(definition)
    yield from _reservations(cluster)
    yield from _unchosen_accounts(definition)
    yield from _unbounded_jobs(definition)
    yield from _coordinators(cluster)
    yield from hours_as_minutes(definition)
    yield from _times_by_default(cluster)
    yield from below_defaults(definition)
    yield from _times_by_limits(definition)
    yield from _refused_by_default(definition)
    yield from several_gpus.beyond_limits(definition)
    yield from several_gpus.beyond_nodes(definition)
    yield from _memory(cluster)
    yield from _other_pythons(cluster)
    yield from _shell_words(cluster)
    yield from _partition_limits(definition)
    yield from _plugins(definition)
    if cluster.storage.ceph is not None:
        yield from _cached_cephfs(cluster)
        if cluster.storage.ceph.is_built:
            yield from _built_ceph(definition, cluster.storage.ceph)


def _left_out(definition: Definition) -> Iterator[str]:
    """Folders that the definition does not mention, on several machines without a cloud.

    No errors: the machines may mount them already.
    """
    storage = definition.cluster.storage
    unsaid = [
        key
        for key, folder in storage.folders()
        if key not in storage.model_fields_set or "kind" not in folder.model_fields_set
    ]
    if unsaid and len(definition.hosts.groups.get("all", [])) > 1:
        yield (
            f"storage.{', storage.'.join(unsaid)}: without a `kind` Muster mounts nothing there, "
            "and each host has its own folder unless it mounts one; say `kind: nfs`, or "
            "`kind: existing` if it does"
        )


def _without_address(definition: Definition) -> Iterator[str]:
    """A host that alone has no address: it may be another one, misspelt.

    No error: its name may be in DNS.
    """
    hosts, given = definition.hosts.groups.get("all", []), definition.hosts.vars
    # `ansible_connection: local` is this machine, which needs none.
    reached = ("ansible_host", "ansible_connection")
    without = [host for host in hosts if not any(name in given.get(host, {}) for name in reached)]
    if len(hosts) < 3 or len(without) != 1:  # of two, one is no rule
        return
    (host,) = without
    # Hosts of one kind differ in their numbers.
    others = [name for name in hosts if _without_digits(name) != _without_digits(host)]
    near = nearest(host, others, _LIKE_HOST)
    remedy = f'did you mean "{near}"? If not, give it one' if near else "give it one"
    yield f"hosts.yml: {host} has no ansible_host, which all other hosts have; {remedy}"


def _without_digits(name: str) -> str:
    return re.sub("[0-9]+", "", name)


def _people(definition: Definition) -> Iterator[str]:
    """Nobody at all, or people whose jobs SLURM refuses.

    No errors: a cluster may be raised before its people are known, and not everybody runs jobs.
    """
    cluster = definition.cluster
    present = [n for n, person in cluster.users.people.items() if person.state == "present"]
    for name, account in cluster.accounts.items():
        left = [n for n in account.users if n in cluster.users.people and n not in present]
        if left:
            yield (
                f"accounts.{name}.users: {', '.join(left)} can charge nothing to it, since their "
                "`state` is absent; take them out"
            )
    if not present:
        if cluster.cloud is None:  # in the cloud another warning says so
            yield (
                "users.people: nobody but root can run jobs; describe people, or raise the cluster "
                "without them and add them later"
            )
        return
    # Without a database accounts mean nothing: jobs run without one.
    if definition.hosts.groups.get("database"):
        having = {user for account in cluster.accounts.values() for user in account.users}
        without = [name for name in present if name not in having]
        if without:
            yield (
                f"accounts: no account lists {_first_of(without)}, whose jobs SLURM refuses; add "
                "them to `users` of an account"
            )


def _reservations(cluster: Cluster) -> Iterator[str]:
    """Reservations for people who have all left: Muster leaves them out, and slurmctld keeps them.

    No errors: who leaves is one change, and one that is over keeps no nodes.
    """
    people = cluster.users.people
    for name, reservation in cluster.reservations.items():
        users = reservation.users
        if users and all(user in people and people[user].state == "absent" for user in users):
            yield (
                f"reservations.{name}.users: the `state` of {_first_of(users)} is absent, so no "
                "run makes or changes it; take it out, and if it is there remove it with "
                f"`scontrol delete ReservationName={name}` on the controller"
            )


def _unchosen_accounts(definition: Definition) -> Iterator[str]:
    """People in several accounts, of which the order of the file chooses the default one.

    No errors: `--account` may be the custom of the place.
    """
    people = definition.cluster.users.people
    having: dict[str, list[str]] = {}
    for name, account in definition.cluster.accounts.items():
        for user in account.users:
            person = people.get(user)
            if person and person.state == "present" and person.default_account is None:
                having.setdefault(user, []).append(name)
    first: dict[str, list[str]] = {}
    for user, accounts in having.items():
        if len(accounts) > 1:
            first.setdefault(accounts[0], []).append(user)
    for name, users in first.items():
        yield (
            f"users.people: jobs of {_first_of(users)} that name no account are charged to {name}, "
            "the first of several accounts that list them; say which with `default_account`"
        )


def _first_of(names: list[str]) -> str:
    """Names for a sentence, of many only the first."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _unbounded_jobs(definition: Definition) -> Iterator[str]:
    """People who can fill the queue, since nothing bounds their jobs.

    No error: `max_submit_jobs: null` says so.
    """
    if not definition.hosts.groups.get("database"):
        return
    free = sorted({user for _, user, _, bound in submit_bounds(definition) if bound is None})
    if free:
        yield (
            f"scheduling.max_submit_jobs: nothing bounds the jobs of {_first_of(free)}, "
            f"who can fill the queue's {queue_places(definition):,} places, and then all others "
            "are refused; give a number, or `max_submit_jobs` of an account"
        )


def _coordinators(cluster: Cluster) -> Iterator[str]:
    """Coordinators where they may be able to make themselves more.

    No error: the package may have the fix.
    """
    having = [name for name, account in cluster.accounts.items() if account.coordinators]
    if not having:
        return
    is_packaged = cluster.slurm_version == PACKAGED_SLURM[cluster.os]
    if is_packaged and cluster.os.startswith("ubuntu-"):
        yield (
            f"accounts.{having[0]}.coordinators: where slurmdbd lacks the fix of CVE-2025-43904 "
            "a coordinator can become an administrator of SLURM, and whether that of "
            f"{cluster.os} has it is not known; look for it in `apt changelog slurmdbd`, or take "
            "`coordinators` out"
        )
    elif not is_packaged and cluster.slurm_version < "23.11":
        yield (
            f"accounts.{having[0]}.coordinators: SchedMD has no fix of CVE-2025-43904 for SLURM "
            f"{cluster.slurm_version}, and without it a coordinator can become an administrator of "
            "SLURM; unless your packages have a fix of their own, take `coordinators` out"
        )


def _times_by_default(cluster: Cluster) -> Iterator[str]:
    """QoS whose jobs must ask for a time: what they get otherwise is beyond `max_wall`.

    No errors: people may be told so.
    """
    defaults = [partition.default_time for partition in cluster.partitions.values()]
    given = [(seconds(default), default) for default in defaults if default is not None]
    for name, qos in cluster.qos.items():
        wall = float("inf") if qos.max_wall is None else seconds(qos.max_wall)
        # Without a `default_time` they have what is allowed.
        if given and len(given) == len(defaults) and wall < min(given)[0]:
            what = "are refused" if qos.deny_on_limit else "wait for ever"
            yield (
                f"qos.{name}.max_wall: jobs that ask for no time have {min(given)[1]} or more, by "
                f"`default_time` of their partition, and {what}; lower that or raise `max_wall`, "
                "or tell people to use --time"
            )


def _times_by_limits(definition: Definition) -> Iterator[str]:
    """Partitions whose jobs must ask for a time: what limits give them otherwise is above max_time.

    No errors: people may be told so.
    """
    for name, partition in definition.cluster.partitions.items():
        most = seconds(partition.max_time)
        if partition.default_time is not None or most == float("inf"):
            continue
        longest = longest_wall(definition, partition)
        # SLURM does not lower it to max_time (_set_time_limit in acct_policy.c).
        if longest and longest[0] > most:
            yield (
                f"partitions.{name}.default_time: without it jobs that ask for no time have as "
                f"much as {longest[1]} by {longest[2]}, and what is above max_time "
                f"{partition.max_time} is refused; give one, or tell people to use --time"
            )


def _refused_by_default(definition: Definition) -> Iterator[str]:
    """A default partition where everybody must ask for a QoS.

    No error: people may be told so.
    """
    used = {default_of(definition, *one) for one in qos_of_users(definition)}
    for name, partition in definition.cluster.partitions.items():
        if partition.default and used and not any(takes(partition, one) for one in used):
            yield (
                f"partitions.{name}: jobs that name no partition and no QoS are refused, since the "
                f"default partition does not take {', '.join(sorted(used))}, by "
                f"`{'allow_qos' if partition.allow_qos else 'deny_qos'}`; take it there, give "
                "accounts another `default_qos`, or make another partition the default one"
            )


# Below it hardly a program starts; above it no machine is built.
_LEAST_MIB_PER_CPU, _MOST_MIB_PER_CPU = 64, 2**20
# CUDA alone takes hundreds of MiB of a process.
_LEAST_DEFAULT_MIB = {"memory_per_cpu_mib": _LEAST_MIB_PER_CPU, "memory_per_gpu_mib": 1024}


def _memory(cluster: Cluster) -> Iterator[str]:
    """Memory that was likely given in another unit."""
    for name, nodes in cluster.nodes.items():
        share = nodes.memory_mib // nodes.cpus
        unit = "GiB" if share < _LEAST_MIB_PER_CPU else "KiB"
        if isinstance(nodes, Machines) and not _LEAST_MIB_PER_CPU <= share <= _MOST_MIB_PER_CPU:
            yield (
                f"nodes.{name}.memory_mib: {nodes.memory_mib} MiB are {share} for each of "
                f"{nodes.cpus} CPUs; if you meant {unit}, write MiB, as `slurmd -C` says"
            )
    for name, partition in cluster.partitions.items():
        for key, least in _LEAST_DEFAULT_MIB.items():
            memory = getattr(partition, key)
            if memory is not None and memory < least:
                yield (
                    f"partitions.{name}.{key}: jobs that ask for no memory would have {memory} MiB "
                    "and hardly start a program; if you meant GiB, write MiB"
                )
        most = partition.max_memory_per_cpu_mib
        if most and most < _LEAST_MIB_PER_CPU:  # 0 is no limit
            yield (
                f"partitions.{name}.max_memory_per_cpu_mib: a job would get, and be charged for, "
                f"a CPU for each {most} MiB that it asks for; if you meant GiB, write MiB"
            )


def _other_pythons(cluster: Cluster) -> Iterator[str]:
    """Modules that are built by a Python which the system does not have.

    No errors: it may be installed in another way.
    """
    there = PYTHONS[cluster.os]
    for name, versions in cluster.software.modules.items():
        for version, content in versions.items():
            match = re.match(r"python(3\.\d+)\s", content.build or "")
            if match and content.built and match[1] != there:
                yield (
                    f"software.modules.{name}.{version}.build: {cluster.os} has Python {there} and "
                    f"no python{match[1]}; name the version {there} and build it with "
                    f"python{there}, or install the other first"
                )


def _plugins(definition: Definition) -> Iterator[str]:
    """Plugins of SLURM in packages that no role installs.

    No errors: they may be installed in another way.
    """
    for name, (plugin, package) in packages_of_plugins(definition).items():
        yield (
            f"slurm.{name}: SLURM does not start where {plugin} is missing, and Muster does not "
            f"install its package by itself; list {package} in `packages` of a module, which the "
            "controller, login and compute hosts get (docs/software.md), or install it there first"
        )


_OF_SHELLS = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][^{}]*\}|^~(?=/|$)")


def _shell_words(cluster: Cluster) -> Iterator[str]:
    """Variables and homes in values of modules, which only a shell would replace.

    No errors: the program that reads the value may.
    """
    for name, versions in cluster.software.modules.items():
        for version, content in versions.items():
            for variable, value in content.env.items():
                if match := _OF_SHELLS.search(value):
                    yield (
                        f"software.modules.{name}.{version}.env.{variable}: Lmod sets the text as "
                        f"it is, and nothing replaces {match[0]}; write a whole path, or leave it "
                        "to people, who can set it in their scripts"
                    )


def _cached_cephfs(cluster: Cluster) -> Iterator[str]:
    """FS-Cache behind CephFS, for which there are no reports from production."""
    cached = [key for key, folder in cluster.storage.of_kind("ceph").items() if folder.cached]
    if cached:
        yield (
            f"storage.{', storage.'.join(cached)}: FS-Cache behind CephFS is experimental; "
            "compare with `cached: false` before people rely on it"
        )


def _built_ceph(definition: Definition, ceph: Ceph) -> Iterator[str]:
    """Settings with which people's files can be lost or unavailable.

    No errors: a trial on one host has no other way.
    """
    groups = definition.hosts.groups
    hosts = groups.get("storage", [])
    named = dict.fromkeys(device for disks in ceph.devices.values() for device in disks)
    files = [device for device in named if not device.startswith("/dev/")]
    if files:
        yield (
            f"storage.ceph.devices: {', '.join(files)} is on another file system, slow and only "
            "for trials; name disks, by their slot below /dev/disk/by-path"
        )
    if ceph.copies == 1:
        yield (
            "storage.ceph.copies: with one copy a broken disk destroys all folders; say 3 for "
            "files that people need"
        )
    elif len(hosts) < ceph.copies:
        yield (
            f"storage.ceph.copies: {ceph.copies} copies on {counted(len(hosts), 'host')}: all "
            "folders are unavailable while one host is; put "
            f"{ceph.copies} hosts into the group `storage`"
        )
    elif len(hosts) < 3:
        yield (
            f"storage.ceph: {len(hosts)} hosts have one monitor, on {hosts[0]}, and all folders "
            "are unavailable while it is; put three hosts into the group `storage`"
        )
    yield from _disks_of_one_host(definition, ceph)
    others = {host for name in ("controller", "login", "compute") for host in groups.get(name, [])}
    both = [host for host in hosts if host in others]
    if both and ceph.client == "kernel":
        yield (
            f"storage.ceph.client: {', '.join(both)} would mount what its own disks hold, which "
            "can deadlock the kernel when memory is short; say `client: fuse`, or keep storage "
            "hosts out of other groups"
        )


def _disks_of_one_host(definition: Definition, ceph: Ceph) -> Iterator[str]:
    """Disks of several hosts by names that have a serial number in them.

    No errors: those of virtual machines may be alike.
    """
    for name, disks in ceph.devices.items():
        members = definition.hosts.groups.get(name, [])
        serial = [disk for disk in disks if disk.startswith("/dev/disk/by-id/")]
        if serial and len(members) > 1:
            yield (
                f"storage.ceph.devices.{name}: {', '.join(serial)} is likely on one of "
                f"{len(members)} hosts only; name disks by their slot (/dev/disk/by-path), or "
                "below the name of their host"
            )


def _without_cache(cluster: Cluster) -> Iterator[str]:
    """Nodes that mount cached folders without a cache.

    No error: many machine types, such as those of E2, can't have local SSDs.
    """
    cached = [key for key, folder in cluster.storage.mounted().items() if folder.cached]
    names = [
        name
        for name, nodes in cluster.nodes.items()
        if isinstance(nodes, VirtualMachines) and not nodes.caches
    ]
    if cached and names:
        yield (
            f"nodes.{', nodes.'.join(names)}: without local SSDs these nodes read "
            f"storage.{', storage.'.join(cached)} from the server each time; say `local_ssds` "
            "where the machine type takes it and jobs read much"
        )


def _own_folders(cluster: Cluster) -> Iterator[str]:
    """Folders that each VM has for itself, and loses with its disk.

    No errors: another image may mount them, as the demo's does.
    """
    own = [key for key, folder in cluster.storage.folders() if folder.kind == "existing"]
    if own:
        yield (
            f"storage.{', storage.'.join(own)}: Muster mounts nothing there, so each VM has its "
            "own folder that is deleted with the VM, unless something else mounts one: say "
            "`kind: nfs`"
        )


def _takes_sudo(key: str) -> bool:
    """Whether pam_ssh_agent_auth knows the kind of a key."""
    return not key.startswith("sk-")


def _entry(cluster: Cluster, cloud: Cloud) -> Iterator[str]:
    """Settings with which nobody can log in to a cluster in the cloud.

    No errors: a cluster may be raised before its people are known, and principals with a role in
    the whole project need not be in the definition.
    """
    people = [person for person in cluster.users.people.values() if person.state == "present"]
    with_key = [person for person in people if person.ssh_keys]
    if not with_key:
        yield (
            "nobody can log in: no person in users.people has an ssh key; add somebody's public "
            "key to ssh_keys"
        )
    elif not any(person.admin for person in with_key):
        yield (
            "nobody can be root on the VMs: no person with an ssh key has `admin: true`; give it "
            "to one"
        )
    elif not any(
        _takes_sudo(key) for person in with_key if person.admin for key in person.ssh_keys
    ):
        yield (
            "nobody can be root on the VMs: sudo takes no keys of security tokens (sk-...); give "
            "an administrator an ed25519 key too"
        )
    if not (cloud.iap_users or cloud.iap_admins or cloud.login.public_address):
        yield (
            "IAP only admits principals with a role in the whole project: name others in "
            "cloud.iap_users (login nodes) and cloud.iap_admins (the controller too)"
        )


def _partition_limits(definition: Definition) -> Iterator[str]:
    """An EnforcePartLimits by which sbatch takes jobs that can never start.

    No error: a site may lift `max_time` for some of them by hand.
    """
    if parameter_words(definition, "enforcepartlimits") & {"no", "down", "false", "0"}:
        yield (
            f"slurm.{parameter_name(definition, 'enforcepartlimits')}: a job that asks for more "
            "time than `max_time` of its partition waits for ever, and sbatch does not refuse it; "
            "take it out, or write ALL"
        )
