"""One resource, many names: the policies that apply to it, and its attributes in conditions."""

import pytest

from muster_sandbox.fakecloud import Cloud, resource_names

P = "projects/demo-project"
N = "projects/123456789012"
GOOGLE = "https://www.googleapis.com/compute/v1"
ZONE = "zones/z"
# Name, canonical name, levels below the project (None: itself), resource.type (None: not looked
# at), resource.name in conditions (None: the canonical one).
Case = tuple[str, str, list[str] | None, str | None, str | None]
CASES: list[Case] = [
    (P, P, [], "cloudresourcemanager.googleapis.com/Project", P),
    (N, P, [], "cloudresourcemanager.googleapis.com/Project", P),
    *[
        (
            name,
            f"{P}/{ZONE}/instances/i",
            [f"{P}/{ZONE}/instances/i"],
            "compute.googleapis.com/Instance",
            f"{P}/{ZONE}/instances/i",
        )
        for name in (
            f"{P}/{ZONE}/instances/i",
            f"{N}/{ZONE}/instances/i",
            f"{ZONE}/instances/i",
            f"{GOOGLE}/{P}/{ZONE}/instances/i",
        )
    ],
    *[
        (f"{P}/global/{collection}/x", f"{P}/global/{collection}/x", None, kind, None)
        for collection, kind in (
            ("images", "compute.googleapis.com/Image"),
            ("instanceTemplates", "compute.googleapis.com/InstanceTemplate"),
            ("snapshots", "compute.googleapis.com/Snapshot"),
            ("firewalls", "compute.googleapis.com/Firewall"),
        )
    ],
    (f"{P}/global/images/family/f", f"{P}/global/images/f", None, None, None),
    (f"{P}/{ZONE}/disks/d", f"{P}/{ZONE}/disks/d", None, "compute.googleapis.com/Disk", None),
    # No attributes in conditions: these can only be granted on themselves or the whole project.
    (f"{P}/regions/r/subnetworks/s", f"{P}/regions/r/subnetworks/s", None, "", ""),
    (f"{P}/regions/r/resourcePolicies/s", f"{P}/regions/r/resourcePolicies/s", None, "", ""),
    (f"{P}/global/networks/n", f"{P}/global/networks/n", None, "", ""),
    (
        "projects/-/serviceAccounts/a@b.c",
        f"{P}/serviceAccounts/a@b.c",
        [f"{P}/serviceAccounts/a@b.c"],
        "",
        "",
    ),
    (
        f"{P}/serviceAccounts/a@b.c/keys/k",
        f"{P}/serviceAccounts/a@b.c",
        [f"{P}/serviceAccounts/a@b.c"],
        "",
        "",
    ),
    (
        "projects/-/serviceAccounts/default",
        f"{P}/serviceAccounts/123456789012-compute@developer.gserviceaccount.com",
        None,
        "",
        "",
    ),
    (
        "projects/_/buckets/b",
        "projects/_/buckets/b",
        ["projects/_/buckets/b"],
        "storage.googleapis.com/Bucket",
        "projects/_/buckets/b",
    ),
    (
        "projects/_/buckets/b/objects/projects/x/y",
        "projects/_/buckets/b/objects/projects/x/y",
        ["projects/_/buckets/b"],
        "storage.googleapis.com/Object",
        "projects/_/buckets/b/objects/projects/x/y",
    ),
    (
        f"{P}/secrets/s",
        f"{P}/secrets/s",
        [f"{P}/secrets/s"],
        "secretmanager.googleapis.com/Secret",
        f"{N}/secrets/s",
    ),
    (
        f"{N}/secrets/s/versions/latest",
        f"{P}/secrets/s/versions/latest",
        [f"{P}/secrets/s"],
        "secretmanager.googleapis.com/SecretVersion",
        f"{N}/secrets/s/versions/latest",
    ),
    (
        f"{P}/iap_tunnel/zones/z/instances/i",
        f"{P}/iap_tunnel/zones/z/instances/i",
        [
            f"{P}/iap_tunnel/zones/z/instances/i",
            f"{P}/iap_tunnel/zones/z",
            f"{P}/iap_tunnel",
        ],
        "iap.googleapis.com/TunnelInstance",
        f"{N}/iap_tunnel/zones/z/instances/i",
    ),
    (
        f"{P}/iap_tunnel/zones/z",
        f"{P}/iap_tunnel/zones/z",
        [f"{P}/iap_tunnel/zones/z", f"{P}/iap_tunnel"],
        "iap.googleapis.com/TunnelZone",
        f"{N}/iap_tunnel/zones/z",
    ),
    (
        f"{P}/iap_tunnel",
        f"{P}/iap_tunnel",
        [f"{P}/iap_tunnel"],
        "iap.googleapis.com/Tunnel",
        f"{N}/iap_tunnel",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_name(fake: Cloud, case: Case):
    name, canonical, levels, kind, shown = case
    assert resource_names.canonical(fake, name) == canonical
    assert resource_names.canonical(fake, canonical) == canonical
    assert resource_names.levels(fake, canonical) == [
        *([canonical] if levels is None else levels),
        P,
    ]
    seen = resource_names.attributes(fake, canonical)
    if kind is not None:
        assert seen["resource.type"] == kind
        assert seen["resource.service"] == kind.partition("/")[0]
        assert seen["resource.name"] == (canonical if shown is None else shown)
