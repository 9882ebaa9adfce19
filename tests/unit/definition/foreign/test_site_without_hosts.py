"""site.yml with an inventory that Ansible can't read, or without hosts: it ends with an error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SMALL = Path(__file__).parent / "bases/small"

UNREADABLE = {
    "vars is a list": "all: {vars: [ansible_user], hosts: {tiny-head: }}\n",
    "a host is a number": "all: {hosts: {4711: }}\n",
    "INI": "[controller]\ntiny-head\n",
    "a list": "- tiny-head\n",
    "empty": "",
    "an unknown tag": "all: {hosts: {tiny-head: {rack: !rack 1}}}\n",
    "no YAML": "all: {hosts: {tiny-head: \n",
    "a group below itself": "one: {children: {two: }}\ntwo: {children: {one: }}\n",
}


def site(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), *options, "ansible/site.yml"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SMALL, tmp_path / "small"))


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_hosts_yml_that_ansible_can_t_read_is_an_error(inventory: Path, text: str) -> None:
    (inventory / "hosts.yml").write_text(text)
    done = site("-i", str(inventory))
    assert done.returncode != 0
    assert "Completely failed to parse inventory source" in done.stderr
    assert "TASK [" not in done.stdout


def test_an_inventory_without_hosts_is_an_error(inventory: Path) -> None:
    (inventory / "hosts.yml").write_text("all: {children: {controller: {hosts: {}}}}\n")
    done = site("-i", str(inventory))
    assert done.returncode != 0
    assert "the inventory has no hosts" in done.stdout
    assert "TASK [Run base" not in done.stdout


def test_without_an_inventory_nothing_is_done_and_that_is_an_error() -> None:
    done = site()
    assert done.returncode != 0
    assert "name its folder with -i inventories/CLUSTER" in done.stdout


SECRETS = {
    "missing": ("", "`munge_key` and `slurmdbd_password` are missing"),
    "a number": (
        "secrets: {munge_key: 12:34:56, slurmdbd_password: kQ8fFZ5n2wTz}\n",
        "it is not text",
    ),
    "weak": (
        "secrets: {munge_key: '{{ vault }}', slurmdbd_password: '{{ word }}'}\n"
        "vault: 7sE8uWZkTQvCGtCQ3bDhdvRVTkXRDKIVRbWFO8rqbkM=\nword: '12345678'\n",
        "secrets.slurmdbd_password: it can be guessed",
    ),
    "a template of nothing": (
        "secrets: {munge_key: '{{ nothing }}', slurmdbd_password: kQ8fFZ5n2wTz}\n",
        "'nothing' is undefined",
    ),
}


@pytest.mark.parametrize(("text", "says"), SECRETS.values(), ids=SECRETS)
def test_secrets_are_checked_before_a_host_is_touched(
    inventory: Path, text: str, says: str
) -> None:
    """As Ansible knows them: a value may be encrypted, or a template."""
    path = inventory / "group_vars/all/secrets.yml"
    path.unlink(missing_ok=True)
    file = inventory.parent / "vars.yml"
    file.write_text(text or "a: 1\n")
    done = site("-i", str(inventory / "hosts.yml"), "-e", f"@{file}")
    assert done.returncode != 0
    assert says in " ".join((done.stdout + done.stderr).split())
    assert "PLAY [Base system]" not in done.stdout
    assert "12345678" not in done.stdout + done.stderr
