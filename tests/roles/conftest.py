"""Point testinfra at the hosts of the molecule scenario that runs.

By `podman://`, which needs 3 s where `ansible://` needs 36. Without molecule the hosts are named
on the command line: `pytest --hosts=podman://mol-munge-trixie tests/roles/test_munge.py`.
"""

import os
from pathlib import Path

import pytest
import yaml


def pytest_configure(config: pytest.Config) -> None:
    scenario = os.environ.get("MOLECULE_FILE")
    if scenario and not config.option.hosts:
        settings = yaml.safe_load(Path(scenario).read_text(encoding="utf-8"))
        name = settings["scenario"]["name"]
        config.option.hosts = ",".join(
            f"podman://mol-{name}-{platform['name']}" for platform in settings["platforms"]
        )
