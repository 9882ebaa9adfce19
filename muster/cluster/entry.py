"""Whether somebody can enter a cluster in the cloud, which has no way in but its definition's."""

from collections.abc import Iterator

from muster.cluster.model import Cluster


def warnings(cluster: Cluster) -> Iterator[str]:
    """Sentences about what keeps everybody out, with a remedy each.

    No errors: a cluster may be raised before its people are known, and who has a role in the whole
    project needs no mention in the definition.
    """
    cloud = cluster.cloud
    if cloud is None:
        return
    people = [each for each in cluster.users.people.values() if each.state == "present"]
    with_key = [each for each in people if each.ssh_keys]
    if not with_key:
        yield (
            "nobody can log in: no person in users.people has an ssh key; add somebody's public "
            "key to ssh_keys"
        )
    elif not any(each.admin for each in with_key):
        yield (
            "nobody can be root on the VMs: no person with an ssh key has `admin: true`; give it "
            "to one"
        )
    if not (cloud.iap_users or cloud.iap_admins or cloud.login.public_address):
        yield (
            "IAP lets nobody through but those with a role in the whole project: name others in "
            "cloud.iap_users (login nodes) and cloud.iap_admins (the controller too)"
        )
