"""docs/roles.md, step by step: a role from the installed collection, in a playbook elsewhere.

Ansible runs without the checkout's ansible.cfg and without the Python package `muster`.
"""

import base64
import os
import secrets
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Run
from documentation import ROOT, Page

from muster_sandbox.containers import machines
from muster_sandbox.containers.podman import check_machine

pytestmark = pytest.mark.proof("a bare machine and an Ansible of its own, a minute and more")

PAGE = Page(ROOT / "docs/roles.md")
KEY = secrets.token_bytes(63) + b"\n"


@dataclass(frozen=True)
class Reader:
    """Somebody with a home of their own, a playbook in it, and a host."""

    home: Path
    fleet: machines.Fleet

    @property
    def site(self) -> Path:
        return self.home / "site"

    @property
    def python(self) -> Path:
        """Ansible's Python: all that is installed here, but for what a checkout adds to it."""
        return self.home / "venv/bin/python"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        programs = Path(sys.executable).parent
        return kept | {"HOME": str(self.home), "PATH": f"{programs}:{os.environ['PATH']}"}

    def run(self, *words: str, folder: Path) -> Run:
        done = subprocess.run(
            words,
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def play(self) -> Run:
        return self.run(
            *(str(self.python), "-m", "ansible", "playbook", "munge.yml", "--user", "root"),
            *("--inventory", "host,", "--ssh-common-args", f"-F {self.fleet.ssh_config}"),
            folder=self.site,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    check_machine()
    home = tmp_path_factory.mktemp("home")
    network = "collection"
    machines.down(network)
    bare = machines.Machine(name="host", address="", release="bookworm")
    someone = Reader(home, machines.on_free_subnet(network, home / "fleet", [bare]))
    someone.site.mkdir()
    (someone.site / "munge.key").write_bytes(KEY)
    (block,) = PAGE.blocks("text")
    (someone.site / "munge.yml").write_text(block.text)
    venv.create(home / "venv")
    (installed,) = (home / "venv").glob("lib/python*/site-packages")
    (installed / "ansible.pth").write_text("\n".join(site.getsitepackages()))
    try:
        machines.up(someone.fleet)
        yield someone
    finally:
        machines.down(network)


def test_the_python_of_this_test_has_ansible_and_not_muster(reader: Reader) -> None:
    with_ansible = reader.run(str(reader.python), "-c", "import ansible", folder=reader.home)
    assert with_ansible.code == 0, with_ansible.output
    without = reader.run(str(reader.python), "-c", "import muster", folder=reader.home)
    assert "No module named 'muster'" in without.output


def test_the_commands_install_the_collection(reader: Reader) -> None:
    for command in PAGE.commands:
        done = reader.run("bash", "-c", command.line, folder=ROOT)
        assert done.code == 0, done.output
        assert command.prints(done.output), done.output
    assert (reader.site / "collections/ansible_collections/muster/slurm/MANIFEST.json").is_file()


def test_the_playbook_runs_a_role_and_a_second_run_changes_nothing(reader: Reader) -> None:
    first = reader.play()
    assert first.code == 0, first.output
    assert first.changed["host"] > 0
    container = reader.fleet.container("host")
    assert machines.execute(container, "systemctl", "is-active", "munge") == "active"
    key = machines.execute(container, "base64", "--wrap=0", "/etc/munge/munge.key")
    assert key == base64.b64encode(KEY).decode()
    machines.execute(container, "sh", "-c", "munge -n | unmunge")
    second = reader.play()
    assert (second.code, second.changed) == (0, {}), second.output
