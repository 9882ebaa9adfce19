"""The program that builds, and a folder for what it builds."""

import sys
from pathlib import Path

import pytest
from build_kit import LIBRARY, RUN, SERVICE, put


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Stand-ins for systemd's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    put(folder / "systemd-run", SERVICE)
    put(folder / "systemctl", f'echo "$@" >>{folder}/calls')
    return folder


@pytest.fixture
def command_line(tmp_path: Path, programs: Path) -> list[str]:
    path = f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin"
    return ["env", path, sys.executable, "-c", RUN, str(LIBRARY), str(tmp_path / "lock")]


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    folder = tmp_path / "apps"
    folder.mkdir()
    return folder
