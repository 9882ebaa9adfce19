"""How pytest-xdist distributes the tests of a role: one process for each machine."""

from collections.abc import Sequence

from xdist.scheduler import LoadScopeScheduling


class ByMachine(LoadScopeScheduling):
    """Each process has the tests of one machine, which disturb each other."""

    def _split_scope(self, nodeid: str) -> str:
        return machine_of(nodeid, self.config.option.hosts.split(","))


def machine_of(nodeid: str, hostspecs: Sequence[str]) -> str:
    """Return the hostspec without its query that a test's id begins its parameters with.

    The id itself where there is none: such a test needs no machine.
    """
    parameters = nodeid.partition("[")[2].removesuffix("]")
    specs = [spec.partition("?")[0] for spec in hostspecs]
    fitting = [spec for spec in specs if parameters == spec or parameters.startswith(f"{spec}-")]
    # One name may be the beginning of another: bookworm, bookworm-ctl.
    return max(fitting, key=len, default=nodeid)
