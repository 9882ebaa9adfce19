"""Which hosts and devices a Ceph cluster is made of; devices are loop devices' files here."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_host.py"
SPEC = importlib.util.spec_from_file_location("ceph_host", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_host = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_host)

FSID = "6f9a3c1e-0000-4000-8000-000000000001"
OTHER = "6f9a3c1e-0000-4000-8000-000000000002"
MAGIC = b"bluestore block device\n"


def label(fsid=FSID, **more):
    return {"osd_uuid": OTHER, "ceph_fsid": fsid, "ready": "ready", "whoami": "3", **more}


class Programs:
    """Answers of `ceph-bluestore-tool`, `blkid` and, as lvm2 2.03 does, `lvs`."""

    def __init__(self):
        self.label = None
        self.blkid = 2, "", ""
        self.volumes = []
        self.lvs_code = 0

    def run(self, command):
        if command[0] == "blkid":
            return self.blkid
        if command[0] == "lvs":
            rows = [{"lv_tags": text, "devices": f"{path}(0)"} for text, path in self.volumes]
            return self.lvs_code, json.dumps({"report": [{"lv": rows}]}), "lock failed"
        return 0, json.dumps({command[-1]: self.label}), ""


@pytest.fixture(autouse=True)
def programs(monkeypatch, answered_by):
    """Ceph is installed."""
    monkeypatch.setattr(ceph_host.Device.read_label.__globals__["shutil"], "which", lambda _: "/x")
    programs = Programs()
    answered_by(programs.run)
    return programs


def refused(path):
    device = ceph_host.Device(str(path), FSID)
    with pytest.raises(ceph_host.DeviceError) as caught:
        device.refuse()
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ""),
        (f"[global]\nfsid = {FSID}\n", ""),
        (f"[global]\n\tfsid={FSID.upper()}\n", ""),
        (f"[global]\nfsid = {OTHER}\n", f"is of the cluster {OTHER}, and this is cluster {FSID}"),
        ("[global]\nmon_host = 192.0.2.1\n", "is without fsid, and this is"),
    ],
)
def test_whose_host_it_is_stands_in_ceph_conf(text, said) -> None:
    refusal = ceph_host.refusal_of_conf(text, FSID)
    assert said in refusal
    assert bool(refusal) == bool(said)


def test_an_osd_of_this_cluster_is_kept(programs, tmp_path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(MAGIC)
    programs.label = label()
    device = ceph_host.Device(str(path), FSID)
    device.refuse()
    assert device.osd == 3


def test_an_osd_of_another_cluster_is_refused(programs, tmp_path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(MAGIC)
    programs.label = label(OTHER)
    said = refused(path)
    assert said.startswith(f"{path} holds an OSD of cluster {OTHER}, so no OSD is made of it; ")


def test_an_osd_that_was_never_completed_is_refused_unless_it_was_begun_here(
    programs, tmp_path, monkeypatch
) -> None:
    path = tmp_path / "disk"
    path.write_bytes(MAGIC)
    programs.label = {"osd_uuid": OTHER, "description": "main"}
    assert "an OSD of cluster (not told)" in refused(path)
    monkeypatch.setitem(ceph_host.Device.refuse.__globals__, "BEGUN", str(tmp_path))
    note = Path(ceph_host.Device.refuse.__globals__["note_path"](str(path)))
    note.write_text(json.dumps({"uuid": OTHER, "key": "x"}))
    device = ceph_host.Device(str(path), FSID)
    device.refuse()
    assert device.osd is None


def test_a_file_with_data_is_refused_and_a_sparse_one_is_not(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("precious\n" * 1000)
    assert refused(path).startswith(f"{path} holds data, so no OSD is made of it; remove the file")
    path.unlink()
    ceph_host.Device(str(path), FSID).refuse()
    with path.open("wb") as stream:
        stream.truncate(2**20)
    ceph_host.Device(str(path), FSID).refuse()


def test_a_folder_is_no_disk(tmp_path) -> None:
    assert refused(tmp_path).startswith(f"{tmp_path} holds what is neither a disk nor a file")


def test_a_device_that_is_not_there_is_named_with_what_to_do() -> None:
    assert refused("/dev/disk/by-id/none").startswith("/dev/disk/by-id/none: no such device; name")


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        ((0, "DEVNAME=/dev/x\nTYPE=ext4\n", ""), "ext4 (blkid --probe)"),
        ((0, "PTTYPE=gpt\n", ""), "gpt (blkid --probe)"),
        ((0, "TYPE=LVM2_member\n", ""), "LVM2_member (blkid --probe)"),
        ((8, "", "ambivalent result"), "what blkid can't tell (ambivalent result)"),
        ((2, "", ""), ""),
    ],
)
def test_what_libblkid_finds_is_said(programs, tmp_path, answer, held) -> None:
    programs.blkid = answer
    device = ceph_host.Device(str(tmp_path / "disk"), FSID)
    assert device.signature() == held


def test_data_of_an_unknown_kind_counts(tmp_path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(5000) + b"x")
    assert ceph_host.Device(str(path), FSID).data() == "data of an unknown kind"
    path.write_bytes(bytes(2**20) + b"beyond")
    assert ceph_host.Device(str(path), FSID).data() == ""


def test_all_reasons_are_said_at_once(tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    paths = [str(tmp_path / "a"), str(link), "/home/disk", "/dev/none"]
    said = list(ceph_host.refusals(FSID, paths))
    assert any("are one and the same device; name it once" in line for line in said)
    assert any(line.startswith("/home/disk: Ceph's daemons can't see") for line in said)
    assert any(line.startswith("/dev/none: no such device") for line in said)


def test_the_module_says_so_in_one_sentence(run_module) -> None:
    done = run_module("ceph_host", {"fsid": FSID, "name": "s1", "devices": ["/dev/none"]})
    assert done["msg"].startswith("/dev/none: no such device")


def test_a_fresh_host_has_nothing_of_it(run_module, tmp_path) -> None:
    given = {"fsid": FSID, "name": "s1", "devices": [str(tmp_path / "disk.img")]}
    # In a folder that daemons see, were it the host's own.
    said = run_module("ceph_host", {**given, "devices": ["/srv/ceph/disk.img"]})
    assert (said["monitor"], said["osds"], said["changed"]) == (False, [], False)
    assert "daemons can't see this folder" in run_module("ceph_host", given)["msg"]


# -- cephadm: all of a disk is LVM's, and tags of the volume say what it is -----------------------

LVM = bytes(512) + b"LABELONE" + bytes(1024)


def tags(fsid=FSID, **more):
    pairs = {"ceph.cluster_fsid": fsid, "ceph.osd_id": "5", "ceph.type": "block", **more}
    return ",".join(f"{key}={value}" for key, value in pairs.items())


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A file that counts as a disk, with LVM's label."""
    path = tmp_path / "sdb"
    path.write_bytes(LVM)
    shared = ceph_host.Device.read_label.__globals__
    monkeypatch.setitem(shared, "stat_is_block", lambda _: True)
    return path


