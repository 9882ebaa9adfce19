"""A `pulumi up` of Muster's own program is killed while it builds the image, and runs again."""

from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest
from clusterkit import CLUSTER, PROJECT, ZONE, items, names
from fake_guests import Script
from stackkit import Stack, name_of

from muster_sandbox.fakecloud.server import Server

pytestmark = pytest.mark.proof("two minutes of interrupted runs")

INSTANCES, IMAGES = f"{ZONE}/instances", f"{PROJECT}/global/images"
INSERT = "compute.images.insert"
LONG_S = 3600
"""Longer than any test: such an operation runs until the test ends it."""


@dataclass
class Killer:
    """Kills `up` at moments that it extends until then."""

    cluster: Stack
    script: Script
    fakecloud: Server
    outside: httpx.Client

    def while_builder_works(self) -> None:
        """The builder has reported nothing yet; another `up` is refused meanwhile."""
        self.fakecloud.do(lambda _: self.script.silent.add("builder"))

        def refuse_another() -> None:
            assert "locked" in self.cluster.up(fails=True).output

        self.kill(lambda: self.builder == "RUNNING", refuse_another)
        self.fakecloud.do(lambda _: self.script.silent.clear())

    def when_builder_is_done_and_on(self) -> None:
        """The builder has reported that it is done, and has not powered itself off yet."""
        self.fakecloud.do(lambda _: setattr(self.script, "stays_on", True))
        done_before = len(self.script.applied)
        self.kill(lambda: len(self.script.applied) > done_before)
        assert self.builder == "RUNNING"
        self.fakecloud.do(lambda _: setattr(self.script, "stays_on", False))

    def while_image_is_made(self) -> None:
        """The builder is off, and the image of its disk is not complete yet."""
        latency = self.fakecloud.cloud.settings.latency_seconds
        self.fakecloud.do(lambda _: latency.update({INSERT: LONG_S}))
        self.kill(lambda: bool(items(self.outside, IMAGES)))
        assert self.builder == "TERMINATED"
        assert [image["status"] for image in items(self.outside, IMAGES)] == ["PENDING"]
        self.fakecloud.do(lambda _: latency.pop(INSERT))

    @property
    def builder(self) -> str:
        """Status of the builder, the only VM; "" where there is none."""
        instances = items(self.outside, INSTANCES)
        assert len(instances) <= 1
        return instances[0]["status"] if instances else ""

    def kill(self, seen: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kill an `up` when `seen` is true and only the image and what needs it are not done."""
        with self.cluster.running("up", "--yes", "--skip-preview") as process:
            process.wait_for(lambda: seen() and self.under_way() == ["image"])
            meanwhile()
            process.kill()
        self.cluster.recover()

    def under_way(self) -> list[str]:
        """Names of the engine's pending operations."""
        return [name_of(item["resource"]["urn"]) for item in self.cluster.pending()]


@pytest.fixture
def killer(cluster: Stack, script: Script, fakecloud: Server, outside: httpx.Client) -> Killer:
    """The killer of the cluster's first `up`."""
    return Killer(cluster, script, fakecloud, outside)


def test_killed_again_and_again_the_next_up_goes_on(
    killer: Killer, cluster: Stack, outside: httpx.Client
):
    seen: set[str] = set()
    for kill in (
        killer.while_builder_works,
        killer.when_builder_is_done_and_on,
        killer.while_image_is_made,
    ):
        kill()
        (builder,) = items(outside, INSTANCES)
        assert builder["id"] not in seen, "the one of the killed `up` is swept"
        seen.add(builder["id"])
    (half,) = names(outside, IMAGES)

    done = cluster.up()
    assert f"deleting the instance {builder['name']}" in done.output
    assert f"deleting the image {half}" in done.output
    assert names(outside, INSTANCES) == [f"{CLUSTER}-controller", f"{CLUSTER}-login-0"]
    (image,) = items(outside, IMAGES)
    assert image["status"] == "READY"
    assert cluster.up().changes == []


@pytest.mark.parametrize("kill", [Killer.when_builder_is_done_and_on, Killer.while_image_is_made])
def test_killed_it_is_destroyed_and_leaves_nothing(
    kill: Callable[[Killer], None],
    killer: Killer,
    cluster: Stack,
    contents: Callable[[], set[tuple[str, str]]],
):
    before = contents()
    kill(killer)
    cluster.command("state", "unprotect", "--all", "--yes", "--stack", CLUSTER)
    cluster.destroy()
    assert contents() - before == set()
    assert cluster.resources() == {}
