"""How pytest-xdist distributes the tests of roles: one process for the machines of a release."""

from collections.abc import Sequence

from xdist.scheduler import LoadScopeScheduling


class ByRelease(LoadScopeScheduling):
    """Each process has the tests of one release's machines, which disturb each other."""

    def _split_scope(self, nodeid: str) -> str:
        return release_of(nodeid, self.config.option.hosts.split(","))


def release_of(nodeid: str, hostspecs: Sequence[str]) -> str:
    """Return the release of the machine that a test's id names; machines are RELEASE[-ROLE].

    The id itself where there is none: such a test needs no machine.
    """
    parameters = nodeid.partition("[")[2].removesuffix("]")
    names = [spec.partition("?")[0] for spec in hostspecs]
    matching = [name for name in names if f"-{name}-" in f"-{parameters}-"]
    return matching[0].rpartition("/")[2].partition("-")[0] if matching else nodeid
