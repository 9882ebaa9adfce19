"""The boot program of nodes (roles/cloud_node/files), on a machine that is a folder."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from node_boot_kit import KEY, PROGRAM, Machine, Threads
from waiting import until

from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.server import Server


@pytest.fixture
def machine(cloud: Server, tmp_path: Path, module: ModuleType) -> Iterator[Machine]:
    made = Machine(cloud, tmp_path, module)
    yield made
    made.http.close()


@pytest.fixture
def restarts(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Programs that were run, which are not run."""
    called: list[list[str]] = []
    monkeypatch.setattr(module, "command", lambda words, _: called.append(words))
    return called


def test_a_node_gets_its_key_names_options_and_people(machine: Machine):
    machine.add_key()
    machine.node.key()
    key = machine.root / "etc/munge/munge.key"
    assert key.read_bytes() == KEY
    assert oct(key.stat().st_mode & 0o777) == "0o400"
    assert machine.read("etc/hosts").splitlines() == [
        "127.0.0.1 localhost",
        "# muster: begin",
        "10.0.0.2 lab-controller",
        "127.0.0.1 lab-debug-3",
        "# muster: end",
    ]
    options = "--conf-server lab-controller:6817 -N lab-debug-3"
    assert machine.read("run/muster-node/slurmd") == f'SLURMD_OPTIONS="{options}"\n'
    assert not (machine.root / "run/muster-node/spot").exists()
    assert (machine.root / "var/lib/extrausers").readlink() == Path("/apps/.muster/extrausers")
    assert machine.report() == {}


def test_a_spot_vm_is_told_apart(cloud: Server, tmp_path: Path, module: ModuleType):
    machine = Machine(cloud, tmp_path, module, spot=True)
    machine.add_key()
    machine.node.key()
    assert machine.read("run/muster-node/spot") == "lab-debug-3\n"
    machine.http.close()


def test_slurmd_waits_for_gpus(machine: Machine, restarts: list[list[str]], threads: Threads):
    machine.add_key()
    machine.set(muster_gpus="2")
    machine.node.key()
    waiting = machine.root / "run/muster-node/gpus"
    assert waiting.exists()
    (machine.root / "dev").mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        (machine.root / "dev" / name).touch()
    threads.begin(machine.node.gpus)
    until(machine.report, "the node says what it waits for")
    assert machine.report()["message"] == "the driver has 1 of 2 GPUs"
    assert waiting.exists()
    (machine.root / "dev/nvidia1").touch()
    until(lambda: not waiting.exists(), "slurmd may start")
    assert ["systemctl", "start", "muster-nvidia.service"] in restarts


def test_why_gpus_are_not_ready_is_said(
    machine: Machine, module: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: Threads
):
    def systemd(words: list[str], _: float) -> str:
        if words[0] == "systemctl":
            raise module.TroubleError("Job for muster-nvidia.service failed.")
        return "modprobe: FATAL\nNVRM: no GPU\n"

    monkeypatch.setattr(module, "command", systemd)
    machine.set(muster_gpus="1")
    machine.add_key()
    machine.node.key()
    threads.begin(machine.node.gpus)
    until(machine.report, "the node says what it waits for")
    said = "Job for muster-nvidia.service failed. modprobe: FATAL | NVRM: no GPU"
    assert machine.report()["message"] == said


def test_a_node_with_local_ssds_is_told_how_many_the_cache_has(machine: Machine):
    machine.add_key()
    machine.node.key()
    cache = machine.root / "run/muster-node/cache"
    assert not cache.exists()
    machine.set(muster_local_ssds="2")
    machine.node.key()
    assert cache.read_text() == "LOCAL_SSDS=2\n"


def test_a_second_boot_changes_nothing(machine: Machine, restarts: list[list[str]]):
    machine.add_key()
    machine.node.key()
    hosts = machine.read("etc/hosts")
    before = (machine.root / "etc/munge/munge.key").stat()
    machine.node.key()
    assert machine.read("etc/hosts") == hosts
    assert (machine.root / "etc/munge/munge.key").stat().st_ino == before.st_ino
    assert restarts == []


def test_another_key_and_another_controller_replace_the_old(
    machine: Machine, restarts: list[list[str]]
):
    machine.add_key()
    machine.node.key()
    machine.add_key(KEY[::-1])
    machine.set(muster_hosts='{"lab-controller": "10.0.0.9"}', muster_people="/srv/people")
    machine.node.key()
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY[::-1]
    assert restarts == [["systemctl", "--no-block", "try-restart", "munge.service"]]
    assert "10.0.0.9 lab-controller" in machine.read("etc/hosts")
    assert "10.0.0.2" not in machine.read("etc/hosts")
    assert (machine.root / "var/lib/extrausers").readlink() == Path("/srv/people")


