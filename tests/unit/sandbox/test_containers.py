"""Machines that are containers, without starting one: names, files, error sentences."""

import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from muster_sandbox.containers import base_image, machines, podman

FLEET = machines.Fleet(
    network="muster-x",
    subnet="10.1.2.0/24",
    folder=Path("/srv/x"),
    machines=(
        machines.Machine("lab-access", "10.1.2.10", "bookworm"),
        machines.Machine("lab-gpu-01", "10.1.2.31", "bookworm", gpus=4),
    ),
)
KEYS = {
    "lab-access": "ssh-ed25519 AAAAone root@lab-access\n",
    "lab-gpu-01": "ssh-ed25519 AAAAtwo root@lab-gpu-01\n",
}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipe"
    shutil.copytree(base_image.RECIPE, folder)
    monkeypatch.setattr(base_image, "RECIPE", folder)
    return folder


def test_the_tag_is_the_same_for_the_same_recipe(recipe: Path) -> None:
    name = base_image.tag("bookworm")
    assert name.startswith("localhost/muster-bookworm:")
    for path in recipe.rglob("*"):
        os.utime(path)
    for path in list(recipe.rglob("*.py")):
        py_compile.compile(str(path))
    assert list(recipe.rglob("*.pyc"))
    assert base_image.tag("bookworm") == name


def test_the_tag_changes_with_all_that_the_image_is_made_of(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [base_image.tag("bookworm"), base_image.tag("trixie")]
    path = next(file for file in sorted(recipe.rglob("*")) if file.is_file())
    path.write_text(path.read_text() + "# changed\n")
    tags.append(base_image.tag("bookworm"))
    path.rename(path.with_name("renamed"))
    tags.append(base_image.tag("bookworm"))
    (recipe / "etc/new").write_text("")
    tags.append(base_image.tag("bookworm"))
    monkeypatch.setattr(base_image, "PACKAGES", [*base_image.PACKAGES, "hello"])
    tags.append(base_image.tag("bookworm"))
    assert len(set(tags)) == len(tags)


def test_each_release_is_one_that_the_definition_knows() -> None:
    assert base_image.RELEASES == {"bookworm": "debian-12", "trixie": "debian-13"}


def ssh_option(config: Path, host: str, option: str) -> str:
    """What ssh itself understands."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(config), host],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return lines[option]


def test_ssh_reaches_the_machines_and_checks_their_keys(tmp_path: Path) -> None:
    config, known_hosts = machines.ssh_texts(FLEET, KEYS)
    file = tmp_path / "ssh_config"
    file.write_text(config)
    wanted = {
        "hostname": "10.1.2.31",
        "user": "root",
        "identityfile": "/srv/x/ssh_key",
        "identitiesonly": "yes",
        "userknownhostsfile": "/srv/x/known_hosts",
        "stricthostkeychecking": "true",
        "hostkeyalgorithms": "ssh-ed25519",
    }
    assert {option: ssh_option(file, "lab-gpu-01", option) for option in wanted} == wanted
    assert ssh_option(file, "lab-access", "hostname") == "10.1.2.10"
    assert known_hosts == (
        "lab-access,10.1.2.10 ssh-ed25519 AAAAone\nlab-gpu-01,10.1.2.31 ssh-ed25519 AAAAtwo\n"
    )


def test_a_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "ssh_key"
    machines.make_key(path)
    key = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    machines.make_key(path)
    assert path.read_text() == key


def test_containers_of_two_clusters_have_different_names() -> None:
    assert FLEET.container("lab-access") == "muster-x-lab-access"
    assert FLEET.ssh_config == Path("/srv/x/ssh_config")


def test_limits_are_not_above_the_hard_ones_of_this_machine() -> None:
    # A limit can be lowered for a child process only.
    program = "from muster_sandbox.containers.podman import ulimits; print(*ulimits())"
    done = subprocess.run(
        ["prlimit", "--nofile=1000:1500", "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "nofile=1500:1500" in done.stdout


def test_a_machine_without_podman_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root is needed as well, and named first: here it is there.
    (tmp_path / "sudo").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(podman.MachineError) as caught:
        podman.check_machine()
    assert str(caught.value).startswith("podman, mmdebstrap")
    assert "not installed; run `make machine-packages`" in str(caught.value)


def test_without_root_and_sudo_the_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(podman.MachineError, match="need root; run as root or install sudo"):
        podman.check_machine()
    assert podman.as_root(["podman", "ps"]) == ["sudo", "--", "podman", "ps"]


def test_a_command_that_fails_says_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # no sudo in between
    with pytest.raises(
        podman.MachineError, match="sh -c echo no such network >&2; exit 3: no such"
    ):
        podman.run(["sh", "-c", "echo no such network >&2; exit 3"])
    with pytest.raises(podman.MachineError, match="sleep 60: not done after 0 s"):
        podman.run(["sleep", "60"], timeout=0.1)
    with pytest.raises(podman.MachineError, match="run `make machine-packages`"):
        podman.run(["no-such-program"])


IMPORTING = """
import sys, zipimport
sys.path.insert(0, sys.argv[1])
compile_source = zipimport._compile_source
def noted(*words):
    print("compiled")
    return compile_source(*words)
zipimport._compile_source = noted
import compiled_once
compiled_once.PLACE = sys.argv[2]
sys.path.insert(0, sys.argv[3])
import thing
print(thing.VALUE)
"""


def test_a_test_host_compiles_what_ansible_sends_once(tmp_path: Path) -> None:
    library = base_image.RECIPE / "usr/lib/python3/dist-packages"
    assert (library / "compiled-once.pth").read_text() == "import compiled_once\n"
    place, archive = tmp_path / "kept", tmp_path / "thing.zip"
    words = [sys.executable, "-c", IMPORTING, str(library), str(place), str(archive)]

    def imported() -> list[str]:
        return subprocess.check_output(words, text=True).split()

    def send(value: int) -> None:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("thing.py", f"VALUE = {value}\n")

    send(1)
    # Whoever may not write there goes without; Python itself does it twice, the name first.
    assert [set(imported()), set(imported())] == [{"compiled", "1"}] * 2
    place.mkdir()
    assert [imported(), imported()] == [["compiled", "1"], ["1"]]
    for kept in place.iterdir():
        kept.write_bytes(kept.read_bytes()[:9])
    assert [imported(), imported()] == [["compiled", "1"], ["1"]]
    send(2)
    assert [imported(), imported()] == [["compiled", "2"], ["2"]]
