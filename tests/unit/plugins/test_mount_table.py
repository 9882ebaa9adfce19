"""Which folders count as not mounted though they should be, and what is said of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.muster.slurm.plugins.module_utils import mount_table
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import not_mounted

UNIT = "[Mount]\nWhat=s:/x\nWhere=/x\n"


def mount(path: str, kind: str = "nfs4") -> str:
    """Return a line of the kernel's table."""
    return f"95 26 0:51 / {path} rw,nosuid - {kind} s:/x rw,hard\n"


class Host:
    """Its tables, and the folders of its units."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table, self.fstab = folder / "mountinfo", folder / "fstab"
        self.units, self.runtime = folder / "etc", folder / "run"
        self.settings = folder / "file-systems.json"
        self.table.write_text(mount("/", "ext4"))

    def enable(self, name: str, wants: str = "remote-fs.target.wants") -> Path:
        """Write a unit and have a boot start it."""
        path = self.units / name
        link = self.units / wants / name
        link.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(UNIT)
        link.symlink_to(path)
        return path


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(mount_table, "MOUNTINFO", str(made.table))
    monkeypatch.setattr(mount_table, "FSTAB", str(made.fstab))
    monkeypatch.setattr(mount_table, "FILE_SYSTEMS", str(made.settings))
    monkeypatch.setattr(mount_table, "UNITS", (str(made.units), str(made.runtime)))
    return made


def said(path: str, file: Path, command: str) -> str:
    return (
        f"{path} is not mounted, though {file} says that it should be, and what is written there "
        f"now would be hidden later; run `{command}`, then this again"
    )


@pytest.mark.parametrize("path", ["/noapps", "/noapps/software/x"])
def test_what_fstab_mounts_is_refused_while_it_is_not_mounted(host: Host, path: str) -> None:
    host.fstab.write_text("# a comment\n\ns:/apps\t/noapps/ nfs  defaults,_netdev 0 0\n")
    assert not_mounted(path) == said("/noapps", host.fstab, "mount /noapps")
    host.table.write_text(host.table.read_text() + mount("/noapps"))
    assert not_mounted(path) is None


@pytest.mark.parametrize(
    "line",
    [
        "# s:/apps /noapps nfs defaults 0 0",
        "#s:/apps /noapps nfs defaults 0 0",
        "s:/apps /noapps nfs rw,noauto 0 0",
        "/dev/sdb1 none swap sw 0 0",
        "/dev/sdb1 /noapps swap sw 0 0",
        "s:/apps none nfs defaults 0 0",
        "s:/apps /noappsandmore nfs defaults 0 0",
        "s:/apps /noapps/deeper/x nfs defaults 0 0",
        "s:/apps",
    ],
)
def test_what_no_boot_mounts_there_is_not_asked_for(host: Host, line: str) -> None:
    host.fstab.write_text(f"{line}\n")
    assert not_mounted("/noapps/deeper") is None


@pytest.mark.parametrize(
    "line",
    [
        "s:/apps /noapps nfs noauto,x-systemd.automount 0 0",
        "s:/apps /noapps nfs nofail 0 0",
        "/srv/apps /noapps none bind 0 0",
        "s:/apps /noapps nfs",
    ],
)
def test_an_automount_and_a_bind_mount_count(host: Host, line: str) -> None:
    host.fstab.write_text(f"{line}\n")
    assert not_mounted("/noapps") == said("/noapps", host.fstab, "mount /noapps")


def test_of_mounts_inside_others_the_innermost_counts(host: Host) -> None:
    host.fstab.write_text("s:/a /noapps nfs rw 0 0\ns:/b /noapps/inner nfs rw 0 0\n")
    host.table.write_text(mount("/noapps"))
    assert not_mounted("/noapps/inner/x") == said(
        "/noapps/inner", host.fstab, "mount /noapps/inner"
    )
    assert not_mounted("/noapps/other") is None
    # By hand, in a folder that is not mounted itself.
    host.table.write_text(mount("/noapps/inner"))
    assert not_mounted("/noapps/inner/x") is None
    assert not_mounted("/noapps/other") is not None


@pytest.mark.parametrize(
    "strange", ["\N{NO-BREAK SPACE}", "\x1f", "\r", "\x85", "\N{LINE SEPARATOR}", "\udcff"]
)
def test_a_mount_with_a_strange_name_hides_no_other(host: Host, strange: str) -> None:
    """People name mounts and, with FUSE, types and sources; the kernel writes an empty source."""
    path, kind = f"/tmp/..{strange}x", f"fuse.x{strange}"
    row = f"95 26 0:51 / {path}\\040y rw,nosuid - {kind}  rw,user_id=20077\n"
    host.table.write_bytes(os.fsencode(row + mount("/noapps")))
    table = mount_table.read_table()
    assert mount_table.mounted(table) == {
        f"{path} y": (kind, "", {"rw", "nosuid", "user_id=20077"}),
        "/noapps": ("nfs4", "s:/x", {"rw", "nosuid", "hard"}),
    }
    assert mount_table.automounts(table) == {}
    host.fstab.write_text("s:/apps /noapps nfs rw 0 0\n")
    assert not_mounted("/noapps/x") is None


def test_paths_are_read_as_the_tables_write_them(host: Host) -> None:
    host.fstab.write_text("s:/apps /no\\040my\\134apps nfs rw 0 0\n")
    path = "/no my\\apps"
    assert not_mounted(f"{path}/x") == said(path, host.fstab, f"mount '{path}'")
    host.table.write_text(mount("/no\\040my\\134apps"))
    assert not_mounted(f"{path}/x") is None


@pytest.mark.parametrize(
    ("unit", "path", "command"),
    [
        ("noapps.mount", "/noapps", "systemctl start noapps.mount"),
        ("noapps.automount", "/noapps", "systemctl start noapps.mount"),
        ("srv-no\\x2dapps.mount", "/srv/no-apps", "systemctl start 'srv-no\\x2dapps.mount'"),
        ("n\\xc3\\xb6-x.mount", "/n\u00f6/x", "systemctl start 'n\\xc3\\xb6-x.mount'"),
    ],
)
@pytest.mark.parametrize("wants", ["remote-fs.target.wants", "slurmd.service.requires"])
def test_what_an_enabled_unit_mounts_is_refused_while_it_is_not_mounted(
    host: Host, unit: str, path: str, command: str, wants: str
) -> None:
    file = host.enable(unit, wants)
    assert not_mounted(f"{path}/x") == said(path, file, command)
    host.table.write_text(mount(path))
    assert not_mounted(f"{path}/x") is None


def test_a_unit_that_no_boot_starts_asks_for_nothing(host: Host) -> None:
    host.units.mkdir()
    (host.units / "noapps.mount").write_text(UNIT)
    host.enable("noapps.service")
    # Of a unit that is removed the link may be left.
    host.enable("nogone.mount").unlink()
    assert not_mounted("/noapps") is None
    assert not_mounted("/nogone") is None


@pytest.mark.parametrize("folder", ["units", "runtime"])
def test_what_is_masked_is_meant_to_stay_away(host: Host, folder: str) -> None:
    host.fstab.write_text("s:/apps /noapps nfs rw 0 0\n")
    mask: Path = getattr(host, folder) / "noapps.mount"
    mask.parent.mkdir(exist_ok=True)
    mask.symlink_to(os.devnull)
    assert not_mounted("/noapps") is None
    link = host.units / "remote-fs.target.wants/noapps.mount"
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/bin/true")
    assert not_mounted("/noapps") is None


def test_an_automount_counts_when_entering_it_has_mounted_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = host.enable("noapps.automount")
    host.table.write_text(mount("/noapps", "autofs"))
    assert not_mounted("/noapps") == said("/noapps", file, "systemctl start noapps.mount")

    def enter(path: str, _: int) -> bool:
        assert path == "/noapps/."
        host.table.write_text(mount("/noapps", "autofs") + mount("/noapps"))
        return True

    monkeypatch.setattr(os, "access", enter)
    assert not_mounted("/noapps") is None


def test_a_link_counts_where_it_leads(host: Host) -> None:
    apps, link = host.folder / "apps", host.folder / "link"
    apps.mkdir()
    link.symlink_to(apps)
    host.fstab.write_text(f"s:/apps {apps} nfs rw 0 0\n")
    assert not_mounted(f"{link}/x") == said(str(apps), host.fstab, f"mount {apps}")


SERVICE = "muster-file-systems.service"
OF_MUSTER = {
    "mounts": [
        {"path": "/nohome/", "label": "muster-home", "size_gib": 3},
        {
            "path": "/nosrv/muster",
            "label": "muster-state",
            "device": "/dev/disk/by-id/google-state",
            "folders": [{"path": "/novar/lib/mysql", "owner": "mysql", "units": ["mariadb"]}],
        },
    ]
}
RESTART = "systemctl restart muster-file-systems"


@pytest.mark.parametrize("path", ["/nohome", "/nosrv/muster", "/novar/lib/mysql"])
def test_muster_s_own_file_systems_and_their_folders_are_refused_too(host: Host, path: str) -> None:
    host.settings.write_text(json.dumps(OF_MUSTER))
    host.enable(SERVICE, "local-fs.target.wants")
    assert not_mounted(f"{path}/x") == said(path, host.settings, RESTART)
    # A bind mount has a line as any other.
    host.table.write_text(host.table.read_text() + mount(path, "ext4"))
    assert not_mounted(f"{path}/x") is None
    # What is there already is not asked for by the others.
    assert not_mounted("/nosrv") is None


@pytest.mark.parametrize("mask", [False, True])
def test_without_their_service_no_boot_mounts_muster_s_file_systems(host: Host, mask: bool) -> None:
    """As docs/storage.md has an administrator go back: the settings stay."""
    host.settings.write_text(json.dumps(OF_MUSTER))
    if mask:
        host.enable(SERVICE)
        host.runtime.mkdir()
        (host.runtime / SERVICE).symlink_to(os.devnull)
    assert not_mounted("/nohome") is None


@pytest.mark.parametrize(
    "text", [None, "", '{"mounts": [', "[]", '{"mounts": ["/nohome"]}', '{"mounts": [{"path": 1}]}']
)
def test_damaged_settings_do_not_keep_the_role_from_writing_them(
    host: Host, text: str | None
) -> None:
    host.enable(SERVICE)
    if text is not None:
        host.settings.write_text(text)
    assert not_mounted("/etc/muster") is None
    assert not_mounted("/nohome") is None


def test_a_host_without_an_fstab_and_units_asks_for_nothing(host: Host) -> None:
    assert not_mounted("/noapps") is None


BARE = """
from ansible_collections.muster.slurm.plugins.module_utils import mount_table
mount_table.FSTAB = {fstab!r}
"""

WRITERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "people": lambda folder: {
        "groups": [],
        "people": [],
        "home_root": str(folder),
        "create_homes": True,
    },
    "group_folders": lambda folder: {"folders": [{"path": f"{folder}/x", "group": "root"}]},
    "software_build": lambda folder: {
        "installations": [{"root": f"{folder}/x", "build": f"mkdir {folder}/x"}]
    },
    "module_tree": lambda folder: {"path": f"{folder}/x", "cache": f"{folder}/cache", "files": {}},
    "managed_files": lambda folder: {"files": [{"dest": f"{folder}/x", "content": ""}]},
}


@pytest.mark.parametrize("module", WRITERS)
def test_no_module_writes_into_a_folder_that_is_not_mounted(
    run_module: Callable[..., Any], tmp_path: Path, module: str
) -> None:
    folder, fstab = tmp_path / "apps", tmp_path / "fstab"
    folder.mkdir()
    fstab.write_text(f"s:/apps {folder} nfs rw 0 0\n")
    before, given = BARE.format(fstab=str(fstab)), WRITERS[module](folder)
    done = run_module(module, given, before=before)
    assert done["failed"]
    assert done["msg"] == said(str(folder), fstab, f"mount {folder}")
    assert not [*folder.iterdir()]


def test_what_modules_point_to_may_be_away_as_nothing_is_written_there(
    run_module: Callable[..., Any], tmp_path: Path
) -> None:
    theirs, fstab = tmp_path / "matlab", tmp_path / "fstab"
    theirs.mkdir()
    fstab.write_text(f"s:/matlab {theirs} nfs rw 0 0\n")
    before = BARE.format(fstab=str(fstab))
    given = WRITERS["module_tree"](tmp_path / "apps") | {"watch": [str(theirs)]}
    done = run_module("module_tree", given, before=before, check=True)
    assert "is not mounted" not in done.printed


def test_a_check_only_warns_since_the_run_may_mount_it_before(
    run_module: Callable[..., Any], tmp_path: Path
) -> None:
    folder, fstab = tmp_path / "apps", tmp_path / "fstab"
    folder.mkdir()
    fstab.write_text(f"s:/apps {folder} nfs rw 0 0\n")
    before, given = BARE.format(fstab=str(fstab)), WRITERS["module_tree"](folder)
    done = run_module("module_tree", given, before=before, check=True)
    assert not done.result.get("failed")
    assert f"{folder} is not mounted, though {fstab} says" in done.printed
