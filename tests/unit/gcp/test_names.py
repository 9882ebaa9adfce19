"""Names within Google's limits, for the longest names that a definition may have."""

import re

from hypothesis import given
from hypothesis import strategies as st

from muster.definition import Cluster, Definition, Hosts
from muster.definition.schema import patterns
from muster.definition.schema.node_sets import VirtualMachines
from muster.gcp.names import Names, share_a_prefix

CLUSTERS = st.from_regex(patterns.CLUSTER_NAME, fullmatch=True)
SETS = st.from_regex(patterns.NODE_SET_NAME, fullmatch=True)
DIGEST = "0123456789abcdef" * 4
RESOURCE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def nodes(cluster: str, node_set: str) -> list[str]:
    """As many as a node set can have."""
    most = VirtualMachines(machine_type="n1-standard-2", max_nodes=5000)
    named = Cluster.model_construct(name=cluster, os="debian-12", nodes={node_set: most})
    return Definition(named, Hosts({})).hosts_of(node_set)


@given(CLUSTERS, SETS)
def test_names_fit(cluster: str, node_set: str):
    names = Names(cluster, "p" * 30)
    for name in (
        names.network,
        names.firewall("public-ssh"),
        names.controller,
        names.login(9),
        names.disk("models"),
        names.snapshots,
        names.builder(DIGEST),
        names.image(DIGEST, "abcdef"),
        nodes(cluster, node_set)[-1],
        names.bucket,
        names.template_prefix(node_set) + "1" * 26,
    ):
        assert RESOURCE.fullmatch(name), name
    for role in ("controller", "login", "node", "builder"):
        assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", names.account(role))
    assert re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", names.custom_role("operations", "abcdef"))


@given(CLUSTERS, SETS)
def test_what_rights_are_bound_to_begins_with_the_prefix(cluster: str, node_set: str):
    names = Names(cluster, "p")
    for name in (
        names.image(DIGEST, "ab"),
        names.template_prefix(node_set),
        *nodes(cluster, node_set),
    ):
        assert name.startswith(names.prefix)
    assert names.image(DIGEST, "ab").startswith(names.image_family)


def test_long_sets_with_one_beginning_have_their_own_templates():
    names = Names("c" * 19, "p")
    one, two = ("s" * 29 + end for end in "ab")
    assert names.template_prefix(one) != names.template_prefix(two)
    assert names.template_prefix("debug") == f"{'c' * 19}-debug-"


def test_a_project_of_an_organization_makes_a_bucket_name():
    assert Names("lab", "example.com:proj").bucket == "example-com-proj-lab-muster"


@given(CLUSTERS, CLUSTERS)
def test_two_clusters_share_a_prefix_if_one_s_rights_reach_the_other_s_names(one: str, other: str):
    first, second = Names(one, "p"), Names(other, "p")
    reaches = second.controller.startswith(first.prefix) or first.controller.startswith(
        second.prefix
    )
    # A cluster called like a VM of the other, "lab-controller" beside "lab", is no exception.
    assert share_a_prefix(one, other) == (one != other and reaches)
    assert share_a_prefix(one, f"{one}-gpu")
    assert not share_a_prefix(one, f"{one}s-gpu")