def volume(path):
    """The disk as cephadm takes it; tests may not make one below /dev."""
    device = ceph_host.Volume(str(path), FSID)
    device.is_file = False
    return device


def test_cephadm_s_osd_of_this_cluster_is_kept(programs, disk) -> None:
    programs.volumes = [(tags(OTHER), "/dev/sdz"), (tags(), disk)]
    device = volume(disk)
    device.refuse()
    assert device.osd == 5


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (tags(OTHER), f"an OSD of cluster {OTHER}"),
        ("", "LVM2_member (blkid --probe)"),
        ("theirs=x", "LVM2_member (blkid --probe)"),
        (tags(**{"ceph.type": "db"}), "LVM2_member (blkid --probe)"),
    ],
)
def test_a_volume_of_anybody_else_is_refused(programs, disk, text, held) -> None:
    programs.volumes = [(text, disk)]
    programs.blkid = 0, "TYPE=LVM2_member\n", ""
    with pytest.raises(ceph_host.DeviceError) as said:
        volume(disk).refuse()
    assert str(said.value).startswith(f"{disk} holds {held}, so no OSD is made of it; ")


def test_an_osd_of_the_packages_is_no_volume(disk) -> None:
    disk.write_bytes(MAGIC)
    with pytest.raises(ceph_host.DeviceError, match=r"an OSD of cluster \(not told\)"):
        volume(disk).refuse()


def test_lvm_that_does_not_answer_is_no_blank_disk(programs, disk) -> None:
    programs.lvs_code = 5
    with pytest.raises(ceph_host.DeviceError, match="lvs: lock failed; fix LVM"):
        volume(disk)


def test_a_file_is_no_disk_for_cephadm(run_module) -> None:
    given = {"fsid": FSID, "name": "s1", "devices": ["/srv/ceph/a.img"], "cephadm": True}
    said = run_module("ceph_host", given)["msg"]
    assert said.startswith("/srv/ceph/a.img is no disk, and cephadm makes OSDs of disks alone")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(ceph_host, "STATE", str(tmp_path))
    return tmp_path


def test_the_one_way_does_not_take_the_other_s_cluster(state) -> None:
    assert list(ceph_host.refusals_of_state(FSID, cephadm=True)) == []
    (state / "mon/ceph-s1").mkdir(parents=True)
    assert list(ceph_host.refusals_of_state(FSID, cephadm=False)) == []
    (said,) = ceph_host.refusals_of_state(FSID, cephadm=True)
    assert said.startswith(f"{state}/mon/ceph-s1: the distribution's packages run this cluster")
    assert "take `image` out" in said


def test_nor_do_the_packages_take_cephadm_s(state) -> None:
    (state / FSID).mkdir()
    assert list(ceph_host.refusals_of_state(FSID, cephadm=True)) == []
    (said,) = ceph_host.refusals_of_state(FSID, cephadm=False)
    assert said.startswith(f"{state}/{FSID}: cephadm runs this cluster here")


def test_a_host_of_another_cluster_of_cephadm_is_refused(state) -> None:
    (state / OTHER).mkdir()
    (state / "crash").mkdir()
    for cephadm in (True, False):
        (said,) = ceph_host.refusals_of_state(FSID, cephadm=cephadm)
        assert said.startswith(f"{state}/{OTHER} is of the cluster {OTHER}")


def test_a_monitor_is_looked_for_where_its_way_has_it() -> None:
    assert ceph_host.folder_of_monitor(FSID, "s1", True) == f"/var/lib/ceph/{FSID}/mon.s1"
    assert ceph_host.folder_of_monitor(FSID, "s1", False) == "/var/lib/ceph/mon/ceph-s1"
