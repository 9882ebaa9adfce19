"""`muster check` and `muster schema` as their user runs them."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import clikit
import pytest

ROOT = Path(__file__).parents[3]
BASE = ROOT / "tests/unit/definition/base"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFzWZ8Jb1Jm0cWb2Yk6pYxC4o0m1o8rJqf0nXq0Zb1aQ ada"
SK_KEY = (
    "sk-ssh-ed25519@openssh.com "
    "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZ"
    "GhscHR4fAAAABHNzaDo= ada"
)


Muster = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def muster(capfd: pytest.CaptureFixture[str]) -> Muster:
    """`muster(arguments, cwd=the checkout)`."""
    return lambda *words, cwd=ROOT: clikit.run(capfd, *words, cwd=cwd)


def cpu_seconds() -> float:
    """CPU time of the commands run so far: says the same on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    folder = tmp_path / "inventories" / "mine"
    (folder / "group_vars" / "all").mkdir(parents=True)
    text = (BASE / "group_vars/all/cluster.yml").read_text()
    text = text.replace("uid: 20002", "uid: 999").replace("count: 4", "count: 3")
    (folder / "group_vars/all/cluster.yml").write_text(text)
    (folder / "hosts.yml").write_text((BASE / "hosts.yml").read_text())
    return tmp_path


def test_a_right_definition_passes_within_two_seconds_of_cpu_time() -> None:
    before = cpu_seconds()
    answer = subprocess.run(
        [sys.executable, "-m", "muster", "check", "lab"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "inventories/lab: no errors (hosts: 5, partitions: 2, people: 1)\n"
    assert cpu_seconds() - before < 2


def warned(muster: Muster, folder: Path, *changes: tuple[str, str]) -> list[str]:
    """What `muster check` warns of in the example of a cluster in the cloud, changed."""
    file = folder / "group_vars/all/cluster.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "inventories/cloud/group_vars/all/cluster.yml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    answer = muster("check", str(folder))
    assert answer.returncode == 0
    return answer.stderr.splitlines()


def test_folders_that_each_vm_would_have_for_itself_are_warned_of(
    muster: Muster, tmp_path: Path
) -> None:
    def folder_warnings(*changes: tuple[str, str]) -> list[str]:
        return [line for line in warned(muster, tmp_path, *changes) if "storage." in line]

    assert folder_warnings() == []
    (home,) = folder_warnings(
        ("{kind: nfs, path: /home, size_gib: 50", "{kind: existing, path: /home")
    )
    assert home.startswith("warning: storage.home: Muster mounts nothing there")
    sizes = [(f", size_gib: {size}}}", "}") for size in (50, 20)]
    (all_of_them,) = folder_warnings(("{kind: nfs", "{kind: existing"), *sizes)
    assert "storage.home, storage.apps, storage.data" in all_of_them


def test_nodes_that_mount_cached_folders_without_a_cache_are_warned_of(
    muster: Muster, tmp_path: Path
) -> None:
    cached = ("apps: {kind: nfs", "cache: {any_kernel: true}\n    apps: {kind: nfs, cached: true")
    ssd = ("n1-standard-2\n      max_nodes", "n1-standard-2\n      local_ssds: 1\n      max_nodes")
    small = (
        "  partitions:",
        "    small: {machine_type: e2-standard-2, max_nodes: 1}\n\n  partitions:",
    )
    both = ("nodes: [debug]", "nodes: [debug, small]")
    assert not [line for line in warned(muster, tmp_path, cached, ssd) if "SSD" in line]
    (said,) = (line for line in warned(muster, tmp_path, cached, ssd, small, both) if "SSD" in line)
    assert said.startswith(
        "warning: nodes.small: without local SSDs these nodes read storage.apps from the server"
    )


def test_who_could_not_enter_a_cluster_in_the_cloud_is_warned(
    muster: Muster, tmp_path: Path
) -> None:
    key = ("ssh_keys: []", f"ssh_keys: [{KEY}]")
    admin = ("uid: 20001", "admin: true\n        uid: 20001")
    users = ("iap_users: []", 'iap_users: ["user:ada@example.org"]')
    token = ("ssh_keys: []", f"ssh_keys: [{SK_KEY}]")
    nobody, no_root, no_sudo, no_tunnel = (
        "warning: nobody can log in: no person in users.people has an ssh key",
        "warning: nobody can be root on the VMs: no person with an ssh key has `admin: true`",
        "warning: nobody can be root on the VMs: sudo takes no keys of security tokens (sk-...)",
        "warning: IAP only admits principals with a role in the whole project",
    )
    gone = (
        "warning: accounts.slurm10.users: ada can charge nothing to it, since their `state` is "
        "absent"
    )
    for changes, expected in (
        ([], [nobody, no_tunnel]),
        ([admin, users], [nobody]),
        ([key], [no_root, no_tunnel]),
        ([key, admin], [no_tunnel]),
        ([token, admin], [no_sudo, no_tunnel]),
        ([key, admin, users], []),
        ([key, admin, ("iap_admins: []", 'iap_admins: ["user:ada@example.org"]')], []),
        ([key, admin, ("count: 1", "public_address: true")], []),
        ([("ssh_keys: []", f"ssh_keys: [{KEY}]\n        state: absent"), users], [nobody, gone]),
    ):
        assert [
            line.partition(";")[0].partition(": name")[0]
            for line in warned(muster, tmp_path, *changes)
        ] == expected


def test_a_wrong_definition_ends_with_code_2_and_all_errors(muster: Muster, wrong: Path) -> None:
    answer = muster("check", "mine", cwd=wrong)
    assert answer.returncode == 2
    assert answer.stdout == ""
    lines = answer.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "users.people.bob.uid",
        "nodes.gpu.gpus.devices",
    ]
    assert all(line.startswith("inventories/mine/group_vars/all/cluster.yml:") for line in lines)


def test_a_path_is_as_good_as_a_name(muster: Muster) -> None:
    assert muster("check", "inventories/lab").returncode == 0
    assert muster("check", str(BASE), cwd=Path("/")).returncode == 0


def test_an_unknown_cluster_is_an_error_that_names_the_known_ones(
    muster: Muster, wrong: Path
) -> None:
    answer = muster("check", "mien", cwd=wrong)
    assert answer.returncode == 2
    assert answer.stderr == "inventories/mien: no such folder; there are mine\n"


@pytest.mark.parametrize("name", ["", " ", ".", "..", "inventories", "/"])
def test_what_is_no_cluster_is_one_sentence_with_the_known_ones(
    muster: Muster, wrong: Path, name: str
) -> None:
    answer = muster("check", name, cwd=wrong)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.endswith("; there are mine\n")
    assert answer.stderr.count("\n") == 1
    said = "the cluster's name is empty" if not name.strip() else f"{name}: no cluster is here"
    assert answer.stderr.startswith(said)


def test_the_folder_of_a_cluster_is_a_path_too(muster: Muster) -> None:
    for folder, path in (("inventories/lab", "."), ("inventories/lab/group_vars", "..")):
        answer = muster("check", path, cwd=ROOT / folder)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.startswith(f"{path}: no errors (hosts: 5")


def test_schema_is_printed_as_json(muster: Muster) -> None:
    answer = muster("schema")
    assert answer.returncode == 0
    assert "cluster" in json.loads(answer.stdout)["properties"]


def test_an_unknown_command_is_refused(muster: Muster) -> None:
    assert muster("chekc").returncode == 2


def test_every_command_of_the_table_can_be_imported(muster: Muster) -> None:
    answer = muster("--help")
    assert answer.returncode == 0
    for name in ("check", "schema"):
        assert name in answer.stdout
