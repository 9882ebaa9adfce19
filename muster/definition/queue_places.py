"""How many jobs SLURM's queue must hold, from what people may submit."""

from collections.abc import Iterator

from muster.definition.definition import Definition

LEAST = 20_000
"""Ten people with all that `max_submit_jobs` lets them have."""
MOST = 100_000
"""slurmctld keeps each job in memory, and looks at all of them."""
_STEP = 10_000
"""slurmctld restarts for another size, so not for each person."""


def submit_bounds(definition: Definition) -> Iterator[tuple[str, str, int | None]]:
    """Account, user and how many jobs the user may have in it; None: no bound.

    SLURM looks at the user's association first, then at the accounts upwards; the uppermost has
    `scheduling.max_submit_jobs`.
    """
    cluster = definition.cluster
    people = cluster.users.people
    for name, account in cluster.accounts.items():
        for user in account.users:
            if user in people and people[user].state == "absent":
                continue
            own = account.associations.get(user)
            bound = own.max_submit_jobs if own else None
            here: str | None = name
            seen: set[str] = set()
            while bound is None and here in cluster.accounts and here not in seen:
                seen.add(here)
                bound = cluster.accounts[here].max_submit_jobs
                here = cluster.accounts[here].parent
            yield name, user, cluster.scheduling.max_submit_jobs if bound is None else bound


def queue_places(definition: Definition) -> int:
    """Return MaxJobCount: a place for each job that people may have, between two bounds."""
    wanted = sum(bound or 0 for _, _, bound in submit_bounds(definition))
    return min(max(-(-wanted // _STEP) * _STEP, LEAST), MOST)
