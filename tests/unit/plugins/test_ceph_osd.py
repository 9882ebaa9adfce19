"""How devices become OSDs, and how one that was interrupted is completed; no cluster."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_osd.py"
SPEC = importlib.util.spec_from_file_location("ceph_osd", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_osd = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_osd)

FSID = "6f9a3c1e-0000-4000-8000-000000000001"
MAGIC = b"bluestore block device\n"
KEY = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="


class KilledError(Exception):
    """The run ended here."""


class Host:
    """Stands for AnsibleModule on a host with Ceph's programs."""

    check_mode = False

    def __init__(self, folder):
        self.folder = folder
        self.params = {"fsid": FSID, "devices": [], "file_gib": 1}
        self.known = []
        self.labels = {}
        self.commands = []
        self.killed_by = None

    def run(self, command, data=None):
        self.commands.append(command)
        if self.killed_by and self.killed_by in command:
            raise KilledError
        if command[0] == "ceph-authtool":
            return 0, f"{KEY}\n", ""
        if "new" in command:
            entry = (command[command.index("new") + 1], json.loads(data)["cephx_secret"])
            self.known = [*self.known, *([] if entry in self.known else [entry])]
            return 0, f"{self.known.index(entry)}\n", ""
        if command[0] == "ceph-osd":
            number = command[command.index("--id") + 1]
            path = (self.folder / f"osd/ceph-{number}/block").readlink()
            with path.open("r+b") as stream:
                stream.write(MAGIC)
            uuid = command[command.index("--osd-uuid") + 1]
            self.labels[str(path)] = {
                **{"osd_uuid": uuid, "ceph_fsid": FSID, "ready": "ready", "whoami": number},
                **{"osd_key": data},
            }
        if command[:2] == ["ceph-bluestore-tool", "show-label"]:
            return 0, json.dumps({command[-1]: self.labels[command[-1]]}), ""
        if command[:2] == ["ceph-bluestore-tool", "prime-osd-dir"]:
            for name in ("keyring", "whoami", "fsid"):
                (Path(command[command.index("--path") + 1]) / name).write_text("x")
        return 0, "", ""


@pytest.fixture
def host(tmp_path, monkeypatch, answered_by):
    monkeypatch.setattr(ceph_osd, "FOLDERS", str(tmp_path / "osd"))
    shared = ceph_osd.begun.__globals__
    monkeypatch.setitem(shared, "BEGUN", str(tmp_path))
    monkeypatch.setattr(shared["shutil"], "which", lambda name: name)
    monkeypatch.setattr(shared["shutil"], "chown", lambda *_: None)
    monkeypatch.setattr(ceph_osd, "own", lambda _: None)
    host = Host(tmp_path)
    answered_by(host.run, ceph_osd)
    return host


def provide(host, path):
    osds = ceph_osd.Osds(host)
    return osds.provide(str(path)), osds.lines


def test_a_file_becomes_an_osd_and_is_kept(host, tmp_path) -> None:
    path = tmp_path / "disk.img"
    assert provide(host, path) == (0, [f"{path}: make an OSD"])
    assert path.stat().st_size == 2**30
    host.commands.clear()
    assert provide(host, path) == (0, [])
    assert {command[0] for command in host.commands} == {"ceph-bluestore-tool"}


def test_the_key_is_in_no_argument_and_in_no_note_that_stays(host, tmp_path) -> None:
    provide(host, tmp_path / "disk.img")
    assert KEY not in json.dumps(host.commands)
    assert list(tmp_path.glob("muster-osd-*")) == []


@pytest.mark.parametrize("moment", ["new", "--mkfs", "prime-osd-dir"])
def test_an_interrupted_one_is_completed_under_its_own_id(host, tmp_path, moment) -> None:
    path = tmp_path / "disk.img"
    host.killed_by = moment
    with pytest.raises(KilledError):
        provide(host, path)
    (note,) = tmp_path.glob("muster-osd-*")
    assert note.stat().st_mode & 0o777 == 0o600
    host.killed_by = None
    assert provide(host, path)[0] == 0
    assert len(host.known) == 1
    assert not note.exists()


def test_a_lost_folder_is_filled_from_the_label(host, tmp_path) -> None:
    path = tmp_path / "disk.img"
    provide(host, path)
    folder = tmp_path / "osd/ceph-0"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert provide(host, path) == (0, [f"{folder}: fill it from the label of {path}"])
    assert (folder / "block").readlink() == path
    assert len(host.known) == 1


def test_a_device_that_got_another_name_is_followed(host, tmp_path) -> None:
    path = tmp_path / "disk.img"
    provide(host, path)
    moved = path.rename(tmp_path / "moved.img")
    host.labels[str(moved)] = host.labels.pop(str(path))
    assert provide(host, moved)[0] == 0
    assert (tmp_path / "osd/ceph-0/block").readlink() == moved


def test_a_check_only_says_it(host, tmp_path) -> None:
    host.check_mode = True
    path = tmp_path / "disk.img"
    assert provide(host, path) == (None, [f"{path}: make an OSD"])
    assert not path.exists()
    assert host.known == []


def test_a_file_with_data_is_refused(host, tmp_path) -> None:
    path = tmp_path / "disk.img"
    path.write_text("precious\n" * 1000)
    with pytest.raises(ceph_osd.DeviceError, match="holds data"):
        provide(host, path)
    assert host.known == []
