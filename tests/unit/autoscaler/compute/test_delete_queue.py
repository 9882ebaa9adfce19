"""In which order deletions of a zone are sent."""

from driverkit import lost_vm

from muster.autoscaler.compute.delete import _Deletion, _Queue


def test_a_deletion_that_is_tried_again_does_not_wait_behind_new_ones() -> None:
    queue = _Queue()
    first = _Deletion(lost_vm(0), since=0)
    queue.put(0, first)
    assert queue.take(0, 10) == [first]
    for number in range(1, 1001):
        queue.put(1, _Deletion(lost_vm(number), since=1))
    assert first not in queue.take(1, 10)
    # Google had no answer to the first one; it may be sent again 2 s later.
    queue.put(2, first)
    assert first not in queue.take(1.9, 10)
    assert queue.take(2, 10)[0] is first
