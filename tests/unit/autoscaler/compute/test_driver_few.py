"""Small groups don't wait where ten bulk operations are under way."""

from controllerkit import ZONE, Cloud
from edgekit import CHOICE, Edge, names, until

from muster.autoscaler.compute.http import Limits
from muster.autoscaler.reconcile.model import Insert, Inserted


def with_all_slots_taken(edge: Edge) -> None:
    """Let ten bulk operations of ten VMs each last."""
    edge.cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 4}
    for number in range(10):
        edge.google.submit(Insert(f"bulk-{number}", CHOICE, names(5, 100 + 5 * number), 1))
    until(lambda: edge.calls().get("instances.bulkInsert") == 10)
    assert edge.google.budget().bulk == 10


def test_a_pair_is_made_by_single_inserts(edge: Edge):
    with_all_slots_taken(edge)
    assert edge.insert(*names(2), least=2) == Inserted("request-1")
    assert edge.calls()["instances.insert"] == 2
    assert edge.names() >= set(names(2))
    assert len(edge.told(10)) == 10


def test_a_pair_of_which_one_has_no_room_is_taken_back(edge: Edge):
    with_all_slots_taken(edge)
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 51}
    event = edge.insert(*names(2), least=2)
    assert event.whole is not None
    assert event.whole.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    until(lambda: not edge.names() & set(names(2)))


def test_a_pair_of_which_one_stands_is_made(edge: Edge):
    edge.make("lab-debug-1")
    with_all_slots_taken(edge)
    assert edge.insert(*names(2), least=2) == Inserted("request-1")


def test_a_large_group_waits_for_its_turn(edge: Edge):
    with_all_slots_taken(edge)
    edge.google.submit(Insert("large", CHOICE, names(6), 6))
    events = edge.told(11)
    assert all(isinstance(each, Inserted) and each.whole is None for each in events)
    assert edge.calls() == {
        "instances.bulkInsert": 11,
        "zoneOperations.list": edge.calls()["zoneOperations.list"],
    }


def test_a_large_group_that_has_no_turn_was_not_sent(cloud: Cloud, edge: Edge):
    narrow = Edge(cloud, Limits(bulk_at_once=1, deadline_s=1))
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 60}
    narrow.google.submit(Insert("first", CHOICE, names(5), 1))
    until(lambda: narrow.google.budget().bulk == 1)
    narrow.google.submit(Insert("second", CHOICE, names(5, 5), 1))
    codes = {
        each.id: each.whole.code
        for each in narrow.told(2)
        if isinstance(each, Inserted) and each.whole
    }
    assert codes == {"first": "timeout", "second": "notSent"}
    narrow.google.close()
