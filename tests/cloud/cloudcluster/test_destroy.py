"""`pulumi destroy` of a cluster with running nodes."""

import pytest

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.site import PulumiError, Stack


def test_destroy_is_refused_and_then_leaves_nothing(
    first_up: str,
    before: set[tuple[str, str, str]],
    stack: Stack,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tour.run(stack, "srun hostname")
    assert tour.nodes(stack)
    with pytest.raises(PulumiError):
        stack.show("destroy")
    assert "protect" in capfd.readouterr().out
    assert tour.nodes(stack), "a refused destroy has destroyed something"
    stack.release_state()
    stack.show("destroy")
    assert stack.instances() == {}
    assert tour.held(stack) - before == set()
