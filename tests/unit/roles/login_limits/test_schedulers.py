"""What starts programs of people without a session, so outside of their slices, has limits."""

from pathlib import Path

import pytest
import yamlkit

ROLE = Path(__file__).parents[4] / "roles/login_limits"
LIMITS = {"CPUWeight=20", "MemoryMax=30%", "MemorySwapMax=0", "TasksMax=2000"}


@pytest.mark.parametrize("service", ["atd", "cron"])
def test_a_service_that_starts_programs_of_people_has_limits(service: str) -> None:
    """The role users keeps both from people on nodes; on login nodes at is theirs, as cron is."""
    path = f"etc/systemd/system/{service}.service.d/50-muster.conf"
    text = (ROLE / "templates" / f"{path}.j2").read_text(encoding="utf-8")
    assert set(text.splitlines()) >= LIMITS
    # systemd's default is to stop a service of which a program was ended.
    assert "OOMPolicy=continue" in text.splitlines()
    tasks = yamlkit.load((ROLE / "tasks/configure.yml").read_text(encoding="utf-8"))
    files = tasks[0]["muster.slurm.managed_files"]["files"]
    assert {"dest": f"/{path}", "template": f"{path}.j2"} in files
