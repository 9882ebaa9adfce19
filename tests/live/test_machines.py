"""Two containers as machines: started, reached by ssh, compared with a definition, removed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import installed
import pytest
import yaml

from muster_sandbox.containers import base_image, machines
from muster_sandbox.containers.podman import MachineError, exists, podman, ulimits
from muster_sandbox.demo.instance import Instance

ROOT = Path(__file__).parents[2]
GPUS = 2

HOSTS = """\
all:
  vars:
    ansible_user: root
    ansible_ssh_common_args: -F "{config}"
  children:
    controller: {{hosts: {{access: {{ansible_host: {access}}}}}}}
    database: {{hosts: {{access: }}}}
    login: {{hosts: {{access: }}}}
    compute: {{children: {{gpu: {{hosts: {{gpu-01: {{ansible_host: {gpu}}}}}}}}}}}
    storage: {{}}
"""
# The node's hardware is wrong on purpose; in the test Muster reports the right values.
DEFINITION = """\
cluster:
  name: machines
  os: debian-12
  users: {people: {ada: {uid: 20001}}}
  nodes:
    gpu:
      sockets: 7
      cores_per_socket: 9
      threads_per_core: 4
      memory_mib: 90000000
      gpus: {count: 4}
  partitions: {main: {nodes: [gpu], default: true}}
  accounts: {first: {users: [ada]}}
  storage:
    home: {kind: existing, path: /home}
    apps: {kind: existing, path: /apps}
    data: {kind: existing, path: /data}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Fleet]:
    network = f"muster-machines-{os.getpid()}"
    podman("network", "create", network)
    template = "{{(index .Subnets 0).Subnet}}"
    subnet = podman("network", "inspect", "--format", template, network)
    base = subnet.rpartition(".")[0]
    fleet = machines.Fleet(
        network=network,
        subnet=subnet,
        folder=tmp_path_factory.mktemp("machines"),
        machines=(
            machines.Machine("access", f"{base}.10", "bookworm"),
            machines.Machine("gpu-01", f"{base}.11", "bookworm", gpus=GPUS),
        ),
        shares={"home": "/home", "apps": "/apps", "data": "/data"},
    )
    try:
        assert machines.up(fleet) == ["access", "gpu-01"]
        yield fleet
    finally:
        machines.down(network)


