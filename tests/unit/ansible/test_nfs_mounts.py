"""What the module nfs_mounts reads in the kernel's table, and how units are called."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/nfs_mounts.py"

# As /proc/self/mountinfo has it on Debian 12; the second mount of /home hides the first.
TABLE = """\
21 26 0:19 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 26 8:1 / /home rw,relatime shared:1 - ext4 /dev/sda1 rw
95 26 0:51 / /home rw,nosuid,nodev,noatime shared:52 - nfs4 storage1:/home rw,vers=4.2,hard,proto=tcp
97 26 0:52 / /srv/my\\040apps ro,nosuid - nfs4 storage1:/srv/apps rw,vers=4.2,soft,nocto
"""


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nfs_mounts", FILE)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/home", "home.mount"),
        ("/srv/data", "srv-data.mount"),
        ("/srv/home-1", r"srv-home\x2d1.mount"),
        ("/srv/a+b_c.d", r"srv-a\x2bb_c.d.mount"),
        ("/.apps", r"\x2eapps.mount"),
    ],
)
def test_a_unit_has_the_name_that_systemd_demands(module: ModuleType, path: str, unit: str) -> None:
    assert module.unit_name(path) == unit
    if shutil.which("systemd-escape"):
        said = subprocess.run(
            ["systemd-escape", "--path", "--suffix=mount", path],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        assert said.stdout.strip() == unit


def test_the_last_mount_of_a_path_is_the_one_that_counts(module: ModuleType) -> None:
    kind, source, options = module.mounted(TABLE)["/home"]
    assert (kind, source) == ("nfs4", "storage1:/home")
    assert {"rw", "noatime", "hard", "vers=4.2"} <= options


def test_a_mount_is_read_only_where_it_says_so_itself(module: ModuleType) -> None:
    options = module.mounted(TABLE)["/srv/my apps"][2]
    assert "ro" in options
    assert "rw" not in options


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ("rw,hard,vers=4.2,proto=tcp,nosuid,nodev,noatime", []),
        # The kernel tells these otherwise, or settles them with the first mount of a server.
        ("rw,hard,actimeo=60,nconnect=4", []),
        ("ro,hard,vers=4.1,nocto", ["ro", "vers=4.1", "nocto"]),
    ],
)
def test_a_mount_with_other_options_is_noticed(
    module: ModuleType, wanted: str, missing: list[str]
) -> None:
    assert module.missing_options(wanted, module.mounted(TABLE)["/home"][2]) == missing


def test_a_unit_says_what_to_mount_literally(module: ModuleType) -> None:
    text = module.unit_text(
        {"source": "s:/100%", "path": "/home", "type": "nfs4", "options": "rw,hard"}
    )
    assert "What=s:/100%%\n" in text
    assert "Options=rw,hard,retry=9\nTimeoutSec=600\n" in text
