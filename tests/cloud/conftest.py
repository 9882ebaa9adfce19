"""Fixtures that all tests of this folder have."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)

from muster.clouddemo.cli import engine_here
from muster.clouddemo.site import Site, Stack

RELEASES = {"bookworm": "10.214.80.0/20", "trixie": "10.214.96.0/20"}
"""Release -> network of its cluster."""


@pytest.fixture(scope="session")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stack]]:
    """Return the cluster of a release, raised by `pulumi up` when it is asked for first."""
    with ExitStack() as cleanup:
        stacks: dict[str, Stack] = {}

        def of(release: str) -> Stack:
            if release not in stacks:
                folder = tmp_path_factory.mktemp("site") / f"muster-cloud-{release}"
                site = Site(folder, release, RELEASES[release])
                site.create()
                server = cleanup.enter_context(site.cloud())
                stacks[release] = site.stack(engine_here(folder), server)
            return stacks[release]

        yield of
