"""How a monitor's store is made; Ceph's programs are stand-ins."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/ceph_monitor.py"
SPEC = importlib.util.spec_from_file_location("ceph_monitor", FILE)
assert SPEC is not None and SPEC.loader is not None
ceph_monitor = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ceph_monitor)

KEY = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="
MONITORS = [{"name": "s1", "address": "192.0.2.1"}, {"name": "s2", "address": "192.0.2.2"}]


class Host:
    """Stands for AnsibleModule."""

    def __init__(self, keyring=None):
        self.params = {"name": "s1", "fsid": "F", "monitors": MONITORS, "keyring": keyring}
        self.commands = []
        self.keyring = ""

    def run(self, command, **_):
        self.commands.append(command)
        if command[0] == "ceph-authtool":
            return 0, f"{KEY}\n", ""
        if command[0] == "monmaptool":
            Path(command[-1]).write_text("map")
        if command[0] == "ceph-mon":
            self.keyring = Path(command[command.index("--keyring") + 1]).read_text()
            Path(command[command.index("--mon-data") + 1]).mkdir()
        return 0, "", ""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setattr(ceph_monitor, "STORES", str(tmp_path))
    monkeypatch.setattr(ceph_monitor, "SCRATCH", str(tmp_path))
    monkeypatch.setattr(ceph_monitor.shutil, "chown", lambda *_: None)


@pytest.fixture
def made(answered_by):
    """Return `make(keyring)`: makes a store on a new host, which it returns."""

    def make(keyring=None):
        host = Host(keyring)
        answered_by(host.run, ceph_monitor)
        ceph_monitor.Maker(host).make()
        return host

    return make


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "[v2:192.0.2.1:3300,v1:192.0.2.1:6789]"),
        ("2001:db8::1", "[v2:[2001:db8::1]:3300,v1:[2001:db8::1]:6789]"),
    ],
)
def test_a_monitor_listens_by_both_versions_of_the_protocol(address, expected) -> None:
    assert ceph_monitor.addresses(address) == expected


def test_the_first_one_begins_with_a_new_key(made, tmp_path) -> None:
    host = made()
    assert host.keyring == f'[mon.]\n\tkey = {KEY}\n\tcaps mon = "allow *"\n'
    assert KEY not in str(host.commands)
    # Its store is in place, and nothing else is left.
    assert [path.name for path in tmp_path.iterdir()] == ["ceph-s1"]


def test_the_map_has_all_of_them(made) -> None:
    host = made()
    (command,) = (command for command in host.commands if command[0] == "monmaptool")
    words = " ".join(command)
    assert "--addv s1 [v2:192.0.2.1:3300,v1:192.0.2.1:6789]" in words
    assert "--addv s2 [v2:192.0.2.2:3300,v1:192.0.2.2:6789]" in words


def test_a_further_one_begins_with_the_key_of_the_others(made) -> None:
    host = made('[mon.]\n\tkey = theirs==\n\tcaps mon = "allow *"\n')
    assert "key = theirs==" in host.keyring
    assert not [command for command in host.commands if command[0] == "ceph-authtool"]


def test_what_a_killed_run_left_does_not_block(made, tmp_path) -> None:
    (tmp_path / "ceph-s1.new").mkdir()
    (tmp_path / "ceph-s1.new/half").write_text("")
    made()
    assert list((tmp_path / "ceph-s1").iterdir()) == []


def test_a_keyring_without_a_key_is_refused_and_not_shown() -> None:
    host = Host(keyring="[mon.]\n\tsecret\n")
    said = []

    def fail_json(msg: str) -> None:
        said.append(msg)
        raise SystemExit(1)

    host.fail_json = fail_json
    with pytest.raises(SystemExit):
        ceph_monitor.Maker(host).make()
    assert said == ["the keyring has no line `key = ...`; give one that has"]
