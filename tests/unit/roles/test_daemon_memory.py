"""slurmctld and slurmdbd take what a stranger's message announces, 1 GiB for each connection."""

from pathlib import Path

import pytest

ROLES = Path(__file__).parents[3] / "roles"


@pytest.mark.parametrize(
    "drop_in", ["slurmctld.service.d/10-muster", "slurmdbd.service.d/50-muster"]
)
def test_a_daemon_that_is_fed_leaves_memory_to_others_and_starts_again(drop_in: str) -> None:
    role = drop_in.partition(".")[0]
    path = ROLES / role / f"templates/etc/systemd/system/{drop_in}.conf.j2"
    lines = set(path.read_text(encoding="utf-8").splitlines())
    assert lines >= {"MemoryMax=40%", "MemorySwapMax=0", "Restart=always"}