def ssh(fleet: machines.Fleet, host: str, command: str) -> str:
    done = subprocess.run(
        ["ssh", "-F", str(fleet.ssh_config), "-o", "BatchMode=yes", host, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_each_machine_is_reached_by_its_name_and_has_it(fleet: machines.Fleet) -> None:
    assert [ssh(fleet, host, "hostname") for host in ("access", "gpu-01")] == ["access", "gpu-01"]


def test_systemd_has_started_everything(fleet: machines.Fleet) -> None:
    assert ssh(fleet, "gpu-01", "systemctl is-system-running") == "running"


def test_a_machine_with_another_key_is_not_talked_to(fleet: machines.Fleet) -> None:
    wrong = fleet.folder / "wrong_hosts"
    known = (fleet.folder / "known_hosts").read_text().splitlines()
    keys = [line.rpartition(" ")[2] for line in known]
    wrong.write_text(known[0].replace(keys[0], keys[1]) + "\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run(
            [
                "ssh",
                "-F",
                str(fleet.ssh_config),
                "-o",
                f"UserKnownHostsFile={wrong}",
                "access",
                ":",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "Host key verification failed" in caught.value.stderr


def test_gpus_are_devices_that_open_as_if_nothing_were_behind_them(fleet: machines.Fleet) -> None:
    assert ssh(fleet, "gpu-01", "ls -1 /dev/nvidia*").split() == ["/dev/nvidia0", "/dev/nvidia1"]
    assert "No such device" in ssh(fleet, "gpu-01", "cat /dev/nvidia1 2>&1 || true")
    assert ssh(fleet, "access", "ls /dev/nvidia* 2>/dev/null | wc -l") == "0"


def test_shared_folders_are_shared(fleet: machines.Fleet) -> None:
    for share in fleet.shares.values():
        ssh(fleet, "access", f"echo here >{share}/from-access")
        assert ssh(fleet, "gpu-01", f"cat {share}/from-access") == "here"


def test_etc_hosts_can_be_replaced_by_rename(fleet: machines.Fleet) -> None:
    ssh(fleet, "access", "cp /etc/hosts /etc/hosts.new && mv /etc/hosts.new /etc/hosts")


@pytest.mark.proof("stops and starts a machine")
def test_up_again_starts_only_what_is_down(fleet: machines.Fleet) -> None:
    podman("stop", "--time", "0", fleet.container("gpu-01"))
    # The state after a run that was killed right after it made the container.
    podman("exec", fleet.container("access"), "rm", "/root/.ssh/authorized_keys")
    assert machines.up(fleet) == []
    assert ssh(fleet, "access", "hostname") == "access"
    assert ssh(fleet, "gpu-01", "ls -1 /dev/nvidia* | wc -l") == str(GPUS)


@pytest.fixture
def inventory(fleet: machines.Fleet, tmp_path: Path) -> Path:
    (tmp_path / "group_vars/all").mkdir(parents=True)
    access, gpu = (machine.address for machine in fleet.machines)
    text = HOSTS.format(config=fleet.ssh_config, access=access, gpu=gpu)
    (tmp_path / "hosts.yml").write_text(text)
    (tmp_path / "group_vars/all/cluster.yml").write_text(DEFINITION)
    return tmp_path


def check(inventory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster", "check", "--hosts", str(inventory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_definition_that_takes_over_what_the_machines_say_agrees(inventory: Path) -> None:
    file = inventory / "group_vars/all/cluster.yml"
    differs = check(inventory)
    assert differs.returncode == 2, differs.stdout + differs.stderr
    said = differs.stderr.splitlines()
    assert all(line.startswith("gpu-01: ") for line in said), differs.stderr
    assert f"gpu-01: 2 GPUs (/dev/nvidia0, /dev/nvidia1), the definition says 4 ({file}:11)" in (
        differs.stderr.replace(" in nodes.gpu.gpus.count", "")
    )
    assert len(said) == 5

    shown = differs.stdout.split("cluster.yml would say:\n")[1]
    definition = yaml.safe_load(DEFINITION)
    definition["cluster"]["nodes"] = yaml.safe_load(shown)
    file.write_text(json.dumps(definition))
    agrees = check(inventory)
    assert (agrees.returncode, agrees.stderr) == (0, "")
    assert "2 hosts are as the definition says" in agrees.stdout


@pytest.mark.proof("Ansible asks all machines once more")
def test_what_is_wrong_with_one_machine_is_said_of_that_one(
    fleet: machines.Fleet, inventory: Path
) -> None:
    ssh(fleet, "access", "hostname somebody && umount -l /data && rmdir /data")
    try:
        done = check(inventory)
    finally:
        ssh(fleet, "access", "hostname access")
    assert "note: access: calls itself somebody" in done.stdout
    assert "access: has no folder /data, storage.data.path of the definition" in done.stderr


def test_containers_of_another_folder_are_refused_and_not_taken_over(
    fleet: machines.Fleet, tmp_path: Path
) -> None:
    with pytest.raises(MachineError, match=f"belong to {fleet.folder}.*demo-down"):
        machines.up(replace(fleet, folder=tmp_path))


def test_a_machine_that_is_gone_is_named(fleet: machines.Fleet, inventory: Path) -> None:
    podman("stop", "--time", "0", fleet.container("gpu-01"))
    done = check(inventory)
    assert done.returncode == 4
    assert done.stderr.startswith("gpu-01: could not be asked: ")


def test_down_leaves_nothing(fleet: machines.Fleet) -> None:
    names = [fleet.container(machine.name) for machine in fleet.machines]
    assert sorted(machines.down(fleet.network)) == sorted(names)
    assert not any(exists("container", name) for name in names)
    assert not exists("network", fleet.network)
    assert machines.down(fleet.network) == []


@pytest.mark.proof("makes a machine of its own")
def test_containers_are_removed_even_if_their_folder_is_gone(tmp_path: Path) -> None:
    network = f"muster-gone-{os.getpid()}"
    podman("network", "create", network)
    try:
        label = f"{machines.LABEL}={network}"
        podman(
            *("run", "--detach", "--name", f"{network}-x", "--label", label),
            *("--network", network, *ulimits(), base_image.ensure("bookworm"), "sleep", "60"),
        )
        assert Instance(tmp_path / "gone").remove(network) == [f"{network}-x"]
        assert not exists("network", network)
    finally:
        machines.down(network)


def test_a_container_of_an_installed_image_is_no_machine_of_the_fleet_that_made_it() -> None:
    image = installed.ensure("bookworm")
    labels = json.loads(podman("image", "inspect", "--format", "{{json .Config.Labels}}", image))
    assert not labels.get(machines.LABEL)
