"""When a cluster is made by cephadm, and what becomes of the keys in its log."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "ansible/plugins/modules/cephadm_bootstrap.py"
SPEC = importlib.util.spec_from_file_location("cephadm_bootstrap", FILE)
assert SPEC is not None and SPEC.loader is not None
cephadm_bootstrap = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cephadm_bootstrap)

FSID = "6f9a3c1e-0000-4000-8000-000000000001"
IMAGE = "quay.io/ceph/ceph:v19.2.3"
KEY = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="


class FailedError(Exception):
    """What fail_json says."""


class Module:
    """Stands for AnsibleModule on a host with cephadm and podman."""

    check_mode = False

    def __init__(self, folder):
        self.folder = folder
        self.params = {"fsid": FSID, "image": IMAGE, "address": "192.0.2.41", "user": "cephadm"}
        self.commands = []
        self.fails = ""
        self.configured = IMAGE
        self.images = {IMAGE: "one", "quay.io/ceph/ceph@sha256:12": "one"}

    def fail_json(self, msg):
        raise FailedError(msg)

    def run(self, command, **_):
        words = [word for word in command if word not in ("timeout", "900", "120")]
        self.commands.append(words)
        if words[0] == "podman":
            image = self.images.get(words[-1], "")
            return (0 if image else 125), f"{image}\n", ""
        if words[0] == "ceph":
            entry = {"section": "global", "name": "container_image", "value": self.configured}
            return 0, json.dumps([entry]), ""
        (self.folder / "log/cephadm.log").write_text(f"DEBUG ceph-authtool: stdout {KEY}\n")
        if self.fails in words:
            return 1, "", f"ERROR: no monitor; key {KEY}\n"
        state = self.folder / FSID
        if "rm-cluster" in words:
            state.rmdir()
        else:
            state.mkdir()
        return 0, "", ""

    @property
    def ran(self):
        """Subcommands of cephadm."""
        return [words[3] for words in self.commands if words[0] == "cephadm"]


@pytest.fixture
def module(tmp_path, monkeypatch, answered_by):
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(cephadm_bootstrap, "STATE", str(tmp_path))
    monkeypatch.setattr(cephadm_bootstrap, "BEGUN", str(tmp_path / "noted/begun"))
    monkeypatch.setattr(cephadm_bootstrap, "LOGS", str(tmp_path / "log/cephadm.log*"))
    shared = cephadm_bootstrap.Ceph.run.__globals__
    monkeypatch.setattr(shared["shutil"], "which", lambda name: name)
    module = Module(tmp_path)
    answered_by(module.run, cephadm_bootstrap)
    return module


def test_it_is_made_once(module) -> None:
    bootstrap = cephadm_bootstrap.Bootstrap(module)
    assert not bootstrap.is_made()
    bootstrap.make()
    assert bootstrap.is_made()
    assert module.ran == ["bootstrap"]


def test_it_has_no_dashboard_and_places_nothing_by_itself(module) -> None:
    cephadm_bootstrap.Bootstrap(module).make()
    (words,) = module.commands
    assert words[:3] == ["cephadm", "--image", IMAGE]
    assert {"--skip-dashboard", "--skip-monitoring-stack", "--orphan-initial-daemons"} < {*words}
    assert words[words.index("--fsid") + 1] == FSID
    assert words[words.index("--mon-ip") + 1] == "192.0.2.41"
    assert words[words.index("--ssh-user") + 1] == "cephadm"


def test_one_that_was_interrupted_is_removed_and_started_again(module) -> None:
    module.fails = "bootstrap"
    with pytest.raises(FailedError, match="the next run starts again"):
        cephadm_bootstrap.Bootstrap(module).make()
    (module.folder / FSID).mkdir()
    module.fails = ""
    bootstrap = cephadm_bootstrap.Bootstrap(module)
    assert not bootstrap.is_made()
    bootstrap.make()
    assert module.ran == ["bootstrap", "rm-cluster", "bootstrap"]
    assert bootstrap.is_made()


def test_keys_are_in_no_log_and_in_no_message(module) -> None:
    module.fails = "bootstrap"
    with pytest.raises(FailedError) as said:
        cephadm_bootstrap.Bootstrap(module).make()
    assert KEY not in str(said.value)
    assert "no monitor; key (a key)" in str(said.value)
    log = module.folder / "log/cephadm.log"
    assert log.read_text() == "DEBUG ceph-authtool: stdout (a key)\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert KEY not in json.dumps(module.commands)


@pytest.mark.parametrize("configured", [IMAGE, "quay.io/ceph/ceph@sha256:12"])
def test_the_same_image_by_its_tag_or_its_digest_is_no_other(module, configured) -> None:
    module.configured = configured
    cephadm_bootstrap.Bootstrap(module).refuse_another_image()


def test_another_image_is_an_upgrade_for_a_person(module) -> None:
    module.configured = "quay.io/ceph/ceph:v18.2.7"
    with pytest.raises(FailedError) as said:
        cephadm_bootstrap.Bootstrap(module).refuse_another_image()
    assert f"the cluster runs {module.configured}, and the definition says {IMAGE}" in str(
        said.value
    )
    assert f"`ceph orch upgrade start --image {IMAGE}`" in str(said.value)


def test_a_check_makes_nothing(run_module, stand_ins) -> None:
    given = {"fsid": FSID, "image": IMAGE, "address": "192.0.2.41", "user": "cephadm"}
    path = stand_ins({"cephadm": "exit 9"})
    done = run_module("cephadm_bootstrap", given, check=True, env={"PATH": path})
    assert done["changed"] is True
    assert done["diff"]["after"] == f"{FSID}: bootstrap of {IMAGE}\n"