def test_a_secret_without_a_version_is_waited_for(
    machine: Machine, capfd: pytest.CaptureFixture, threads: Threads
):
    boot = threads.begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    message = "the secret lab-munge-key has no version yet; the controller's first boot adds it"
    assert machine.report() == {
        "bundle": "",
        "state": "failed",
        "step": "fetch the munge key",
        "message": message,
    }
    assert not (machine.root / "etc/munge/munge.key").exists()
    machine.add_key()
    boot.join(20)
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY
    assert machine.report()["state"] == "done"
    said = capfd.readouterr().out.splitlines()
    assert said == [f"muster: fetch the munge key: {message}", "muster: fetch the munge key: done"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_secret_manager_that_is_down_is_waited_for(machine: Machine, status: int):
    machine.add_key()
    error = ApiError(status, "backendError", "The service is unavailable.")
    machine.server.do(lambda cloud: cloud.faults.add("*.access", times=3, error=error))
    machine.node.key()
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY


def test_rights_that_come_late_are_waited_for(machine: Machine, threads: Threads):
    machine.add_key()
    machine.may_read(allowed=False)
    boot = threads.begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "Secret Manager answers 403: Permission 'secretmanager" in machine.report()["message"]
    machine.may_read()
    boot.join(20)
    assert (machine.root / "etc/munge/munge.key").read_bytes() == KEY


def test_nobody_at_secret_managers_address(machine: Machine, threads: Threads):
    machine.node.secrets = "http://127.0.0.1:9/v1/"
    threads.begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "Secret Manager does not answer: [Errno 111]" in machine.report()["message"]


def test_metadata_that_lacks_something_is_said_on_the_console(
    machine: Machine, capfd: pytest.CaptureFixture, threads: Threads
):
    machine.set(muster_hosts="", muster_cluster="")
    machine.add_key()
    boot = threads.begin(machine.node.key)
    until(machine.report, "the node says what it waits for")
    assert "no muster-cluster and no muster-hosts" in capfd.readouterr().out
    machine.set()
    boot.join(20)
    assert (machine.root / "run/muster-node/slurmd").exists()


MOUNTS = [
    {"source": "lab-controller:/home", "path": "/home", "type": "nfs4", "options": "hard"},
    {"source": "lab-controller:/apps", "path": "/apps", "type": "nfs4", "options": ""},
]


def test_slurmd_is_not_ready_before_all_is_mounted(
    machine: Machine, module: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: Threads
):
    machine.add_key()
    machine.set(muster_mounts=json.dumps(MOUNTS))
    machine.node.key()
    ready = machine.root / "run/muster-node/slurmd"
    called: list[list[str]] = []
    state = {"down": True}

    def mount(words: list[str], seconds: float) -> None:
        called.append(words)
        assert not ready.exists()
        if words[-1].endswith("/apps") and state["down"]:
            raise module.TroubleError("mount.nfs4: Connection refused")

    monkeypatch.setattr(module, "command", mount)
    boot = threads.begin(machine.node.mounts)
    until(machine.report, "the node says what it waits for")
    assert machine.report()["step"] == "mount /apps"
    assert machine.report()["message"] == "mount.nfs4: Connection refused"
    assert not ready.exists()
    state["down"] = False
    boot.join(20)
    assert ready.exists()
    home = str(machine.root / "home")
    assert called[0] == ["mount", "-t", "nfs4", "-o", "hard", "lab-controller:/home", home]
    assert called[1][:4] == ["mount", "-t", "nfs4", "lab-controller:/apps"]


def test_autofs_starts_after_the_shared_folders_are_mounted(
    machine: Machine, module: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    machine.add_key()
    machine.set(muster_mounts=json.dumps(MOUNTS), muster_images="/apps/.muster/images")
    machine.node.key()
    assert machine.read("etc/muster/images") == "/apps/.muster/images\n"
    ready = machine.root / "run/muster-node/slurmd"
    called: list[list[str]] = []

    def command(words: list[str], seconds: float) -> None:
        assert not ready.exists()
        called.append(words)

    monkeypatch.setattr(module, "command", command)
    machine.node.mounts()
    assert [words[0] for words in called] == ["mount", "mount", "systemctl"]
    assert called[-1] == ["systemctl", "start", "autofs.service"]
    assert ready.exists()


def test_without_packed_releases_autofs_stays_off(
    machine: Machine, module: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    machine.add_key()
    machine.set(muster_mounts=json.dumps(MOUNTS))
    machine.node.key()
    called: list[list[str]] = []
    monkeypatch.setattr(module, "command", lambda words, _: called.append(words))
    machine.node.mounts()
    assert [words[0] for words in called] == ["mount", "mount"]


def test_a_program_that_fails_or_hangs_is_trouble(module: ModuleType):
    with pytest.raises(module.TroubleError, match="No such file"):
        module.command(["ls", "/nowhere"], 10)
    with pytest.raises(module.TroubleError, match="timed out"):
        module.command(["sleep", "60"], 0.1)
    with pytest.raises(module.TroubleError, match="No such file"):
        module.command(["/nowhere/program"], 10)


def test_it_imports_little(module: ModuleType):
    """Each module is a part of every node's boot; these are what HTTP itself needs."""
    names = "argparse asyncio dataclasses inspect logging pathlib subprocess tempfile typing"
    script = (
        "import sys; exec(open(sys.argv[1]).read(), {'__name__': 'node'}); "
        "print(sorted(set(sys.argv[2:]) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script, str(PROGRAM), *names.split()],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"
