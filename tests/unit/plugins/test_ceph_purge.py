"""What is ended of a cluster that cephadm runs; that of packages ends in tests/roles."""

import importlib.util
import json
from pathlib import Path

import pytest
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_purge.py"
SPEC = importlib.util.spec_from_file_location("ceph_purge", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_purge = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_purge)

FSID = "6f9a3c1e-0000-4000-8000-000000000001"
IMAGE = "quay.io/ceph/ceph:v19.2.3"


class FailedError(Exception):
    """What fail_json says."""


class Module:
    """Stands for AnsibleModule on a host with cephadm, of which no folder is left."""

    check_mode = False

    def __init__(self, *devices, active=False, systemd=True):
        devices = [str(path) for path in devices]
        self.params = {"fsid": FSID, "devices": devices, "image": IMAGE}
        self.active, self.systemd = active, systemd
        self.commands = []

    def fail_json(self, msg):
        raise FailedError(msg)

    def run(self, command, **_):
        self.commands.append(command)
        if command[0] == "lvs":
            tags = f"ceph.cluster_fsid={FSID},ceph.osd_id=5,ceph.type=block"
            rows = [{"lv_tags": tags, "devices": f"{self.params['devices'][0]}(0)"}]
            return 0, json.dumps({"report": [{"lv": rows}]}), ""
        if command[0] == "systemctl" and not self.systemd:
            return 1, "", "Failed to connect to bus\n"
        if command[:2] == ["systemctl", "show"]:
            return 0, "active\n" if self.active else "inactive\n", ""
        return 0, "", ""


@pytest.fixture
def purge_of(answered_by):
    """Return what makes a Purge of a module."""

    def make(module):
        answered_by(module.run, ceph_purge)
        return ceph_purge.Purge(module)

    return make


def test_daemons_end_before_anything_is_removed(purge_of) -> None:
    module = Module(active=True)
    purge = purge_of(module)
    purge.target()
    assert module.commands[1:] == [["systemctl", "stop", f"ceph-{FSID}.target"]]
    assert purge.lines == [f"ceph-{FSID}.target: end it"]


def test_what_does_not_run_is_not_ended(purge_of) -> None:
    module = Module()
    purge = purge_of(module)
    purge.target()
    assert purge.lines == []
    assert [command[1] for command in module.commands] == ["show"]


@pytest.mark.parametrize("step", ["units", "target"])
def test_nothing_is_removed_where_systemd_does_not_say_what_runs(purge_of, step) -> None:
    purge = purge_of(Module(systemd=False))
    with pytest.raises(RefusedError, match=r"`systemctl .* ended with 1; .*: Failed to connect"):
        getattr(purge, step)()


def test_an_osd_that_cephadm_left_is_told_in_each_run(purge_of, tmp_path, monkeypatch) -> None:
    disk = tmp_path / "sdb"
    disk.write_bytes(bytes(512) + b"LABELONE" + bytes(1024))
    monkeypatch.setattr(ceph_purge.Volume.read_label.__globals__["shutil"], "which", lambda _: "/x")
    with pytest.raises(FailedError, match=rf"{disk} still holds an OSD of this cluster"):
        purge_of(Module(disk)).cluster()
    disk.write_bytes(bytes(2048))
    purge = purge_of(Module(disk))
    purge.cluster()
    assert purge.lines == []
